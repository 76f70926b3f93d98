"""A trial that dies, hangs, grows or litters becomes an outcome; the lab goes on, and nothing is left."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from conftest import left_after

from torchtriage.lab.request import Request
from torchtriage.model.outcome import label
from torchtriage.model.variant import Variant

pytestmark = pytest.mark.e2e
HEALTHY = Request(Variant(backend="eager"))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("fpe", "killed:SIGFPE"),
        ("segv", "killed:SIGSEGV"),
        ("compile:segv", "killed:SIGSEGV"),
        ("abort", "killed:SIGABRT"),
        ("kill", "killed:SIGKILL"),
        ("exit", "exited:7"),
        ("exit-0", "exited:0"),
        ("compile:exit", "exited:7"),
        ("sys-exit", "raises:SystemExit"),
        ("allocate", "oom"),
        ("memory-error", "oom"),
        ("print", "same"),
        ("close", "same"),
    ],
)
def test_a_compiled_call_that_ends_its_process_is_an_outcome(
    open_lab: Callable[..., Any], kind: str, expected: str
) -> None:
    lab = open_lab("deaths.py", kind)
    outcome, after = lab.run([Request(), HEALTHY])
    assert label(outcome) == expected
    assert label(after) == "same"
    if expected != "same":
        assert outcome.call == 0
    assert len(outcome.log) < 100_000


def test_memory_beyond_the_limit_is_an_outcome(open_lab: Callable[..., Any]) -> None:
    lab = open_lab("deaths.py", "grow", trial_bytes=700 << 20)
    outcome, after = lab.run([Request(), HEALTHY])
    assert label(outcome) == "oom"
    assert outcome.peak_bytes < 3 << 30
    assert label(after) == "same"


@pytest.mark.parametrize(
    ("kind", "phase"), [("hang", "run"), ("stop", "run"), ("compile:hang", "compile"), ("compile:wait", "compile")]
)
def test_a_hang_is_a_timeout_that_says_where(open_lab: Callable[..., Any], kind: str, phase: str) -> None:
    mark = f"{random.randint(10**5, 10**6)}.{random.randint(10**5, 10**6)}"
    lab = open_lab("deaths.py", kind, mark)
    outcome, after = lab.run([Request(seconds=4.0), HEALTHY])
    assert label(outcome) == "timeout"
    assert outcome.phase == phase
    assert outcome.call == 0
    assert label(after) == "same"
    lab.close()
    assert not left_after(f"sleep {mark}")


@pytest.mark.parametrize("kind", ["child", "grandchild"])
def test_children_that_a_trial_leaves_behind_are_ended_with_it(open_lab: Callable[..., Any], kind: str) -> None:
    mark = f"{random.randint(10**5, 10**6)}.{random.randint(10**5, 10**6)}"
    lab = open_lab("deaths.py", kind, mark)
    outcome, after = lab.run([Request(), HEALTHY])
    assert (label(outcome), label(after)) == ("same", "same")
    assert not left_after(f"sleep {mark}")  # while the stage still lives


def test_a_division_by_zero_in_a_compiled_kernel_is_sigfpe(open_lab: Callable[..., Any]) -> None:
    lab = open_lab("int_division.py")
    outcome, after = lab.run([Request(), HEALTHY])
    assert label(outcome) == "killed:SIGFPE"
    assert label(after) == "same"


@pytest.mark.parametrize("kind", ["segv", "exit", "close"])
def test_rerun_mode_gives_the_same_outcomes(open_lab: Callable[..., Any], kind: str) -> None:
    lab = open_lab("deaths.py", kind, mode="rerun")
    outcome, after = lab.run([Request(), HEALTHY])
    expected = {"segv": "killed:SIGSEGV", "exit": "exited:7", "close": "same"}
    assert (label(outcome), label(after)) == (expected[kind], "same")
