"""What tlparse shows or does that other tests do not look at: its flags, and where records say things about themselves."""

from __future__ import annotations

import html
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from test_trace_report import browse, needs_browser, page_of
from trace_writing import artifact, compiled, event, record, write
from typer.testing import CliRunner

from torchtriage.cli.trace import app
from torchtriage.trace import Trace, read_trace
from torchtriage.trace.analyses.collectives import disparities
from torchtriage.trace.analyses.exports import export_issues
from torchtriage.trace.analyses.failures import stops
from torchtriage.trace.analyses.kernels import kernels_of
from torchtriage.trace.analyses.ranks import rank_report
from torchtriage.trace.bundle import Bundle, make_bundle, text_of, unpack
from torchtriage.trace.page import make_page

FRAME = {"line": 7, "name": "export", "filename": 1, "loc": "trace_structured("}
LATE = "V1130 09:00:00.000000 7"


def bundle_of(trace: Trace) -> tuple[Bundle, list[bytes]]:
    bundle = make_bundle(trace, make_page(trace))
    return bundle, list(unpack(bundle))


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["trace", *map(str, arguments)])
    return result.exit_code, result.output


def dated(path: Path, age: float) -> Path:
    """A log that was last written `age` seconds ago."""
    now = path.stat().st_mtime
    os.utime(path, (now, now - age))
    return path


def test_the_newest_log_of_a_folder_is_read_alone(tmp_path: Path) -> None:
    dated(write(tmp_path, compiled(function="old"), name="b.log"), 100)
    write(tmp_path, compiled(function="new"), name="a.log")
    (log,) = read_trace(tmp_path, latest=True).logs
    assert log.compiles[0].function == "new"
    assert "1 log," in run(tmp_path, "--latest")[1]
    assert "2 logs," in run(tmp_path)[1]


def test_the_newest_run_of_several_ranks_is_read_whole_and_without_ranks_of_earlier_runs(
    tmp_path: Path,
) -> None:
    late = compiled().replace(b"V1129 11:03:40.509000 7668", LATE.encode())
    for rank in range(3):
        dated(write(tmp_path, compiled(), name=f"rank_{rank}_old.log"), 100)
    for rank in range(2):
        dated(write(tmp_path, late, name=f"rank_{rank}_new.log"), rank)
    assert [log.name for log in read_trace(tmp_path, latest=True).logs] == [
        "rank_0_new.log",
        "rank_1_new.log",
    ]


@pytest.mark.parametrize(
    ("more", "flag", "status"),
    [(b"", "--strict", 0), (b"noise\n", "--strict", 1), (b"noise\n", "--strict-compile-id", 0)],
)
def test_strict_ends_with_1_where_something_cannot_be_read(
    tmp_path: Path, more: bytes, flag: str, status: int
) -> None:
    path = write(tmp_path, compiled(), more)
    assert run(path)[0] == 0
    assert run(path, flag)[0] == status


def test_a_record_that_lacks_its_compile_is_kept_with_the_stack_that_wrote_it(tmp_path: Path) -> None:
    names = record("str", ["/app/lib.py", 1], at=None)
    lost = record("artifact", {"name": "note", "encoding": "string"}, "text", at=None, stack=[FRAME])
    path = write(tmp_path, names, lost, lost, compiled())
    (log,) = read_trace(path).logs
    (one,) = log.unplaced
    assert ([str(place) for place in one.stack], one.titles) == (["/app/lib.py:7"], (("note", 2),))
    assert run(path, "--strict-compile-id")[0] == 1
    known = write(tmp_path, artifact("note", "text", at=None), compiled(), name="known.log")
    assert run(known, "--strict-compile-id")[0] == 0


def test_a_header_of_the_callers_stands_on_top_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run(write(tmp_path, compiled()), "--html", page, "--header-html", "<b>job 7</b>")[0] == 0
    text = page.read_text()
    assert text.index("<b>job 7</b>") < text.index("<h1>")


def test_the_report_is_opened_where_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("typer.launch", opened.append)
    path, page = write(tmp_path, compiled()), tmp_path / "page.html"
    assert run(path, "--html", page, "--open")[0] == 0
    assert opened == [str(page)]
    assert run(path, "--open")[0] == 2


def test_what_a_header_says_beside_the_name_is_shown_with_the_artefact(tmp_path: Path) -> None:
    names = record("str", ["/app/lib.py", 1], at=None)
    code = record("inductor_output_code", {"filename": "/tmp/kernels/cabc.py"}, "code")
    unknown = record("never_seen", {"name": "x", "stack": [FRAME], "level": 3}, "text", later=[1])
    trace = read_trace(write(tmp_path, names, compiled(), code, unknown, artifact("plain", "text")))
    bundle, items = bundle_of(trace)
    (row,) = bundle.index["compiles"]
    shown = {bundle.index["names"][a[0]]: json.loads(items[a[4]]) for a in row[14] if a[4] >= 0}
    assert shown == {
        "inductor_output_code": {"filename": "/tmp/kernels/cabc.py"},
        "never_seen_x": {"stack": ["/app/lib.py:7 in export: trace_structured("], "level": 3, "later": [1]},
    }


