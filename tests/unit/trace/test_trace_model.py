"""Records become compiles, breaks, reasons, symbols and times; nothing is dropped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_writing import artifact, compiled, event, metrics, needs_real, real_logs, record, write

from torchtriage.trace import Trace, read_trace
from torchtriage.trace.model import Compile, unfold


def only(path: Path) -> Compile:
    (log,) = read_trace(path).logs
    (compile,) = log.compiles
    return compile


def test_attempts_of_one_compile_are_one_compile(tmp_path: Path) -> None:
    path = write(tmp_path, artifact("a", "1", (0, 0, 0)), compiled((0, 0, 1)), compiled((0, 1, 0)))
    log = read_trace(path).logs[0]
    assert [(str(c.id), c.attempts) for c in log.compiles] == [("0/0", (0, 1)), ("0/1", (0,))]


def test_an_unknown_kind_is_an_artefact_as_it_is(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, record("brand_new", {"deep": [1, {"x": 2}]}, "body")))
    log = trace.logs[0]
    (one,) = log.artifacts
    assert (one.kind, trace.text(log, one)) == ("brand_new", "body")
    assert trace.header(log, one)["brand_new"] == {"deep": [1, {"x": 2}]}
    assert log.kinds == {"brand_new": 1}


def test_interned_file_names_are_resolved_in_each_file(tmp_path: Path) -> None:
    stack = {
        "stack": [
            {"line": 3, "name": "main", "filename": 0},
            {"line": 9, "name": "f", "filename": 0, "loc": "def f():"},
        ]
    }
    for name, file in (("rank_0.log", "/a.py"), ("rank_1.log", "/b.py")):
        write(tmp_path, record("str", [file, 0], at=None), record("dynamo_start", stack), name=name)
    places = [log.compiles[0].place for log in read_trace(tmp_path).logs]
    assert [(p.file, p.line, p.function, p.code) for p in places if p] == [
        ("/a.py", 9, "f", "def f():"),
        ("/b.py", 9, "f", "def f():"),
    ]


def test_the_only_recompile_reason_is_bare_text_and_several_are_json(tmp_path: Path) -> None:
    bare = "0/0: tensor 'x' size mismatch at index 1. expected 4, actual 5"
    several = json.dumps(
        [
            bare.replace("0/0", "0/1"),
            '0/0: k == 0   # return x * k  # app/m.py:8 in f\nUser stack trace:\n  File "/app/m.py", line 8, in f\n    return x * k',
        ]
    )
    path = write(
        tmp_path,
        artifact("recompile_reasons", bare, (0, 1, 0), "json"),
        artifact("recompile_reasons", several, (0, 2, 0), "json"),
    )
    first, second = read_trace(path).logs[0].compiles
    (one,) = first.reasons
    assert (one.entry, one.cause, one.source, one.dimension, one.expected, one.actual) == (
        "0/0",
        "size",
        "x",
        1,
        "4",
        "5",
    )
    assert [r.cause for r in second.reasons] == ["size", "scalar"]
    assert str(second.reasons[1].place) == "/app/m.py:8"
    assert second.reasons[1].guard == "k == 0"


@pytest.mark.parametrize(
    ("guard", "cause"),
    [
        ("tensor 'L['x']' stride mismatch at index 2. expected 48, actual 1", "stride"),
        ("tensor 'x' dtype mismatch. expected Double, actual BFloat16", "dtype"),
        ("tensor 'x' rank mismatch. expected 2, actual 3", "rank"),
        ("tensor 'x' requires_grad mismatch. expected requires_grad=0", "other"),
        ("tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU), actual DispatchKeySet(CUDA)", "dispatch keys"),
        ("GLOBAL_STATE changed: grad_mode ", "grad mode"),
        ("GLOBAL_STATE changed: autocast ", "global state"),
        ("len(L['cache']) == 3", "length"),
        ("not cache", "length"),
        ("G['CONFIG']['bits'] == 8", "global value"),
        ("self._modules['bn1'].training == True", "training mode"),
        ("adapter.scale == 0.1", "attribute"),
        ("kwargs['cache'].layers[0].is_initialized == False", "attribute"),
        ("L['k'] == 3", "scalar"),
        ("flag == True", "flag"),
        ("L['mode'] == 'train'", "flag"),
        ("___stack1 == b'abc'", "resume value"),
        ("(x.size()[1] % 2) == 0", "size condition"),
        ("___check_obj_id(L['fn'], 1234)", "identity"),
        ("___check_type_id(L['x'], 1234)", "type"),
        ("something torch has not said before", "other"),
    ],
)  # fmt: skip
def test_guards_are_classified(tmp_path: Path, guard: str, cause: str) -> None:
    compile = only(write(tmp_path, artifact("recompile_reasons", "0/0: " + guard, (0, 1, 0))))
    assert compile.reasons[0].cause == cause
    assert compile.reasons[0].guard == guard.strip()


BREAK = """Graph break in user code at /app/model.py:15
Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):

