"""A trace as files: every artefact by compile, and the events as one file for Perfetto. Names are made safe."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from torchtriage.trace.analyses.collectives import operations_in
from torchtriage.trace.analyses.recompiles import artifact_of
from torchtriage.trace.bundle import text_of
from torchtriage.trace.load import Trace
from torchtriage.trace.model import Log, finite
from torchtriage.trace.records import HEADER, Record, lenient_json, read_records
from torchtriage.trace.sources import CHUNK

#: Numbers of processes with estimates begin here; the compile events of a rank have its rank.
ESTIMATES = 1_000_000
ESTIMATE = "estimated runtime"
_UNSAFE = re.compile(r"[^\w.+-]+")


def safe_name(text: str, limit: int = 80) -> str:
    """A name without separators, dots in front, or length that a file system minds."""
    name = _UNSAFE.sub("_", text)[:limit].lstrip(".").strip("_")
    return name or "_"


def write_files(trace: Trace, folder: Path) -> int:
    """`<log>/<compile>/<number>_<title>.<txt|json>` for every artefact; returns how many.

    `artifacts.json` says which file is what, for scripts: log, compile, attempt, kind, title, offset of the record.
    """
    rows: list[dict[str, Any]] = []
    for number, log in enumerate(trace.logs):
        base = folder / f"{number:04d}_{safe_name(log.title)}"
        for one in log.artifacts:
            compile = (
                safe_name(str(one.compile).replace("/", "_").replace("!", "a"))
                if one.compile.frame is not None
                else "outside"
            )
            place = base / f"{compile}_{one.attempt}"
            place.mkdir(parents=True, exist_ok=True)
            suffix = "json" if one.encoding == "json" or not one.digest else "txt"
            file = place / f"{one.number:06d}_{safe_name(one.title)}.{suffix}"
            file.write_bytes(text_of(trace, log, one))
            rows.append(
                {
                    "file": file.relative_to(folder).as_posix(), "log": log.name, "rank": log.rank,
                    "compile": str(one.compile), "attempt": one.attempt, "kind": one.kind, "title": one.title,
                    "offset": one.offset,
                }
            )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "artifacts.json").write_bytes(orjson.dumps(rows, option=orjson.OPT_INDENT_2))
    return len(rows)


def write_records(trace: Trace, folder: Path) -> int:
    """`<log>/records.jsonl`: every record without its payload, with time, source line and offset; returns how many."""
    count = 0
    for number, log in enumerate(trace.logs):
        base = folder / f"{number:04d}_{safe_name(log.title)}"
        base.mkdir(parents=True, exist_ok=True)
        with open(log.path, "rb") as file, (base / "records.jsonl").open("wb") as out:
            for item in read_records(iter(partial(file.read, CHUNK), b"")):
                if isinstance(item, Record):
                    match = HEADER.match(item.prefix)
                    date, time, process, source, line = (
                        (match[i].decode("utf-8", "replace") for i in range(1, 6)) if match else [""] * 5
                    )
                    row = {
                        "offset": item.offset,
                        "date": date,
                        "time": time,
                        "process": process,
                        "source": f"{source}:{line}",
                        **item.data,
                    }
                    out.write(orjson.dumps(row, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE))
                else:
                    out.write(
                        orjson.dumps({"offset": item.offset, "problem": item.reason, "detail": item.detail})
                        + b"\n"
                    )
                count += 1
    return count


def write_perfetto(trace: Trace, path: Path) -> int:
    """All events as a JSON array, one process a rank; returns how many.

    What Inductor estimates that graphs take to run comes as a process of its own, which begins where the log begins.
    """
    count = 0
    with path.open("wb") as out:
        out.write(b"[")
        for number, log in enumerate(trace.logs):
            pid = number if log.rank is None else log.rank
            name = {"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": log.title}}
            out.write((b",\n" if count else b"\n") + orjson.dumps(name))
            count += 1
            for event in chain(events_of(log), estimates_of(trace, log)):
                event["pid"] = event.get("pid", 0) + pid if event.get("cat") == ESTIMATE else pid
                out.write(b",\n" + orjson.dumps(event, option=orjson.OPT_NON_STR_KEYS))
                count += 1
        out.write(b"\n]\n")
    return count - len(trace.logs)


def estimates_of(trace: Trace, log: Log) -> Iterator[dict[str, Any]]:
    """The estimated runtime of every operation, one thread a graph, one operation after the other."""
    for thread, compile in enumerate(log.compiles):
        one = artifact_of(log, compile, "inductor_runtime_and_tensor_meta")
        operations = operations_in(trace.json(log, one)) if one is not None else []
        common = {"cat": ESTIMATE, "pid": ESTIMATES, "tid": thread}
        names = {"process_name": f"{log.title}: estimated runtime", "thread_name": f"graph {compile.id}"}
        if operations:
            yield from (
                {"ph": "M", "name": key, "args": {"name": value}, **common} for key, value in names.items()
            )
        at = log.epoch * 1e6
        for operation in operations:
            length = max(0.0, finite(operation.get("estimated_runtime_ns"))) / 1e3
            about = {"type": str(operation.get("type", "")), "graph": str(compile.id)}
            name = str(operation.get("name", "?"))
            yield {
                "ph": "X",
                "name": name,
                "ts": round(at, 3),
                "dur": round(length, 3),
                "args": about,
                **common,
            }
            at += length


def events_of(log: Log) -> Iterator[dict[str, Any]]:
    """The events of one log as they were written."""
    with open(log.path, "rb") as file:
        for offset in log.events_at:
            file.seek(offset)
            lines = [file.readline()]
            while (line := file.readline()).startswith(b"\t"):
                lines.append(line)
            for item in read_records([b"".join(lines)]):
                if isinstance(item, Record):
                    plain = lenient_json(item.payload or b"")
                    if isinstance(plain, dict):
                        yield plain
