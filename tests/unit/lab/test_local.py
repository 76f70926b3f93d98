"""How the local lab adds to a trial what one process cannot tell."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from torchtriage.lab.journal import Journal
from torchtriage.lab.local import LocalLab
from torchtriage.lab.request import Request
from torchtriage.lab.stage import Nursery, Survey, Waiting
from torchtriage.model.outcome import Difference, Differs, Inconclusive, Outcome, Raised, Same

WRONG_GRADIENT = Differs(differences=(Difference(0, "grad[x]", "grad", "differs"),))


def lab_that_answers(answers: dict[int | None, Outcome], rerun: bool) -> LocalLab:
    """A lab without processes: `answers` has the outcome of a trial by the call at which it stops."""
    lab = LocalLab.__new__(LocalLab)
    calls = [{"call": 0, "new": True, "grad": True}, {"call": 1, "new": False, "grad": True}]
    lab.rerun = rerun
    lab.stage = lambda: SimpleNamespace(survey=SimpleNamespace(calls=calls))  # type: ignore[assignment,method-assign]
    lab.execute = lambda request, settled: answers[request.stop]  # type: ignore[method-assign]
    return lab


def test_without_forks_a_trial_that_ends_at_the_call_shows_a_wrong_gradient() -> None:
    lab = lab_that_answers({0: WRONG_GRADIENT}, rerun=True)
    assert lab.with_gradients(Request(), Same()) == WRONG_GRADIENT


def test_with_forks_the_trial_itself_has_run_the_backward() -> None:
    lab = lab_that_answers({}, rerun=False)
    assert lab.with_gradients(Request(), Same()) == Same()


def test_a_gradient_trial_that_could_not_be_run_is_no_evidence() -> None:
    lab = lab_that_answers({0: Inconclusive(reason="no memory")}, rerun=True)
    assert lab.with_gradients(Request(), Same()) == Same()


def test_a_call_that_raises_when_it_is_looked_at_closely_is_not_settled() -> None:
    raised = Raised(call=0, phase="backward")
    lab = lab_that_answers({None: WRONG_GRADIENT, 0: raised}, rerun=False)
    assert lab.settle(Request()).kind == "raised"


@pytest.mark.parametrize("broken", [{"unfit": "no torch"}, {"bad_target": "it fails while it is imported"}])
def test_a_program_that_could_not_start_is_started_again_next_time(
    broken: dict[str, str], tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    lab = LocalLab.__new__(LocalLab)
    lab.journal, lab.target, lab.rerun = journal, {"name": "a.py"}, False
    lab.stage = lambda: SimpleNamespace(survey=Survey(**broken))  # type: ignore[assignment,method-assign]
    assert lab.survey() == Survey(**broken)
    lab.stage = lambda: SimpleNamespace(survey=Survey(ended=True))  # type: ignore[assignment,method-assign]
    assert lab.survey().ended
    lab.stage = lambda: pytest.fail("it is known by now")  # type: ignore[method-assign]
    assert lab.survey().ended
    journal.close()


@pytest.mark.parametrize("when", ["before it is asked", "at the first job"])
def test_a_nursery_that_dies_ends_its_trials(when: str, tmp_path: Path) -> None:
    """Started with a program that is no Python at all, or one that leaves at once."""
    nursery = Nursery(
        {"PATH": "/usr/bin:/bin"}, "/bin/true" if when.startswith("before") else "/bin/cat", True
    )
    if when.startswith("before"):
        nursery.process.wait()
    ended = nursery.trial(tmp_path / "job.json", {"seconds": 5.0}, Waiting())
    assert "died" in ended["reason"]
    nursery.close()
