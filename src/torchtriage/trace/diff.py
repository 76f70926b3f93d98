"""What changed between two traces? Frames matched by their code, not by their number; most important first."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torchtriage.trace.analyses.caches import CacheUse, cache_use
from torchtriage.trace.analyses.compile_time import time_use
from torchtriage.trace.analyses.graph_breaks import BreakSite, break_sites
from torchtriage.trace.analyses.recompiles import artifact_of, cut, guards_of, recompile_causes
from torchtriage.trace.guard_tree import changes as guard_changes
from torchtriage.trace.load import Trace
from torchtriage.trace.model import Compile, Log
from torchtriage.trace.records import lenient_json
from torchtriage.trace.sides import Sides, side_by_side

#: Seconds, and share, below which two compile times are the same.
NOISE_SECONDS, NOISE_SHARE = 0.5, 0.2
#: Lines shown of one text difference.
LINES = 12
#: Pairs of compiles whose texts are read.
READ_PAIRS = 200

WEIGHTS = {
    "version": 100, "failure": 90, "graph break": 80, "recompiles": 70, "frame": 60, "config": 50, "graph": 40,
    "guards": 30, "code": 20, "cache": 15, "time": 10,
}  # fmt: skip

#: Lines of whole texts in a page, about.
WHOLE_LINES = 60_000

#: artefact titles, newest naming first -> kind of change, what it is to the user.
TEXTS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("dynamo_output_graph",), "graph", "the captured graph"),
    (("inductor_post_grad_graph", "after_post_grad_graph"), "graph", "the graph after Inductor's passes"),
    (("inductor_output_code",), "code", "the generated code"),
)


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs. `seconds` is what the second trace takes more."""

    kind: str
    title: str
    seconds: float = 0.0
    details: tuple[str, ...] = ()
    before: str = ""
    """The compile in the first trace, as `0/1`."""
    after: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """The same compile in both traces: the n-th of a function."""

    function: str
    left: tuple[Log, Compile]
    right: tuple[Log, Compile]


Key = tuple[str, str, int]
Functions = dict[Key, list[tuple[Log, Compile]]]


def compare(left: Trace, right: Trace) -> tuple[Change, ...]:
    """Everything that differs, most important first."""
    pairs, only_left, only_right = match(left, right)
    found: list[Change] = [
        *_versions(left, right),
        *_failures(pairs),
        *_breaks(left, right),
        *_recompiles(left, right),
        *_frames(only_left, only_right),
        *_configs(left, right),
        *_texts(left, right, pairs),
        *_caches(left, right),
        *_times(left, right, pairs),
    ]
    return tuple(sorted(found, key=lambda c: (-WEIGHTS[c.kind], -abs(c.seconds))))


def match(
    left: Trace, right: Trace
) -> tuple[list[Pair], list[tuple[Log, Compile]], list[tuple[Log, Compile]]]:
    """Pairs of compiles of the same function, and those that only one trace has.

    A function is known by its name and file; its line only where several have the same name. One that is only on
    one side is matched with the only one of its name on the other: the file may have been copied or renamed.
    """
    a, b = _by_function(left), _renamed(_by_function(left), _by_function(right))
    pairs: list[Pair] = []
    rest: tuple[list[tuple[Log, Compile]], list[tuple[Log, Compile]]] = ([], [])
    for key in dict.fromkeys((*a, *b)):
        ours, theirs = a.get(key, []), b.get(key, [])
        pairs.extend(Pair(key[0], x, y) for x, y in zip(ours, theirs))  # noqa: B905
        rest[0].extend(ours[len(theirs) :])
        rest[1].extend(theirs[len(ours) :])
    return pairs, *rest


