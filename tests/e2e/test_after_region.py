"""A symptom that shows only after the region has returned is found where the program shows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from harness import PROGRAMS

from torchtriage.lab.local import LocalLab
from torchtriage.lab.request import Request
from torchtriage.model.outcome import label
from torchtriage.model.variant import Variant

pytestmark = pytest.mark.e2e
HEALTHY = Request(Variant(backend="eager"))


def line_in(where: str) -> int:
    """Number of the line marked `# here` in the part of after.py for `where`."""
    rows = (PROGRAMS / "after.py").read_text().splitlines()
    begin = rows.index(next(row for row in rows if f'WHERE == "{where}"' in row))
    return next(n for n, row in enumerate(rows, 1) if n > begin and row.endswith("# here"))


@pytest.mark.parametrize("where", ["double-backward", "in-place", "optimizer"])
def test_an_exception_after_the_region_is_placed_on_its_line(
    open_lab: Callable[..., LocalLab], where: str
) -> None:
    lab = open_lab("after.py", where)
    outcome, healthy = lab.run([Request(), HEALTHY])
    assert label(outcome) == "raises:RuntimeError"
    assert outcome.phase == "program"
    assert outcome.exception.user_line == line_in(where)
    assert Path(outcome.exception.user_file).name == "after.py"
    assert label(healthy) == "same"


def test_a_wrong_value_is_named_before_the_exit_that_it_causes(open_lab: Callable[..., LocalLab]) -> None:
    lab = open_lab("after.py", "exits")
    outcome, healthy = lab.run([Request(), HEALTHY])
    assert label(outcome) == "differs:value"
    assert label(healthy) == "same"


def test_a_death_or_hang_after_the_region_is_an_outcome(open_lab: Callable[..., LocalLab]) -> None:
    lab = open_lab("after.py", "killed")
    assert label(lab.run_one(Request())) == "killed:SIGSEGV"
    assert label(lab.run_one(HEALTHY)) == "same"
    lab = open_lab("after.py", "hangs")
    outcome = lab.run_one(Request(seconds=8.0))
    assert (label(outcome), outcome.phase) == ("timeout", "program")


def test_another_end_than_eager_s_is_found_where_eager_ends_badly_too(
    open_lab: Callable[..., LocalLab],
) -> None:
    lab = open_lab("ends_badly.py")
    outcome, healthy = lab.run([Request(), HEALTHY])
    assert label(healthy) == "same"
    assert label(outcome) == "raises:RuntimeError"
