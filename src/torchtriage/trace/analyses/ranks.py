"""Do ranks agree? Compiles, graphs, cache look-ups, collectives and time, compared across the logs of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

from torchtriage.trace.analyses.recompiles import artifact_of
from torchtriage.trace.load import Trace, once
from torchtriage.trace.model import Compile, Log

#: Different texts of one compile that are read for their difference.
COMPARED = 64
_IDENTITY = re.compile(r"\b\d{12,}\b")
_DEVICE = re.compile(r"\b(cuda|xpu|hpu|npu|mtia):\d+")


@dataclass(frozen=True, slots=True)
class Divergence:
    """One thing in which ranks form more than one group."""

    what: str
    groups: tuple[tuple[str, ...], ...]
    """Names of ranks that agree with each other, the largest group first."""
    first_difference: str = ""
    compile: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A compile that some ranks finished later than others: those who were early wait at the next collective."""

    compile: str
    fastest: str
    slowest: str
    seconds: float


@dataclass(frozen=True, slots=True)
class RankRow:
    name: str
    compiles: int
    recompiles: int
    failed: int
    hits: int
    misses: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RankReport:
    rows: tuple[RankRow, ...]
    divergences: tuple[Divergence, ...]
    waiting: tuple[Waiting, ...]


@once
def rank_report(trace: Trace) -> RankReport:
    """Rows for every log; divergences only where there are several."""
    rows = tuple(_row(log) for log in trace.logs)
    if len(trace.logs) < 2:
        return RankReport(rows, (), ())
    found: list[Divergence] = []
    for what, of, explain in ASPECTS:
        groups = _groups(trace, of)
        if len(groups) > 1:
            found.append(Divergence(what, tuple(g for _, g in groups), explain([key for key, _ in groups])))
    found.extend(_collectives(trace))
    found.extend(_payloads(trace))
    return RankReport(rows, tuple(found), _waiting(trace))


def _row(log: Log) -> RankRow:
    events = [e for c in log.compiles for e in c.caches]
    return RankRow(
        log.title, len(log.compiles), sum(bool(c.reasons) for c in log.compiles),
        sum(c.failure is not None for c in log.compiles), sum(e.state == "hit" for e in events),
        sum(e.state == "miss" for e in events), log.seconds,
    )  # fmt: skip


def _groups(trace: Trace, of: Callable[[Log], Hashable]) -> list[tuple[Hashable, tuple[str, ...]]]:
    groups: dict[Hashable, list[str]] = {}
    for log in trace.logs:
        groups.setdefault(of(log), []).append(log.title)
    return sorted(((key, tuple(names)) for key, names in groups.items()), key=lambda g: -len(g[1]))


def _ids(log: Log) -> Hashable:
    return tuple(sorted(f"{c.id} {c.function}" for c in log.compiles))


def _caches(log: Log) -> Hashable:
    return tuple(f"{c.id} {e.cache}: {e.state}" for c in log.compiles for e in c.caches)


def _recompiles(log: Log) -> Hashable:
    return tuple(f"{c.id}: {_IDENTITY.sub('<id>', c.reasons[0].guard)}" for c in log.compiles if c.reasons)


def _failures(log: Log) -> Hashable:
    return tuple(f"{c.id}: {c.failure.type}" for c in log.compiles if c.failure is not None)


def _first(keys: list[Hashable]) -> str:
    """The first entry in which the two largest groups differ."""
    a, b = keys[0], keys[1]
    assert isinstance(a, tuple)
    assert isinstance(b, tuple)
    for index in range(max(len(a), len(b))):
        left = a[index] if index < len(a) else "nothing"
        right = b[index] if index < len(b) else "nothing"
        if left != right:
            return f"first difference, entry {index + 1}: {left!s:.200} against {right!s:.200}"
    return ""


def _missing(keys: list[Hashable]) -> str:
    a, b = keys[0], keys[1]
    assert isinstance(a, tuple)
    assert isinstance(b, tuple)
    only_a, only_b = sorted(set(a) - set(b)), sorted(set(b) - set(a))
    parts = [
        f"only in the {which} group: {', '.join(only[:5])}"
        for which, only in (("first", only_a), ("second", only_b))
        if only
    ]
    return "; ".join(parts)


#: what diverges -> the value compared for each log, and the words for a difference.
ASPECTS: tuple[tuple[str, Callable[[Log], Hashable], Callable[[list[Hashable]], str]], ...] = (
    ("what was compiled", _ids, _missing),
    ("cache hits and misses", _caches, _first),
    ("recompiles", _recompiles, _first),
    ("failures", _failures, _first),
)

#: artefact -> what it is to the user. Compared compile by compile.
SHARED: tuple[tuple[str, str], ...] = (
    ("dynamo_output_graph", "graphs"),
    ("inductor_runtime_and_tensor_meta", "shapes of intermediate tensors"),
)


