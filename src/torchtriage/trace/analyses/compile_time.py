"""Where did compile time go? By phase, by step, by function; loops that were unrolled; the same graph compiled again."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from torchtriage.trace.analyses.recompiles import Frame, artifact_of, frame_of
from torchtriage.trace.frames import call_site, is_library
from torchtriage.trace.load import Trace, once
from torchtriage.trace.model import Compile, CompileId, Log, Place

#: Graphs below this many operations are not searched for repetition.
LARGE_GRAPH = 120
REPEATED = 6
_FROM = re.compile(
    r"^ +# File: (?P<file>.{1,500}?):(?P<line>\d{1,9}) in (?P<function>.{1,200}?), code: (?P<code>.*)$", re.M
)
#: The inputs of a printed graph, and a numbered module in the name of one.
_INPUT = re.compile(r"\bL_(\w{1,500}): ")
_NUMBERED = re.compile(r"(?P<stack>(?:\w*_)?modules_\w+?)_modules_(?P<number>\d+)_")
#: A name that a printed graph defines: an input, or the left of an assignment.
_DEFINED = re.compile(r'^\s*(\w+)(?:: ".*?")? = |(\w+): "', re.M)
_WORD = re.compile(r"(?<!\.)\b[A-Za-z_]\w*")
#: Characters of graphs that are read to find those that are the same.
TEXTS_READ = 64 << 20
_INDEX = re.compile(r"modules_(\d+)_|_modules\['(\d+)'\]|\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Slow:
    """One function with what compiling it took, over all its compiles."""

    frame: Frame
    count: int
    seconds: float
    operations: int
    compiles: tuple[tuple[str, CompileId], ...]


@dataclass(frozen=True, slots=True)
class TimeUse:
    """Own seconds by phase and by step; what ran beside the compile in other processes is apart."""

    seconds: float
    phases: tuple[tuple[str, float], ...]
    steps: tuple[tuple[str, int, float, float], ...]
    """(name, how often, seconds, own seconds), most own seconds first."""
    functions: tuple[Slow, ...]
    beside: float
    unfinished: tuple[tuple[str, CompileId, str], ...]
    """(log, compile, the innermost step that never ended)."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """One line of the user that stands many times in a graph."""

    place: Place
    count: int
    operations: int
    lines: int
    """How many lines are repeated as often: the length of the loop body."""
    blocks: bool
    """True for numbered modules (layers of a model), False for a loop over values."""
    compile: tuple[str, CompileId]
    seconds: float
    module: str = ""
    """Which module has the layers, where no line of the user's is repeated; `place` is then the whole function."""


@dataclass(frozen=True, slots=True)
class Twins:
    """One graph that was compiled several times, in different frames."""

    functions: tuple[str, ...]
    count: int
    seconds: float
    """Of all but the first."""
    compiles: tuple[tuple[str, CompileId], ...]


@once
def time_use(trace: Trace) -> TimeUse:
    phases: dict[str, float] = {}
    steps: dict[str, tuple[int, float, float]] = {}
    functions: dict[Frame, list[tuple[Log, Compile]]] = {}
    unfinished = []
    for log in trace.logs:
        for name, (count, total, own) in log.steps.items():
            c, t, o = steps.get(name, (0, 0.0, 0.0))
            steps[name] = (c + count, t + total, o + own)
    for log, compile in trace.compiles():
        for phase, seconds in compile.phases.items():
            phases[phase] = phases.get(phase, 0.0) + seconds
        if compile.function:
            functions.setdefault(frame_of(compile), []).append((log, compile))
        if compile.id.frame is not None and not compile.has_metrics and compile.failure is None:
            still = [s for s in compile.spans if not s.finished]
            unfinished.append((log.name, compile.id, max(still, key=lambda s: s.depth).name if still else ""))
    slow = [_slow(frame, members) for frame, members in functions.items()]
    beside = sum(
        s.seconds for log in trace.logs for c in (log.outside, *log.compiles) for s in c.spans if s.parallel
    )
    return TimeUse(
        seconds=trace.totals.seconds,
        phases=tuple(sorted(phases.items(), key=lambda p: -p[1])),
        steps=tuple(sorted(((n, *v) for n, v in steps.items()), key=lambda s: -s[3])),
        functions=tuple(sorted(slow, key=lambda s: -s.seconds)),
        beside=beside,
        unfinished=tuple(unfinished),
    )


def _slow(frame: Frame, members: list[tuple[Log, Compile]]) -> Slow:
    return Slow(
        frame, len(members), sum(c.seconds for _, c in members),
        max(int(c.metrics.number("graph_op_count")) for _, c in members),
        tuple((log.name, c.id) for log, c in members),
    )  # fmt: skip


def repetitions(trace: Trace, limit: int = 10) -> tuple[Repetition, ...]:
    """Repeated lines of the largest graphs: loops that tracing unrolled, and layers that it inlined."""
    large = [(log, c) for log, c in trace.compiles() if _size(c) >= LARGE_GRAPH and c.graphs]
    large.sort(key=lambda pair: -_size(pair[1]))
    found: list[Repetition] = []
    seen: set[str] = set()
    for log, compile in large[:limit]:
        graph = artifact_of(log, compile, "dynamo_output_graph")
        if graph is None or graph.digest in seen:
            continue
        seen.add(graph.digest)
        one = _repetition(trace.text(log, graph), log, compile)
        if one is not None:
            found.append(one)
    return tuple(sorted(found, key=lambda r: -r.seconds))


