"""Fork mode is a faster way to what rerun mode finds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchtriage.lab.local import LocalLab
from torchtriage.lab.request import Request
from torchtriage.model.outcome import Outcome, label

pytestmark = pytest.mark.e2e


def summary(outcome: Outcome) -> tuple[object, ...]:
    """What must not depend on how a trial was started."""
    differences = [(d.call, d.path, d.aspect, d.detail, d.noise) for d in getattr(outcome, "differences", ())]
    exception = getattr(outcome, "exception", None) or getattr(outcome, "eager_exception", None)
    raised = (exception.type, exception.message, exception.user_line) if exception else None
    return label(outcome), getattr(outcome, "call", None), differences, raised


@pytest.mark.parametrize(
    ("program", "args", "stop", "expected"),
    [
        ("small_bug.py", (), None, "differs:value"),
        ("after.py", ("double-backward",), None, "raises:RuntimeError"),
        ("endings.py", ("raise-in-region",), 0, "same"),
        ("seeds.py", ("seeded",), 0, "same"),
    ],
)
def test_both_ways_of_starting_trials_find_the_same(
    open_lab: Callable[..., LocalLab], program: str, args: tuple[str, ...], stop: int | None, expected: str
) -> None:
    forked = open_lab(program, *args, mode="fork").run_one(Request(stop=stop))
    rerun = open_lab(program, *args, mode="rerun").run_one(Request(stop=stop))
    assert label(forked) == expected
    assert summary(rerun) == summary(forked)
