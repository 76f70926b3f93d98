"""Why were frames compiled again? Recompiles grouped by the guard that failed, with its line, its cost and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from torchtriage.trace.breaks import is_limit
from torchtriage.trace.frames import call_site, in_full, is_library, user_frames
from torchtriage.trace.guard_tree import (
    DYNAMIC,
    NOT_GUARDED,
    GuardChange,
    Leaf,
    blank,
    changes,
    parse_tree,
    short_source,
)
from torchtriage.trace.guards import CAUSES, parse_reason
from torchtriage.trace.load import Trace, once
from torchtriage.trace.model import Artifact, Compile, CompileId, GuardFailure, Log, Place, unfold
from torchtriage.trace.records import lenient_json

#: One recompile for one of these alone is what a program with two modes does: not a defect.
_INDEX = re.compile(r"\[\d+\]")
#: Properties that change for many tensors at once.
SHARED = frozenset({"dispatch keys", "requires_grad", "dtype", "device"})
#: How torch names the source of a symbol.
SIZE = re.compile(r"(?P<source>.*)\.size\(\)\[(?P<dim>\d+)\]$")
ONCE_IS_EXPECTED = frozenset({"training mode", "grad mode"})
#: The artefact in which the probe writes down all guards that failed.
FAILING = "torchtriage_failing_guards"
TREE = "dynamo_cpp_guards_str"
#: Pairs of guard trees that are compared at most, where every recompile is asked for.
PAIRS = 400
#: Guard trees are read for this many causes, the dearest ones.
EXAMINED = 40


@dataclass(frozen=True, slots=True)
class Frame:
    """A function that was compiled, wherever and however often."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({self.file.rpartition('/')[2]}:{self.line})"


@dataclass(frozen=True, slots=True)
class RecompileCause:
    """All recompiles of one function for one reason."""

    frame: Frame
    cause: str
    source: str
    dimension: int | None
    guard: str
    count: int
    seconds: float
    compiles: tuple[tuple[str, CompileId], ...]
    """(log, compile) of each, refused ones included."""
    refused: int = 0
    """Compiles that the recompile limit refused: the function ran in eager instead."""
    values: tuple[str, ...] = ()
    """What the guard expected and then saw, in order."""
    place: Place | None = None
    """The line that installed the guard."""
    call: Place | None = None
    """The user's line that called the function."""
    chain: tuple[Place, ...] = ()
    """The user's calls that led to the first of these compiles, outermost first."""
    chain_before: tuple[Place, ...] = ()
    """Those that led to the entry that did not fit, where they are others."""
    specialised: Place | None = None
    """The line that makes the size a constant: marking it dynamic would raise an error."""
    hint: str = ""
    also: tuple[GuardChange, ...] = ()
    """Other guards of the entry that failed which the new entry does not have: they may have failed too."""
    settled: bool = False
    """True when the new entry leaves the value free: this recompile happens once a run."""
    limit: bool = False
    """True when the function hit the recompile limit and runs in eager since."""
    expected: bool = False

    @property
    def what(self) -> str:
        """`size of x in dimension 0`."""
        name = f"`{self.source}`" if self.source else ""
        if not name and self.cause == "size condition":
            name = f"`{cut(self.guard)}`"
        if self.cause == "size" and self.dimension is not None:
            return f"{name} changed in dimension {self.dimension}"
        return f"{CAUSES[self.cause][0]}: {name}" if name else CAUSES[self.cause][0]

    @property
    def line(self) -> Place | None:
        """The line to show: the user's own, rather than one of a library that he calls."""
        if self.place is not None and not is_library(self.place.file):
            return self.place
        return self.call or self.place

    @property
    def name(self) -> str:
        """The function as the user wrote it."""
        name = unfold(self.frame.function) or "a function"
        return name if name == self.frame.function else f"{name}, resumed after a graph break,"

    @property
    def seen(self) -> str:
        """The values that were seen, in a few words: `8 → 5`."""
        if self.cause in ("size", "rank", "dtype", "device", "scalar", "requires_grad"):
            arrows = [v for v in self.values if "→" in v and len(v) < 30]
            return ", ".join(arrows[:3]) + (", …" if len(arrows) > 3 else "")
        return ""

    @property
    def others(self) -> tuple[str, ...]:
        """What else differs between the two entries, by name: it would have to change as well."""
        names = dict.fromkeys(
            c.source if "size()" in c.source else _INDEX.sub("[*]", c.source)
            for c in self.also
            if not self._same_thing(c)
        )
        return tuple(name for name in names if name not in ("", self.source))

    def _same_thing(self, change: GuardChange) -> bool:
        """True for a guard that differs because of the very thing that this cause is."""
        if self.cause in ("grad mode", "global state"):
            return change.source == "global state"
        if self.cause == "training mode":
            return change.source.endswith((".training", ".track_running_stats"))
        return self.cause in SHARED and change.aspect == self.cause

    @property
    def special(self) -> bool:
        """True when one of the sizes is 0 or 1, which torch never makes dynamic by itself."""
        return self.cause == "size" and any(
            v.startswith(("0 ", "1 ")) or v.endswith((" 0", " 1")) for v in self.values
        )

    @property
    def advice(self) -> str:
        if "___stack" in self.source:
            return CAUSES["resume value"][1]
        if self.specialised is not None:
            return (
                f"{self.specialised.short} makes this size a constant, so it cannot be dynamic: write that line without "
                "the number (no loop over it, no comparison with it), or pad to a few fixed sizes"
            )
        text = CAUSES[self.cause][1]
        dimension = "…" if self.dimension is None else str(self.dimension)
        return text.replace("{source}", self.source or "the tensor").replace("{dim}", dimension)


