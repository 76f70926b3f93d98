"""One compile while its records come in, and the value it becomes."""

from __future__ import annotations

from typing import Any

from torchtriage.trace.events import Timeline
from torchtriage.trace.frames import stack_of_strings
from torchtriage.trace.model import (
    CacheEvent,
    Compile,
    CompileId,
    Failure,
    GraphBreak,
    GuardFailure,
    Input,
    Metrics,
    Place,
    ShapeGuard,
    Symbol,
    finite,
)

#: The metrics that analyses read. The others stay in the file and are shown from there.
FIELDS = (
    "co_name", "co_filename", "co_firstlineno", "cache_size", "guard_count", "graph_op_count", "graph_node_count",
    "graph_input_count", "entire_frame_compile_time_s", "inductor_compile_time_s", "dynamo_time_before_restart_s",
    "duration_us", "dynamo_cumulative_compile_time_us", "aot_autograd_cumulative_compile_time_us",
    "inductor_cumulative_compile_time_us", "inductor_code_gen_cumulative_compile_time_us", "triton_compile_time_us",
    "runtime_cudagraphify_time_us", "runtime_triton_autotune_time_us", "guard_latency_us", "num_graph_breaks",
    "cudagraph_skip_reason", "structured_logging_overhead_us", "is_runtime",
    "triton_kernel_compile_times_us",
)  # fmt: skip


class CompileBuilder:
    """Mutable while one file is read; `finish` gives the frozen value."""

    __slots__ = (
        "artifacts", "attempts", "backward", "breaks", "caches", "configs", "error", "failure", "graphs", "has_metrics",
        "id", "inputs", "links", "reasons", "records", "restarts", "shape_guards", "stack", "symbols", "tensors",
        "values",
    )  # fmt: skip

    def __init__(self, compile_id: CompileId) -> None:
        self.id = compile_id
        self.attempts: list[int] = []
        self.stack: tuple[Place, ...] = ()
        self.values: dict[str, Any] = {}
        self.backward: dict[str, Any] = {}
        self.configs: tuple[str, ...] = ()
        self.failure: Failure | None = None
        self.error = ""
        self.restarts: list[str] = []
        self.breaks: list[GraphBreak] = []
        self.reasons: tuple[GuardFailure, ...] = ()
        self.symbols: list[Symbol] = []
        self.shape_guards: list[ShapeGuard] = []
        self.inputs: list[Input] = []
        self.tensors: dict[str, dict[str, Any]] = {}
        self.caches: list[CacheEvent] = []
        self.links: list[tuple[str, str]] = []
        self.artifacts: list[int] = []
        self.graphs = self.records = 0
        self.has_metrics = False

    def add_metrics(self, meta: dict[str, Any], configs: tuple[str, ...]) -> None:
        self.has_metrics = True
        self.configs = configs
        self.values = {name: meta[name] for name in FIELDS if meta.get(name) is not None}
        restarts = meta.get("restart_reasons")
        if isinstance(restarts, list):
            self.restarts = sorted(str(reason) for reason in restarts)
        if not self.stack:
            self.stack = stack_of_strings(meta.get("stack_trace"))
        kind, reason = meta.get("fail_type"), meta.get("fail_reason")
        if kind is not None or reason is not None:
            file, line = meta.get("fail_user_frame_filename"), meta.get("fail_user_frame_lineno")
            place = Place(file, line) if isinstance(file, str) and isinstance(line, int) else None
            self.failure = Failure(str(kind or "failed"), str(reason or ""), place)

    def add_backward(self, meta: dict[str, Any], runtime: bool) -> None:
        for name in FIELDS:
            value = meta.get(name)
            if value is not None and not (runtime and name == "duration_us"):
                self.backward.setdefault(name, value)
        kind, reason = meta.get("fail_type"), meta.get("fail_reason")
        if (kind is not None or reason is not None) and self.failure is None:
            self.failure = Failure(str(kind or "failed"), str(reason or ""))

    def finish(self, timeline: Timeline) -> Compile:
        spans = timeline.of(self.id)
        if self.failure is None and self.error and not self.has_metrics:
            self.failure = Failure(self.error.partition(":")[0], self.error)
        return Compile(
            id=self.id, attempts=tuple(self.attempts), function=self._function(), place=self._place(), stack=self.stack,
            metrics=Metrics(self.values, self.backward, self.configs), failure=self.failure,
            restarts=tuple(self.restarts), breaks=tuple(self.breaks), reasons=self.reasons, symbols=tuple(self.symbols),
            shape_guards=tuple(self.shape_guards), inputs=tuple(self.inputs), caches=tuple(self.caches), spans=spans,
            phases=timeline.phases.get(self.id, {}), links=tuple(self.links), artifacts=tuple(self.artifacts),
            graphs=self.graphs, seconds=self._seconds(spans), start=spans[0].start if spans else None,
            records=self.records, has_metrics=self.has_metrics,
        )  # fmt: skip

    def _function(self) -> str:
        name = self.values.get("co_name")
        if isinstance(name, str):
            return name
        return self.stack[-1].function if self.stack else ""

    def _place(self) -> Place | None:
        file, line = self.values.get("co_filename"), self.values.get("co_firstlineno")
        if isinstance(file, str) and isinstance(line, int):
            return Place(file, line, self._function())
        return self.stack[-1] if self.stack else None

    def _seconds(self, spans: tuple[Any, ...]) -> float:
        """From the metrics; from the events where a log has none. Never negative."""
        forward = _number(self.values, "duration_us") / 1e6 or _number(
            self.values, "entire_frame_compile_time_s"
        )
        backward = _number(self.backward, "duration_us") / 1e6 or _number(
            self.backward, "inductor_compile_time_s"
        )
        known = forward + backward
        if known <= 0:
            known = sum(span.seconds for span in spans if span.depth == 0 and not span.parallel)
        return max(0.0, known)


def _number(values: dict[str, Any], name: str) -> float:
    return finite(values.get(name))