def _renamed(a: Functions, b: Functions) -> Functions:
    """The second side under the keys of the first, where only the file's name differs."""
    alone = [{key: key[0] for key in side if key not in other} for side, other in ((a, b), (b, a))]
    of_name: list[dict[str, list[Key]]] = [{}, {}]
    for index, side in enumerate(alone):
        for key, name in side.items():
            of_name[index].setdefault(name, []).append(key)
    new: dict[Key, Key] = {}
    for name, keys in of_name[1].items():
        candidates = of_name[0].get(name, [])
        if len(keys) == len(candidates) == 1:
            new[keys[0]] = candidates[0]
    return {new.get(key, key): compiles for key, compiles in b.items()}


def _by_function(trace: Trace) -> Functions:
    places: dict[tuple[str, str], dict[int, None]] = {}
    compiles = [(log, c) for log, c in trace.compiles() if c.function]
    for _, compile in compiles:
        places.setdefault(_name(compile), {})[_line(compile)] = None
    out: dict[Key, list[tuple[Log, Compile]]] = {}
    for log, compile in compiles:
        name = _name(compile)
        order = sorted(places[name]).index(_line(compile))
        out.setdefault((*name, order), []).append((log, compile))
    return out


def _name(compile: Compile) -> tuple[str, str]:
    file = compile.place.file.rpartition("/")[2] if compile.place else ""
    return (
        compile.user_function if compile.resumed else compile.function,
        file + (" (resumed)" if compile.resumed else ""),
    )


def _line(compile: Compile) -> int:
    return compile.place.line if compile.place else 0


def _versions(left: Trace, right: Trace) -> Iterator[Change]:
    a, b = ({log.torch_version for log in t.logs if log.torch_version} for t in (left, right))
    if a != b and a and b:
        yield Change("version", f"torch {', '.join(sorted(a))} → {', '.join(sorted(b))}")


def _failures(pairs: list[Pair]) -> Iterator[Change]:
    for pair in pairs:
        was, now = pair.left[1].failure, pair.right[1].failure
        if (was is None) == (now is None) and (was is None or now is None or was.type == now.type):
            continue
        words = [cut(f"{f.type}: {f.reason}".split("\n")[0], 160) if f else "compiles" for f in (was, now)]
        yield Change(
            "failure",
            f"{pair.function}: {words[0]} → {words[1]}",
            before=str(pair.left[1].id),
            after=str(pair.right[1].id),
        )


def _breaks(left: Trace, right: Trace) -> Iterator[Change]:
    a, b = ({_site(s): s for s in break_sites(t)} for t in (left, right))
    for key in dict.fromkeys((*a, *b)):
        if key in a and key in b:
            continue
        site = b.get(key) or a[key]
        word = "new" if key in b else "gone"
        where = f" at {site.place.short}" if site.place else ""
        sign = 1 if key in b else -1
        yield Change(
            "graph break", f"{word}: graph break{where}: {cut(site.reason, 120)}", sign * site.seconds
        )


def _site(site: BreakSite) -> tuple[str, str, str]:
    place = site.place
    if place is None:
        return ("", "", site.reason)
    return (place.file.rpartition("/")[2], place.code or str(place.line), site.identifier or site.reason)


def _recompiles(left: Trace, right: Trace) -> Iterator[Change]:
    a, b = (
        {
            (c.frame.function, c.cause, c.source or c.guard, c.dimension): c
            for c in recompile_causes(t, examine=False)
        }
        for t in (left, right)
    )
    for key in dict.fromkeys((*a, *b)):
        was, now = a.get(key), b.get(key)
        counts = (was.count if was else 0, now.count if now else 0)
        if counts[0] == counts[1]:
            continue
        cause = now or was
        assert cause is not None  # the key came from one of them
        seconds = (now.seconds if now else 0.0) - (was.seconds if was else 0.0)
        yield Change(
            "recompiles", f"{cause.name}: recompiles {counts[0]} → {counts[1]}: {cause.what}", seconds
        )