@dataclass(slots=True)
class _Group:
    first: GuardFailure
    members: list[tuple[Log, Compile]] = field(default_factory=list)
    values: dict[str, None] = field(default_factory=dict)


def frame_of(compile: Compile) -> Frame:
    place = compile.place
    return Frame(compile.function, place.file if place else "", place.line if place else 0)


def recompile_causes(trace: Trace, *, examine: bool = True) -> tuple[RecompileCause, ...]:
    """Causes, dearest first. `examine` reads guard trees for lines and for further differences."""
    return _examined_all(trace) if examine else tuple(cause for cause, _ in _grouped(trace))


@once
def _examined_all(trace: Trace) -> tuple[RecompileCause, ...]:
    of = siblings(trace)
    return tuple(
        _examined(trace, cause, group.members, of) if index < EXAMINED else cause
        for index, (cause, group) in enumerate(_grouped(trace))
    )


@once
def _grouped(trace: Trace) -> list[tuple[RecompileCause, _Group]]:
    """Causes with their members, dearest first."""
    groups: dict[tuple[Frame, str, str, int | None], _Group] = {}
    totals: dict[Frame, int] = {}
    of = siblings(trace)
    limits = _limits(trace, of)
    for log, compile in trace.compiles():
        if not compile.reasons:
            continue
        frame = named_frame(log, compile, of)
        totals[frame] = totals.get(frame, 0) + 1
        reason = compile.reasons[0]
        source = _INDEX.sub("[*]", short_source(reason.source) or blank(reason.guard))
        key = (frame, reason.cause, source, reason.dimension if reason.cause == "size" else None)
        group = groups.setdefault(key, _Group(reason))
        group.members.append((log, compile))
        group.values[_values(reason)] = None
    pairs = [(_cause(key, group, key[0] in limits, totals[key[0]]), group) for key, group in groups.items()]
    pairs.sort(key=lambda pair: (-pair[0].seconds, -pair[0].count))
    return pairs


FrameKey = tuple[str, int | None, int | None]


