"""How the eager program ends: before, in and after its regions. What eager does too is no finding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harness import PROGRAMS, line_of

from torchtriage.lab.local import LocalLab
from torchtriage.lab.request import Request
from torchtriage.model.outcome import label

pytestmark = pytest.mark.e2e
PROGRAM = str(PROGRAMS / "endings.py")


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("raise-before", ["ValueError: the data file is empty", f"endings.py:{line_of('endings.py', 'raise ValueError')}"]),
        ("segv-before", ["SIGSEGV"]),
        ("exit-before", ["4"]),
        ("sys-exit-before", ["no data: give a folder"]),
        ("segv-in-region", ["SIGSEGV"]),
        ("segv-after", ["SIGSEGV"]),
        ("never-called", ["never_called", "never calls"]),
    ],
)  # fmt: skip
def test_a_program_that_fails_in_eager_mode_gets_its_error_and_status_2(
    diagnose: Callable[..., Any], way: str, words: list[str]
) -> None:
    done = diagnose(PROGRAM, way)
    assert done.status == 2
    assert done.out == ""
    assert len(done.err.splitlines()) == 1, done.err
    for word in words:
        assert word in done.err


@pytest.mark.parametrize(
    "way",
    [
        "sys-exit-0",
        "sys-exit-3",
        "sys-exit-text",
        "raise-after",
        "os-exit-0",
        "os-exit-3",
    ],
)
def test_an_end_after_the_regions_is_the_same_in_a_trial(open_lab: Callable[..., LocalLab], way: str) -> None:  # fmt: skip
    lab = open_lab("endings.py", way)
    assert [c["call"] for c in lab.survey().calls] == [0, 1]
    outcome = lab.run_one(Request())
    assert label(outcome) == "same"
    assert outcome.measures.calls_compared == 2


def test_an_error_in_the_region_in_both_modes_is_the_program_s_own(
    open_lab: Callable[..., LocalLab],
) -> None:
    lab = open_lab("endings.py", "raise-in-region")
    outcome = lab.run_one(Request())
    assert label(outcome) == "same"
    assert outcome.eager_exception.type == "builtins.KeyError"
    assert outcome.measures.calls_compared == 2


def test_a_thread_that_does_not_end_holds_up_nothing(open_lab: Callable[..., LocalLab]) -> None:
    lab = open_lab("endings.py", "thread")
    assert label(lab.run_one(Request())) == "same"