def _frames(only_left: list[tuple[Log, Compile]], only_right: list[tuple[Log, Compile]]) -> Iterator[Change]:
    for word, sign, rest in (("only in the first", -1, only_left), ("only in the second", 1, only_right)):
        groups: dict[str, list[Compile]] = {}
        for _, compile in rest:
            groups.setdefault(compile.function, []).append(compile)
        for function, compiles in groups.items():
            ids = ", ".join(str(c.id) for c in compiles[:8])
            title = f"{len(compiles)} compile{'s' if len(compiles) > 1 else ''} of {function} {word}: {ids}"
            yield Change("frame", title, sign * sum(c.seconds for c in compiles))


def _configs(left: Trace, right: Trace) -> Iterator[Change]:
    a, b = _config(left), _config(right)
    for label in sorted(set(a) & set(b)):
        keys = [k for k in sorted(set(a[label]) | set(b[label])) if a[label].get(k) != b[label].get(k)]
        if keys:
            details = tuple(f"{k}: {_short(a[label], k)} → {_short(b[label], k)}" for k in keys)
            yield Change("config", f"{len(keys)} settings of {label} differ", details=details)


def _config(trace: Trace) -> dict[str, dict[str, Any]]:
    """The last configuration of each kind."""
    out: dict[str, dict[str, Any]] = {}
    for log in trace.logs:
        for key, text in log.configs.items():
            plain = lenient_json(text.encode("utf-8", "replace"))
            if isinstance(plain, dict):
                out[key.partition(":")[0]] = plain
    return out


def _short(config: dict[str, Any], key: str) -> str:
    return cut(json.dumps(config[key]), 80) if key in config else "absent"


def _texts(left: Trace, right: Trace, pairs: list[Pair]) -> Iterator[Change]:
    for pair in pairs[:READ_PAIRS]:
        for titles, kind, what in TEXTS:
            a, b = artifact_of(*pair.left, *titles), artifact_of(*pair.right, *titles)
            if a is None or b is None or (a.digest and a.digest == b.digest):
                continue
            lines = difference(left.text(pair.left[0], a), right.text(pair.right[0], b))
            if lines:
                yield Change(
                    kind,
                    f"{what} of {pair.function} differs",
                    details=lines,
                    before=str(pair.left[1].id),
                    after=str(pair.right[1].id),
                )
        moved = guard_changes(guards_of(left, *pair.left), guards_of(right, *pair.right))
        if moved:
            details = tuple(
                f"{g.aspect} of {g.source or 'the frame'}: {cut(g.before)} → {cut(g.after)}"
                for g in moved[:LINES]
            )
            yield Change(
                "guards",
                f"guards of {pair.function} differ in {len(moved)} places",
                details=details,
                before=str(pair.left[1].id),
                after=str(pair.right[1].id),
            )


@dataclass(frozen=True, slots=True)
class Timing:
    """One function in both traces: seconds of all its compiles, and how many there were."""

    function: str
    before: float
    after: float
    compiles_before: int
    compiles_after: int


@dataclass(frozen=True, slots=True)
class Details:
    """What a page shows below the list of changes."""

    timings: tuple[Timing, ...]
    phases: tuple[tuple[str, float, float], ...]
    caches: tuple[tuple[str, CacheUse | None, CacheUse | None], ...]
    settings: tuple[tuple[str, str, str, str], ...]
    """(which configuration, setting, before, after), those that differ."""
    texts: tuple[Sides, ...]


def details(left: Trace, right: Trace) -> Details:
    """Times, caches, settings and whole texts of both traces, next to each other."""
    a, b = ({c.cache: c for c in cache_use(t)} for t in (left, right))
    x, y = (dict(time_use(t).phases) for t in (left, right))
    old, new = _config(left), _config(right)
    settings = [
        (label, key, _short(old[label], key), _short(new[label], key))
        for label in sorted(set(old) & set(new))
        for key in sorted(set(old[label]) | set(new[label]))
        if old[label].get(key) != new[label].get(key)
    ]
    pairs, _, _ = match(left, right)
    return Details(
        _timings(left, right),
        tuple((name, x.get(name, 0.0), y.get(name, 0.0)) for name in dict.fromkeys((*x, *y))),
        tuple((name, a.get(name), b.get(name)) for name in dict.fromkeys((*a, *b))),
        tuple(settings), tuple(_whole_texts(left, right, pairs)),
    )  # fmt: skip


