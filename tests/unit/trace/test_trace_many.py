"""Traces of many ranks: groups, not lists; what one waits for, not sums."""

from __future__ import annotations

import json

import pytest
from rich.console import Console
from trace_writing import artifact, compiled, record, write

from torchtriage.report.trace_html import render_html
from torchtriage.report.trace_terminal import print_summary
from torchtriage.trace import Trace, read_trace
from torchtriage.trace.analyses.ranks import rank_report
from torchtriage.trace.analyses.verdicts import verdicts
from torchtriage.trace.bundle import make_bundle
from torchtriage.trace.page import make_page

RANKS = 300


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Every tenth rank misses a cache, rank 7 has two collectives the other way round, all but rank 0 have a damaged line."""
    folder = tmp_path_factory.mktemp("many")
    for rank in range(RANKS):
        state = "miss" if rank % 10 == 3 else "hit"
        order = ["all_reduce", "all_gather"] if rank != 7 else ["all_gather", "all_reduce"]
        write(
            folder,
            record("dynamo_output_graph", {}, f"class GraphModule:\n    x = 1  # cuda:{rank}"),
            artifact(f"fx_graph_cache_{state}", "{}", encoding="json"),
            artifact("inductor_collective_schedule", json.dumps(order), encoding="json"),
            compiled(seconds=2.0 if state == "hit" else 5.0),
            b"" if rank == 0 else b"noise\n",
            name=f"dedicated_log_torch_trace_rank_{rank}_x.log",
        )
    return read_trace(folder)


def test_ranks_are_told_in_groups(many: Trace) -> None:
    found = {d.what: d for d in rank_report(many).divergences}
    assert set(found) == {"cache hits and misses", "collectives, or their order"}
    assert [len(group) for group in found["cache hits and misses"].groups] == [270, 30]
    assert found["collectives, or their order"].groups[1] == ("rank 7",)
    assert "all_reduce" in found["collectives, or their order"].first_difference
    titles = [v.title for v in verdicts(many) if v.kind == "ranks"]
    assert (
        "ranks differ in cache hits and misses: rank 0, rank 1, rank 2, … (270 ranks) against rank 3, rank 13, rank 23, … (30 ranks)"
        in titles
    )


def test_who_keeps_whom_waiting_is_told(many: Trace) -> None:
    (waiting,) = rank_report(many).waiting
    assert (waiting.compile, waiting.seconds) == ("0/0", 3.0)
    assert waiting.slowest in {f"rank {n}" for n in range(3, RANKS, 10)}


def test_damage_in_many_logs_is_one_verdict(many: Trace) -> None:
    (verdict,) = [v for v in verdicts(many) if v.kind == "log"]
    assert verdict.title == "299 parts of 299 logs could not be read as they should"


def test_the_summary_says_what_one_waits_for(many: Trace) -> None:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    print_summary(make_page(many), console)
    text = " ".join(console.export_text().split())
    assert "690.0 s of compile time in all, 5.0 s at most in one log (rank 3)" in text


def test_the_landing_page_has_every_rank_and_stays_small(many: Trace) -> None:
    html = render_html(make_bundle(many, make_page(many)))
    table = html.partition('id="t-ranks"')[2].partition("</section>")[0]
    assert all(f"<td>rank {rank}</td>" in table for rank in range(RANKS))
    assert len(html) < RANKS * 1500
