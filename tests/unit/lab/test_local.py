"""How the local lab adds to a trial what one process cannot tell."""

from __future__ import annotations

from types import SimpleNamespace

from torchtriage.lab.local import LocalLab
from torchtriage.lab.request import Request
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