def _timings(left: Trace, right: Trace) -> tuple[Timing, ...]:
    sums: dict[Key, list[float]] = {}
    a = _by_function(left)
    for side, functions in enumerate((a, _renamed(a, _by_function(right)))):
        for key, compiles in functions.items():
            row = sums.setdefault(key, [0.0, 0.0, 0, 0])
            row[side] += sum(c.seconds for _, c in compiles)
            row[2 + side] += len(compiles)
    found = [
        Timing(f"{key[0]} ({key[1]})", row[0], row[1], int(row[2]), int(row[3])) for key, row in sums.items()
    ]
    return tuple(sorted(found, key=lambda t: -abs(t.after - t.before)))


def _whole_texts(left: Trace, right: Trace, pairs: list[Pair]) -> Iterator[Sides]:
    """Graphs, guards and generated code of matched compiles, where they differ."""
    shown = 0
    for pair in pairs[:READ_PAIRS]:
        for titles, _, what in (*TEXTS, (("dynamo_cpp_guards_str",), "guards", "the guards")):
            a, b = artifact_of(*pair.left, *titles), artifact_of(*pair.right, *titles)
            if a is None or b is None or (a.digest and a.digest == b.digest) or shown > WHOLE_LINES:
                continue
            ids = str(pair.left[1].id), str(pair.right[1].id)
            texts = left.text(pair.left[0], a), right.text(pair.right[0], b)
            sides = side_by_side(f"{what} of {pair.function}", *ids, texts)
            if sides.differing:
                shown += sum(len(run.rows) for run in sides.runs)
                yield sides


def difference(before: str, after: str) -> tuple[str, ...]:
    """The first changed lines of two texts; comments, which hold paths and numbers, are left out."""
    a, b = (
        [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith(("#", "//"))]
        for text in (before, after)
    )
    if a == b:
        return ()
    if len(a) + len(b) > 8_000:
        first = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))  # noqa: B905
        return tuple(
            f"{sign} {cut(t[first].strip(), 160)}" for sign, t in (("-", a), ("+", b)) if first < len(t)
        )
    lines = [
        cut(line.rstrip(), 160)
        for line in difflib.unified_diff(a, b, n=0, lineterm="")
        if line[:2] not in ("--", "++", "@@")
    ]
    return tuple(lines[:LINES])


def _caches(left: Trace, right: Trace) -> Iterator[Change]:
    a, b = ({c.cache: c for c in cache_use(t)} for t in (left, right))
    for name in dict.fromkeys((*a, *b)):
        was, now = a.get(name), b.get(name)
        words = [
            f"{c.hits} hits, {c.misses} misses, {c.bypasses} bypasses" if c else "not used"
            for c in (was, now)
        ]
        if words[0] != words[1]:
            yield Change("cache", f"{name}: {words[0]} → {words[1]}")


def _times(left: Trace, right: Trace, pairs: list[Pair]) -> Iterator[Change]:
    a, b = left.totals.seconds, right.totals.seconds
    if _far(a, b):
        yield Change("time", f"compile time in all: {a:.1f} s → {b:.1f} s", b - a)
    for pair in pairs:
        was, now = pair.left[1].seconds, pair.right[1].seconds
        if _far(was, now):
            yield Change(
                "time",
                f"compile time of {pair.function}: {was:.1f} s → {now:.1f} s",
                now - was,
                before=str(pair.left[1].id),
                after=str(pair.right[1].id),
            )


def _far(a: float, b: float) -> bool:
    return abs(a - b) > max(NOISE_SECONDS, NOISE_SHARE * max(a, b))