def test_frames_of_a_record_without_payload_are_readable(tmp_path: Path) -> None:
    names = record("str", ["/app/lib.py", 1], at=None)
    trace = read_trace(
        write(tmp_path, names, record("guard_added", {"expr": "s0 > 2", "stack": [FRAME]}), compiled())
    )
    (log,) = trace.logs
    assert json.loads(text_of(trace, log, log.artifacts[0])) == {
        "expr": "s0 > 2",
        "stack": ["/app/lib.py:7 in export: trace_structured("],
    }


def test_a_condition_has_the_stacks_of_the_user_and_of_the_compiler(tmp_path: Path) -> None:
    def frame(line: int, file: str) -> dict[str, Any]:
        return {"line": line, "name": "f", "filename": file, "loc": "code"}

    user, inside = [frame(3, "/app/model.py")], [frame(9, "/site-packages/torch/x.py")]
    more = {"user_stack": user, "stack": inside}
    parts = [record("guard_added_fast", {"expr": e, **more}) for e in ("s0 > 2", "s1 > 2")]
    parts += [record("create_symbol", {"symbol": "s0"}), record("create_symbol", {"symbol": "s1", **more})]
    bundle, items = bundle_of(read_trace(write(tmp_path, *parts, compiled())))
    detail = json.loads(items[bundle.index["compiles"][0][12]])
    (number,) = detail["stacks"]  # equal ones are carried once
    mine, theirs = json.loads(items[number])
    assert [(p["file"], p["line"], p["code"]) for p in (*mine, *theirs)] == [
        ("/app/model.py", 3, "code"), ("/site-packages/torch/x.py", 9, "code"),
    ]  # fmt: skip
    assert (detail["guard_stacks"], detail["symbol_stacks"]) == ([0, 0], [-1, 0])


def test_stacks_have_their_code_and_records_without_a_compile_have_a_tree_of_their_own(
    tmp_path: Path,
) -> None:
    names = record("str", ["/app/lib.py", 1], at=None)
    start = record("dynamo_start", {"stack": [FRAME]})
    lost = record("artifact", {"name": "note", "encoding": "string"}, "text", at=None, stack=[FRAME])
    bundle, _ = bundle_of(read_trace(write(tmp_path, names, lost, start, compiled())))
    index, words = bundle.index, bundle.index["names"]
    for tree, here in ((index["stacks"], [0]), (index["unplaced"], [[words.index("note"), 1]])):
        ((file, line, _, found, inner, code),) = tree["nodes"]
        assert (words[file], line, words[code], found, inner) == ("/app/lib.py", 7, FRAME["loc"], here, [])


CALLED_TWICE = """async_compile = None
triton_poi_fused_0 = async_compile.triton('x', '''
one
two
''')
def call(args):
    # Topologically Sorted Source Nodes: [a], Original ATen: [aten.mm]
    # [Provenance debug handles] extern_kernels.mm:4
    extern_kernels.mm(x, y)
    # [Provenance debug handles] triton_poi_fused_0:1
    triton_poi_fused_0.run(x)
    # Topologically Sorted Source Nodes: [b], Original ATen: [aten.addmm]
    # [Provenance debug handles] extern_kernels.mm:5
    extern_kernels.mm(z, y)
"""


def traced_twice(tmp_path: Path) -> Trace:
    """A kernel of a library that two lines call; a node that belongs to no kernel."""
    lines = [("a", 5), ("b", 6), ("c", 7)]
    graph = "".join(
        f'         # File: /app/m.py:{n} in f, code: {x}\n        {x}: "f32" = x\n' for x, n in lines
    )
    post = "def forward(self):\n    mm = x\n    mm_1 = x\n    view = x\n    add = x\n"
    mapping = {
        "cppCodeToPost": {
            "extern_kernels.mm:4": ["mm"], "extern_kernels.mm:5": ["mm_1"], "triton_poi_fused_0:1": ["add"],
        },
        "postToPre": {"mm": ["a"], "mm_1": ["b"], "view": ["c"], "add": ["c"]},
    }  # fmt: skip
    return read_trace(
        write(
            tmp_path, record("dynamo_output_graph", {}, graph), artifact("after_post_grad_graph", post),
            record("inductor_output_code", {"filename": "x.py"}, CALLED_TWICE),
            artifact("inductor_provenance_tracking_node_mappings", json.dumps(mapping), encoding="json"), compiled(),
        )
    )  # fmt: skip


