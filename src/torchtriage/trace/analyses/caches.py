"""Did the compile caches help? Hits and misses by cache, and why a look-up was refused."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchtriage.trace.load import Trace
from torchtriage.trace.model import CacheEvent, Compile, CompileId, Log

#: Misses whose keys are compared with the one before.
EXAMINED = 40
_COMPONENT = re.compile(r"\[(?P<hash>\w+)\] (?P<name>[^:]{1,80}): (?P<value>[^\0]*)")
Found = tuple[Log, CacheEvent]


@dataclass(frozen=True, slots=True)
class KeyChange:
    """Misses of a function whose graph had been looked up before with another key."""

    cache: str
    function: str
    names: tuple[str, ...]
    """The parts of the key that differ."""
    seconds: float
    compiles: tuple[tuple[str, CompileId], ...]
    parts: tuple[str, ...]
    """Of the first such miss: `name: before → after`."""


@dataclass(frozen=True, slots=True)
class CacheUse:
    """One cache over the whole trace."""

    cache: str
    hits: int = 0
    misses: int = 0
    bypasses: int = 0
    disabled: int = 0
    saved: float = 0.0
    """Seconds that hits saved, as far as they say so."""
    taken: float = 0.0
    """Seconds that misses took, likewise."""


@dataclass(frozen=True, slots=True)
class Starts:
    """Compiles by what the caches did for them: how a cold start compares with a warm one."""

    warm: int
    """Compiles whose look-ups all hit."""
    warm_seconds: float
    cold: int
    """Compiles with a miss."""
    cold_seconds: float
    kept: float
    """Seconds of the cold ones in phases whose results a cache keeps: a warm start does not pay them again."""
    without: int
    """Compiles for which no cache was asked, or each refused."""
    without_seconds: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """Look-ups that were not even tried, for one reason."""

    cache: str
    reason: str
    count: int
    seconds: float
    """Compile time of the compiles concerned."""
    compiles: tuple[tuple[str, CompileId], ...]


def cache_use(trace: Trace) -> tuple[CacheUse, ...]:
    counts: dict[str, dict[str, int]] = {}
    seconds: dict[tuple[str, str], float] = {}
    for log in trace.logs:
        for compile in (*log.compiles, log.outside):
            for event in compile.caches:
                states = counts.setdefault(event.cache, {})
                states[event.state] = states.get(event.state, 0) + 1
                key = (event.cache, event.state)
                seconds[key] = seconds.get(key, 0.0) + event.seconds
    return tuple(
        CacheUse(
            cache,
            s.get("hit", 0),
            s.get("miss", 0),
            s.get("bypass", 0),
            s.get("disabled", 0),
            seconds.get((cache, "hit"), 0.0),
            seconds.get((cache, "miss"), 0.0),
        )
        for cache, s in sorted(counts.items())
    )


#: Phases that a hit in the caches of Inductor and AOTAutograd skips.
KEPT = (
    "lowering", "scheduling", "code generation", "C++/Triton compile", "autotuning", "graph passes", "Inductor, other",
)  # fmt: skip


def starts(trace: Trace) -> Starts:
    """Cold compiles, warm ones, and those without a cache."""
    sums = {name: [0, 0.0] for name in ("warm", "cold", "without")}
    kept = 0.0
    for _, compile in trace.compiles():
        if not compile.graphs:
            continue
        states = {event.state for event in compile.caches}
        name = "cold" if "miss" in states else "warm" if "hit" in states else "without"
        sums[name][0] += 1
        sums[name][1] += compile.seconds
        if name == "cold":
            kept += min(compile.seconds, sum(compile.phases.get(phase, 0.0) for phase in KEPT))
    warm, cold, without = sums["warm"], sums["cold"], sums["without"]
    return Starts(int(warm[0]), warm[1], int(cold[0]), cold[1], kept, int(without[0]), without[1])


def key_difference(trace: Trace, a: Found, b: Found) -> tuple[str, ...]:
    """Why two look-ups had different keys: the parts of the key that differ, as `name: before → after`."""
    parts = [
        _components(trace.json(log, log.artifacts[event.artifact]))
        for log, event in (a, b)
        if event.artifact is not None
    ]
    if len(parts) < 2 or not all(parts):
        return ()
    old, new = parts
    names = [
        name for name in dict.fromkeys((*old, *new)) if old.get(name, ("",))[0] != new.get(name, ("",))[0]
    ]
    return tuple(f"{name}: {_seen(old, name)} → {_seen(new, name)}" for name in names)


def key_changes(trace: Trace) -> tuple[KeyChange, ...]:
    """Misses although the same graph of the same function had been looked up before, by what differs in the key.

    A miss with another graph is what a recompile is, and is not told.
    """
    groups: dict[tuple[str, str, tuple[str, ...]], list[tuple[Log, Compile, tuple[str, ...]]]] = {}
    before: dict[tuple[str, str, str], Found] = {}
    examined = 0
    for log, compile in trace.compiles():
        for event in compile.caches:
            if event.artifact is None or not event.key or event.state not in ("hit", "miss"):
                continue
            name = (event.cache, compile.user_function, str(compile.place))
            last = before.get(name)
            before[name] = (log, event)
            if last is None or event.state != "miss" or last[1].key == event.key or examined >= EXAMINED:
                continue
            examined += 1
            parts = key_difference(trace, last, (log, event))
            names = tuple(part.partition(":")[0] for part in parts)
            if parts and "gm" not in names:
                groups.setdefault((event.cache, compile.user_function, names), []).append(
                    (log, compile, parts)
                )
    found = [
        KeyChange(
            cache, function, names, sum(c.seconds for _, c, _ in members),
            tuple((log.name, c.id) for log, c, _ in members), members[0][2],
        )
        for (cache, function, names), members in groups.items()
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda k: -k.seconds))


def _components(plain: object) -> dict[str, tuple[str, str]]:
    """Part of a cache key -> (its hash, its beginning). Parts of one name are numbered."""
    lines = plain.get("components") if isinstance(plain, dict) else None
    out: dict[str, tuple[str, str]] = {}
    for line in lines if isinstance(lines, list) else ():
        match = _COMPONENT.match(str(line))
        if match is not None:
            name = match["name"].strip()
            while name in out:
                name += "'"
            out[name] = (match["hash"], " ".join(match["value"].split())[:120])
    return out


def _seen(parts: dict[str, tuple[str, str]], name: str) -> str:
    return parts[name][1] if name in parts else "absent"


def refusals(trace: Trace) -> tuple[Refusal, ...]:
    """Bypasses by reason, dearest first."""
    found: dict[tuple[str, str], dict[tuple[str, CompileId], float]] = {}
    for log, compile in trace.compiles():
        for event in compile.caches:
            if event.state == "bypass":
                key = (event.cache, " ".join(event.reason.split()) or "no reason is given")
                found.setdefault(key, {})[(log.name, compile.id)] = compile.seconds
    out = [
        Refusal(cache, reason, len(members), sum(members.values()), tuple(members))
        for (cache, reason), members in found.items()
    ]
    return tuple(sorted(out, key=lambda r: -r.seconds))
