"""Broken real traces, all the way to the page: whatever was done to the bytes, a report comes out."""

from __future__ import annotations

import io
import json
import lzma
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from trace_writing import artifact, compiled, event, metrics, needs_real, real_logs, record, write

from torchtriage.report.trace_html import render_diff, render_html, write_html
from torchtriage.report.trace_terminal import print_summary
from torchtriage.trace import NotATrace, read_trace
from torchtriage.trace.analyses.exports import ISSUES
from torchtriage.trace.build import KINDS, NAMED, build_log
from torchtriage.trace.bundle import make_bundle
from torchtriage.trace.diff import compare, details
from torchtriage.trace.export import write_files, write_perfetto, write_records
from torchtriage.trace.page import make_page, plain, to_json
from torchtriage.trace.records import read_log_items, read_records

DATA = Path(__file__).parent / "data"
VALUES = [
    b"null",
    b"[]",
    b"{}",
    b"-1",
    b"1e999",
    b'"x"',
    b"NaN",
    b'"\\ud800"',
    b"9" * 30,
    b'""',
    b'"' + b"x" * 5000 + b'"',
]
VALUE = re.compile(rb': ("[^"]*"|\d+|null|\[\]|true)')


def mutate(data: bytes, seed: int) -> bytes:
    chance, out = random.Random(seed), bytearray(data)
    for _ in range(chance.randrange(1, 60)):
        at = chance.randrange(len(out))
        match chance.randrange(6):
            case 0:
                out[at] = chance.randrange(256)
            case 1:
                del out[at : at + chance.randrange(1, 3000)]
            case 2:
                out[at:at] = chance.randbytes(chance.randrange(1, 50))
            case 3:
                out[at:at] = b"\n"
            case 4:
                other = chance.randrange(len(out))
                out[at:at] = out[other : other + chance.randrange(1, 5000)]
            case _:
                found = list(VALUE.finditer(bytes(out[at : at + 2000])))
                if found:
                    one = chance.choice(found)
                    out[at + one.start(1) : at + one.end(1)] = chance.choice(VALUES)
    return bytes(out)


def all_the_way(path: Path, other: Path, out: Path) -> None:
    """Everything that can be made of a log: the page, JSON, the terminal, a notebook, files, events, a comparison."""
    try:
        trace = read_trace(path)
    except NotATrace:
        return
    page = make_page(trace)
    write_html(make_bundle(trace, page), out / "page.html")
    orjson.dumps(to_json(trace, page), default=plain, option=orjson.OPT_NON_STR_KEYS)
    print_summary(page, Console(file=io.StringIO()))
    trace._repr_html_()
    write_files(trace, out / "split")
    write_records(trace, out / "split")
    write_perfetto(trace, out / "events.json")
    json.loads((out / "events.json").read_text())
    right = read_trace(other)
    render_diff(compare(trace, right), ("a", "b"), details(trace, right))
    shutil.rmtree(out / "split")


