"""Chromium events of one log into nested, timed spans per compile: begin and end paired, own time, open ends closed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from torchtriage.trace.model import CompileId, Span

#: Work of other threads and processes, which a step of a compile waits for.
PARALLEL = frozenset({"compile_file", "triton_worker_compile", "TritonCompileWorker", "subprocess_compile"})
#: Beyond this many spans in a log, only those of at least `LONG_ENOUGH` seconds are kept one by one.
MANY_SPANS, LONG_ENOUGH = 100_000, 0.01

#: phase -> names of its steps. The first row that matches wins; time is the step's own time.
PHASES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (phase, re.compile(pattern))
    for phase, pattern in (
        (
            "autotuning",
            r"(?i)autotun|benchmark|select_algorithm|coordinate_descent|autotuning_choices|precompile_choices",
        ),
        ("cache", r"(?i)cache(?!.*load_by_key_path)|bundler|pgo|code_state|remote"),
        (
            "C++/Triton compile",
            r"(?i)compile_file|async_compile|load_by_key_path|triton|cpp_builder|StaticCudaLauncher",
        ),
        ("guards", r"(?i)guard"),
        ("scheduling", r"^Scheduler\.(?!codegen)"),
        ("code generation", r"(?i)code_?gen\b|codegen|compile_to_fn|compile_to_module|Wrapper"),
        ("lowering", r"^GraphLowering\.run"),
        ("graph passes", r"^pass\.|_passes$|(?i:fake_tensor_prop|pattern)"),
        (
            "AOTAutograd",
            r"(?i)^aot|aot_|partition|backend_compile|compiler_base|bw_compiler|entire_backward|joint",
        ),
        ("garbage collection", r"^gc$"),
        ("Inductor, other", r"(?i)inductor|fx_codegen_and_compile|compile_fx"),
        (
            "Dynamo",
            r"(?i)^dynamo$|bytecode|entire_frame|compile_attempt|deferred_runtime|convert_frame|compile_inner",
        ),
        ("runtime", r"(?i)cudagraphify|runtime"),
    )
)


#: `Span(…)` in half the time: there are as many as records.
_new = tuple.__new__


class _Open:
    __slots__ = ("begin", "depth", "inside", "name")

    def __init__(self, name: str, begin: float, depth: int) -> None:
        self.name, self.begin, self.depth, self.inside = name, begin, depth, 0.0


class Lane:
    """The steps of one compile that are open in one thread, outermost first."""

    __slots__ = ("compile", "open", "phases", "spans")

    def __init__(self, compile_id: CompileId, spans: list[Span], phases: dict[str, float]) -> None:
        self.compile, self.spans, self.phases = compile_id, spans, phases
        self.open: list[_Open] = []


@dataclass(slots=True)
class Timeline:
    """Fed with events in file order; times in microseconds since 1970, as torch writes them."""

    zero: float | None = None
    last: float = 0.0
    kept: int = 0
    spans: dict[CompileId, list[Span]] = field(default_factory=dict)
    phases: dict[CompileId, dict[str, float]] = field(default_factory=dict)
    steps: dict[str, list[float]] = field(default_factory=dict)
    """Step -> how often, seconds, own seconds."""
    _lanes: dict[tuple[CompileId, Any], Lane] = field(default_factory=dict)
    _phase_of: dict[str, str] = field(default_factory=dict)

    def feed(self, compile_id: CompileId, event: Any) -> bool:
        """False when this is no event that can be placed in time."""
        try:
            phase, name, at, thread = event["ph"], event["name"], event["ts"], event.get("tid")
            if not (0 <= at < 1e18 and isinstance(name, str)):
                return False
            lane = self.lane(compile_id, thread)
        except (TypeError, KeyError, AttributeError):
            return False
        if phase == "B":
            self.begin(lane, name, at)
        elif phase == "E":
            self.end(lane, name, at)
        else:
            self._seen(at)
            length = event.get("dur")
            if phase == "X" and isinstance(length, (int, float)) and 0 <= length < 1e18:
                self._add(lane, _Open(name, at, 0), float(length), True)
        return True

    def lane(self, compile_id: CompileId, thread: Any) -> Lane:
        """Where the events of one thread of a compile go."""
        lane = self._lanes.get((compile_id, thread))
        if lane is None:
            spans, phases = self.spans.setdefault(compile_id, []), self.phases.setdefault(compile_id, {})
            lane = self._lanes[(compile_id, thread)] = Lane(compile_id, spans, phases)
        return lane

    def begin(self, lane: Lane, name: str, at: float) -> None:
        self._seen(at)
        stack = lane.open
        stack.append(_Open(name, at, len(stack)))

    def end(self, lane: Lane, name: str, at: float) -> None:
        """Ends the innermost open step of this name; those inside it lost their ends to an exception."""
        self._seen(at)
        stack = lane.open
        index = len(stack) - 1
        while index >= 0 and stack[index].name != name:
            index -= 1
        if index < 0:
            return
        if name in PARALLEL:  # others may have begun since: it is not of the nest
            self._finish(lane, stack.pop(index), at, None, True)
            return
        while len(stack) > index + 1:
            lost = stack.pop()
            self._finish(lane, lost, at, stack[-1], False)
        span = stack.pop()
        self._finish(lane, span, at, stack[-1] if stack else None, True)

    def _seen(self, at: float) -> None:
        if at > self.last:
            self.last = at
        if self.zero is None:
            self.zero = at

    def _finish(self, lane: Lane, span: _Open, at: float, parent: _Open | None, finished: bool) -> None:
        length = at - span.begin if at > span.begin else 0.0
        if parent is not None and span.name not in PARALLEL:
            parent.inside += length
        self._add(lane, span, length, finished)

    def _add(self, lane: Lane, span: _Open, length: float, finished: bool) -> None:
        name, seconds = span.name, length / 1e6
        own = (length - span.inside) / 1e6 if length > span.inside else 0.0
        parallel = name in PARALLEL
        sums = self.steps.get(name)
        if sums is None:
            sums = self.steps[name] = [0, 0.0, 0.0]
        sums[0] += 1
        sums[1] += seconds
        sums[2] += own
        if not parallel:
            phase = self._phase_of.get(name)
            if phase is None:
                phase = self._phase_of[name] = phase_of(name)
            lane.phases[phase] = lane.phases.get(phase, 0.0) + own
        if self.kept < MANY_SPANS or seconds >= LONG_ENOUGH:
            self.kept += 1
            start = (span.begin - (self.zero or 0.0)) / 1e6
            lane.spans.append(_new(Span, (name, start, seconds, span.depth, own, finished, parallel)))

    def finish(self) -> None:
        """Close what is still open at the last time seen: the program died, or is still running."""
        for lane in self._lanes.values():
            stack = lane.open
            while stack:
                span = stack.pop()
                self._finish(lane, span, self.last, stack[-1] if stack else None, False)
        self._lanes.clear()

    def sums(self) -> dict[str, tuple[int, float, float]]:
        """Step -> how often, seconds, own seconds."""
        return {name: (int(count), seconds, own) for name, (count, seconds, own) in self.steps.items()}

    def of(self, compile_id: CompileId) -> tuple[Span, ...]:
        """The spans of one compile in order of their begin; asked for once."""
        return tuple(sorted(self.spans.pop(compile_id, ()), key=lambda s: (s.start, s.depth)))


def phase_of(name: str) -> str:
    """The phase of compilation that a step belongs to."""
    return next((phase for phase, pattern in PHASES if pattern.search(name)), "other")