def _size(compile: Compile) -> int:
    """Operations in the graph as it was captured, before any was removed."""
    return int(max(compile.metrics.number("graph_op_count"), compile.metrics.number("graph_node_count")))


def _repetition(text: str, log: Log, compile: Compile) -> Repetition | None:
    counts: dict[Place, int] = {}
    indices: dict[Place, set[str]] = {}
    marks = list(_FROM.finditer(text))
    for number, match in enumerate(marks):
        place = Place(match["file"], int(match["line"]), match["function"], match["code"].strip())
        counts[place] = counts.get(place, 0) + 1
        end = marks[number + 1].start() if number + 1 < len(marks) else len(text)
        found = _INDEX.search(text, match.end(), end)
        if found is not None:
            indices.setdefault(place, set()).add(next(g for g in found.groups() if g is not None))
    users = {place: n for place, n in counts.items() if n >= REPEATED and not _inner(place)}
    if not users:
        return _numbered_modules(text, log, compile)
    count = max(users.values())
    most = [place for place, n in users.items() if n == count]
    blocks = any(len(indices.get(place, ())) * 2 >= count for place in (*most, *users))
    return Repetition(
        most[0], count, _size(compile), len(most), blocks, (log.name, compile.id), compile.seconds
    )  # fmt: skip


def _numbered_modules(text: str, log: Log, compile: Compile) -> Repetition | None:
    """Layers of torch's own classes: graphs have no lines for them, but their inputs are named by module and number."""
    stacks: dict[str, dict[str, set[str]]] = {}
    for name in _INPUT.findall(text.partition("def forward(")[2].partition("):\n")[0]):
        for match in _NUMBERED.finditer(name):
            numbers = stacks.setdefault(match["stack"], {})
            numbers.setdefault(match["number"], set()).add(name[match.end() :])
    found = [(len(numbers), stack, numbers) for stack, numbers in stacks.items() if len(numbers) >= REPEATED]
    if not found:
        return None
    _, stack, numbers = max(found, key=lambda f: f[0])
    parameters = [frozenset(names) for names in numbers.values()]
    alike = parameters.count(max(set(parameters), key=parameters.count))
    if alike < REPEATED:
        return None
    place = compile.place or Place("", 0)
    if is_library(place.file):
        place = call_site(compile.stack) or place
    return Repetition(
        place, alike, _size(compile), 0, True, (log.name, compile.id), compile.seconds,
        stack.rpartition("_modules_")[2],
    )  # fmt: skip


def _inner(place: Place) -> bool:
    return "/torch/" in place.file or place.file.startswith("torch/")


def graph_form(text: str) -> str:
    """The digest of a printed graph without comments, and with names by the order in which they come.

    Layers of one class have the same form, though their parameters have other names.
    """
    lines = (line.strip() for line in text.split("\n"))
    plain = "\n".join(
        line.partition("#")[0] for line in lines if line and not line.startswith(("#", "class "))
    )
    defined = {name for pair in _DEFINED.findall(plain) for name in pair if name}
    numbers: dict[str, str] = {}

    def numbered(match: re.Match[str]) -> str:
        word = match[0]
        return numbers.setdefault(word, f"%{len(numbers)}") if word in defined else word

    form = _WORD.sub(numbered, plain).encode("utf-8", "replace")
    return hashlib.md5(form, usedforsecurity=False).hexdigest()


@once
def twins(trace: Trace) -> tuple[Twins, ...]:
    """The same graph, but for names, compiled in different frames: candidates for regional compilation."""
    graphs: dict[tuple[str, str], list[tuple[Log, Compile]]] = {}
    forms: dict[str, str] = {}
    read = 0
    for log in trace.logs:
        for compile in log.compiles:
            if (
                not compile.graphs
                or compile.failure is not None
                or int(compile.metrics.number("graph_op_count")) < 2
            ):
                continue
            graph = artifact_of(log, compile, "dynamo_output_graph")
            if graph is None or not graph.digest:
                continue
            if graph.digest not in forms:
                read += graph.length
                forms[graph.digest] = (
                    graph_form(trace.text(log, graph)) if read < TEXTS_READ else graph.digest
                )
            graphs.setdefault((log.name, forms[graph.digest]), []).append((log, compile))
    found = []
    for members in graphs.values():
        frames = {c.id.frame for _, c in members}
        if len(frames) < 2:
            continue
        ordered = sorted(members, key=lambda m: -m[1].seconds)
        found.append(
            Twins(
                tuple(dict.fromkeys(c.user_function for _, c in members)), len(members),
                sum(c.seconds for _, c in ordered[1:]), tuple((log.name, c.id) for log, c in members),
            )
        )  # fmt: skip
    return tuple(sorted(found, key=lambda t: -t.seconds))
