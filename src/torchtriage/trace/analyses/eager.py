"""What runs in eager although it was to be compiled? Functions that torch gave up on, and those without anything in them."""

from __future__ import annotations

from dataclasses import dataclass

from torchtriage.trace.analyses.graph_breaks import breaks_of
from torchtriage.trace.analyses.recompiles import Frame, named_frame, siblings
from torchtriage.trace.breaks import is_limit
from torchtriage.trace.load import Trace, once
from torchtriage.trace.model import Compile, CompileId, Place


@dataclass(frozen=True, slots=True)
class EagerFrame:
    """One function with the reason for which it, or a part of its calls, is not compiled."""

    frame: Frame
    reason: str
    place: Place | None
    compiles: tuple[tuple[str, CompileId], ...]
    seconds: float
    """Tracing that came to nothing."""


@once
def eager_frames(trace: Trace) -> tuple[EagerFrame, ...]:
    """Dearest first."""
    of = siblings(trace)
    groups: dict[tuple[Frame, str, Place | None], list[tuple[str, CompileId]]] = {}
    seconds: dict[tuple[Frame, str, Place | None], float] = {}
    for log, compile in trace.compiles():
        why = _why(compile)
        if why is None:
            continue
        key = (named_frame(log, compile, of), *why)
        groups.setdefault(key, []).append((log.name, compile.id))
        seconds[key] = seconds.get(key, 0.0) + compile.seconds
    found = [EagerFrame(frame, reason, place, tuple(groups[frame, reason, place]), seconds[frame, reason, place])
             for frame, reason, place in groups]  # fmt: skip
    return tuple(sorted(found, key=lambda e: -e.seconds))


def _why(compile: Compile) -> tuple[str, Place | None] | None:
    if compile.id.frame is None:
        return None
    if compile.failure is not None and is_limit(compile.failure.reason):
        return "the recompile limit was reached", None
    skipped = next((one for one in breaks_of(compile) if one.skipped), None)
    if skipped is not None:
        return f"a graph break that cannot be resumed: {skipped.reason}"[:200], skipped.place
    if compile.failure is not None:
        return f"compiling it raised {compile.failure.type}"[:200], compile.failure.place
    if compile.status == "empty":
        return "tracing found no operation to compile in it", None
    return None
