"""Records of one file into a `Log`. A table says what each kind adds; unknown kinds become artefacts as they are."""

from __future__ import annotations

import gc
import hashlib
from array import array
from collections.abc import Callable, Iterable
from typing import Any

from torchtriage.trace.breaks import parse_break
from torchtriage.trace.compiles import CompileBuilder
from torchtriage.trace.events import Lane, Timeline
from torchtriage.trace.frames import innermost, stack_of
from torchtriage.trace.guards import parse_reasons
from torchtriage.trace.model import (
    OUTSIDE,
    Artifact,
    CacheEvent,
    CompileId,
    Input,
    Log,
    Place,
    ShapeGuard,
    Symbol,
    Unplaced,
    finite,
)
from torchtriage.trace.records import ENVELOPE, Event, Problem, Record, lenient_json

PROBLEMS_KEPT = 1000
#: Kinds that are counted and digested but are no artefacts: they come in great numbers and have nothing to open.
SILENT = frozenset(
    {"str", "chromium_event", "describe_storage", "describe_tensor", "describe_source", "create_symbol",
     "guard_added_fast", "dynamo_start"}
)  # fmt: skip
CONFIG_FIELDS = {
    "dynamo_config": "dynamo", "inductor_config": "inductor", "functorch_config": "functorch",
    "compiler_config": "compiler",
}  # fmt: skip
#: Keys beside the kind that are shown with an artefact; so are those that nobody knows yet.
TOLD = frozenset({"stack", "subgraph_name"})
#: What a header says of every artefact.
COMMON = frozenset({"name", "encoding"})
_CACHE_STATES = ("hit", "miss", "bypass", "disabled")


