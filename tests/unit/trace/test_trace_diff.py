"""Two traces: functions are matched by their code, and what changed is told, most important first."""

from __future__ import annotations

from pathlib import Path

from trace_writing import artifact, compiled, metrics, needs_real, real_logs, record, write

from torchtriage.trace import Trace, read_trace
from torchtriage.trace.diff import compare, difference, match


def two(tmp_path: Path, left: bytes, right: bytes) -> tuple[Trace, Trace]:
    return read_trace(write(tmp_path, left, name="a.log")), read_trace(write(tmp_path, right, name="b.log"))


def test_functions_are_matched_by_code_and_not_by_frame_number(tmp_path: Path) -> None:
    a, b = two(
        tmp_path,
        compiled((0, 0, 0), "f") + compiled((1, 0, 0), "g"),
        compiled((0, 0, 0), "g") + compiled((3, 0, 0), "f"),
    )
    pairs, left, right = match(a, b)
    assert [(p.function, str(p.left[1].id), str(p.right[1].id)) for p in pairs] == [
        ("f", "0/0", "3/0"),
        ("g", "1/0", "0/0"),
    ]
    assert (left, right) == ([], [])
    assert compare(a, b) == ()


def test_a_moved_function_is_the_same_function(tmp_path: Path) -> None:
    a, b = two(tmp_path, compiled(co_firstlineno=10), compiled(co_firstlineno=44))
    assert len(match(a, b)[0]) == 1


def test_failures_breaks_recompiles_and_times_are_told_in_this_order(tmp_path: Path) -> None:
    text = 'Graph break in user code at /app/m.py:3\nGraph Break Reason: print\n\nUser code traceback:\n  File "/app/m.py", line 3, in f\n    print(x)\n'
    left = compiled() + compiled((1, 0, 0), "g", 1.0)
    right = (
        artifact("dynamo_graph_break_reason", text) + compiled(seconds=9.0)
        + metrics((1, 0, 0), "g", 1.0, fail_type="BackendCompilerFailed", fail_reason="boom")
        + artifact("recompile_reasons", "0/0: k == 3", (0, 1, 0)) + compiled((0, 1, 0))
    )  # fmt: skip
    kinds = [c.kind for c in compare(*two(tmp_path, left, right))]
    assert kinds == ["failure", "graph break", "recompiles", "frame", "time", "time"]


def test_settings_that_differ_are_listed(tmp_path: Path) -> None:
    a, b = two(
        tmp_path, compiled(dynamo_config='{"a": 1, "b": 2}'), compiled(dynamo_config='{"a": 1, "b": 3}')
    )
    (change,) = compare(a, b)
    assert (change.kind, change.details) == ("config", ("b: 2 → 3",))


def test_graphs_differ_by_lines_and_not_by_comments(tmp_path: Path) -> None:
    a, b = two(
        tmp_path, record("dynamo_output_graph", {}, "# File: a.py:1\nx = add(y)") + metrics(),
        record("dynamo_output_graph", {}, "# File: b.py:2\nx = mul(y)") + metrics(),
    )  # fmt: skip
    (change,) = compare(a, b)
    assert (change.kind, change.details) == ("graph", ("-x = add(y)", "+x = mul(y)"))
    assert difference("# a\nx", "# b\nx") == ()


@needs_real
def test_a_real_trace_does_not_differ_from_itself() -> None:
    for path in real_logs("torch-2.13-cpu"):
        trace = read_trace(path)
        assert compare(trace, trace) == ()
