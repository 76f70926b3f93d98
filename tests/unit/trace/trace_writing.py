"""Writes TORCH_TRACE logs for tests, in the grammar that torch uses."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

#: Real traces, used in place where the machine has them.
REAL = next(
    (
        p / "traces"
        for p in (up / "shared" for up in Path(__file__).resolve().parents)
        if (p / "traces").is_dir()
    ),
    None,
)
needs_real = pytest.mark.skipif(REAL is None, reason="no folder of real traces on this machine")


def real_logs(folder: str = "") -> list[Path]:
    if REAL is None:
        return []
    found = sorted(p for p in (REAL / folder).rglob("*") if p.suffix in (".log", ".txt") and p.stat().st_size)
    return [p for p in found if "LICENSE" not in p.name]


def line(
    data: dict[str, Any], payload: str | None = None, stamp: str = "V1129 11:03:40.509000 7668"
) -> bytes:
    """One record as bytes."""
    if payload is not None:
        data = {**data, "has_payload": hashlib.md5(payload.encode()).hexdigest()}
    out = f"{stamp} torch/_dynamo/utils.py:12] {json.dumps(data)}\n".encode()
    if payload is not None:
        out += b"".join(b"\t" + part.encode() + b"\n" for part in payload.split("\n"))
    return out


def record(
    kind: str,
    meta: Any = None,
    payload: str | None = None,
    at: tuple[int, int, int] | None = (0, 0, 0),
    **extra: Any,
) -> bytes:
    """A record of a compile `at` = (frame, compile, attempt)."""
    ids = {} if at is None else {"frame_id": at[0], "frame_compile_id": at[1], "attempt": at[2]}
    return line({kind: {} if meta is None else meta, **ids, **extra}, payload)


def artifact(
    name: str, payload: str, at: tuple[int, int, int] | None = (0, 0, 0), encoding: str = "string"
) -> bytes:
    return record("artifact", {"name": name, "encoding": encoding}, payload, at)


def event(
    name: str, phase: str, at_us: float, at: tuple[int, int, int] | None = (0, 0, 0), tid: int = 0
) -> bytes:
    body = {"name": name, "ph": phase, "ts": at_us, "tid": tid, "pid": 0, "cat": "dynamo_timed", "args": {}}
    return record("chromium_event", {}, json.dumps(body, indent=0), at)


def metrics(
    at: tuple[int, int, int] = (0, 0, 0), function: str = "f", seconds: float = 1.0, **more: Any
) -> bytes:
    meta = {
        "co_name": function, "co_filename": "/app/model.py", "co_firstlineno": 10, "duration_us": int(seconds * 1e6),
        "fail_type": None, "fail_reason": None, "restart_reasons": [], **more,
    }  # fmt: skip
    return record("compilation_metrics", meta, at=at)


def compiled(
    at: tuple[int, int, int] = (0, 0, 0), function: str = "f", seconds: float = 1.0, **more: Any
) -> bytes:
    """A whole small compile: a graph and its metrics."""
    graph = record("dynamo_output_graph", {"sizes": {}}, "class GraphModule: ...\n", at)
    return graph + metrics(at, function, seconds, **more)


def write(folder: Path, *parts: bytes, name: str = "dedicated_log_torch_trace_x.log") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(b"".join(parts)) if name.endswith(".gz") else b"".join(parts))
    return path
