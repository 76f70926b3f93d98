"""A trial that dies, hangs, grows or litters becomes an outcome; the lab goes on, and nothing is left."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import left_after, opened

from torchtriage.lab.local import LocalLab
from torchtriage.lab.request import Request
from torchtriage.model.outcome import Outcome, label
from torchtriage.model.variant import Variant

pytestmark = pytest.mark.e2e
MARK = f"{random.randint(10**5, 10**6)}.{random.randint(10**5, 10**6)}"
"""How long the children of this test's trials sleep: nobody else's sleep as long."""
HEALTHY = Request(Variant(backend="eager"), repeat=1)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Iterator[LocalLab]:
    """One stage for all tests of this file: a trial that hurts it would fail the tests that follow."""
    with opened(tmp_path_factory.mktemp("deaths") / "run", store, "deaths.py", MARK) as lab:
        yield lab
    assert not left_after(f"sleep {MARK}")


def compile_only(lab: LocalLab, name: str, **more: Any) -> Outcome:
    """A trial in which one region is compiled, as the program does it, and all others are eager."""
    (key,) = (r["key"] for r in lab.survey().regions if r["name"] == name)
    return lab.run_one(Request(only=key, **more))


def call_of(lab: LocalLab, name: str) -> int:
    (number,) = (c["call"] for c in lab.survey().calls if c["region"].startswith(f"{name}@"))
    return int(number)


@pytest.mark.parametrize(
    ("name", "expected"),
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
        ("close-raise", "raises:ValueError"),
    ],
)
def test_a_compiled_call_that_ends_its_process_is_an_outcome(lab: LocalLab, name: str, expected: str) -> None:
    call = call_of(lab, name)
    outcome = compile_only(lab, name, stop=call)
    assert label(outcome) == expected
    assert outcome.call == call


@pytest.mark.parametrize("name", ["print", "close"])
def test_what_a_call_does_to_the_output_is_no_failure(lab: LocalLab, name: str) -> None:
    outcome = compile_only(lab, name, stop=call_of(lab, name))
    assert label(outcome) == "same"
    assert len(outcome.log) < 100_000


def test_a_program_that_then_cannot_print_has_raised(lab: LocalLab) -> None:
    outcome = compile_only(lab, "close")
    assert label(outcome) == "raises:OSError"
    assert outcome.phase == "program"


def test_memory_beyond_the_limit_is_an_outcome(tmp_path: Path, store: Path) -> None:
    with opened(tmp_path / "run", store, "deaths.py", MARK, "grow", trial_bytes=700 << 20) as lab:
        outcome = compile_only(lab, "grow")
        assert outcome.call == 0
        assert label(outcome) == "oom"
        assert outcome.peak_bytes < 3 << 30
        assert label(lab.run_one(HEALTHY)) == "same"


@pytest.mark.parametrize(
    ("name", "phase"),
    [("hang", "run"), ("stop", "run"), ("compile:hang", "compile"), ("compile:wait", "compile")],
)
def test_a_hang_is_a_timeout_that_says_where(lab: LocalLab, name: str, phase: str) -> None:
    call = call_of(lab, name)
    outcome = compile_only(lab, name, stop=call, seconds=8.0)
    assert label(outcome) == "timeout"
    assert (outcome.call, outcome.phase) == (call, phase)
    assert not left_after(f"sleep {MARK}")


@pytest.mark.parametrize("name", ["child", "grandchild"])
def test_children_that_a_trial_leaves_behind_are_ended_with_it(lab: LocalLab, name: str) -> None:
    assert label(compile_only(lab, name)) == "same"
    assert not left_after(f"sleep {MARK}")  # while the stage still lives


def test_a_trial_that_kills_its_keeper_is_no_evidence(lab: LocalLab) -> None:
    assert label(compile_only(lab, "keeper", stop=call_of(lab, "keeper"))) == "inconclusive"


def test_the_stage_is_well_after_all_that(lab: LocalLab) -> None:
    assert label(lab.run_one(HEALTHY)) == "same"


def test_a_division_by_zero_in_a_compiled_kernel_is_sigfpe(open_lab: Callable[..., LocalLab]) -> None:
    lab = open_lab("int_division.py")
    outcome, after = lab.run([Request(), HEALTHY])
    assert label(outcome) == "killed:SIGFPE"
    assert label(after) == "same"


def test_rerun_mode_gives_the_same_outcomes(open_lab: Callable[..., LocalLab]) -> None:
    lab = open_lab("deaths.py", MARK, "segv", mode="rerun")
    assert label(lab.run_one(Request())) == "killed:SIGSEGV"
