"""Real logs of torch 2.13 with known content: counts, causes, lines and verdicts are what was put into the programs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from trace_writing import REAL

from torchtriage.trace import Trace, read_trace
from torchtriage.trace.analyses.compile_time import time_use
from torchtriage.trace.analyses.failures import failure_groups
from torchtriage.trace.analyses.graph_breaks import break_sites
from torchtriage.trace.analyses.kernels import kernels_of
from torchtriage.trace.analyses.recompiles import recompile_causes
from torchtriage.trace.analyses.verdicts import problems

DATA = Path(__file__).parent / "data"


def known(name: str) -> Trace:
    return read_trace(DATA / f"{name}.log.xz")


def test_a_program_without_faults_has_no_problem() -> None:
    for name in ("mlp", "bwd"):
        trace = known(name)
        assert problems(trace) == ()
        assert (trace.totals.compiles, trace.totals.graphs, trace.totals.problems) == (1, 1, 0)
        assert trace.logs[0].torch_version == "2.13.0+cpu"


def test_four_breaks_are_four_sites_with_their_lines_and_ids() -> None:
    sites = {s.place.line: s for s in break_sites(known("breaks")) if s.place}
    assert {line: s.identifier for line, s in sites.items()} == {
        7: "gb0059",
        11: "gb0170",
        15: "gb0124",
        16: "gb0025",
    }
    assert sites[7].functions == ("forward", "helper")
    assert sites[11].functions == ("forward",)
    assert sites[15].place is not None
    assert sites[15].place.code == "n=x.max().item()"
    assert "capture_scalar_outputs" in sites[15].hints[0]


def test_the_recompile_limit_and_what_led_to_it() -> None:
    trace = known("recomp")
    causes = recompile_causes(trace)
    assert {(c.cause, c.source) for c in causes} == {("dtype", "x"), ("scalar", "k")}
    assert sum(c.count for c in causes) == 7
    assert all(c.limit for c in causes)
    assert {c.source for cause in causes for c in cause.also} >= {"flag", "G['obj'].n"}
    (limit,) = failure_groups(trace)
    assert limit.limit
    assert (trace.totals.recompiles, trace.totals.limit_hits) == (7, 1)


def test_sizes_and_conditions_on_sizes_are_told_apart() -> None:
    trace = known("dyn")
    causes = recompile_causes(trace)
    assert sorted(c.cause for c in causes) == ["size", "size condition", "size condition"]
    assert {c.line.line for c in causes if c.line} == {4, 6}
    symbols = [s for c in trace.logs[0].compiles for s in c.symbols]
    assert "L['x'].size()[0]" in {s.source for s in symbols}


def test_a_backend_that_raises_and_a_break_under_fullgraph() -> None:
    trace = known("fail")
    assert [g.type for g in failure_groups(trace)] == ["BackendCompilerFailed", "Unsupported"]
    (site,) = break_sites(trace)
    assert site.place is not None
    assert (site.place.short, site.skipped) == ("t_fail.py:9", True)
    assert {v.kind for v in problems(trace)} == {"failure", "graph break"}


def test_backward_is_timed_with_the_compile_that_it_belongs_to() -> None:
    trace = known("bwd")
    (compile,) = trace.logs[0].compiles
    assert compile.seconds == pytest.approx(26.4, abs=0.1)
    assert dict(time_use(trace).phases)["code generation"] > 10
    assert {k.kind for k in kernels_of(trace, trace.logs[0], compile)} == {"cpp", "extern"}


RECORDED = os.environ.get("TORCHTRIAGE_RECORDED", "")
"""A folder with one folder a program of `shared/recompiles`, each with the logs of a run of `program.py`."""
PROGRAMS = sorted(p.parent.name for p in (REAL.parent / "recompiles").glob("*/expected.json")) if REAL else []


@pytest.mark.skipif(not RECORDED, reason="TORCHTRIAGE_RECORDED names no folder of recorded programs")
@pytest.mark.parametrize("name", PROGRAMS)
def test_recorded_programs_have_the_measured_counts_and_no_invented_cause(name: str) -> None:
    assert REAL is not None
    expected = json.loads((REAL.parent / "recompiles" / name / "expected.json").read_text())
    measured = expected["measured"]["program"]
    trace = read_trace(Path(RECORDED) / name)
    t = trace.totals
    found = {
        "compiles": t.compiles, "graphs": t.graphs, "graph_breaks": t.break_sites, "recompiles": t.recompiles,
        "limit_hits": t.limit_hits, "failed_compiles": t.failed,
    }  # fmt: skip
    assert found == {key: measured[key] for key in found}
    told = problems(trace)
    assert bool(told) == bool(expected["causes"])
    lines = {v.place.line for v in told if v.place}
    breaks = {int(b["at"].rpartition(":")[2]) for b in expected["observed"]["program"]["breaks"]}
    assert breaks <= lines
