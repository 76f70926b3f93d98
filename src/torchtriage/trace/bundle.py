"""What the HTML page carries besides the analyses: compact tables for its script, and all artefacts, compressed.

Texts that are equal are carried once. Blocks are raw DEFLATE streams of whole items, so that the page unpacks only
what is opened. Nothing here is HTML; the renderer escapes.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import orjson

from torchtriage.trace.analyses.kernels import Kernel, all_kernels
from torchtriage.trace.analyses.operators import OperatorReport, operator_report
from torchtriage.trace.analyses.recompiles import cut, guard_changes
from torchtriage.trace.build import CONFIG_FIELDS
from torchtriage.trace.frames import call_site, is_library
from torchtriage.trace.guard_tree import GuardChange
from torchtriage.trace.headers import about, guard_list, readable, stacks_of
from torchtriage.trace.load import Trace
from torchtriage.trace.model import Artifact, Compile, Log, Place
from torchtriage.trace.page import Page, plain

BLOCK = 256 << 10
#: Bytes of compressed artefacts that a page carries at most; what does not fit is named, not shown.
CAPACITY = 96 << 20
LONGEST_ITEM = 8 << 20
FLAMES = 400
KERNEL_ROWS = 20_000
LONGEST_NAME = 400


@dataclass(frozen=True, slots=True)
class Bundle:
    """A page, the tables of its script, and the blocks."""

    page: Page
    index: dict[str, Any]
    blocks: tuple[str, ...]
    operators: OperatorReport


class Packer:
    """Collects items into compressed blocks. Items with one key are stored once."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.items: list[tuple[int, int, int]] = []
        self.blocks: list[str] = []
        self.known: dict[str, int] = {}
        self._open: list[bytes] = []
        self._size = self._packed = 0
        self.left_out = 0

    def full(self) -> bool:
        return self._packed > self.capacity

    def add(self, data: bytes, key: str = "") -> int:
        """The number of the item; -1 where the page is full."""
        if key and key in self.known:
            return self.known[key]
        if self.full():
            self.left_out += 1
            return -1
        if len(data) > LONGEST_ITEM:
            data = data[:LONGEST_ITEM] + b"\n[cut: the whole text is in the log]"
        self.items.append((len(self.blocks), self._size, len(data)))
        self._open.append(data)
        self._size += len(data)
        if key:
            self.known[key] = len(self.items) - 1
        if self._size >= BLOCK:
            self.close()
        return len(self.items) - 1

    def close(self) -> None:
        if self._open:
            packer = zlib.compressobj(6, zlib.DEFLATED, -15)
            packed = packer.compress(b"".join(self._open)) + packer.flush()
            self.blocks.append(base64.b64encode(packed).decode("ascii"))
            self._packed += len(packed)
        self._open, self._size = [], 0


