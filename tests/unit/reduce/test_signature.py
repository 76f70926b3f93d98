"""Which failures are the same, and which a search must not slide to."""

import dataclasses
from typing import Any

import pytest

from torchtriage.lab.scripts import ScriptEnd
from torchtriage.reduce.signature import (
    Failure,
    fine_in_eager,
    normalised,
    of_exception,
    same_exception,
    shows,
)

RAISED: dict[str, Any] = {
    "type": "torch._inductor.exc.InductorError",
    "message": "AssertionError: cannot index tensor of shape [4, 8] at 0x7f12",
    "cause_message": "cannot index tensor of shape [4, 8] at 0x7f12",
    "torch_frames": ["torch/_inductor/graph.py:run", "torch/_inductor/ir.py:make_loader"],
}
FAILURE = of_exception("raises", RAISED)


def raised(**changes: Any) -> ScriptEnd:
    return ScriptEnd(exception={**RAISED, **changes})


def test_numbers_and_names_in_a_message_do_not_matter() -> None:
    assert normalised("size [3, 4] of 'x' at 0x12ab, 1.5e-3") == normalised(
        "size [9] of 'weight' at 0x9, 2.0"
    )
    assert shows(FAILURE, raised(cause_message="cannot index tensor of shape [1] at 0x1"))


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "torch._dynamo.exc.TorchRuntimeError"},
        {"torch_frames": ["torch/_inductor/graph.py:run", "torch/_inductor/lowering.py:gather"]},
        {"cause_message": "an unrelated thing went wrong in the scheduler"},
    ],
)
def test_another_crash_is_another_failure(changes: dict[str, Any]) -> None:
    assert not shows(FAILURE, raised(**changes))


def test_a_crash_is_no_wrong_value_and_a_wrong_value_no_crash() -> None:
    row = {"path": "{}", "aspect": "value", "gross": True, "size": 1.0, "detail": ""}
    differs = Failure("differs", aspect="value", gross=True)
    assert shows(differs, ScriptEnd(found=(row,)))
    assert not shows(differs, raised())
    assert not shows(FAILURE, ScriptEnd(found=(row,)))


def test_a_gross_difference_does_not_become_rounding_or_another_aspect() -> None:
    row = {"path": "{}", "aspect": "value", "gross": False, "size": 1e-4, "detail": ""}
    assert not shows(Failure("differs", aspect="value", gross=True), ScriptEnd(found=(row,)))
    assert shows(Failure("differs", aspect="value"), ScriptEnd(found=(row,)))
    assert not shows(Failure("differs", aspect="dtype"), ScriptEnd(found=(row,)))


def test_what_ended_before_or_past_the_failure_does_not_show_it() -> None:
    for end in (ScriptEnd(past=True), ScriptEnd(reason="oom"), ScriptEnd(exit=1), ScriptEnd(signal="SIGFPE")):
        assert not shows(Failure("recompiles"), end)
        assert not shows(FAILURE, end)
    assert shows(Failure("killed", signal="SIGFPE"), ScriptEnd(signal="SIGFPE"))
    assert not shows(Failure("killed", signal="SIGFPE"), ScriptEnd(signal="SIGSEGV"))


def test_counts() -> None:
    assert shows(Failure("recompiles"), ScriptEnd(counts={"recompiles": 3}))
    assert not shows(Failure("recompiles"), ScriptEnd(counts={"recompiles": 2}))
    broken = Failure("graph-break", reason=normalised("call to print"))
    assert shows(broken, ScriptEnd(counts={"breaks": {"call to print": 2}}))
    assert not shows(broken, ScriptEnd(counts={"breaks": {"data-dependent jump": 2}}))
    assert shows(Failure("timeout", seconds=5), ScriptEnd(reason="timeout"))
    assert not shows(Failure("timeout", seconds=5), ScriptEnd())


def test_a_slow_script_has_room_above_what_the_finished_one_asserts() -> None:
    slow = Failure("slow", seconds=10)
    assert shows(slow, ScriptEnd(counts={"compile_seconds": 14.5}))
    assert not shows(slow, ScriptEnd(counts={"compile_seconds": 13.5}))
    assert shows(slow, ScriptEnd(reason="timeout")), "it was ended while it compiled"
    assert not shows(slow, ScriptEnd(reason="oom"))


def test_the_eager_run_has_to_be_fine() -> None:
    assert fine_in_eager(FAILURE, ScriptEnd())
    assert not fine_in_eager(FAILURE, raised())
    assert not fine_in_eager(FAILURE, ScriptEnd(exit=3))
    missing = dataclasses.replace(of_exception("no-exception", RAISED), kind="no-exception")
    assert fine_in_eager(missing, raised())
    assert not fine_in_eager(missing, ScriptEnd())
    assert not fine_in_eager(missing, raised(type="builtins.TypeError"))


def test_no_exception_is_not_the_same_exception() -> None:
    assert not same_exception(FAILURE, None)


@pytest.mark.parametrize(
    "kind", ["raises", "no-exception", "differs", "killed", "timeout", "slow", "recompiles", "graph-break"]
)
def test_each_kind_has_words(kind: Any) -> None:
    assert "torch.compile" in Failure(kind, type="a.B", seconds=3).words() or kind == "graph-break"
