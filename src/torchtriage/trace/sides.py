"""Two texts as rows that stand side by side: what is equal, what differs, what only one of them has."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

#: Lines of one text that are compared and shown.
LONGEST = 6000
#: Equal lines around a difference that are not folded.
CONTEXT = 3
_IDENTITY = re.compile(r"\b(?:0x[0-9a-f]{6,}|\d{12,})\b")


class Row(NamedTuple):
    """One line of each text, or nothing on one side. Line numbers count from 1; 0 where there is no line."""

    left: int
    before: str
    right: int
    after: str


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring rows that are alike: `same`, `context` (same, next to a difference) or `differs`."""

    kind: Literal["same", "context", "differs"]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Sides:
    """Two texts of the same kind, whole unless they are longer than `LONGEST` lines."""

    title: str
    before: str
    """What the left one is, as `0/1`."""
    after: str
    runs: tuple[Run, ...]
    left_out: int = 0
    """Lines of the longer text that are not shown."""

    @property
    def differing(self) -> int:
        return sum(len(run.rows) for run in self.runs if run.kind == "differs")


def side_by_side(title: str, before: str, after: str, texts: tuple[str, str]) -> Sides:
    """Lines that differ only in addresses and identities of objects count as equal."""
    a, b = (text.split("\n") for text in texts)
    longest = max(len(a), len(b))
    a, b = a[:LONGEST], b[:LONGEST]
    left, right = ([_IDENTITY.sub("#", line.rstrip()) for line in lines] for lines in (a, b))
    runs: list[Run] = []
    matcher = difflib.SequenceMatcher(None, left, right)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        length = max(i2 - i1, j2 - j1)
        rows = [
            Row(
                i1 + n + 1 if i1 + n < i2 else 0, a[i1 + n] if i1 + n < i2 else "",
                j1 + n + 1 if j1 + n < j2 else 0, b[j1 + n] if j1 + n < j2 else "",
            )
            for n in range(length)
        ]  # fmt: skip
        runs.extend(_folded(rows) if tag == "equal" else [Run("differs", tuple(rows))])
    return Sides(title, before, after, tuple(runs), max(0, longest - LONGEST))


def _folded(rows: list[Row]) -> list[Run]:
    """Equal rows with those in the middle apart, to be folded."""
    if len(rows) <= 2 * CONTEXT + 4:
        return [Run("context", tuple(rows))]
    head, middle, tail = rows[:CONTEXT], rows[CONTEXT:-CONTEXT], rows[-CONTEXT:]
    return [Run("context", tuple(head)), Run("same", tuple(middle)), Run("context", tuple(tail))]
