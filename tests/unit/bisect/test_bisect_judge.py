"""What counts as bad, and when two failures are the same."""

from __future__ import annotations

import pytest

from torchtriage.bisect.judge import (
    MODES,
    Goal,
    Observed,
    Signature,
    baseline,
    judge,
    normalised,
    observed_from_json,
    observed_to_json,
    same_failure,
)
from torchtriage.bisect.trial import conclude

BOOM = Signature("raised", "RuntimeError", "boom", ("torch/a.py:f",))


def raised(message: str, kind: str = "RuntimeError", frame: str = "torch/a.py:f") -> Observed:
    return Observed("raised", Signature("raised", kind, message, (frame,)), 1)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("size 17 at 0x7f3a", "size N at ADDRESS"),
        ("in /tmp/torchinductor_me/ab/cab.py, line 3.5", "in cab.py, line N"),
        ("broken\n\nfrom user code:\n  x = 1", "broken"),
        ("broken\n\nSet TORCHDYNAMO_VERBOSE=1 for more", "broken"),
        ("float32 of v2 in N2d", "float32 of v2 in N2d"),
    ],
)
def test_a_message_is_left_without_what_moves(text: str, plain: str) -> None:
    assert normalised(text) == plain


def test_the_same_place_may_say_it_a_little_differently() -> None:
    a = Signature("raised", "E", "cannot lower aten.foo for this input", ("torch/x.py:lower",))
    b = Signature("raised", "E", "cannot lower aten.foo for that output now", ("torch/x.py:lower",))
    elsewhere = Signature("raised", "E", b.message, ("torch/y.py:other",))
    assert same_failure(a, b)
    assert not same_failure(a, elsewhere)
    assert not same_failure(a, Signature("killed", "E", a.message))


def test_another_failure_is_neither_good_nor_bad() -> None:
    goal = Goal(signature=BOOM)
    assert judge(raised("boom"), goal).failed is True
    assert judge(Observed("ok"), goal).failed is False
    other = judge(raised("quite something else", "TypeError"), goal)
    assert other.failed is None and other.reason.startswith("fails in another way")


def test_any_failure_is_bad_where_that_is_asked() -> None:
    goal = Goal(mode="any", signature=BOOM)
    assert judge(raised("x", "TypeError"), goal).failed is True
    assert judge(Observed("timeout", Signature("timeout", "takes too long")), goal).failed is True


def test_what_cannot_be_imported_tells_nothing_unless_that_is_looked_for() -> None:
    dead = Observed("import", Signature("killed", "killed by SIGSEGV"), -11)
    assert judge(dead, Goal(mode="any")).failed is None
    assert judge(dead, Goal(signature=BOOM)).failed is None
    assert judge(dead, Goal(signature=dead.signature)).failed is True


def test_a_difference_from_eager_is_kept_to_its_place() -> None:
    goal = Goal(mode="eager", signature=Signature("differs", message="dtype at output[0]"))
    assert (
        judge(Observed("ok", differences=("dtype at output[0]", "value at output[1]")), goal).failed is True
    )
    assert judge(Observed("ok", differences=("value at output[3]",)), goal).failed is None
    assert judge(Observed("ok"), goal).failed is False
    assert judge(raised("x"), goal).failed is None


@pytest.mark.parametrize(
    ("mode", "good", "worse"),
    [
        ("step-time", Observed("ok", steps=(1.0, 1.0, 9.0)), Observed("ok", steps=(1.3, 1.3))),
        ("compile-time", Observed("ok", compile_seconds=10.0), Observed("ok", compile_seconds=12.1)),
        ("memory", Observed("ok", memory=100 << 20), Observed("ok", memory=121 << 20)),
        ("recompiles", Observed("ok", recompiles=2), Observed("ok", recompiles=3)),
        ("graph-breaks", Observed("ok", graph_breaks=0), Observed("ok", graph_breaks=1)),
    ],
)
def test_a_measure_is_held_against_the_good_end(mode: str, good: Observed, worse: Observed) -> None:
    goal = Goal(mode=mode, baseline=baseline(mode, [good, good]))
    assert judge(good, goal).failed is False
    assert judge(worse, goal).failed is True
    assert judge(Observed("ok"), goal).failed is None


@pytest.mark.parametrize(
    ("status", "failed"),
    [(0, False), (1, True), (124, True), (125, None), (127, None), (-11, True), (139, True)],
)
def test_exit_statuses_mean_what_they_mean_to_git(status: int, failed: bool | None) -> None:
    observed = conclude({}, status, False, "", 0.1, plain=True)
    assert judge(observed, Goal(mode="command")).failed is failed


def test_how_far_a_process_came_tells_an_import_from_a_run() -> None:
    assert conclude({"phase": "import"}, -11, False, "", 0.1, False).kind == "import"
    assert conclude({"phase": "run"}, -11, False, "", 0.1, False).kind == "killed"
    assert conclude({"phase": "done"}, 0, False, "", 0.1, False).kind == "ok"
    assert conclude({"phase": "done"}, 3, False, "", 0.1, False).kind == "exit"
    assert conclude({"phase": "run"}, -9, True, "", 0.1, False).kind == "timeout"


def test_a_crash_is_placed_by_what_faulthandler_printed() -> None:
    tail = 'Fatal Python error\n  File "/x/site-packages/torch/_ops.py", line 7 in call\n  File "/x/prog.py", line 1 in <module>\n'
    found = conclude({"phase": "run"}, -8, False, tail, 0.1, False).signature
    assert found == Signature("killed", "killed by SIGFPE", "", ("torch/_ops.py:call",))


def test_a_run_comes_back_from_the_journal_as_it_was() -> None:
    one = Observed(
        "raised", BOOM, 1, 2.5, ("value at output",), (0.1,), 3.0, 7, 1, 0, {"torch": "2.9"}, {}, "tail"
    )
    assert observed_from_json(observed_to_json(one)) == one


def test_each_mode_judges_every_kind_of_ending() -> None:
    for mode in MODES:
        for observed in (
            Observed("ok"),
            raised("x"),
            Observed("exit", Signature("exit", "exit status 3"), 3),
        ):
            assert judge(observed, Goal(mode=mode)).failed in (True, False, None)