class LogBuilder:
    """Takes records one at a time; `finish` gives the value. Not used again after that."""

    def __init__(self, name: str, path: str, rank: int | None) -> None:
        self.name, self.path, self.rank = name, path, rank
        self.compiles: dict[CompileId, CompileBuilder] = {}
        self.artifacts: list[Artifact] = []
        self.kinds: dict[str, int] = {}
        self.problems: list[Problem] = []
        self.problem_count = 0
        self.strings: dict[int, str] = {}
        self.interned: dict[str, str] = {}
        self.stacks: dict[tuple[Place, ...], tuple[Place, ...]] = {}
        self.timeline = Timeline()
        self.lanes: dict[tuple[bytes, bytes], tuple[CompileBuilder, Lane]] = {}
        self.events_at = array("Q")
        self.configs: dict[str, str] = {}
        self.config_keys: dict[str, str] = {}
        self.sources: dict[str, int] = {}
        self.records = self.number = self.end = self.timed = 0
        self.torch_version = self.started = ""
        self.outside = CompileBuilder(OUTSIDE)
        self.unplaced: dict[tuple[Place, ...], dict[str, int]] = {}

    def add(self, item: Event | Record | Problem) -> None:
        if isinstance(item, Event):
            self.event(item)
            return
        if isinstance(item, Problem):
            self.problem(item)
            return
        kind, data = item.kind, item.data
        self.records += 1
        self.end = item.offset + item.length
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if not self.started:
            self.started = b" ".join(item.prefix[1:].split()[:2]).decode("ascii", "replace")
        if kind == "str":
            _string(self, item)
            return
        compile = self.compile_of(data)
        compile.records += 1
        if compile is self.outside and "stack" in data:
            self.miss(item)
        if kind == "chromium_event":
            self.events_at.append(item.offset)
            event = lenient_json(item.payload) if item.payload is not None else data[kind]
            if not self.timeline.feed(compile.id, event):
                self.problem(
                    Problem(item.offset, item.length, "event", "a chromium_event without name, phase or time")
                )
            return
        if self.rank is None and isinstance(data.get("rank"), int):
            self.rank = data["rank"]
        handler = KINDS.get(kind)
        artifact = None
        if kind not in SILENT or (handler is None):
            artifact = self.artifact(item, compile)
        if handler is not None:
            meta = data[kind]
            handler(self, item, compile, meta if isinstance(meta, dict) else {}, artifact)

    def event(self, item: Event) -> None:
        """The most frequent record, in as few steps as can be."""
        offset, length, stamp, envelope, data, name, begins, at, thread = item
        self.records += 1
        self.timed += 1
        self.end = offset + length
        if not self.started:
            self.started = stamp.decode("ascii", "replace")
        found = self.lanes.get((envelope, thread))
        if found is None:
            if len(self.lanes) > 4096:
                self.lanes.clear()
            builder = self.compile_of(data)
            found = builder, self.timeline.lane(builder.id, int(thread))
            self.lanes[(envelope, thread)] = found
        compile, lane = found
        compile.records += 1
        self.events_at.append(offset)
        if begins:
            self.timeline.begin(lane, name, at)
        else:
            self.timeline.end(lane, name, at)

    def problem(self, problem: Problem) -> None:
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(problem)

    def miss(self, item: Record) -> None:
        """A record that should have a compile and has none: torch adds the stack that wrote it."""
        stack = stack_of(item.data["stack"], self.strings)
        titles = self.unplaced.setdefault(self.stacks.setdefault(stack, stack), {})
        meta = item.data.get(item.kind)
        name = meta.get("name") if isinstance(meta, dict) else None
        title = self.intern(name if isinstance(name, str) and name else item.kind)
        titles[title] = titles.get(title, 0) + 1

    def compile_of(self, data: dict[str, Any]) -> CompileBuilder:
        """The compile a record belongs to, made at its first record."""
        get = data.get
        found: CompileBuilder | None
        key = (get("compiled_autograd_id"), get("frame_id"), get("frame_compile_id"))
        try:
            found = self.compiles.get(key)  # type: ignore[call-overload]  # a CompileId is this tuple
        except TypeError:
            return self.outside
        if found is None:
            if (key[0] is None and key[1] is None) or not all(map(_is_id, key)):
                return self.outside
            named = CompileId(key[0], key[1], key[2] if key[1] is not None else None)
            found = self.compiles.setdefault(named, CompileBuilder(named))
        attempt = data.get("attempt")
        if isinstance(attempt, int) and attempt not in found.attempts:
            found.attempts.append(attempt)
        return found

    def artifact(self, item: Record, compile: CompileBuilder) -> Artifact:
        meta = item.data.get(item.kind)
        name = encoding = ""
        more = any(key in TOLD or key not in ENVELOPE for key in item.data if key != item.kind)
        if isinstance(meta, dict):
            more = more or (item.payload is not None and not meta.keys() <= COMMON)
            name, encoding = meta.get("name", ""), meta.get("encoding", "")
            name = self.intern(name) if isinstance(name, str) else ""
            encoding = self.intern(encoding) if isinstance(encoding, str) else ""
        attempt = item.data.get("attempt")
        digest = item.data.get("has_payload") if item.payload is not None else ""
        if not item.intact and item.payload is not None:  # what it is, not what it was meant to be
            digest = hashlib.md5(item.payload, usedforsecurity=False).hexdigest()
        made = Artifact(
            self.number, self.intern(item.kind), name, encoding, compile.id, attempt if isinstance(attempt, int) else 0,
            item.offset, item.header_length, item.length, digest if isinstance(digest, str) else "", more,
        )  # fmt: skip
        self.number += 1
        self.artifacts.append(made)
        compile.artifacts.append(made.number)
        return made

    def intern(self, text: str) -> str:
        return self.interned.setdefault(text, text)

    def finish(self, size: int) -> Log:
        self.timeline.finish()
        self.lanes.clear()
        if self.timed:
            self.kinds["chromium_event"] = self.kinds.get("chromium_event", 0) + self.timed
        done = []
        for key in list(self.compiles):
            done.append(self.compiles.pop(key).finish(self.timeline))
        return Log(
            name=self.name, path=self.path, rank=self.rank, size=size, records=self.records, kinds=self.kinds,
            compiles=tuple(done), artifacts=tuple(self.artifacts), problems=tuple(self.problems),
            problem_count=self.problem_count, torch_version=self.torch_version, configs=self.configs,
            sources=self.sources, outside=self.outside.finish(self.timeline), events=len(self.events_at),
            events_at=self.events_at, started=self.started, epoch=(self.timeline.zero or 0.0) / 1e6,
            steps=self.timeline.sums(), strings=self.strings,
            unplaced=tuple(Unplaced(stack, tuple(titles.items())) for stack, titles in self.unplaced.items()),
        )  # fmt: skip


