"""What a trace says, as frozen values: logs, compiles, artefacts, graph breaks, recompile reasons, symbols, times.

Payloads stay in the file; an artefact knows where. Counts are of records as written; seconds are seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torchtriage.trace.records import Problem

RESUME = re.compile(r"(?:torch_dynamo_resume_in_|__resume_at_\d+_in_)(.*?)(?:_at_\d+)?$")

#: Kinds whose records are known by their names.
NAMED_KINDS = frozenset({"artifact", "graph_dump", "dump_file", "link"})


class CompileId(NamedTuple):
    """Which compilation a record belongs to; all None for records outside of one."""

    autograd: int | None
    frame: int | None
    compile: int | None

    def __str__(self) -> str:
        prefix = "" if self.autograd is None else f"!{self.autograd}"
        if self.frame is None:
            return prefix or "-"
        return f"{prefix + '/' if prefix else ''}{self.frame}/{self.compile}"


OUTSIDE = CompileId(None, None, None)


@dataclass(frozen=True, slots=True)
class Place:
    """A line of someone's source file. Paths are as the trace has them and are never opened."""

    file: str
    line: int
    function: str = ""
    code: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def short(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line}"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One record with something to show. The payload is read with `Trace.payload`."""

    number: int
    kind: str
    name: str
    encoding: str
    compile: CompileId
    attempt: int
    offset: int
    header_length: int
    length: int
    digest: str
    """MD5 of the payload as it is; empty where there is none."""
    more: bool = False
    """Its header says more than its name, see `torchtriage.trace.headers.about`."""

    @property
    def title(self) -> str:
        """Its name; with the kind, where the name alone does not say what it is."""
        if self.name and self.kind not in NAMED_KINDS:
            return f"{self.kind}_{self.name}"
        return self.name or self.kind


@dataclass(frozen=True, slots=True)
class GraphBreak:
    """One place where Dynamo stopped tracing, as one record tells it."""

    reason: str
    place: Place | None = None
    identifier: str = ""
    """torch's registry id, as `gb0059`."""
    explanation: str = ""
    hints: tuple[str, ...] = ()
    context: str = ""
    skipped: bool = False
    """True when the whole frame was left to eager."""
    through: tuple[Place, ...] = ()
    """The user's calls that led from the compiled function to the place, outermost first."""
    artifact: int | None = None


@dataclass(frozen=True, slots=True)
class GuardFailure:
    """The first guard of one cache entry that did not hold."""

    entry: str
    guard: str
    cause: str
    """A word of `torchtriage.trace.guards.CAUSES`."""
    source: str = ""
    dimension: int | None = None
    expected: str = ""
    actual: str = ""
    place: Place | None = None
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a compile did not end well."""

    type: str
    reason: str
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Symbol:
    name: str
    value: str
    range: str
    source: str
    place: Place | None = None
    unbacked: bool = False
    record: tuple[int, int] = (0, 0)
    """Offset and length of its header, which has the stacks."""


@dataclass(frozen=True, slots=True)
class ShapeGuard:
    """A condition on symbols that tracing added, or a symbol that became a constant."""

    expression: str
    place: Place | None = None
    specialised: bool = False
    reason: str = ""
    sources: tuple[str, ...] = ()
    """What the symbol stood for, as `L['x'].size()[0]`, where it became a constant."""
    value: str = ""
    record: tuple[int, int] = (0, 0)
    """Offset and length of its header, which has the stacks."""


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor that tracing saw, by its source."""

    source: str
    dtype: str
    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    device: str
    requires_grad: bool = False


@dataclass(frozen=True, slots=True)
class CacheEvent:
    """One look-up in a compile cache."""

    cache: str
    state: str
    reason: str = ""
    key: str = ""
    artifact: int | None = None
    seconds: float = 0.0
    """Of a hit, what it saved; of a miss, what it took; 0 where the log does not say."""