Unsupported Tensor.item() call
  Explanation: Dynamo does not support it
    in this setting.
  Hint: Set `capture_scalar_outputs`.
  Hint: Do without.

  Developer debug context: call_method item

 For more details about this graph break, please visit: https://example.org/gb/gb0124.html

User code traceback:
  File "/app/main.py", line 3, in <module>
    m(x)
  File "/app/model.py", line 15, in forward
    n=x.max().item()

Traceback (most recent call last):
  File "/lib/torch/_dynamo/symbolic_convert.py", line 1, in wrapper
    return inner_fn(self, inst)
"""


def test_a_graph_break_is_taken_apart(tmp_path: Path) -> None:
    (one,) = only(write(tmp_path, artifact("dynamo_graph_break_reason", BREAK))).breaks
    assert one.reason == "Unsupported Tensor.item() call"
    assert one.place is not None
    assert (str(one.place), one.place.function, one.place.code) == (
        "/app/model.py:15",
        "forward",
        "n=x.max().item()",
    )
    assert one.identifier == "gb0124"
    assert one.explanation == "Dynamo does not support it in this setting."
    assert one.hints == ("Set `capture_scalar_outputs`.", "Do without.")
    assert one.context == "call_method item"


def test_resume_functions_fold_into_the_function_that_the_user_wrote() -> None:
    assert unfold("torch_dynamo_resume_in_forward_at_10") == "forward"
    assert unfold("torch_dynamo_resume_in_torch_dynamo_resume_in_f_at_3_at_4") == "f"
    assert unfold("forward") == "forward"


def test_times_nest_and_lost_ends_are_closed(tmp_path: Path) -> None:
    parts = [
        event("dynamo", "B", 0), event("bytecode_tracing", "B", 1e6), event("bytecode_tracing", "E", 3e6),
        event("backend_compile", "B", 3e6), event("dynamo", "E", 10e6), event("gc", "B", 11e6), event("x", "i", 12e6),
    ]  # fmt: skip
    compile = only(write(tmp_path, *parts))
    assert [(s.name, s.start, s.seconds, s.own, s.depth, s.finished) for s in compile.spans] == [
        ("dynamo", 0, 10, 1, 0, True),
        ("bytecode_tracing", 1, 2, 2, 1, True),
        ("backend_compile", 3, 7, 7, 1, False),
        ("gc", 11, 1, 1, 0, False),
    ]
    assert compile.phases["Dynamo"] == 3
    assert compile.seconds == 11


def test_a_failure_without_metrics_is_known_from_its_error(tmp_path: Path) -> None:
    compile = only(
        write(tmp_path, artifact("dynamo_error", "Traceback\n  File\nBackendCompilerFailed: boom\n"))
    )
    assert compile.failure is not None
    assert compile.failure.type == "BackendCompilerFailed"
    assert compile.status == "failed"


def test_runtime_and_backward_metrics_are_kept_apart(tmp_path: Path) -> None:
    backward = record("bwd_compilation_metrics", {"duration_us": 2_000_000, "is_forward": False})
    compile = only(write(tmp_path, metrics(seconds=1.0), backward))
    assert compile.seconds == 3.0


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=8), x, max_size=3),
    max_leaves=8,
)
known = st.sampled_from(
    ["str", "chromium_event", "dynamo_start", "compilation_metrics", "bwd_compilation_metrics", "create_symbol",
     "create_unbacked_symbol", "guard_added_fast", "symbolic_shape_specialization", "describe_tensor",
     "describe_source", "link", "dump_file", "artifact", "dynamo_output_graph", "zzz"]
)  # fmt: skip
fields = st.sampled_from(
    ["name", "encoding", "stack", "user_stack", "id", "describer_id", "co_name", "co_filename", "co_firstlineno",
     "duration_us", "restart_reasons", "fail_type", "fail_reason", "source", "sources", "size", "expr"]
)  # fmt: skip


@given(
    st.lists(
        st.tuples(
            known, st.dictionaries(fields, plain, max_size=6) | plain, st.none() | st.text(max_size=30)
        ),
        min_size=1,
        max_size=6,
    ),
    plain,
    plain,
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_of_the_right_grammar_is_read(
    tmp_path: Path, rows: list[tuple[str, object, str | None]], frame: object, rank: object
) -> None:
    parts = [
        record(kind, meta, payload, None, frame_id=frame, frame_compile_id=0, attempt=frame, rank=rank)
        for kind, meta, payload in rows
    ]
    log = read_trace(write(tmp_path, *parts)).logs[0]
    assert log.records == len(rows)
    assert sum(log.kinds.values()) == len(rows)


@needs_real
@pytest.mark.parametrize("path", real_logs(), ids=lambda p: p.name)
def test_every_record_of_a_real_trace_is_accounted_for(path: Path) -> None:
    trace: Trace = read_trace(path)
    (log,) = trace.logs
    headers = sum(line.startswith(b"V") for line in path.read_bytes().split(b"\n"))
    assert log.records == sum(log.kinds.values()) == headers
    listed = sum(len(c.artifacts) for c in (*log.compiles, log.outside))
    assert listed == len(log.artifacts)
    for one in log.artifacts[:5]:
        assert trace.header(log, one)