Handler = Callable[[LogBuilder, Record, CompileBuilder, dict[str, Any], Artifact | None], None]


def build_log(
    name: str, path: str, rank: int | None, size: int, items: Iterable[Event | Record | Problem]
) -> Log:
    builder = LogBuilder(name, path, rank)
    collecting = gc.isenabled()
    gc.disable()  # nothing here is cyclic, and looking for cycles would take a fifth of the time
    try:
        for item in items:
            builder.add(item)
        return builder.finish(size)
    finally:
        if collecting:
            gc.enable()


def _is_id(value: Any) -> bool:
    return value is None or isinstance(value, (int, str))


def _string(log: LogBuilder, item: Record) -> None:
    pair = item.data["str"]
    if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], int):
        log.strings[pair[1]] = pair[0]
    else:
        log.problem(Problem(item.offset, item.length, "json", "a str record that is not [text, number]"))


def _start(
    log: LogBuilder, item: Record, compile: CompileBuilder, meta: dict[str, Any], _: Artifact | None
) -> None:
    stack = stack_of(meta.get("stack"), log.strings)
    compile.stack = log.stacks.setdefault(stack, stack)


def _metrics(
    log: LogBuilder, item: Record, compile: CompileBuilder, meta: dict[str, Any], _: Artifact | None
) -> None:
    configs = []
    for field, label in CONFIG_FIELDS.items():
        text = meta.get(field)
        if isinstance(text, str) and text:
            key = log.config_keys.get(text)
            if key is None:
                digest = hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()
                key = log.config_keys[text] = f"{label}:{digest[:12]}"
                log.configs[key] = text
            configs.append(key)
    if item.kind == "compilation_metrics":
        compile.add_metrics(meta, tuple(configs))
    else:
        compile.add_backward(meta, runtime=item.kind.endswith("_runtime"))


def _graph(
    log: LogBuilder, item: Record, compile: CompileBuilder, meta: dict[str, Any], _: Artifact | None
) -> None:
    compile.graphs += 1


def _symbol(
    log: LogBuilder, item: Record, compile: CompileBuilder, meta: dict[str, Any], _: Artifact | None
) -> None:
    text = {key: str(meta.get(key, "")) for key in ("symbol", "val", "vr", "source")}
    place = innermost(meta.get("user_stack"), log.strings)
    unbacked = item.kind == "create_unbacked_symbol"
    compile.symbols.append(
        Symbol(
            text["symbol"],
            text["val"],
            log.intern(text["vr"]),
            log.intern(text["source"]),
            place,
            unbacked,
            (item.offset, item.header_length),
        )
    )


def _shape(
    log: LogBuilder, item: Record, compile: CompileBuilder, meta: dict[str, Any], _: Artifact | None
) -> None:
    place = innermost(meta.get("user_stack"), log.strings)
    record = item.offset, item.header_length
    if item.kind == "symbolic_shape_specialization":
        sources = meta.get("sources")
        named = ", ".join(map(str, sources)) if isinstance(sources, list) else ""
        text = f"{meta.get('symbol', '')} = {meta.get('value', '')}" + (f" ({named})" if named else "")
        texts = tuple(map(str, sources)) if isinstance(sources, list) else ()
        reason, value = str(meta.get("reason", "")), str(meta.get("value", ""))
        compile.shape_guards.append(ShapeGuard(text, place, True, reason, texts, value, record))
    elif item.kind == "propagate_real_tensors":
        text = f"{meta.get('expr', '')}, taken as {meta.get('result', '')}"
        compile.shape_guards.append(
            ShapeGuard(text, place, reason="the value of a real tensor", record=record)
        )
    else:
        compile.shape_guards.append(ShapeGuard(log.intern(str(meta.get("expr", ""))), place, record=record))


def _tensor(
    log: LogBuilder, item: Record, compile: CompileBuilder, meta: dict[str, Any], _: Artifact | None
) -> None:
    key = (meta.get("describer_id"), meta.get("id"))
    if isinstance(key[1], int):
        compile.tensors[str(key)] = meta


