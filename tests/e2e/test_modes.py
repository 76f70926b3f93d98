"""Fork mode is a faster way to what rerun mode finds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchtriage.lab.local import LocalLab
from torchtriage.lab.request import Request
from torchtriage.model.outcome import Outcome, label
from torchtriage.model.variant import Variant

pytestmark = pytest.mark.e2e


def summary(outcome: Outcome) -> tuple[object, ...]:
    """What must not depend on how a trial was started."""
    differences = [(d.call, d.path, d.aspect, d.detail, d.noise) for d in getattr(outcome, "differences", ())]
    exception = getattr(outcome, "exception", None) or getattr(outcome, "eager_exception", None)
    raised = (exception.type, exception.message, exception.user_line) if exception else None
    return label(outcome), getattr(outcome, "call", None), differences, raised


@pytest.mark.parametrize(
    ("program", "args", "expected"),
    [
        ("small_bug.py", (), "differs:value"),
        ("after.py", ("double-backward",), "raises:RuntimeError"),
        ("endings.py", ("raise-in-region",), "same"),
        ("seeds.py", ("seeded",), "same"),
    ],
)
def test_both_ways_of_starting_trials_find_the_same(
    open_lab: Callable[..., LocalLab], program: str, args: tuple[str, ...], expected: str
) -> None:
    requests = [Request(), Request(Variant(backend="eager"))]
    forked = open_lab(program, *args, mode="fork").run(requests)
    rerun = open_lab(program, *args, mode="rerun").run(requests)
    assert label(forked[0]) == expected
    assert [summary(outcome) for outcome in rerun] == [summary(outcome) for outcome in forked]