def test_the_calls_of_one_kernel_are_told_apart_where_torch_numbers_them(tmp_path: Path) -> None:
    trace = traced_twice(tmp_path)
    found = kernels_of(trace, trace.logs[0], trace.logs[0].compiles[0])
    assert [(k.name, k.handle, k.aten, k.post, k.pre, k.code_line, k.code_lines) for k in found] == [
        ("triton_poi_fused_0", "", (), ("add",), ("c",), 2, 3),
        ("extern_kernels.mm", "4", ("aten.mm",), ("mm",), ("a",), 9, 0),
        ("extern_kernels.mm", "5", ("aten.addmm",), ("mm_1",), ("b",), 14, 0),
    ]
    assert [str(p) for p in found[2].lines] == ["/app/m.py:6"]


LIGHT = """setTimeout(() => {
  const lines = [...document.querySelectorAll('#view .three p')], hot = () => lines.filter(p => p.classList.contains('hot')).map(p => p.textContent.trim()).join(' | ');
  const point = text => { lines.find(p => p.textContent.includes(text) && p.onmouseenter).onmouseenter(); return hot(); };
  document.body.dataset.call = point('extern_kernels.mm(z'); document.body.dataset.view = point('view = x');
}, 400);"""


@needs_browser
def test_a_line_of_code_lights_its_own_nodes_and_a_node_without_kernel_the_line_it_comes_from(
    tmp_path: Path,
) -> None:
    dom = browse(tmp_path, page_of(traced_twice(tmp_path)), "#p=0", LIGHT)
    lit = re.search(r'data-call="([^"]*)" data-view="([^"]*)"', dom)
    assert lit is not None
    call = [
        'b: "f32" = x',
        "mm_1 = x",
        "# [Provenance debug handles] extern_kernels.mm:5",
        "extern_kernels.mm(z, y)",
    ]
    assert html.unescape(lit[1]) == " | ".join(call)
    assert html.unescape(lit[2]) == 'c: "f32" = x | view = x'


@needs_browser
def test_generated_code_of_an_ahead_of_time_compilation_is_shown_beside_its_graphs(tmp_path: Path) -> None:
    dump = {"name": "inductor_aot_wrapper_code", "type": "cpp", "filename": "/tmp/x.cpp"}
    code = record("graph_dump", dump, "    aoti_torch_cpu_mm_out(\n", at=None)
    mapping = {"cppCodeToPost": {"aoti_torch_cpu_mm_out": ["mm"]}, "postToPre": {"mm": ["a"]}}
    trace = read_trace(
        write(
            tmp_path, artifact("before_pre_grad_graph", "    a = x\n", None), artifact("after_post_grad_graph", "    mm = x\n", None),
            code, artifact("inductor_provenance_tracking_node_mappings", json.dumps(mapping), None),
        )
    )  # fmt: skip
    dom = browse(tmp_path, page_of(trace), "#p=0")
    assert re.findall(r'<p class="linked">\s*(.*?)</p>', dom) == ["a = x", "mm = x", "aoti_torch_cpu_mm_out("]


ALL_REDUCE = "torch.ops._c10d_functional.all_reduce.default"


def schedule(*names: str, at: tuple[int, int, int] = (0, 0, 0)) -> bytes:
    return artifact("inductor_collective_schedule", json.dumps(names), at, "json") + compiled(at)


def test_a_collective_that_is_commented_out_is_not_called(tmp_path: Path) -> None:
    code = f"def call(args):\n    buf = {ALL_REDUCE}(x)\n    # {ALL_REDUCE}(x)\n    #{ALL_REDUCE}(x)\n"
    trace = read_trace(
        write(tmp_path, schedule(ALL_REDUCE, ALL_REDUCE), record("inductor_output_code", {}, code))
    )
    (one,) = disparities(trace)
    assert (one.scheduled, one.in_code) == (((ALL_REDUCE, 2),), ((ALL_REDUCE, 1),))


def test_a_rank_with_fewer_graphs_has_another_order_of_collectives(tmp_path: Path) -> None:
    second = schedule("all_gather", at=(1, 0, 0))
    for rank in range(3):
        write(tmp_path, schedule("all_reduce"), second if rank < 2 else b"", name=f"rank_{rank}.log")
    found = {d.what: d for d in rank_report(read_trace(tmp_path)).divergences}
    one = found["collectives, or their order"]
    assert one.groups == (("rank 0", "rank 1"), ("rank 2",))
    assert one.first_difference == "first difference, entry 2: 1/0: all_gather against nothing"


