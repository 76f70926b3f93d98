"""The ablation matrix: the four debug backends under dynamic None, True and False, all twelve.

Backends are not a ladder: programs fail under aot_eager and pass under inductor, so nothing is searched by halves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchtriage.investigate.facts import (
    RECOMPILES_ALLOWED,
    Asks,
    noisy,
)
from torchtriage.lab.request import ALL_FLAVOURS, Request
from torchtriage.model.diagnosis import LAYERS, Cell
from torchtriage.model.outcome import Inconclusive, Outcome, Same, label
from torchtriage.model.variant import DEBUG_BACKENDS, DYNAMIC_SETTINGS, Variant

SLOW_CELL = 12.0
"""Seconds of compilation from which a cell counts as slow, once compile time is the symptom."""
Matrix = Mapping[str, Mapping[str, Outcome]]


@dataclass(frozen=True)
class Counted:
    """Which counts are symptoms in this program (they are looked at only where no value or exception is wrong)."""

    recompiles: bool = False
    breaks: bool = False
    slow: bool = False
    """Compile time is the symptom: a cell whose compilation is slow counts as timed out."""


def requests(stop: int | None = None) -> list[tuple[str, str, Request]]:
    """(backend, dynamic, request) of every cell. With `stop`, cells end at that call and look at it closely."""
    flavours = ("eager",) if stop is None else ALL_FLAVOURS
    return [
        (
            backend,
            str(dynamic),
            Request(Variant(backend=backend, dynamic=dynamic), stop=stop, flavours=flavours),
        )
        for backend in DEBUG_BACKENDS
        for dynamic in DYNAMIC_SETTINGS
    ]


def matrix(lab: Asks) -> dict[str, dict[str, Outcome]]:
    """Run all twelve cells over the whole program."""
    cells = requests()
    outcomes = lab.run([request for _, _, request in cells])
    return arrange(cells, outcomes)


def arrange(cells: list[tuple[str, str, Request]], outcomes: list[Outcome]) -> dict[str, dict[str, Outcome]]:
    table: dict[str, dict[str, Outcome]] = {}
    for (backend, dynamic, _), outcome in zip(cells, outcomes, strict=True):
        table.setdefault(backend, {})[dynamic] = outcome
    return table


def word(outcome: Outcome, counted: Counted = Counted()) -> str:
    """The word of one cell."""
    if not isinstance(outcome, Same):
        return label(outcome)
    measures = outcome.measures
    counts = []
    if counted.recompiles and measures.recompiles > RECOMPILES_ALLOWED:
        counts.append("recompiles")
    if counted.breaks and (measures.breaks or measures.unimplemented) and measures.captured:
        counts.append("graph-break")
    if counted.slow and measures.compile_seconds > SLOW_CELL:
        return "timeout"
    if counts:
        return "differs:" + "+".join(counts)
    return "within noise" if noisy(outcome) else "same"


def cells(table: Matrix, counted: Counted) -> dict[str, dict[str, Cell]]:
    """The matrix as it is reported."""
    return {
        backend: {dynamic: cell(outcome, counted) for dynamic, outcome in row.items()}
        for backend, row in table.items()
    }


def cell(outcome: Outcome, counted: Counted = Counted()) -> Cell:
    measures = outcome.measures
    return Cell(
        word=word(outcome, counted),
        detail=detail(outcome),
        graphs=measures.graphs,
        breaks=measures.breaks,
        captured=measures.captured,
        seconds=round(measures.wall_seconds, 3),
    )


def detail(outcome: Outcome) -> str:
    """One line about an outcome, for a person."""
    found = getattr(outcome, "differences", ())
    if found:
        first = found[0]
        return f"call {first.call}: {first.path} {first.detail}"
    exception = getattr(outcome, "exception", None) or getattr(outcome, "eager_exception", None)
    if exception is not None and exception.message:
        return f"{exception.type}: {exception.message.strip().splitlines()[0]}"[:300]
    if isinstance(outcome, Inconclusive):
        return outcome.reason[:300]
    return ""


def bad(text: str) -> bool:
    return text not in ("same", "within noise", "inconclusive")


def first_failing(words: Mapping[str, Mapping[str, str]], column: str, noise: bool = False) -> str | None:
    """The first backend of a column that fails (or, with `noise`, that is not exactly the same)."""
    for backend in DEBUG_BACKENDS:
        found = words.get(backend, {}).get(column, "same")
        if bad(found) or (noise and found == "within noise"):
            return backend
    return None


def layer_of(backend: str | None) -> str:
    return LAYERS[backend] if backend else "none"


def monotone(words: Mapping[str, Mapping[str, str]], column: str) -> bool:
    """Once a backend fails, all later ones do."""
    flags = [bad(words.get(b, {}).get(column, "same")) for b in DEBUG_BACKENDS]
    return flags == sorted(flags)


def changes_symptom(words: Mapping[str, Mapping[str, str]], column: str) -> bool:
    """Whether the failing backends of a column fail in different ways."""
    found = {words[b][column] for b in DEBUG_BACKENDS if bad(words.get(b, {}).get(column, "same"))}
    return len(found) > 1


def failing_columns(words: Mapping[str, Mapping[str, str]]) -> set[str]:
    return {column for row in words.values() for column, found in row.items() if bad(found)}
