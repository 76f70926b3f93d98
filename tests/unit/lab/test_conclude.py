"""From the traces of a trial to one outcome. What comes first in its life decides."""

from __future__ import annotations

from typing import Any

import pytest

from torchtriage.lab.conclude import conclude
from torchtriage.model.outcome import (
    Difference,
    Differs,
    ExceptionInfo,
    Exited,
    Inconclusive,
    Killed,
    Measures,
    MissingException,
    Outcome,
    OutOfMemory,
    Raised,
    Same,
    TimedOut,
    label,
)

from .events import compared, difference, end, exception, kept, log, whole

ENDED_WELL = {"exception": None, "exit": None}
NOISE = difference(noise=True, why_noise="float64 says both are as far off")


def of(
    events: list[Any],
    judged: dict[int, Any] | None = None,
    eager_end: dict[str, Any] | None = ENDED_WELL,
    settled: tuple[int, ...] = (),
    **ended: Any,
) -> Outcome:
    return conclude(kept(**ended), events, judged or {}, eager_end, settled)


# --- values ---------------------------------------------------------------------------------------


def test_calls_that_are_like_eager_are_the_same() -> None:
    outcome = of(log(*whole(0), *whole(1), end()), {0: compared(), 1: compared()})
    assert label(outcome) == "same"
    assert outcome.log == "printed\n"


def test_noise_is_the_same_and_is_told() -> None:
    outcome = of(log(*whole(0), *whole(1), end()), {0: compared(NOISE), 1: compared(NOISE)})
    assert isinstance(outcome, Same)
    assert [(d.call, d.noise) for d in outcome.differences] == [(0, True), (1, True)]


def test_a_difference_at_call_1_is_found_after_the_noise_at_call_0() -> None:
    outcome = of(log(*whole(0), *whole(1), end()), {0: compared(NOISE), 1: compared(difference(), NOISE)})
    assert isinstance(outcome, Differs)
    assert [(d.call, d.noise) for d in outcome.differences] == [(1, False), (1, True)]


def test_the_first_call_that_differs_decides() -> None:
    outcome = of(
        log(*whole(0), *whole(1), end()), {1: compared(difference("grad")), 0: compared(difference())}
    )
    assert label(outcome) == "differs:value"


def test_a_settled_call_is_only_noise() -> None:
    outcome = of(log(*whole(0), end()), {0: compared(difference())}, settled=(0,))
    assert outcome == Same(
        outcome.measures,
        "printed\n",
        (Difference(0, "output", "value", "differs from eager by 1", noise=True),),
    )


def test_settling_one_call_does_not_settle_the_next() -> None:
    judged = {0: compared(difference()), 1: compared(difference())}
    outcome = of(log(*whole(0), *whole(1), end()), judged, settled=(0,))
    assert isinstance(outcome, Differs)
    assert outcome.differences[0].call == 1


def test_a_difference_that_was_seen_counts_although_the_process_died_later() -> None:
    events = log(*whole(0), ("call", 1))
    assert label(of(events, {0: compared(difference())}, signal="SIGSEGV")) == "differs:value"


def test_whether_eager_repeats_itself_and_draws_random_numbers_is_kept() -> None:
    judged = {0: compared(rng_used=True), 1: compared(difference(), repeats=False)}
    measures = of(log(*whole(0), *whole(1), end()), judged).measures
    assert (measures.rng_used, measures.eager_repeats) == (True, False)


# --- exceptions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "phase"),
    [
        ({"verdict": "raised", "exception": exception("InductorError", "no")}, "forward"),
        (
            compared(backward_verdict="raised", backward_exception=exception("InductorError", "no")),
            "backward",
        ),
    ],
)
def test_an_exception_of_a_call_is_raised_in_its_forward_or_backward(reply: Any, phase: str) -> None:
    outcome = of(log(*whole(0), *whole(1), end()), {0: compared(), 1: reply})
    assert isinstance(outcome, Raised)
    assert (outcome.call, outcome.phase, outcome.exception.message) == (1, phase, "no")
    assert outcome.exception.torch_frames == ("torch/_inductor/graph.py:run",)


def test_a_difference_in_the_forward_comes_before_an_exception_in_the_backward() -> None:
    reply = compared(difference(), backward_verdict="raised", backward_exception=exception("InductorError"))
    assert label(of(log(*whole(0), end()), {0: reply})) == "differs:value"


def test_an_exception_after_the_regions_is_the_program_s() -> None:
    events = log(*whole(0), *whole(1), end(exception=exception("builtins.AssertionError", "loss is nan")))
    outcome = of(events, {0: compared(), 1: compared()})
    assert isinstance(outcome, Raised)
    assert (outcome.phase, outcome.call, label(outcome)) == ("program", 1, "raises:AssertionError")