def frame_key(log: Log, compile: Compile) -> FrameKey:
    """Which compiles are of one frame: log, compiled autograd, frame."""
    return (log.name, compile.id.autograd, compile.id.frame)


@once
def siblings(trace: Trace) -> dict[FrameKey, list[Compile]]:
    """The compiles of each frame, in order."""
    out: dict[FrameKey, list[Compile]] = {}
    for log, compile in trace.compiles():
        out.setdefault(frame_key(log, compile), []).append(compile)
    return out


def named_frame(log: Log, compile: Compile, of: dict[FrameKey, list[Compile]]) -> Frame:
    """A compile that was refused has no name of its own; its siblings have."""
    if compile.function:
        return frame_of(compile)
    named = next((other for other in of.get(frame_key(log, compile), ()) if other.function), compile)
    return frame_of(named)


def _limits(trace: Trace, of: dict[FrameKey, list[Compile]]) -> set[Frame]:
    return {
        named_frame(log, c, of) for log, c in trace.compiles() if c.failure is not None and is_limit(c.failure.reason)
    }  # fmt: skip


def _values(reason: GuardFailure) -> str:
    if reason.cause in ("identity", "type"):
        return ""  # numbers that say nothing
    if reason.expected and reason.actual:
        return f"{cut(reason.expected)} → {cut(reason.actual)}"
    return cut(reason.expected or reason.guard)


def cut(text: str, limit: int = 60) -> str:
    """A text of any length as a short one."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _cause(
    key: tuple[Frame, str, str, int | None], group: _Group, limit: bool, of_frame: int
) -> RecompileCause:
    frame, cause, source, dimension = key
    first = group.first
    return RecompileCause(
        frame=frame, cause=cause, source=source if first.source else "", dimension=dimension, guard=first.guard,
        count=sum(c.failure is None for _, c in group.members), seconds=sum(c.seconds for _, c in group.members),
        compiles=tuple((log.name, c.id) for log, c in group.members), values=tuple(filter(None, group.values)), place=first.place,
        call=next((site for _, c in group.members if (site := call_site(c.stack))), None), hint=first.hint, limit=limit,
        refused=sum(c.failure is not None for _, c in group.members),
        expected=cause in ONCE_IS_EXPECTED and of_frame == len({log.name for log, _ in group.members}),
    )  # fmt: skip


def _examined(
    trace: Trace, cause: RecompileCause, members: list[tuple[Log, Compile]], of: dict[FrameKey, list[Compile]]
) -> RecompileCause:
    """With the guard trees of one of its recompiles: whose line the guard is, and what else differs."""
    log, compile = members[0]
    entry = _entry(of[frame_key(log, compile)], compile)
    before = guards_of(trace, log, entry)
    after = guards_of(trace, log, compile)
    place = cause.place or _installed(before, cause.source)
    place = place and in_full(place, log.files)
    differing = changes(before, after) if before and after else ()
    also = tuple(
        c
        for c in failed_together(trace, log, compile) or differing
        if c.before != NOT_GUARDED and (c.source, c.aspect) != (cause.source, _aspect(cause))
    )
    free = (DYNAMIC, NOT_GUARDED)
    settled = any(
        (c.source, c.aspect) == (cause.source, _aspect(cause)) and c.after in free for c in differing
    )
    chain, earlier = _chain(compile), _chain(entry) if entry is not None else ()
    return replace(
        cause, place=place, also=also, settled=settled and cause.count == 1, chain=chain,
        chain_before=earlier if earlier != chain else (), specialised=_specialised(cause, ([] if entry is None else [entry]) + [c for _, c in members]),
    )  # fmt: skip


def _chain(compile: Compile) -> tuple[Place, ...]:
    return tuple(place for place in user_frames(compile.stack[:-1]) if place.function != "<module>")


def _specialised(cause: RecompileCause, compiles: list[Compile]) -> Place | None:
    """Where one of these compiles made the very size a constant that its recompile was for."""
    if cause.cause not in ("size", "size condition"):
        return None
    for compile in compiles:
        for guard in compile.shape_guards:
            for match in filter(None, map(SIZE.match, guard.sources if guard.specialised else ())):
                same = short_source(match["source"]) == cause.source and int(match["dim"]) == cause.dimension
                if same and guard.place is not None:
                    return guard.place
    return None


def failed_together(trace: Trace, log: Log, compile: Compile) -> tuple[GuardChange, ...]:
    """Every guard that failed, where the run was recorded by torchtriage's probe: torch writes down the first only."""
    written = artifact_of(log, compile, FAILING)
    texts = lenient_json(trace.text(log, written).encode()) if written is not None else None
    if not isinstance(texts, list):
        return ()
    found = [parse_reason(str(text)) for text in texts]
    return tuple(
        GuardChange(
            short_source(f.source) or blank(f.guard),
            aspect_of(f.cause, f.dimension),
            f.expected or f.guard,
            f.actual or "another",
            f.place and in_full(f.place, log.files),
        )
        for f in found
    )


