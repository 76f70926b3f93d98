"""Trials draw the numbers that the program draws by itself."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest

from torchtriage.lab.local import LocalLab
from torchtriage.lab.request import Request
from torchtriage.model.outcome import label
from torchtriage.model.variant import Variant

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("start", [None, 1])
def test_a_forked_trial_draws_the_same_numbers(open_lab: Callable[..., LocalLab], start: int | None) -> None:
    lab = open_lab("seeds.py", "unseeded")
    expected = ast.literal_eval(lab.survey().log.splitlines()[-1])
    outcome, again = lab.run([Request(start=start), Request(Variant(backend="aot_eager"), start=start)])
    assert label(outcome) == label(again) == "same"
    assert ast.literal_eval(outcome.log.splitlines()[-1]) == expected
    assert ast.literal_eval(again.log.splitlines()[-1]) == expected


def test_a_program_without_seeds_is_no_false_alarm_when_rerun(open_lab: Callable[..., LocalLab]) -> None:
    lab = open_lab("seeds.py", "unseeded", mode="rerun")
    assert label(lab.run_one(Request(stop=0))) in ("same", "inconclusive")