def _source(
    log: LogBuilder, item: Record, compile: CompileBuilder, meta: dict[str, Any], _: Artifact | None
) -> None:
    tensor = compile.tensors.pop(str((meta.get("describer_id"), meta.get("id"))), None)
    if tensor is None:
        return
    size, stride = tensor.get("size"), tensor.get("stride")
    device = (
        str(tensor.get("device", ""))
        .replace("device(type='", "")
        .replace("')", "")
        .replace("', index=", ":")
        .rstrip(")")
    )
    compile.inputs.append(
        Input(
            log.intern(str(meta.get("source", ""))), log.intern(str(tensor.get("dtype", "")).replace("torch.", "")),
            tuple(size) if isinstance(size, list) else (), tuple(stride) if isinstance(stride, list) else (),
            log.intern(device), tensor.get("requires_grad") is True,
        )
    )  # fmt: skip


def _link(
    log: LogBuilder, item: Record, compile: CompileBuilder, meta: dict[str, Any], _: Artifact | None
) -> None:
    compile.links.append((str(meta.get("name", "")), str(meta.get("url", ""))))


def _dump(
    log: LogBuilder, item: Record, compile: CompileBuilder, meta: dict[str, Any], art: Artifact | None
) -> None:
    if art is not None:
        log.sources[str(meta.get("name", ""))] = art.number


def _artifact(
    log: LogBuilder, item: Record, compile: CompileBuilder, meta: dict[str, Any], art: Artifact | None
) -> None:
    if art is None or item.payload is None:
        return
    handler = NAMED.get(art.name)
    if handler is not None:
        handler(log, item, compile, meta, art)
        return
    state = art.name.rpartition("_")[2]
    if state in _CACHE_STATES and "cache" in art.name:
        plain = lenient_json(item.payload)
        known = plain if isinstance(plain, dict) else {}
        reason = known.get("cache_bypass_reason") or known.get("cache_status_detailed") or ""
        cache = log.intern(art.name[: -len(state) - 1])
        spent = finite(known.get("time_saved_ns" if state == "hit" else "time_taken_ns")) / 1e9
        compile.caches.append(
            CacheEvent(cache, state, str(reason), str(known.get("key") or ""), art.number, max(0.0, spent))
        )


def _version(
    log: LogBuilder, item: Record, compile: CompileBuilder, meta: dict[str, Any], _: Artifact | None
) -> None:
    plain = lenient_json(item.payload or b"")
    if isinstance(plain, dict):
        log.torch_version = str(plain.get("pytorch_version", ""))


def _reasons(
    log: LogBuilder, item: Record, compile: CompileBuilder, meta: dict[str, Any], _: Artifact | None
) -> None:
    compile.reasons = parse_reasons(item.payload or b"", lenient_json)


def _break(
    log: LogBuilder, item: Record, compile: CompileBuilder, meta: dict[str, Any], art: Artifact | None
) -> None:
    text = (item.payload or b"").decode("utf-8", "replace")
    compile.breaks.append(parse_break(text, art.number if art else None))


def _error(
    log: LogBuilder, item: Record, compile: CompileBuilder, meta: dict[str, Any], _: Artifact | None
) -> None:
    lines = (item.payload or b"").decode("utf-8", "replace").strip().split("\n")
    compile.error = next((line for line in reversed(lines) if line and not line.startswith(" ")), "")


#: kind -> what a record of it adds to the model, besides being an artefact.
KINDS: dict[str, Handler] = {
    "dynamo_start": _start,
    "compilation_metrics": _metrics,
    "bwd_compilation_metrics": _metrics,
    "aot_autograd_backward_compilation_metrics": _metrics,
    "compilation_metrics_runtime": _metrics,
    "bwd_compilation_metrics_runtime": _metrics,
    "dynamo_output_graph": _graph,
    "create_symbol": _symbol,
    "create_unbacked_symbol": _symbol,
    "guard_added_fast": _shape,
    "guard_added": _shape,
    "propagate_real_tensors": _shape,
    "symbolic_shape_specialization": _shape,
    "describe_storage": lambda *_: None,
    "describe_tensor": _tensor,
    "describe_source": _source,
    "link": _link,
    "dump_file": _dump,
    "artifact": _artifact,
}
#: artefact name -> likewise.
NAMED: dict[str, Handler] = {
    "torch_version": _version,
    "recompile_reasons": _reasons,
    "dynamo_graph_break_reason": _break,
    "dynamo_error": _error,
}