@once
def guard_changes(trace: Trace) -> dict[tuple[str, CompileId], tuple[GuardChange, ...]]:
    """For each recompile, all guards that differ from those of the entry that it was compiled beside."""
    of = siblings(trace)
    trees: dict[str, tuple[Leaf, ...]] = {}
    pairs: dict[tuple[str, str], tuple[GuardChange, ...]] = {}
    out: dict[tuple[str, CompileId], tuple[GuardChange, ...]] = {}
    for log, compile in trace.compiles():
        entry = _entry(of[frame_key(log, compile)], compile) if compile.reasons else None
        sides = [None if c is None else artifact_of(log, c, TREE) for c in (entry, compile)]
        before, after = sides
        if before is None or after is None or not (before.digest and after.digest):
            continue
        digests = before.digest, after.digest
        if digests not in pairs:
            if len(pairs) >= PAIRS:
                continue
            for one in (before, after):
                if one.digest not in trees:
                    trees[one.digest] = parse_tree(trace.text(log, one))
            pairs[digests] = changes(*(trees[digest] for digest in digests))
        out[(log.name, compile.id)] = pairs[digests]
    return out


def _aspect(cause: RecompileCause) -> str:
    return aspect_of(cause.cause, cause.dimension)


def aspect_of(cause: str, dimension: int | None) -> str:
    if dimension is None:
        return "value" if cause in ("scalar", "flag", "attribute", "global value") else cause
    return f"{cause}[{dimension}]"


def _entry(frame: list[Compile], compile: Compile) -> Compile | None:
    """The cache entry that the first reason speaks of: else the newest of the frame before this compile."""
    position = next(n for n, other in enumerate(frame) if other is compile)
    wanted = compile.reasons[0].entry if compile.reasons else ""
    newest: Compile | None = None
    for other in reversed(frame[:position]):
        if other.failure is None:
            newest = newest or other
            if not wanted or str(other.id) == wanted:
                return other
    return newest


def guards_of(trace: Trace, log: Log, compile: Compile | None) -> tuple[Leaf, ...]:
    """The leaves of a compile's guard tree; none where it was not logged."""
    tree = None if compile is None else artifact_of(log, compile, TREE)
    return parse_tree(trace.text(log, tree)) if tree is not None else ()


def artifact_of(log: Log, compile: Compile, *titles: str) -> Artifact | None:
    """The last artefact of a compile with one of these titles."""
    for title in titles:
        for number in reversed(compile.artifacts):
            if log.artifacts[number].title == title:
                return log.artifacts[number]
    return None


def _installed(leaves: tuple[Leaf, ...], source: str) -> Place | None:
    """The line that needed the guard on a source."""
    wanted = short_source(source)
    exact = [leaf.place for leaf in leaves if leaf.place is not None and leaf.source == wanted]
    return exact[0] if exact else None
