"""What did not compile? Failures grouped by type and message; functions that hit the recompile limit apart."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchtriage.trace.analyses.recompiles import Frame, FrameKey, frame_key, named_frame, siblings
from torchtriage.trace.breaks import is_limit
from torchtriage.trace.load import Trace
from torchtriage.trace.model import Compile, CompileId, Log, Place

_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Compiles that failed in the same way."""

    type: str
    reason: str
    place: Place | None
    frames: tuple[Frame, ...]
    count: int
    seconds: float
    compiles: tuple[tuple[str, CompileId], ...]
    limit: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """One time that a compile did not go through: it failed, or tracing began again."""

    log: str
    compile: CompileId
    function: str
    type: str
    """The exception, or `restart`."""
    reason: str
    place: Place | None


def stops(trace: Trace) -> tuple[Stop, ...]:
    """Every failure and every restart, in the order of the log."""
    found: list[Stop] = []
    for log, compile in trace.compiles():
        function = compile.user_function
        for reason in compile.restarts:
            # metrics have no line of a restart; the graph break that caused it has
            place = next((b.place for b in compile.breaks if b.reason and reason.startswith(b.reason)), None)
            found.append(Stop(log.name, compile.id, function, "restart", reason, place))
        if compile.failure is not None:
            f = compile.failure
            found.append(Stop(log.name, compile.id, function, f.type, f.reason, f.place))
    return tuple(found)


def failure_groups(trace: Trace) -> tuple[FailureGroup, ...]:
    """Groups, dearest first. The cost of a limit is what compiling the function again and again took."""
    of = siblings(trace)
    groups: dict[tuple[str, str], list[tuple[Log, Compile]]] = {}
    for log, compile in trace.compiles():
        failure = compile.failure
        if failure is None:
            continue
        if is_limit(failure.reason):
            key = ("recompile limit", str(named_frame(log, compile, of)))
        else:
            key = (failure.type, _NUMBERS.sub("#", failure.reason[:400]))
        groups.setdefault(key, []).append((log, compile))
    found = [_group(members, of) for members in groups.values()]
    return tuple(sorted(found, key=lambda g: -g.seconds))


def _group(members: list[tuple[Log, Compile]], of: dict[FrameKey, list[Compile]]) -> FailureGroup:
    first = members[0][1]
    failure = first.failure
    assert failure is not None  # only failures are grouped
    limit = is_limit(failure.reason)
    seconds = sum(c.seconds for _, c in members)
    if limit:
        frames = dict.fromkeys(frame_key(log, c) for log, c in members)
        seconds = sum(c.seconds for key in frames for c in of[key] if c.reasons)
    return FailureGroup(
        failure.type, failure.reason, failure.place or first.place, tuple(dict.fromkeys(named_frame(log, c, of) for log, c in members)),
        len(members), seconds, tuple((log.name, c.id) for log, c in members), limit,
    )  # fmt: skip
