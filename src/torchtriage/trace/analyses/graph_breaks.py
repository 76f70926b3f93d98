"""Where did tracing stop, and what does it cost? Breaks grouped by the user's line, resume functions folded."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchtriage.trace.breaks import LIMIT_IDENTIFIER, is_limit, parse_break
from torchtriage.trace.frames import user_frames
from torchtriage.trace.load import Trace, once
from torchtriage.trace.model import Compile, CompileId, GraphBreak, Log, Place


@dataclass(frozen=True, slots=True)
class BreakSite:
    """One line of the user at which graphs end."""

    place: Place | None
    identifier: str
    reason: str
    explanation: str
    hints: tuple[str, ...]
    context: str
    count: int
    """Records of it; a nested break is recorded by each frame that it ends."""
    functions: tuple[str, ...]
    """The functions, as the user wrote them, that it ended."""
    compiles: tuple[tuple[str, CompileId], ...]
    seconds: float
    """Tracing that was thrown away, and compiling what comes after the break."""
    ops_before: int
    ops_after: int
    skipped: bool
    """True when a whole function was left to eager because of it."""
    through: tuple[Place, ...] = ()
    """The user's calls that led to the place, outermost first."""

    @property
    def context_manager(self) -> Place | None:
        """The `with` line, where a break below it is why the whole function runs in eager."""
        inner = self.through[-1] if self.through and self.skipped else None
        return inner if inner is not None and inner.code.startswith(("with ", "async with ")) else None

    @property
    def splits(self) -> int:
        """How large the smaller part of the graph is that it cuts in two."""
        return min(self.ops_before, self.ops_after)


@dataclass(slots=True)
class _Site:
    first: GraphBreak
    members: list[tuple[Log, Compile]] = field(default_factory=list)
    count: int = 0
    skipped: bool = False


@once
def break_sites(trace: Trace) -> tuple[BreakSite, ...]:
    """All sites, dearest first."""
    sites: dict[tuple[str, int, str], _Site] = {}
    after: dict[tuple[str, str, int], list[Compile]] = {}
    for log, compile in trace.compiles():
        if compile.resumed and compile.place is not None:
            key = (log.name, compile.place.file, compile.place.line)
            after.setdefault(key, []).append(compile)
        for one in breaks_of(compile):
            place = one.place
            site = sites.setdefault(
                (place.file, place.line, "") if place else ("", 0, one.reason), _Site(one)
            )
            site.count += 1
            site.skipped = site.skipped or one.skipped
            if not site.first.hints and one.hints:
                site.first = one
            if (log, compile) not in site.members[-1:]:
                site.members.append((log, compile))
    found = [_site(site, after) for site in sites.values()]
    return tuple(sorted(found, key=lambda s: (-s.seconds, -s.count)))


def breaks_of(compile: Compile) -> tuple[GraphBreak, ...]:
    """The breaks of a compile; from its restarts or its failure where a log has no records of breaks."""
    if compile.breaks:
        return tuple(b for b in compile.breaks if b.identifier != LIMIT_IDENTIFIER)
    texts = list(compile.restarts)
    failure = compile.failure
    if failure is not None and failure.type == "Unsupported" and not is_limit(failure.reason):
        texts.append(failure.reason)
    found = []
    for text in texts:
        one = parse_break(text)
        if one.place is None and failure is not None and failure.place is not None:
            one = GraphBreak(
                one.reason, failure.place, one.identifier, one.explanation, one.hints, one.context, True
            )
        found.append(one)
    return tuple(found)


def _site(site: _Site, after: dict[tuple[str, str, int], list[Compile]]) -> BreakSite:
    first = site.first
    resumed: dict[int, Compile] = {}
    for log, _ in site.members:
        if first.place is not None:
            for compile in after.get((log.name, first.place.file, first.place.line), ()):
                resumed[id(compile)] = compile
    thrown = sum(c.metrics.number("dynamo_time_before_restart_s") for _, c in site.members)
    return BreakSite(
        place=first.place, identifier=first.identifier, reason=first.reason, explanation=first.explanation,
        hints=first.hints, context=first.context, count=site.count,
        functions=tuple(dict.fromkeys(c.user_function for _, c in site.members if c.function)),
        compiles=tuple((log.name, c.id) for log, c in site.members),
        seconds=thrown + sum(c.seconds for c in resumed.values()),
        ops_before=max((ops(c) for _, c in site.members), default=0),
        ops_after=max((ops(c) for c in resumed.values()), default=0), skipped=site.skipped,
        through=user_frames(first.through),
    )  # fmt: skip


def ops(compile: Compile) -> int:
    return int(compile.metrics.number("graph_op_count"))