class Span(NamedTuple):
    """One timed step of a compile. Times in seconds, `start` since the log's first event."""

    name: str
    start: float
    seconds: float
    depth: int
    own: float
    """Seconds that are not in a step inside it."""
    finished: bool = True
    parallel: bool = False
    """True for work of other threads or processes, which a step of the compile waits for."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """The part of `compilation_metrics` that the analyses use. All of it: `Trace.header(artifact)`."""

    values: dict[str, Any] = field(default_factory=dict)
    backward: dict[str, Any] = field(default_factory=dict)
    configs: tuple[str, ...] = ()
    """Keys into `Log.configs`."""

    def get(self, name: str, default: Any = None) -> Any:
        value = self.values.get(name)
        return default if value is None else value

    def number(self, name: str) -> float:
        """A number, 0 where there is none; backward included."""
        total = 0.0
        for values in (self.values, self.backward):
            total += finite(values.get(name))
        return total


@dataclass(frozen=True, slots=True)
class Compile:
    """One compilation of one frame, with all its attempts."""

    id: CompileId
    attempts: tuple[int, ...] = ()
    function: str = ""
    place: Place | None = None
    """Where the function is defined."""
    stack: tuple[Place, ...] = ()
    """Who called it, outermost first."""
    metrics: Metrics = field(default_factory=Metrics)
    failure: Failure | None = None
    restarts: tuple[str, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    reasons: tuple[GuardFailure, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    shape_guards: tuple[ShapeGuard, ...] = ()
    inputs: tuple[Input, ...] = ()
    caches: tuple[CacheEvent, ...] = ()
    spans: tuple[Span, ...] = ()
    """Steps by their begin; in very large traces only those of 10 ms and more."""
    phases: dict[str, float] = field(default_factory=dict)
    """Own seconds of all steps by phase, see `torchtriage.trace.events.PHASES`."""
    links: tuple[tuple[str, str], ...] = ()
    artifacts: tuple[int, ...] = ()
    graphs: int = 0
    seconds: float = 0.0
    """Compile time, backward included, as the metrics or else the events have it."""
    start: float | None = None
    records: int = 0
    has_metrics: bool = False

    @property
    def user_function(self) -> str:
        """The function that the user wrote: resume functions are folded into it."""
        return unfold(self.function)

    @property
    def resumed(self) -> bool:
        return self.function != self.user_function

    @property
    def status(self) -> str:
        """`ok`, `failed`, `break`, `empty` (no graph) or `unfinished`."""
        if self.failure is not None:
            return "failed"
        if not self.has_metrics and self.id.frame is not None:
            return "unfinished"
        if self.breaks or self.restarts:
            return "break"
        return "ok" if self.graphs or self.id.frame is None else "empty"


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Records that torch could not place in a compile, although it expected one: where it wrote them, and what."""

    stack: tuple[Place, ...]
    titles: tuple[tuple[str, int], ...]
    """Kind or name -> how often."""


@dataclass(frozen=True, slots=True)
class Log:
    """One file: what one process (one rank) wrote."""

    name: str
    path: str
    rank: int | None
    size: int
    records: int
    kinds: dict[str, int]
    compiles: tuple[Compile, ...]
    artifacts: tuple[Artifact, ...]
    problems: tuple[Problem, ...] = ()
    problem_count: int = 0
    torch_version: str = ""
    configs: dict[str, str] = field(default_factory=dict)
    """Configuration by its digest, as `dynamo:…`; JSON text."""
    sources: dict[str, int] = field(default_factory=dict)
    """`dump_file` name -> artefact number."""
    strings: dict[int, str] = field(default_factory=dict)
    """What records refer to by number: names of source files."""
    outside: Compile = field(default_factory=lambda: Compile(OUTSIDE))
    events: int = 0
    events_at: Sequence[int] = ()
    """Where each chromium event stands in the file."""
    started: str = ""
    epoch: float = 0.0
    """Seconds since 1970 of the first event; spans count from here."""
    steps: dict[str, tuple[int, float, float]] = field(default_factory=dict)
    """Step name -> how often, seconds, own seconds."""
    unplaced: tuple[Unplaced, ...] = ()

    @property
    def seconds(self) -> float:
        return sum(c.seconds for c in self.compiles)

    @property
    def files(self) -> Iterable[str]:
        """All source files that stacks in this log name."""
        return self.strings.values()

    @property
    def title(self) -> str:
        return self.name if self.rank is None else f"rank {self.rank}"


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts over all logs."""

    logs: int = 0
    records: int = 0
    compiles: int = 0
    """Frames whose bytecode was compiled, with or without a graph."""
    graphs: int = 0
    recompiles: int = 0
    break_sites: int = 0
    failed: int = 0
    limit_hits: int = 0
    artifacts: int = 0
    problems: int = 0
    seconds: float = 0.0
    bytes: int = 0


def finite(value: Any) -> float:
    """A number that can be counted with; 0 for whatever else stands in its place."""
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e18 else 0.0


def unfold(function: str) -> str:
    """`torch_dynamo_resume_in_forward_at_10` -> `forward`."""
    for _ in range(20 if len(function) < 500 else 0):
        match = RESUME.match(function)
        if match is None or not match[1]:
            return function
        function = match[1]
    return function