def _payloads(trace: Trace) -> list[Divergence]:
    """Artefacts that should be the same on all ranks, and are not, with the first line that differs."""
    found: list[Divergence] = []
    for title, what in SHARED:
        by_compile: dict[str, dict[str, list[tuple[Log, Compile]]]] = {}
        for log in trace.logs:
            for compile in log.compiles:
                one = artifact_of(log, compile, title)
                if one is not None:
                    digest = one.digest or str(one.length)
                    by_compile.setdefault(str(compile.id), {}).setdefault(digest, []).append((log, compile))
        for compile_id, groups in by_compile.items():
            if len(groups) > 1:
                found.extend(_differing(trace, what, title, compile_id, list(groups.values())))
    return [*found, *_execution(trace)]


Members = list[tuple[Log, Compile]]


def _differing(
    trace: Trace, what: str, title: str, compile_id: str, groups: list[Members]
) -> Iterator[Divergence]:
    """A divergence where groups of unequal texts are unequal in more than what differs by nature."""
    same: dict[tuple[str, ...], tuple[list[tuple[int, str]], Members]] = {}
    for members in groups[:COMPARED]:
        log, compile = members[0]
        one = artifact_of(log, compile, title)
        lines = trace.text(log, one).split("\n") if one is not None else []
        kept = [(n, t) for n, line in enumerate(lines, 1) if (t := _comparable(line))]
        same.setdefault(tuple(t for _, t in kept), (kept, []))[1].extend(members)
    if len(same) < 2:
        return
    ordered = sorted(same.values(), key=lambda g: -len(g[1]))
    difference = ""
    for left, right in zip_longest(ordered[0][0], ordered[1][0], fillvalue=(0, "nothing")):
        if left[1] != right[1]:
            difference = f"line {max(left[0], right[0])}: {_around(left[1], right[1])}"
            break
    yield Divergence(
        what, tuple(tuple(log.title for log, _ in group) for _, group in ordered), difference, compile_id
    )


def _comparable(line: str) -> str:
    """A line without what differs from rank to rank by nature: the device number, identities, estimates, comments."""
    line = line.strip().rstrip(",")
    if line.startswith(("#", '"estimated_runtime')):
        return ""
    return _IDENTITY.sub("<id>", _DEVICE.sub(r"\1", line))


def _around(left: str, right: str, width: int = 100) -> str:
    """Two lines from a little before the first character in which they differ."""
    same = next((i for i, (a, b) in enumerate(zip(left, right)) if a != b), min(len(left), len(right)))  # noqa: B905
    begin = max(0, same - 30)
    return f"{left[begin : begin + width]} against {right[begin : begin + width]}"


def _collectives(trace: Trace) -> list[Divergence]:
    """The collectives of all graphs of a rank in their order: a rank that has fewer, or none, is waited for for ever."""
    orders: dict[tuple[str, ...], list[str]] = {}
    for log in trace.logs:
        if log.compiles:
            plans = ((c.id, artifact_of(log, c, "inductor_collective_schedule")) for c in log.compiles)
            texts = ((number, trace.json(log, one)) for number, one in plans if one is not None)
            order = tuple(
                f"{number}: {name}" for number, names in texts if isinstance(names, list) for name in names
            )
            orders.setdefault(order, []).append(log.title)
    return _ordered("collectives, or their order", orders)


def _execution(trace: Trace) -> list[Divergence]:
    """The order in which compiled graphs ran, where it was recorded."""
    orders: dict[tuple[str, ...], list[str]] = {}
    for log in trace.logs:
        for compile in (log.outside, *log.compiles):
            one = artifact_of(log, compile, "graph_execution", "inductor_graph_execution")
            if one is not None:
                orders.setdefault(_ran(trace.json(log, one)), []).append(log.title)
                break
    return _ordered("the order in which graphs ran", orders)


def _ran(plain: object) -> tuple[str, ...]:
    """The compiles of a record of what ran, in its order; the record as it is where it is of another form."""
    rows = plain.get("graph_execution_order") if isinstance(plain, dict) else None
    if not isinstance(rows, list):
        return (str(plain),)
    return tuple(str(row.get("compile_id")) if isinstance(row, dict) else str(row) for row in rows)


def _ordered(what: str, orders: dict[tuple[str, ...], list[str]]) -> list[Divergence]:
    """A divergence where logs have different sequences, with the first entry in which the two largest groups differ."""
    if len(orders) < 2:
        return []
    groups = sorted(orders.items(), key=lambda g: -len(g[1]))
    keys: list[Hashable] = [order for order, _ in groups]
    return [Divergence(what, tuple(tuple(names) for _, names in groups), _first(keys))]


def _waiting(trace: Trace, limit: int = 20) -> tuple[Waiting, ...]:
    times: dict[str, list[tuple[float, str]]] = {}
    for log in trace.logs:
        for compile in log.compiles:
            times.setdefault(str(compile.id), []).append((compile.seconds, log.title))
    found = []
    for compile_id, rows in times.items():
        if len(rows) > 1:
            low, high = min(rows), max(rows)
            if high[0] - low[0] > 0.05:
                found.append(Waiting(compile_id, low[1], high[1], high[0] - low[0]))
    return tuple(sorted(found, key=lambda w: -w.seconds)[:limit])
