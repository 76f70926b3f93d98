"""Plain sentences, and the facts that they name."""

from __future__ import annotations

import pytest

from torchtriage.investigate import sentences
from torchtriage.investigate.facts import Facts, same_failure, words_of
from torchtriage.model.outcome import (
    Difference,
    Differs,
    ExceptionInfo,
    Exited,
    Killed,
    Measures,
    MissingException,
    Outcome,
    OutOfMemory,
    TimedOut,
)

from .fake import REGION, SAME, counted, raised, wrong


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (wrong("value"), "output differs from eager by 1"),
        (wrong("value", "grad"), "output differs from eager by 1 (and 1 more)"),
        (
            Differs(differences=(Difference(0, "output", "dtype", "eager float16, compiled float32"),)),
            "output has another dtype: eager float16, compiled float32",
        ),
        (
            Differs(differences=(Difference(0, "self.n", "side-effect", "compiled leaves it"),)),
            "self.n side-effect: compiled leaves it",
        ),
        (raised("a.b.E", "no\nmore"), "raises E, eager does not: no"),
        (raised("a.b.E", "no", "backward"), "raises E in the backward, eager does not: no"),
        (raised("a.b.E", "no", "program"), "raises E after the region has returned, eager does not: no"),
        (
            MissingException(exception=ExceptionInfo("IndexError", "out of range")),
            "eager raises IndexError (out of range), compiled does not",
        ),
        (Killed(signal="SIGFPE"), "the process is killed by SIGFPE"),
        (TimedOut(seconds=60.2, phase="compile"), "still compiling after 60 s"),
        (TimedOut(seconds=60.2, phase="run"), "does not return after 60 s"),
        (TimedOut(seconds=60.2, phase="program"), "the program does not end after 60 s"),
        (OutOfMemory(), "runs out of memory, eager does not"),
        (Exited(status=7), "the process ends with exit status 7 before the program does"),
        (SAME, ""),
    ],
)
def test_each_outcome_is_one_sentence(outcome: Outcome, said: str) -> None:
    assert sentences.symptom_sentence(outcome) == said


def test_what_eager_and_float64_say_is_evidence() -> None:
    one = Difference(0, "output", "value", "", eager="1", compiled="3", float64="1.1")
    outcome = Differs(Measures(eager_repeats=True), differences=(one,))
    assert sentences.evidence(outcome) == (
        "eager repeats itself",
        "float64 gives 1.1 where eager gives 1 and compiled 3",
    )
    assert sentences.evidence(wrong()) == ()


def test_counts_are_told_together() -> None:
    measures = counted(recompiles=3, breaks=(), captured=9).measures
    assert sentences.counts_sentence(("recompiles",), measures) == "compiled 4 times"


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (wrong("grad", "value"), ("value", "grad")),
        (wrong("value", noise=True), ("value",)),
        (raised(), ("exception",)),
        (raised("torch._dynamo.exc.Unsupported"), ("exception", "graph-break")),
        (MissingException(), ("missing-exception",)),
        (Killed(signal="SIGFPE"), ("killed",)),
        (TimedOut(), ("timeout",)),
        (SAME, ()),
    ],
)
def test_each_outcome_has_its_symptom_words(outcome: Outcome, words: tuple[str, ...]) -> None:
    assert words_of(outcome) == words


def test_one_fault_is_the_same_class_of_outcome_and_the_same_type_of_exception() -> None:
    assert same_failure(wrong("value"), wrong("grad"))
    assert same_failure(raised("E", "one"), raised("E", "two"))
    assert not same_failure(raised("E"), raised("F"))
    assert not same_failure(raised("E"), wrong())


def test_a_call_belongs_to_its_region_and_an_unknown_one_to_the_first_that_was_called() -> None:
    regions = tuple({**REGION, "key": key, "name": key} for key in ("unused", "first", "second"))
    calls = ({"call": 0, "region": "first"}, {"call": 1, "region": "second"})
    program = Facts(regions, calls)
    assert [program.region_of(call)["name"] for call in (0, 1, 9, None)] == [
        "first",
        "second",
        "first",
        "first",
    ]
