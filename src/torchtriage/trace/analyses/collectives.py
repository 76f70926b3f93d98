"""Collectives and estimated runtimes of compiled graphs, by rank: what runs, for how long, and how far ranks are apart."""

from __future__ import annotations

from dataclasses import dataclass

from torchtriage.trace.analyses.recompiles import artifact_of
from torchtriage.trace.load import Trace
from torchtriage.trace.model import finite


@dataclass(frozen=True, slots=True)
class Schedule:
    """The collectives of one graph in their order, on the ranks that have the same."""

    compile: str
    ranks: tuple[str, ...]
    operations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Runtime:
    """Inductor's estimate of one graph's runtime. Milliseconds."""

    compile: str
    fastest: str
    slowest: str
    least: float
    most: float
    collectives: float
    """Of the slowest rank, the part spent in collectives."""


def schedules(trace: Trace) -> tuple[Schedule, ...]:
    """Groups of ranks by their schedule, graph by graph."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for log in trace.logs:
        for compile in log.compiles:
            one = artifact_of(log, compile, "inductor_collective_schedule")
            plain = trace.json(log, one) if one is not None else None
            if isinstance(plain, list) and plain:
                groups.setdefault((str(compile.id), tuple(map(str, plain))), []).append(log.title)
    return tuple(Schedule(compile, tuple(ranks), names) for (compile, names), ranks in groups.items())


def runtimes(trace: Trace) -> tuple[Runtime, ...]:
    """Estimates, the largest difference between ranks first."""
    rows: dict[str, list[tuple[float, str, float]]] = {}
    for log in trace.logs:
        for compile in log.compiles:
            one = artifact_of(log, compile, "inductor_runtime_and_tensor_meta")
            plain = trace.json(log, one) if one is not None else None
            ops = plain.get("ops") if isinstance(plain, dict) else None
            if not isinstance(ops, list):
                continue
            known = [op for op in ops if isinstance(op, dict)]
            total = sum(finite(op.get("estimated_runtime_ns")) for op in known) / 1e6
            shared = (
                sum(finite(op.get("estimated_runtime_ns")) for op in known if op.get("type") == "collective")
                / 1e6
            )
            rows.setdefault(str(compile.id), []).append((total, log.title, shared))
    found = []
    for compile_id, members in rows.items():
        low, high = min(members), max(members)
        found.append(Runtime(compile_id, low[1], high[1], low[0], high[0], high[2]))
    return tuple(sorted(found, key=lambda r: r.least - r.most))
