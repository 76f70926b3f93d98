"""Failures that depend on an earlier call, on the caches, on dynamic shapes, on fullgraph, or that come late."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchtriage.lab.local import LocalLab
from torchtriage.lab.request import Request
from torchtriage.model.outcome import label
from torchtriage.model.variant import Variant

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("what", "variant"),
    [
        ("second-shape", Variant()),
        ("alias-on-call-two", Variant()),
        ("late-hook", Variant()),
    ],
)
def test_a_second_call_fails_after_the_first_and_not_alone(
    open_lab: Callable[..., LocalLab], what: str, variant: Variant
) -> None:
    lab = open_lab("depends.py", what)
    whole, alone, healthy = lab.run(
        [
            Request(variant),
            Request(variant, start=1, stop=1),
            Request(Variant(backend="eager", dynamic=False)),
        ]
    )
    assert label(whole) == "differs:value"
    assert whole.differences[0].call == 1
    assert label(alone) == "same"
    assert label(healthy) == "same" or what == "late-hook"  # there every backend keeps the old code


def test_a_stale_cache_entry_shows_only_with_the_caches_on(open_lab: Callable[..., LocalLab]) -> None:
    lab = open_lab("depends.py", "caches")
    cached, plain = lab.run([Request(Variant(caches=True)), Request()])
    assert label(cached) == "differs:mutation"
    assert cached.differences[0].call >= 2
    assert label(plain) == "same"


def test_dynamic_true_alone_fails(open_lab: Callable[..., LocalLab]) -> None:
    lab = open_lab("depends.py", "dynamic")
    outcomes = lab.run([Request(Variant(backend="eager", dynamic=value)) for value in (None, True, False)])
    assert [label(o) for o in outcomes] == ["same", "raises:InternalTorchDynamoError", "same"]


def test_fullgraph_alone_fails(open_lab: Callable[..., LocalLab]) -> None:
    lab = open_lab("depends.py", "fullgraph")
    own, loose = lab.run([Request(), Request(Variant(fullgraph=False))])
    assert label(own) == "raises:Unsupported"
    assert own.call == 0
    assert label(loose) == "same"
    assert loose.measures.breaks > 0


@pytest.mark.parametrize(
    "what",
    [
        "twelfth-call",
    ],
)
def test_a_wrong_value_in_the_twelfth_call_is_found(open_lab: Callable[..., LocalLab], what: str) -> None:
    lab = open_lab("depends.py", what)
    outcome = lab.run_one(Request())
    assert label(outcome) == "differs:value"
    assert outcome.differences[0].call == 11


def test_an_exception_in_the_twelfth_call_is_found(open_lab: Callable[..., LocalLab]) -> None:
    lab = open_lab("depends.py", "raises-in-twelfth-call")
    outcome = lab.run_one(Request())
    assert label(outcome) == "raises:RuntimeError"
    assert outcome.call == 11
    assert outcome.phase == "forward"
