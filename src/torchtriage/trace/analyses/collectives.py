"""Collectives and estimated runtimes of compiled graphs, by rank: what runs, for how long, and how far ranks are apart."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from torchtriage.trace.analyses.recompiles import artifact_of
from torchtriage.trace.load import Trace
from torchtriage.trace.model import finite

#: A call of a collective in generated code, or of the wait for one; what is commented out is not called.
_CALL = re.compile(r"^[^#\n]*?(?<![\w.])(torch\.ops\._c10d_functional\.\w+\.\w+)\(", re.M)


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


@dataclass(frozen=True, slots=True)
class Disparity:
    """A graph whose generated code does not call the collectives that were scheduled for it."""

    compile: str
    ranks: tuple[str, ...]
    scheduled: tuple[tuple[str, int], ...]
    in_code: tuple[tuple[str, int], ...]


def disparities(trace: Trace) -> tuple[Disparity, ...]:
    """Schedules against generated code, by operation and count. Equal pairs of texts are read once."""
    found: dict[tuple[str, str, str], list[str]] = {}
    texts: dict[tuple[str, str, str], tuple[Counter[str], Counter[str]]] = {}
    for log in trace.logs:
        if not any(one.name == "inductor_collective_schedule" for one in log.artifacts):
            continue
        for compile in log.compiles:
            plan, code = (
                artifact_of(log, compile, "inductor_collective_schedule"),
                artifact_of(log, compile, "inductor_output_code"),
            )
            if plan is None or code is None:
                continue
            key = (str(compile.id), plan.digest, code.digest)
            if key not in texts:
                names = trace.json(log, plan)
                scheduled = Counter(map(str, names)) if isinstance(names, list) else Counter[str]()
                texts[key] = (
                    scheduled,
                    Counter(_CALL.findall(trace.text(log, code).partition("def call(")[2])),
                )
            if texts[key][0] != texts[key][1]:
                found.setdefault(key, []).append(log.title)
    return tuple(
        Disparity(key[0], tuple(ranks), *(tuple(sorted(side.items())) for side in texts[key]))
        for key, ranks in found.items()
    )  # fmt: skip


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


def operations_in(plain: Any) -> list[dict[str, Any]]:
    """The operations of a graph with their estimates, as `inductor_runtime_and_tensor_meta` has them."""
    ops = plain.get("ops") if isinstance(plain, dict) else None
    return [op for op in ops if isinstance(op, dict)] if isinstance(ops, list) else []


def runtimes(trace: Trace) -> tuple[Runtime, ...]:
    """Estimates, the largest difference between ranks first."""
    rows: dict[str, list[tuple[float, str, float]]] = {}
    for log in trace.logs:
        for compile in log.compiles:
            one = artifact_of(log, compile, "inductor_runtime_and_tensor_meta")
            known = operations_in(trace.json(log, one)) if one is not None else []
            if not known:
                continue
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
