"""Which sizes became constants although they could have been dynamic, and at which line of the user's?"""

from __future__ import annotations

from dataclasses import dataclass

from torchtriage.trace.guard_tree import short_source
from torchtriage.trace.load import Trace, once
from torchtriage.trace.model import CompileId, Place

#: torch's word -> what it means.
REASONS = {
    "range_refined_to_singleton": "the conditions at this line leave one value only",
    "solved": "an equation at this line has one solution only",
    "solve": "an equation at this line has one solution only",
    "find": "it was found equal to a constant",
}


@dataclass(frozen=True, slots=True)
class Specialised:
    """One size that one line of code made a constant, over all compiles."""

    source: str
    """What the size is of, as `x.size()[0]`."""
    place: Place | None
    values: tuple[str, ...]
    reason: str
    functions: tuple[str, ...]
    compiles: tuple[tuple[str, CompileId], ...]


@once
def specialised_sizes(trace: Trace) -> tuple[Specialised, ...]:
    """Most compiles first."""
    groups: dict[
        tuple[str, str],
        tuple[Place | None, str, dict[str, None], dict[str, None], list[tuple[str, CompileId]]],
    ]
    groups = {}
    for log, compile in trace.compiles():
        for guard in compile.shape_guards:
            if not guard.specialised:
                continue
            source = ", ".join(map(short_source, guard.sources)) or guard.expression.partition(" = ")[0]
            group = groups.setdefault(
                (source, str(guard.place)), (guard.place, REASONS.get(guard.reason, guard.reason), {}, {}, [])
            )
            group[2][guard.value] = None
            group[3][compile.user_function] = None
            if (log.name, compile.id) not in group[4][-1:]:
                group[4].append((log.name, compile.id))
    found = [
        Specialised(source, place, tuple(values), reason, tuple(functions), tuple(compiles))
        for (source, _), (place, reason, values, functions, compiles) in groups.items()
    ]
    return tuple(sorted(found, key=lambda s: -len(s.compiles)))