def test_ranks_that_run_graphs_in_another_order_are_told_with_the_first_that_differs(tmp_path: Path) -> None:
    for rank, order in enumerate((["0/0", "1/0"], ["1/0", "0/0"])):
        ran = {"graph_execution_order": [{"compile_id": one} for one in order]}
        write(
            tmp_path,
            compiled(),
            artifact("graph_execution", json.dumps(ran), None, "json"),
            name=f"rank_{rank}.log",
        )
    (one,) = rank_report(read_trace(tmp_path)).divergences
    assert (one.what, one.first_difference) == (
        "the order in which graphs ran",
        "first difference, entry 1: 0/0 against 1/0",
    )


def test_every_failure_and_restart_is_listed_with_the_line_of_its_break(tmp_path: Path) -> None:
    told = (
        "Graph break in user code at /app/m.py:5\nGraph Break Reason: Unsupported call\n  Explanation: none\n"
    )
    restarted = compiled(restart_reasons=["Unsupported call\n  Explanation: none", "a speculation failed"])
    failed = compiled((1, 0, 0), "g", fail_type="ValueError", fail_reason="no")
    path = write(tmp_path, artifact("dynamo_graph_break_reason", told), restarted, failed)
    found = stops(read_trace(path))
    assert [(str(s.compile), s.type, s.reason.split("\n")[0], s.place and s.place.short) for s in found] == [
        ("0/0", "restart", "Unsupported call", "m.py:5"),
        ("0/0", "restart", "a speculation failed", None),
        ("1/0", "ValueError", "no", None),
    ]
    page = page_of(read_trace(path))
    assert (
        "a speculation failed"
        in page.partition("<h2>Failures and restarts</h2>")[2].partition("</section>")[0]
    )


def test_a_guard_that_an_export_evaluated_is_an_issue_and_a_deferred_one_is_not(tmp_path: Path) -> None:
    guard = {"expr": "Eq(s0, 3)", "prefix": "eval", "user_stack": [{**FRAME, "filename": "/app/m.py"}]}
    parts = [
        record("guard_added", guard, at=None), record("guard_added", {**guard, "expr": "s0 > 2", "prefix": "runtime_assert"}, at=None),
        record("guard_added", {**guard, "expr": "s0 > 3"}),
    ]  # fmt: skip
    (issue,) = export_issues(read_trace(write(tmp_path, *parts, compiled())))
    assert "Eq(s0, 3)" in issue.title
    assert [str(place) for place in issue.stack] == ["/app/m.py:7"]


def test_estimated_runtimes_are_a_process_of_their_own_beside_the_events(tmp_path: Path) -> None:
    plan = {"ops": [{"name": "mm", "type": "compute", "estimated_runtime_ns": 5000}, {"name": "all_reduce", "estimated_runtime_ns": 1000}]}  # fmt: skip
    meta = artifact("inductor_runtime_and_tensor_meta", json.dumps(plan), encoding="json")
    path = write(
        tmp_path, event("dynamo", "B", 1e6), event("dynamo", "E", 2e6), meta, compiled(), name="rank_2.log"
    )
    run(path, "--perfetto", tmp_path / "events.json")
    events = json.loads((tmp_path / "events.json").read_text())
    estimated = [(e["name"], e["ts"], e["dur"], e["pid"]) for e in events if e["ph"] == "X"]
    assert estimated == [("mm", 1e6, 5.0, 1_000_002), ("all_reduce", 1e6 + 5, 1.0, 1_000_002)]
    assert {e["pid"] for e in events if e["name"] == "dynamo"} == {2}


def test_a_split_report_says_which_file_is_what(tmp_path: Path) -> None:
    path = write(tmp_path, artifact("note", "alpha", (0, 0, 1)), compiled((0, 0, 1)), name="rank_3.log")
    run(path, "--split", tmp_path / "out")
    rows = json.loads((tmp_path / "out" / "artifacts.json").read_text())
    (note,) = [row for row in rows if row["title"] == "note"]
    assert (note["compile"], note["attempt"], note["rank"], note["offset"]) == ("0/0", 1, 3, 0)
    assert (tmp_path / "out" / note["file"]).read_text() == "alpha"


def test_guards_are_a_line_each_with_the_line_that_they_come_from(tmp_path: Path) -> None:
    names = record("str", ["/app/lib.py", 1], at=None)
    guards = [
        {"code": "L['x'] == 3", "stack": None, "user_stack": [FRAME]},
        {"code": "torch.grad", "stack": None},
    ]
    odd = record("dynamo_guards", {}, "no list", (1, 0, 0))
    trace = read_trace(
        write(tmp_path, names, record("dynamo_guards", {}, json.dumps(guards)), compiled(), odd)
    )
    _, items = bundle_of(trace)
    assert b"L['x'] == 3  # /app/lib.py:7 trace_structured(\ntorch.grad" in items
    assert b"no list" in items
