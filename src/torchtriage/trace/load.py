"""`read_trace`: from a place to a `Trace`, the one object that everything else takes."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, wraps
from typing import Any, TypeVar

from torchtriage.trace.breaks import is_limit
from torchtriage.trace.build import build_log
from torchtriage.trace.model import Artifact, Compile, CompileId, Log, Totals
from torchtriage.trace.parallel import read_together
from torchtriage.trace.records import HEADER, Record, lenient_json, printable, read_log_items, read_records
from torchtriage.trace.sources import CHUNK, NotATrace, Source, discover, materialise, newest, scratch_folder

T = TypeVar("T")
#: Below this many bytes in all, starting processes costs more than it saves.
WORTH_PROCESSES = 64 << 20


@dataclass(frozen=True)
class Trace:
    """All logs of one run. `payload` and `header` read artefacts from the files on demand."""

    name: str
    logs: tuple[Log, ...]
    passed_over: tuple[str, ...] = ()
    """Files of the folder that are no logs."""
    scratch: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False, compare=False)
    memo: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Results of analyses, see `once`."""

    def payload(self, log: Log, artifact: Artifact) -> bytes:
        """The payload of an artefact as it was logged; empty where there is none."""
        raw = self.raw(log, artifact.offset, artifact.length)
        if artifact.digest:
            plain = raw[artifact.header_length :].replace(b"\n\t", b"\n")[1:]
            if hashlib.md5(plain, usedforsecurity=False).hexdigest() == artifact.digest:
                return plain
        for item in read_records([raw]):
            if isinstance(item, Record):
                return item.payload or b""
        return b""

    def text(self, log: Log, artifact: Artifact) -> str:
        return self.payload(log, artifact).decode("utf-8", "replace")

    def json(self, log: Log, artifact: Artifact) -> Any:
        """The payload as JSON; None where it is not JSON, whatever its encoding says."""
        return lenient_json(self.payload(log, artifact))

    def header(self, log: Log, artifact: Artifact) -> dict[str, Any]:
        """The whole JSON of a record's header."""
        raw = self.raw(log, artifact.offset, artifact.header_length)
        match = HEADER.match(raw)
        plain = lenient_json(raw[match.end() :]) if match else None
        return plain if isinstance(plain, dict) else {}

    def raw(self, log: Log, offset: int, length: int) -> bytes:
        with open(log.path, "rb") as file:
            file.seek(offset)
            return file.read(length)

    def compiles(self) -> Iterator[tuple[Log, Compile]]:
        return ((log, compile) for log in self.logs for compile in log.compiles)

    def find(self, log: Log, compile_id: CompileId) -> Compile | None:
        return next((c for c in log.compiles if c.id == compile_id), None)

    @cached_property
    def totals(self) -> Totals:
        return totals(self.logs)

    def _repr_html_(self) -> str:
        from torchtriage.trace.notebook import notebook_html

        return notebook_html(self)

    def __repr__(self) -> str:
        t = self.totals
        return f"<Trace {self.name}: {t.logs} logs, {t.compiles} compiles, {t.seconds:.1f} s of compile time>"


def once(analysis: Callable[[Trace], T]) -> Callable[[Trace], T]:
    """An analysis whose result is kept with the trace: verdicts and pages ask for the same ones."""

    @wraps(analysis)
    def kept(trace: Trace) -> T:
        key = f"{analysis.__module__}.{analysis.__qualname__}"
        if key not in trace.memo:
            trace.memo[key] = analysis(trace)
        found: T = trace.memo[key]
        return found

    return kept


def read_trace(
    place: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    latest: bool = False,
) -> Trace:
    """Read a file, a folder, an archive or a URL, or several of them.

    Raises NotATrace, with one line for the user, where nothing of it is a trace; never on damaged content.
    `progress` is called with logs done and logs in all. With `latest` only the newest log is read, or those of all
    ranks of the newest run.
    """
    places = [os.fspath(place)] if isinstance(place, (str, os.PathLike)) else [os.fspath(p) for p in place]
    sources: list[Source] = []
    passed: list[str] = []
    for one in places:
        found, other = discover(one)
        sources.extend(found)
        passed.extend(other)
    if latest:
        sources = list(newest(sources))
    scratch = scratch_folder() if any(s.packing or s.member for s in sources) else None
    folder = scratch.name if scratch else ""
    logs = tuple(_read_all(sources, folder, workers, progress))
    if not any(log.records for log in logs):
        raise NotATrace(
            f"{printable(places[0])}: not one TORCH_TRACE record is in it, so this is no such log"
        )
    return Trace(printable(", ".join(places)), logs, tuple(passed), scratch)


def _read_all(
    sources: list[Source], folder: str, workers: int | None, progress: Callable[[int, int], None] | None
) -> Iterator[Log]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = min(workers or cores, len(sources))
    sizes = [0 if s.packing == "url" else os.path.getsize(s.path) for s in sources]

    def done(number: int) -> None:
        if progress:
            progress(number, len(sources))

    found: dict[int, Log] = {}
    if wanted > 1 and (workers or sum(sizes) > WORTH_PROCESSES):
        found = read_together(sources, sizes, folder, wanted, done)
    for number, source in enumerate(sources):
        log = found.pop(number, None)
        if log is None:
            log = read_log(source, folder)
            done(number + 1)
        yield log


def read_log(source: Source, scratch: str) -> Log:
    """One log, whatever its container."""
    path, problems = materialise(source, scratch)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        items = read_log_items(iter(partial(file.read, CHUNK), b""))
        return build_log(
            printable(source.name), path, source.rank, size, (*problems, *items) if problems else items
        )


def totals(logs: Sequence[Log]) -> Totals:
    compiles = [c for log in logs for c in log.compiles if c.id.frame is not None]
    good = [c for c in compiles if c.failure is None and c.has_metrics]
    sites = {
        (b.place.file, b.place.line) if b.place else (b.reason, 0)
        for c in compiles
        for b in c.breaks
    }  # fmt: skip
    return Totals(
        logs=len(logs),
        records=sum(log.records for log in logs),
        compiles=len(good),
        graphs=sum(c.graphs > 0 and c.failure is None for c in compiles),
        recompiles=sum(bool(c.reasons) for c in good),
        break_sites=len(sites),
        failed=sum(c.failure is not None for c in compiles),
        limit_hits=sum(c.failure is not None and is_limit(c.failure.reason) for c in compiles),
        artifacts=sum(len(log.artifacts) for log in logs),
        problems=sum(log.problem_count for log in logs),
        seconds=sum(log.seconds for log in logs),
        bytes=sum(log.size for log in logs),
    )