def test_an_exception_of_the_program_s_that_eager_raises_too_is_no_finding() -> None:
    raised = exception("builtins.AssertionError", "always")
    outcome = of(log(*whole(0), end(exception=raised)), {0: compared()}, {"exception": raised, "exit": None})
    assert label(outcome) == "same"


def test_an_exception_at_a_call_that_was_not_compared_is_in_the_forward() -> None:
    raised = exception("RuntimeError", "boom")
    events = log(
        *whole(0), {"event": "call", "call": 1}, {"event": "raised", "call": 1}, end(exception=raised)
    )
    outcome = of(events, {0: compared()})
    assert isinstance(outcome, Raised)
    assert (outcome.phase, outcome.call) == ("forward", 1)


@pytest.mark.parametrize(
    "reply",
    [
        {"verdict": "missing-exception", "exception": exception("IndexError", "out of range")},
        compared(
            backward_verdict="missing-exception", backward_exception=exception("IndexError", "out of range")
        ),
    ],
)
def test_an_error_that_only_eager_reports_is_missing(reply: Any) -> None:
    outcome = of(log(*whole(3), end()), {3: reply})
    assert isinstance(outcome, MissingException)
    assert (outcome.call, outcome.exception.type) == (3, "IndexError")


def test_an_error_that_both_raise_is_the_same_and_is_told() -> None:
    events = log({"event": "call", "call": 0}, ("raised", 0), end(exception=exception("TorchRuntimeError")))
    judged = {0: {"verdict": "both-raised", "exception": exception("IndexError", "out of range")}}
    outcome = of(events, judged, {"exception": exception("IndexError"), "exit": None})
    assert isinstance(outcome, Same)
    assert isinstance(outcome.eager_exception, ExceptionInfo)
    assert outcome.eager_exception.type == "IndexError"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB"),
        ("RuntimeError", "[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory"),
        ("builtins.MemoryError", ""),
    ],
)
def test_an_allocator_that_gives_up_is_out_of_memory(name: str, message: str) -> None:
    outcome = of(log(*whole(2), end()), {2: {"verdict": "raised", "exception": exception(name, message)}})
    assert isinstance(outcome, OutOfMemory)
    assert outcome.call == 2


# --- the end of the process -----------------------------------------------------------------------


def test_a_signal_during_a_call_kills_that_call() -> None:
    outcome = of(log(*whole(0), ("call", 1), "compile", "compiled"), {0: compared()}, signal="SIGFPE")
    assert (label(outcome), getattr(outcome, "call", None)) == ("killed:SIGFPE", 1)


@pytest.mark.parametrize(
    ("events", "phase", "call"),
    [
        ([("call", 0), "compile"], "compile", 0),
        ([("call", 0), "compile", "compiled"], "run", 0),
        ([*whole(0), ("call", 1)], "run", 1),
        ([*whole(0), ("backward", 0)], "run", 0),
        ([*whole(0), ("backward", 0), "compile"], "compile", 0),
        (whole(0), "program", 0),
        ([("call", 0), ("raised", 0)], "program", 0),
    ],
)
def test_a_timeout_says_what_was_under_way(events: list[Any], phase: str, call: int) -> None:
    outcome = of(log(*events), reason="timeout", seconds=60.0)
    assert isinstance(outcome, TimedOut)
    assert (outcome.phase, outcome.call, outcome.seconds) == (phase, call, 60.0)


def test_the_memory_limit_is_out_of_memory() -> None:
    outcome = of(log(("call", 0)), reason="oom", peak_bytes=5 << 30)
    assert outcome == OutOfMemory(outcome.measures, "printed\n", 5 << 30, 0)


def test_a_backward_that_died_in_its_own_process_counts() -> None:
    died = {"event": "backward-died", "call": 1, "signal": "SIGSEGV"}
    outcome = of(log(*whole(0), *whole(1), ("backward", 1), died, end()), {0: compared(), 1: compared()})
    assert isinstance(outcome, Killed)
    assert (outcome.signal, outcome.call) == ("SIGSEGV", 1)


def test_a_backward_that_did_not_end_is_a_timeout() -> None:
    died = {"event": "backward-died", "call": 0, "signal": "timeout"}
    outcome = of(log(*whole(0), ("backward", 0), died, end()), {0: compared()})
    assert isinstance(outcome, TimedOut)
    assert (outcome.phase, outcome.call) == ("run", 0)


def test_a_backward_of_ours_that_could_not_be_written_down_is_no_finding() -> None:
    died = {"event": "backward-died", "call": 0, "signal": "failed"}
    assert label(of(log(*whole(0), ("backward", 0), died, end()), {0: compared()})) == "same"


def test_a_process_that_ends_before_the_program_has_exited() -> None:
    outcome = of(log(*whole(0), ("call", 1)), {0: compared()}, status=7)
    assert isinstance(outcome, Exited)
    assert (outcome.status, outcome.call) == (7, 1)


