"""The result of `reduce`: the script, what it shows, and how the search went."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torchtriage.model.diagnosis import Diagnosis
from torchtriage.model.outcome import to_json


@dataclass(frozen=True)
class SearchPoint:
    """The size of the best script at one moment of the search."""

    seconds: float
    tests: int
    lines: int
    nodes: int
    by: str
    """The pass that made it."""


@dataclass(frozen=True)
class Condition:
    """One condition that maintainers ask about, and what a trial without it showed."""

    name: str
    needed: bool
    trial: str


@dataclass(frozen=True)
class Reduction:
    """A reproducer and its proof."""

    failure: str
    """What is wrong, in a few words."""
    script: str
    road: str
    """`source`: the program's own text was reduced; `graph`: one captured graph of it."""
    lines_before: int
    lines: int
    """Without blank lines, comments and imports."""
    shown: int = 0
    runs: int = 0
    """In how many of `runs` fresh processes the script showed the failure."""
    fine_disabled: bool = False
    """Whether it exits with 0 when the compiler is switched off."""
    rate: str = ""
    """How often the failure shows, where it comes and goes."""
    conditions: tuple[Condition, ...] = ()
    rank: str = ""
    keeps_from: str = ""
    """What keeps it from the next better rank."""
    output: str = ""
    """What the script prints when it fails."""
    history: tuple[SearchPoint, ...] = ()
    tests: int = 0
    seconds: float = 0.0
    stopped: str = ""
    """Why the search ended before nothing helped any more; empty where it did not."""
    defects: tuple[tuple[str, str], ...] = ()
    """Passes of ours that failed, and how: faults to be reported."""
    redacted: bool = False
    """Whether names, texts and paths of the program were taken out of the script and the issue."""
    folder: str = ""
    bundle: str = ""
    command: str = ""
    diagnosis: Diagnosis | None = None
    remarks: tuple[str, ...] = ()
    slips: tuple[tuple[str, int], ...] = field(default=())
    """Other failures that candidates showed, and how many did."""

    @property
    def proven(self) -> bool:
        return self.fine_disabled and self.shown == self.runs > 0

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = to_json(self)
        plain["diagnosis"] = self.diagnosis.to_json() if self.diagnosis else None
        plain["proven"] = self.proven
        return plain