@needs_real
@pytest.mark.parametrize("path", real_logs(), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_a_broken_real_trace_makes_a_report(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()[:300_000]
    for seed in range(3):
        broken = tmp_path / f"rank_{seed}.log"
        broken.write_bytes(mutate(data, seed))
        all_the_way(broken, path, tmp_path)


@pytest.mark.parametrize("name", ["breaks", "bwd", "fail", "sizes", "recompiles/mask_nonzero"])
def test_a_broken_recorded_trace_makes_a_report(name: str, tmp_path: Path) -> None:
    path = tmp_path / "whole.log"
    path.write_bytes(lzma.decompress((DATA / f"{name}.log.xz").read_bytes())[:200_000])
    for seed in range(4):
        broken = tmp_path / f"rank_{seed}.log"
        broken.write_bytes(mutate(path.read_bytes(), seed))
        all_the_way(broken, path, tmp_path)


texts = st.text(max_size=12) | st.sampled_from(
    ["L['x'].size()[0]", "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5", "../../x", "</script>", "\ud800",
     "[1]", "[]", '{"ops": [{"estimated_runtime_ns": 1e99}]}', '{"ops": [1]}', '["c10d"]', "null", "0",
     "Graph break in user code at f.py:3\nGraph Break Reason: x", "+- LAMBDA_GUARD: x", "class A:\n    x: \"f32\" = 1"]
)  # fmt: skip
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
kinds = st.sampled_from([*KINDS, *ISSUES, "expression_created", "chromium_event", "dynamo_output_graph", "inductor_output_code",
     "dynamo_cpp_guards_str", "graph_dump", "dynamo_guards", "exported_program", "zzz"])  # fmt: skip
names = st.sampled_from([*NAMED, "fx_graph_cache_miss", "fx_graph_cache_hit", "aotautograd_cache_bypass", "graph_execution",
     "inductor_collective_schedule", "inductor_runtime_and_tensor_meta", "inductor_provenance_tracking_node_mappings",
     "inductor_provenance_tracking_kernel_stack_traces", "torchtriage_failing_guards", "triton_kernel_info"])  # fmt: skip
fields = st.sampled_from(["stack", "user_stack", "symbol", "sources", "value", "val", "expr", "result", "duration_us", "fail_type",
     "fail_reason", "co_name", "co_filename", "co_firstlineno", "restart_reasons", "graph_op_count", "inductor_config",
     "triton_kernel_compile_times_us", "op", "frame_locals", "symbol_to_sources", "expr_node_id", "result_id", "argument_ids",
     "size", "stride", "id", "describer_id", "url", "filename"])  # fmt: skip


@given(
    st.lists(
        st.tuples(kinds, names, st.dictionaries(fields, anything, max_size=8), st.none() | texts),
        min_size=1, max_size=12,
    ),
    st.integers(0, 2),
)  # fmt: skip
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_values_of_known_kinds_make_a_report(
    tmp_path: Path, rows: list[tuple[str, str, dict[str, object], str | None]], frame: int
) -> None:
    parts = [compiled((frame, 0, 0))]
    for n, (kind, name, meta, payload) in enumerate(rows):
        known = meta if kind != "artifact" else {**meta, "name": name}
        parts.append(
            record(kind, known, payload and payload.encode("utf-8", "replace").decode(), (n % 2, n % 3, 0))
        )
    path = write(tmp_path, *parts, name="rank_0.log")
    write(tmp_path, *parts[::-1], name="rank_1.log")
    all_the_way(tmp_path if frame else path, path, tmp_path)
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()


@pytest.mark.parametrize("name", ["breaks", "recomp"])
def test_the_fast_way_through_a_log_finds_what_the_careful_one_finds(name: str) -> None:
    data = lzma.decompress((DATA / f"{name}.log.xz").read_bytes())[:200_000]
    for seed in range(12):
        broken = mutate(data, seed) if seed else data
        chunks = [broken[i : i + (1 << 16)] for i in range(0, len(broken), 1 << 16)]
        fast, careful = (
            build_log("x", "x", None, len(broken), read(chunks)) for read in (read_log_items, read_records)
        )
        assert fast.events > 50
        assert replace(fast, kinds={}) == replace(careful, kinds={})
        assert fast.kinds == careful.kinds  # in any order


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 10**30, "\ud800", [[]], {"a": {}}, -1, True, ""]
)
def test_odd_values_in_every_field_make_a_report(value: object, tmp_path: Path) -> None:
    names = ("duration_us", "co_name", "co_filename", "co_firstlineno", "graph_op_count", "restart_reasons", "fail_type",
             "fail_reason", "stack_trace", "start_time_us", "cudagraph_skip_reason", "dynamo_config")  # fmt: skip
    parts = [
        compiled((n, 0, 0), **{name: value})
        if name not in ("duration_us", "co_name", "co_filename", "co_firstlineno")
        else record("compilation_metrics", {name: value}, at=(n, 0, 0))
        for n, name in enumerate(names)
    ]  # type: ignore[arg-type]
    path = write(tmp_path, *parts)
    all_the_way(path, path, tmp_path)


HOSTILE = {
    "reason": lambda: artifact("recompile_reasons", "0/0: " + "tensor '" + "a" * 200_000 + " mismatch " * 10_000, (0, 1, 0)) + compiled((0, 1, 0)),
    "break": lambda: artifact("dynamo_graph_break_reason", "Graph break in user code at " + "a:" * 100_000 + "\n" + "  Hint: " * 50_000 + "\n   Explanation: " * 20_000),
    "guards": lambda: record("dynamo_cpp_guards_str", {}, "| " * 100_000 + "+- X\n+- TENSOR_MATCH: check_tensor(" + "L['" * 100_000) + compiled() + artifact("recompile_reasons", "0/0: k == 3", (0, 1, 0)) + compiled((0, 1, 0)) + record("dynamo_cpp_guards_str", {}, "+- EQUALS_MATCH: " + " == " * 50_000, (0, 1, 0)),
    "code": lambda: record("inductor_output_code", {}, "def call(\n" + ("    " * 50_000 + "\n") * 5 + "# Source Nodes: [" * 50_000 + "\n" * 100_000),
    "graph": lambda: record("dynamo_output_graph", {}, ("   # File: " + "a:1 in " * 30_000 + "\n") * 3 + '  x: "' * 50_000) + metrics(graph_op_count=500),
    "stack": lambda: record("dynamo_start", {"stack": [{"line": i, "name": "f", "filename": "a"} for i in range(5000)]}) + compiled(),
    "name": lambda: record("artifact", {"name": "z" * (5 << 20)}) + compiled(),
    "open events": lambda: b"".join(event(f"n{i % 7}", "B", i) for i in range(30_000)),
}  # fmt: skip


@pytest.mark.timeout(120)  # what backtracks takes hours
@pytest.mark.parametrize("what", HOSTILE)
def test_texts_made_to_be_slow_are_not(what: str, tmp_path: Path) -> None:
    path = write(tmp_path, HOSTILE[what]())
    trace = read_trace(path)
    html = render_html(make_bundle(trace, make_page(trace)))
    assert len(html) < 2_000_000


def test_a_line_of_a_hundred_megabytes_is_read_and_cut_in_the_page(tmp_path: Path) -> None:
    path = write(tmp_path, compiled(), artifact("long", "x" * (100 << 20)), artifact("note", "after it"))
    trace = read_trace(path)
    assert [a.title for a in trace.logs[0].artifacts][-2:] == ["long", "note"]
    write_html(make_bundle(trace, make_page(trace)), tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 1_000_000