@pytest.mark.parametrize("eager_exit", [None, 0])
def test_leaving_with_status_0_as_eager_does_is_the_same(eager_exit: int | None) -> None:
    left = end(exception=exception("builtins.SystemExit", "0"), exit=0)
    assert label(of(log(*whole(0), left), {0: compared()}, {"exception": None, "exit": eager_exit})) == "same"


def test_leaving_with_an_error_status_as_eager_does_is_the_same() -> None:
    left = exception("builtins.SystemExit", "4")
    outcome = of(log(*whole(0), end(exception=left, exit=4)), {0: compared()}, {"exception": left, "exit": 4})
    assert label(outcome) == "same"


def test_leaving_with_an_error_status_where_eager_ends_well_has_exited() -> None:
    left = end(exception=exception("builtins.SystemExit", "4"), exit=4)
    assert label(of(log(*whole(0), left), {0: compared()})) == "exited:4"


def test_leaving_with_another_error_status_than_eager_has_exited() -> None:
    eager_end = {"exception": exception("builtins.SystemExit", "1"), "exit": 1}
    left = end(exception=exception("builtins.SystemExit", "2"), exit=2)
    assert label(of(log(*whole(0), left), {0: compared()}, eager_end)) == "exited:2"


def test_a_program_that_was_stopped_at_its_last_call_has_no_end_to_compare() -> None:
    eager_end = {"exception": exception("ValueError", "later"), "exit": None}
    assert label(of(log(*whole(0), end(stopped=True)), {0: compared()}, eager_end)) == "same"


# --- no verdict -----------------------------------------------------------------------------------


def test_a_lab_that_has_gone_is_no_evidence() -> None:
    assert label(of(log(*whole(0)), {0: compared()}, reason="lab-gone")) == "inconclusive"


def test_a_variant_that_cannot_be_applied_says_why() -> None:
    unfit = {
        "event": "unfit",
        "exception": exception("builtins.AttributeError", "config.nope does not exist"),
    }
    outcome = conclude(kept(), [{"at": 1.0, **unfit}], {}, ENDED_WELL)
    assert isinstance(outcome, Inconclusive)
    assert outcome.reason == (
        "the variant cannot be applied: builtins.AttributeError: config.nope does not exist"
    )


def test_a_trial_that_did_not_come_to_its_call_shows_its_last_words() -> None:
    outcome = conclude(kept(status=1, log="Traceback ...\nOSError: no space left\n"), [], {}, ENDED_WELL)
    assert isinstance(outcome, Inconclusive)
    assert outcome.reason == "the trial did not come to the call: OSError: no space left"


@pytest.mark.parametrize("ended", [{"reason": "timeout"}, {"reason": "oom"}, {"signal": "SIGKILL"}])
def test_a_trial_that_ended_before_anything_was_compiled_is_no_evidence(ended: dict[str, str]) -> None:
    assert label(conclude(kept(**ended), [], {}, ENDED_WELL)) == "inconclusive"


@pytest.mark.parametrize("verdict", ["no-record", "no-reference"])
def test_a_call_without_records_says_nothing(verdict: str) -> None:
    assert label(of(log(*whole(0), end()), {0: {"verdict": verdict}})) == "same"


# --- measures -------------------------------------------------------------------------------------


def test_what_was_counted_is_kept() -> None:
    counted = {
        "graphs": 4,
        "captured": 11,
        "breaks": 1,
        "recompiles": 3,
        "compile_seconds": 1.5,
        "call_seconds": 2.0,
        "step_seconds": 0.001,
        "calls_seen": 5,
        "calls_compared": 4,
        "repeated": [90, "model.py", 7],
        "steps": [{"index": 1, "name": "aten.add.Tensor", "file": "model.py", "line": 3, "code": "x + 1"}],
        "unimplemented": {"recompile_limit hit": 1, "call print": 2},
    }
    measures = of(log(*whole(0), end(measures=counted)), {0: compared()}).measures
    assert isinstance(measures, Measures)
    assert (measures.graphs, measures.captured, measures.breaks, measures.recompiles) == (4, 11, 1, 3)
    assert (measures.compile_seconds, measures.call_seconds, measures.step_seconds) == (1.5, 2.0, 0.001)
    assert (measures.repeated_nodes, measures.repeated_file, measures.repeated_line) == (90, "model.py", 7)
    assert (measures.unimplemented, measures.recompile_limit_hit) == (3, True)
    assert (measures.calls_seen, measures.calls_compared) == (5, 4)
    assert [step.name for step in measures.steps] == ["aten.add.Tensor"]
    assert (measures.wall_seconds, measures.peak_bytes) == (2.5, 1 << 20)


def test_compile_time_of_a_trial_that_was_ended_comes_from_its_events() -> None:
    # begin 100, call 101, compile 102, compiled 103, returned 104, call 105, compile 106; ended after 9.5 s
    events = log(*whole(0), ("call", 1), "compile")
    assert of(events, reason="timeout", seconds=9.5).measures.compile_seconds == pytest.approx(1.0 + 3.5)
