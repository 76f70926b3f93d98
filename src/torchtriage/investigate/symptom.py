"""Which outcome is the symptom, at which call, under which variant: the point where all later questions start."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from torchtriage.investigate import ablation
from torchtriage.investigate.ablation import Counted, Matrix
from torchtriage.investigate.documented import is_user_error
from torchtriage.investigate.facts import (
    RECOMPILES_ALLOWED,
    Facts,
    Own,
    failing,
    noisy,
    of_user,
    words_of,
)
from torchtriage.lab.request import Request
from torchtriage.model.outcome import Outcome, Raised, TimedOut
from torchtriage.model.variant import DEBUG_BACKENDS, Variant

SLOW_SECONDS = 60.0
"""A compilation above this is a finding by itself."""
UNROLLED_SECONDS = ablation.SLOW_CELL
UNROLLED_NODES = 64
"""Above these two, a loop that was unrolled into the graph is the finding."""


@dataclass(frozen=True)
class Suspect:
    """The symptom to explain."""

    words: tuple[str, ...]
    outcome: Outcome
    """The outcome of the first backend that fails, under the program's own dynamic setting."""
    own_fails: bool
    """Whether the program fails as it is, or only under a debug backend or another dynamic setting."""
    column: str
    backend: str | None
    """The first debug backend that fails; None where none does."""
    request: Request
    """Repeats the failure of the program as it is (or of the cell)."""
    counts: bool = False
    """The symptom is a count (recompiles, graph breaks), not a value or an exception."""
    noise: bool = False
    slow: bool = False
    needs: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Seen:
    """The own trials and the matrix, with the words of its cells."""

    own: Own
    table: Matrix
    words: Mapping[str, Mapping[str, str]]
    counted: Counted = field(default_factory=Counted)


def counted_in(own: Own, table: Matrix) -> Counted:
    """Counts become symptoms only where nothing is wrong with values and exceptions."""
    cells = [outcome for row in table.values() for outcome in row.values()]
    wrong = any(failing(o) and not (isinstance(o, Raised) and is_user_error(o.exception)) for o in cells)
    if wrong or failing(own.plain) or noisy(own.plain):
        return Counted()
    measures = own.observed.measures
    breaks = [b for b in measures.graph_breaks if of_user(b)]
    return Counted(
        recompiles=measures.recompiles > RECOMPILES_ALLOWED
        or own.plain.measures.recompiles > RECOMPILES_ALLOWED,
        breaks=bool(breaks) and measures.captured > 0,
    )


def find(facts: Facts, seen: Seen) -> Suspect | None:
    """The symptom, or None when nothing was found."""
    column = str(facts.dynamic())
    own = seen.own
    for outcome, variant, needs in (
        (own.plain, Variant(), ()),
        (own.threaded, Variant(threads=facts.threads), ("threads",)),
        (own.cached, Variant(caches=True), ("caches",)),
    ):
        if outcome is not None and failing(outcome):
            return of_own(facts, seen, outcome, Request(variant), needs)
    return (
        of_column(seen, column)
        or of_other_columns(seen, column)
        or of_counts(facts, seen, column)
        or of_slowness(seen, column)
        or of_noise(seen, column)
    )


def of_own(facts: Facts, seen: Seen, outcome: Outcome, request: Request, needs: tuple[str, ...]) -> Suspect:
    column = str(facts.dynamic(getattr(outcome, "call", None)))
    backend = ablation.first_failing(seen.words, column)
    first = seen.table[backend][column] if backend else outcome
    return Suspect(
        words_of(first), first, True, column, backend, request, needs=needs, slow=slow_compile(first)
    )


def of_column(seen: Seen, column: str) -> Suspect | None:
    """The program passes as it is, and a debug backend fails under its own dynamic setting."""
    for backend in DEBUG_BACKENDS:
        outcome = seen.table[backend][column]
        if failing(outcome):
            request = Request(Variant(backend=backend, dynamic=setting(column)))
            remark = f"the program passes as it is; it fails with backend={backend!r}"
            return Suspect(words_of(outcome), outcome, False, column, backend, request, remarks=(remark,))
    return None


def of_other_columns(seen: Seen, column: str) -> Suspect | None:
    """Another dynamic setting fails: a fault of the compiler's, unless it only says that the setting cannot be."""
    for other in ("True", "False", "None"):
        for backend in DEBUG_BACKENDS:
            outcome = seen.table[backend][other]
            refused = isinstance(outcome, Raised) and is_user_error(outcome.exception)
            if other == column or not failing(outcome) or refused:
                continue
            request = Request(Variant(backend=backend, dynamic=setting(other)))
            remark = f"the program passes as it is; it fails only with dynamic={other}"
            need = ("dynamic",) if other == "True" else ("static-shapes",) if other == "False" else ()
            return Suspect(
                words_of(outcome), outcome, False, other, backend, request, needs=need, remarks=(remark,)
            )
    return None


def of_counts(facts: Facts, seen: Seen, column: str) -> Suspect | None:
    if not (seen.counted.recompiles or seen.counted.breaks):
        return None
    backend = ablation.first_failing(seen.words, column)
    found = seen.words[backend][column] if backend else ""
    words = tuple(found.removeprefix("differs:").split("+")) if found else own_counts(seen)
    return Suspect(words, seen.own.observed, True, column, backend, Request(Variant()), counts=True)


def own_counts(seen: Seen) -> tuple[str, ...]:
    return ("recompiles",) if seen.counted.recompiles else ("graph-break",)


def of_slowness(seen: Seen, column: str) -> Suspect | None:
    cold = seen.own.cold
    if cold is None or not slow_compile(cold, seen.own.observed.measures.repeated_nodes):
        return None
    backend = ablation.first_failing(seen.words, column)
    measures = dataclasses.replace(seen.own.observed.measures, compile_seconds=cold.measures.compile_seconds)
    shown = dataclasses.replace(cold, measures=measures)
    return Suspect(
        ("timeout",), shown, True, column, backend, Request(Variant(), fresh_store=True), slow=True
    )


def of_noise(seen: Seen, column: str) -> Suspect | None:
    if not noisy(seen.own.plain):
        return None
    backend = ablation.first_failing(seen.words, column, noise=True)
    outcome = seen.table[backend][column] if backend else seen.own.plain
    return Suspect(words_of(outcome), outcome, True, column, backend, Request(Variant()), noise=True)


def slow_compile(outcome: Outcome, repeated: int = 0) -> bool:
    """Whether compiling took so long that it is the finding. `repeated`: nodes from one line of the program."""
    if isinstance(outcome, TimedOut):
        return outcome.phase == "compile"
    seconds = outcome.measures.compile_seconds
    return seconds > SLOW_SECONDS or (seconds > UNROLLED_SECONDS and repeated >= UNROLLED_NODES)


def setting(column: str) -> bool | None:
    return {"None": None, "True": True, "False": False}[column]
