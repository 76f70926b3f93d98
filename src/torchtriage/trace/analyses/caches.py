"""Did the compile caches help? Hits and misses by cache, and why a look-up was refused."""

from __future__ import annotations

from dataclasses import dataclass

from torchtriage.trace.load import Trace
from torchtriage.trace.model import CompileId


@dataclass(frozen=True, slots=True)
class CacheUse:
    """One cache over the whole trace."""

    cache: str
    hits: int = 0
    misses: int = 0
    bypasses: int = 0
    disabled: int = 0


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
    for log in trace.logs:
        for compile in (*log.compiles, log.outside):
            for event in compile.caches:
                states = counts.setdefault(event.cache, {})
                states[event.state] = states.get(event.state, 0) + 1
    return tuple(
        CacheUse(cache, s.get("hit", 0), s.get("miss", 0), s.get("bypass", 0), s.get("disabled", 0))
        for cache, s in sorted(counts.items())
    )


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
