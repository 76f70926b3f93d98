"""Broken real traces, all the way to the page: whatever was done to the bytes, a report comes out."""

from __future__ import annotations

import lzma
import random
import re
import time
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from trace_writing import artifact, compiled, event, metrics, needs_real, real_logs, record, write

from torchtriage.report.trace_html import render_html
from torchtriage.trace import NotATrace, read_trace
from torchtriage.trace.build import build_log
from torchtriage.trace.bundle import make_bundle
from torchtriage.trace.diff import compare
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


def all_the_way(path: Path, other: Path) -> None:
    try:
        trace = read_trace(path)
    except NotATrace:
        return
    page = make_page(trace)
    render_html(make_bundle(trace, page))
    orjson.dumps(to_json(trace, page), default=plain, option=orjson.OPT_NON_STR_KEYS)
    trace._repr_html_()
    compare(trace, read_trace(other))


@needs_real
@pytest.mark.parametrize("path", real_logs(), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_a_broken_real_trace_makes_a_report(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()[:300_000]
    for seed in range(3):
        broken = tmp_path / f"rank_{seed}.log"
        broken.write_bytes(mutate(data, seed))
        all_the_way(broken, path)


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
    all_the_way(path, path)


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


@pytest.mark.parametrize("what", HOSTILE)
def test_texts_made_to_be_slow_are_not(what: str, tmp_path: Path) -> None:
    path = write(tmp_path, HOSTILE[what]())
    begin = time.process_time()
    trace = read_trace(path)
    html = render_html(make_bundle(trace, make_page(trace)))
    assert time.process_time() - begin < 5
    assert len(html) < 2_000_000
