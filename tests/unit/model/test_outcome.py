"""Outcomes: a closed set of values that survive JSON, and the words for them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchtriage.model.outcome import (
    ASPECTS,
    OUTCOMES,
    Difference,
    Differs,
    ExceptionInfo,
    Exited,
    Inconclusive,
    Killed,
    MissingException,
    Outcome,
    OutOfMemory,
    Raised,
    Same,
    TimedOut,
    aspects,
    label,
    outcome_from_json,
    to_json,
)

from .strategies import MADE, outcomes

quickly = settings(max_examples=25, deadline=None)


def differing(*names: str, noise: bool = False) -> tuple[Difference, ...]:
    return tuple(Difference(0, "output", name, "", noise=noise) for name in names)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", OUTCOMES)
@quickly
@given(data=st.data())
def test_every_kind_of_outcome_comes_back_from_json_as_it_was(kind: str, data: st.DataObject) -> None:
    outcome = data.draw(MADE[OUTCOMES[kind]])
    assert outcome_from_json(json.loads(json.dumps(to_json(outcome)))) == outcome


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(KeyError):
        outcome_from_json({"kind": "exploded"})


def test_an_outcome_from_an_older_journal_gets_defaults_for_what_it_lacks() -> None:
    assert outcome_from_json({"kind": "killed", "signal": "SIGFPE"}) == Killed(signal="SIGFPE")


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (Same(), "same"),
        (Same(differences=differing("value", noise=True)), "same"),
        (Differs(differences=differing("grad", "value")), "differs:value+grad"),
        (Raised(exception=ExceptionInfo("torch._inductor.exc.InductorError", "")), "raises:InductorError"),
        (Raised(exception=ExceptionInfo("KeyError", "")), "raises:KeyError"),
        (MissingException(), "missing-exception"),
        (Killed(signal="SIGFPE"), "killed:SIGFPE"),
        (Exited(status=3), "exited:3"),
        (TimedOut(), "timeout"),
        (OutOfMemory(), "oom"),
        (Inconclusive(), "inconclusive"),
    ],
)
def test_each_outcome_has_its_word(outcome: Outcome, word: str) -> None:
    assert label(outcome) == word


@quickly
@given(outcomes)
def test_a_word_begins_with_the_kind_of_the_outcome(outcome: Outcome) -> None:
    assert label(outcome).startswith((outcome.kind, "raises:"))


@pytest.mark.parametrize(
    ("given_aspects", "named"),
    [
        ((), []),
        (("grad", "value", "dtype"), ["dtype", "value", "grad"]),
        (("value", "value"), ["value"]),
        (("side-effect",), ["side-effect"]),
        (("side-effect", "value"), ["value"]),
        (tuple(reversed(ASPECTS)), [a for a in ASPECTS if a != "side-effect"]),
    ],
)
def test_aspects_come_in_a_fixed_order_and_a_side_effect_is_named_only_alone(
    given_aspects: tuple[str, ...], named: list[str]
) -> None:
    assert aspects(differing(*given_aspects)) == named


def test_noise_and_faults_are_named_apart() -> None:
    found = (*differing("value"), *differing("grad", noise=True))
    assert aspects(found) == ["value"]
    assert aspects(found, noise=True) == ["grad"]
