"""The first operation in which a captured call parts from the same call in eager mode."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchtriage.model.outcome import Divergence

Row = Mapping[str, Any]
FILE = "operations.json"


def first_divergence(eager: Sequence[Row], captured: Sequence[Row]) -> Divergence | None:
    """Where the captured operations stop being those of eager mode; None where they never do.

    The captured ones must appear among eager's in the same order. Eager's may be more: what lies between two
    graphs, and what is never used, is not captured. A line on which eager runs nothing that can be seen (numpy) is
    named only where nothing else is found.
    """
    seen = {place(row) for row in eager}
    where_done: dict[tuple[Any, ...], list[int]] = {}
    for number, row in enumerate(eager):
        where_done.setdefault(work(row), []).append(number)
    position, before = 0, None
    unseen: Row | None = None
    for row in captured:
        numbers = where_done.get(work(row), [])
        later = bisect_left(numbers, position)
        if later < len(numbers):
            position, before = numbers[later] + 1, row
        elif place(row) in seen or not row.get("line"):
            return parted(eager[position:], row, before)
        elif unseen is None:
            unseen = row
    if unseen is not None:
        return Divergence(**where(unseen), only_in="captured")
    if position < len(eager):
        return Divergence(**where(eager[position]), only_in="eager")
    return None


def parted(rest: Sequence[Row], row: Row, before: Row | None) -> Divergence:
    """The captured operation `row` has no equal in what eager has left.

    Where eager does the same on that line later, what it does before that is what the capture lacks, unless a graph
    ends there.
    """
    for number, other in enumerate(rest):
        if other["operator"] == row["operator"] and (place(other) == place(row) or not row.get("line")):
            inside = before is not None and before.get("run") == row.get("run")
            if number and inside:
                return Divergence(**where(rest[0]), only_in="eager")
            return Divergence(**{**where(other), **where(row)})
    return Divergence(**where(row), only_in="captured")


def work(row: Row) -> tuple[Any, ...]:
    """What makes two rows the same piece of work: the operator and its results."""
    return (row["operator"], *row["marks"])


def place(row: Row) -> tuple[Any, Any]:
    return row.get("file"), row.get("line")


def where(row: Row) -> dict[str, Any]:
    known = {name: row[name] for name in ("file", "line", "code") if name in row}
    return {"operator": row["operator"], **known}


def read(folder: Path, reference: Path) -> Divergence | None:
    """From the folders of a trial and of its eager reference. None as well where either was not written down."""
    try:
        captured = json.loads((folder / FILE).read_text())
        eager = json.loads((reference / FILE).read_text())
    except (OSError, ValueError):
        return None
    return first_divergence(eager, captured)