class Names:
    """Strings as numbers."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        text = cut(text, LONGEST_NAME)
        return self.numbers.setdefault(text, len(self.numbers))


def make_bundle(trace: Trace, page: Page, capacity: int = CAPACITY) -> Bundle:
    """Reads every artefact once."""
    packer, names = Packer(capacity), Names()
    compiles = [(log, c) for log in trace.logs for c in (*log.compiles, log.outside) if c.records]
    order = {(log.name, c.id): number for number, (log, c) in enumerate(compiles)}
    differing = guard_changes(trace)
    details = [
        packer.add(_dump(_detail(log, c, differing.get((log.name, c.id), ()), packer))) for log, c in compiles
    ]
    packer.close()
    kernels, kernel_items = _kernels(trace, compiles, packer)
    packer.close()
    artifacts = _artifacts(trace, names, packer)
    packer.close()
    configs = {key: packer.add(_pretty(text)) for log in trace.logs for key, text in log.configs.items()}
    packer.close()
    zero = min((log.epoch for log in trace.logs if log.epoch), default=0.0)
    rows = [
        _row(log, c, zero, names, artifacts, details[number], kernel_items[number])
        for number, (log, c) in enumerate(compiles)
    ]
    index = {
        "logs": [[log.title, log.name] for log in trace.logs],
        "compiles": rows,
        "order": {f"{name} {cid}": number for (name, cid), number in order.items()},
        "items": packer.items,
        "flames": _flames(compiles, names),
        "stacks": _trie(((c.stack, number) for number, (_, c) in enumerate(compiles)), names),
        "unplaced": _trie(_unplaced(trace, names), names),
        "kernels": kernels,
        "configs": configs,
        "sources": _sources(compiles),
        "left_out": packer.left_out,
    }
    index["names"] = list(names.numbers)
    return Bundle(page, index, tuple(packer.blocks), operator_report(trace))


def _row(
    log: Log, c: Compile, zero: float, names: Names, artifacts: dict[str, dict[int, list[int]]], detail: int, kernels: int
) -> list[Any]:  # fmt: skip
    place = c.place or Place("", 0)
    if is_library(place.file):  # a wrapper of torch's: the user's line that called it says more
        place = call_site(c.stack) or place
    mine = artifacts[log.name]
    return [
        log.title, str(c.id), names(c.function), names(place.file), place.line, c.status, round(c.seconds, 4), c.graphs,
        int(c.metrics.number("graph_op_count")), len(c.breaks), len(c.reasons), None if c.start is None else round(c.start + log.epoch - zero, 4),
        detail, kernels, [mine[n] for n in c.artifacts], log.name,
    ]  # fmt: skip


def _detail(log: Log, c: Compile, differing: tuple[GuardChange, ...], packer: Packer) -> dict[str, Any]:
    """Everything about a compile but its artefacts and its times."""
    stacks, guard_stacks, symbol_stacks = stacks_of(log, c)
    return {
        "stack": c.stack, "reasons": c.reasons, "differing": differing, "breaks": c.breaks, "failure": c.failure, "restarts": c.restarts,
        "symbols": c.symbols, "guards": c.shape_guards, "inputs": c.inputs, "caches": c.caches, "links": c.links,
        "attempts": c.attempts, "metrics": c.metrics.values, "backward": c.metrics.backward,
        "configs": c.metrics.configs, "phases": c.phases,
        "stacks": [packer.add(text, text.decode("utf-8")) for text in map(_dump, stacks)], "guard_stacks": guard_stacks, "symbol_stacks": symbol_stacks,
    }  # fmt: skip


def _sources(compiles: list[tuple[Log, Compile]]) -> dict[str, list[int]]:
    """Source file -> [compile, its artefact] that holds its text, where the log has it."""
    out: dict[str, list[int]] = {}
    for number, (log, c) in enumerate(compiles):
        for place, artifact in enumerate(c.artifacts):
            if log.artifacts[artifact].kind == "dump_file":
                out[log.artifacts[artifact].name] = [number, place]
    return out


def _dump(value: Any) -> bytes:
    return orjson.dumps(value, default=plain, option=orjson.OPT_NON_STR_KEYS)


def _artifacts(trace: Trace, names: Names, packer: Packer) -> dict[str, dict[int, list[int]]]:
    """Log -> artefact -> [title, attempt, item, bytes, item with what its header says]. Alike artefacts lie side by side, which packs better."""
    out: dict[str, dict[int, list[int]]] = {log.name: {} for log in trace.logs}
    all_of_them = [(log, one) for log in trace.logs for one in log.artifacts]
    all_of_them.sort(key=lambda pair: (pair[1].title, pair[0].name, pair[1].number))
    for log, one in all_of_them:
        guards = one.kind == "dynamo_guards"
        # guards name files by numbers of their log
        key = f"{one.digest} {log.name}" if guards else one.digest
        item = packer.known.get(key, -1) if key else -1
        if item < 0:
            text = b"" if packer.full() else text_of(trace, log, one)
            item = packer.add(guard_list(text, log.strings) if guards else text, key)
        said = _dump(about(trace, log, one)) if one.more else b"{}"
        more = packer.add(said, said.decode("utf-8")) if said != b"{}" else -1
        out[log.name][one.number] = [names(one.title), one.attempt, item, one.length, more]
    return out


def text_of(trace: Trace, log: Log, one: Artifact) -> bytes:
    """What is shown of an artefact: its payload, or its header where there is none."""
    if one.digest:
        return trace.payload(log, one)
    header = trace.header(log, one)
    meta = header.get(one.kind)
    if isinstance(meta, dict):
        meta = {key: value for key, value in meta.items() if key not in CONFIG_FIELDS}
    meta = readable(meta, log.strings)
    try:
        return orjson.dumps(meta, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):
        return repr(meta).encode("utf-8", "replace")


def _pretty(text: str) -> bytes:
    try:
        return orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2)
    except ValueError:
        return text.encode("utf-8", "replace")


def _kernels(
    trace: Trace, compiles: list[tuple[Log, Compile]], packer: Packer
) -> tuple[list[list[Any]], list[int]]:
    """Rows [compile, kernel, kind, lines, why it is a fallback] of all kernels, and the item with the details of each compile."""
    rows: list[list[Any]] = []
    items: list[int] = []
    known: dict[int, int] = {}
    every = all_kernels(trace)
    for number, (log, c) in enumerate(compiles):
        found = every.get((log.name, c.id), ())
        if not found:
            items.append(-1)
            continue
        if id(found) not in known:
            local = {artifact: place for place, artifact in enumerate(c.artifacts)}
            known[id(found)] = packer.add(_dump([_local(kernel, local) for kernel in found]))
        items.append(known[id(found)])
        if len(rows) < KERNEL_ROWS:
            rows.extend(
                [
                    number,
                    f"{k.name}:{k.handle}" if k.handle else k.name,
                    k.kind,
                    [f"{p.short} {p.code}"[:120] for p in k.lines[:3]],
                    k.why if k.kind == "fallback" else "",
                ]
                for k in found
            )
    return rows, items


def _local(kernel: Kernel, local: dict[int, int]) -> Kernel:
    """With the number that the artefact with the code has among those of its compile."""
    return kernel if kernel.code is None else replace(kernel, code=local.get(kernel.code))


def _flames(compiles: list[tuple[Log, Compile]], names: Names) -> dict[int, list[float]]:
    """Compile -> name, start and length in ms, depth, of every step; for the slowest compiles."""
    slowest = sorted(range(len(compiles)), key=lambda n: -compiles[n][1].seconds)[:FLAMES]
    out: dict[int, list[float]] = {}
    for number in slowest:
        flat: list[float] = []
        for span in compiles[number][1].spans:
            if span.seconds * 1000 >= 0.05:
                flat += [
                    names(span.name),
                    round(span.start * 1000, 2),
                    round(span.seconds * 1000, 2),
                    span.depth,
                ]
        if flat:
            out[number] = flat
    return out


def _unplaced(trace: Trace, names: Names) -> Iterator[tuple[tuple[Place, ...], list[int]]]:
    """Stacks that wrote records without a compile, with [title, how often]."""
    for log in trace.logs:
        for one in log.unplaced:
            for title, count in one.titles:
                yield one.stack, [names(title), count]


def _trie(stacks: Iterable[tuple[tuple[Place, ...], Any]], names: Names) -> dict[str, list[Any]]:
    """Stacks as a tree, flat: node = [file, line, function, what belongs here, numbers of children, code]."""
    nodes: list[list[Any]] = []
    roots: list[int] = []
    known: dict[tuple[int, int, int, int], int] = {}
    for stack, what in stacks:
        at = -1
        for place in stack:
            key = (at, names(place.file), place.line, names(place.function))
            if key not in known:
                known[key] = len(nodes)
                (nodes[at][4] if at >= 0 else roots).append(len(nodes))
                nodes.append([*key[1:], [], [], names(place.code)])
            at = known[key]
        if at >= 0:
            nodes[at][3].append(what)
    return {"nodes": nodes, "roots": roots}


def unpack(bundle: Bundle) -> Iterator[bytes]:
    """All items of a bundle, as the page's script unpacks them."""
    opened: dict[int, bytes] = {}
    for block, start, length in bundle.index["items"]:
        if block not in opened:
            opened = {block: zlib.decompress(base64.b64decode(bundle.blocks[block]), -15)}
        yield opened[block][start : start + length]
