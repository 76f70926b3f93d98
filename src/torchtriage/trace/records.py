"""The line grammar of a TORCH_TRACE log: chunks of bytes in, records and problems out.

A record is one header line (`V<MMDD> <time> <pid> <path>:<line>] <JSON>`) and, after it, payload lines that each
begin with a tab; `has_payload` in the JSON is the MD5 of the payload. Nothing here knows what a record means.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import Any, Literal, NamedTuple, overload

import orjson

HEADER = re.compile(rb"V(\d{4}) (\d\d:\d\d:\d\d\.\d+) +(\d+) ((?:[A-Za-z]:)?[^\n:]{0,1000}):(\d+)\] ")
#: A timed event as torch writes it, whole, with the header after it: most records of a large log are one of these.
EVENT = re.compile(
    rb"V(\d{4} \d\d:\d\d:\d\d\.\d+) +\d+ (?:[A-Za-z]:)?[^\n:]{0,1000}:\d+\] "
    rb'\{"chromium_event": \{\}, ([^\n]{0,400})"has_payload": "([0-9a-f]{32})"\}\n'
    rb'\t(\{\n\t"name": "([^"\\\n]*)",\n\t"ts": (\d{1,17}(?:\.\d*)?),\n\t"args": \{\n(?:\t[^\n]*\n)*?\t\},\n'
    rb'\t"ph": "([BE])",\n\t"cat": "[^"\\\n]*",\n\t"tid": (\d{1,15}),\n\t"pid": \d+\n\t\})\n(?=V\d{4} )'
)
ENVELOPE = frozenset(
    {"rank", "compiled_autograd_id", "frame_id", "frame_compile_id", "attempt", "subgraph_name",
     "has_payload", "stack", "severity", "timestamp", "pathname", "lineno", "thread", "process"}
)  # fmt: skip
LONGEST_RECORD = 512 << 20
Reason = Literal["json", "md5", "noise", "payload", "utf8", "truncated", "too-long", "event", "container"]


class Record(NamedTuple):
    """One record. `data` is the JSON of its header; `payload` is None where there is none."""

    offset: int
    length: int
    header_length: int
    kind: str
    data: dict[str, Any]
    payload: bytes | None
    intact: bool
    """False when the payload does not have the announced MD5."""
    prefix: bytes
    """What stands before the JSON: date, time, process, source file and line. `HEADER` takes it apart."""


class Event(NamedTuple):
    """A `chromium_event` that begins or ends a step, read without decoding its JSON. Others come as records."""

    offset: int
    length: int
    stamp: bytes
    """Date and time."""
    envelope: bytes
    """What the header says besides the kind and the hash; `data` is the same as a dictionary."""
    data: dict[str, Any]
    name: str
    begins: bool
    at: float
    """Microseconds since 1970."""
    thread: bytes


class Problem(NamedTuple):
    """Something that could not be read as it should: where, how much, and why."""

    offset: int
    length: int
    reason: Reason
    detail: str


def read_records(chunks: Iterable[bytes]) -> Iterator[Record | Problem]:
    """Every record of one file, in order, and a Problem for whatever is not one. Never raises on content."""
    repeated = _Repeated()
    for offset, span, last in split_spans(chunks):
        yield from _records(offset, span, last, repeated)


def read_log_items(chunks: Iterable[bytes]) -> Iterator[Event | Record | Problem]:
    """The same, with most timed events as `Event`, which takes a third of the time."""
    repeated = _Repeated()
    heads: dict[bytes, dict[str, Any]] = {}
    names: dict[bytes, str] = {}
    for offset, span, last in split_spans(chunks, whole=EVENT):
        if isinstance(span, bytes):
            yield from _records(offset, span, last, repeated)
            continue
        stamp, envelope, digest, body, label, at, phase, thread = span.groups()
        name, data = names.get(label), heads.get(envelope)
        if (
            hashlib.md5(body.replace(b"\n\t", b"\n"), usedforsecurity=False).hexdigest().encode() != digest
            or (name is None and (name := _name(label, names)) is None)
            or (data is None and (data := _head(envelope, heads)) is None)
        ):
            yield from _records(offset, span[0][:-1], False, repeated)
            continue
        yield Event(
            offset,
            span.end() - span.start() - 1,
            stamp,
            envelope,
            data,
            name,
            phase == b"B",
            float(at),
            thread,
        )


def _name(label: bytes, names: dict[bytes, str]) -> str | None:
    try:
        return names.setdefault(label, label.decode("utf-8"))
    except UnicodeDecodeError:
        return None


def _head(envelope: bytes, heads: dict[bytes, dict[str, Any]]) -> dict[str, Any] | None:
    """The header of an event as a dictionary, kept for the events after it; None where it is not JSON."""
    if len(heads) > 4096:
        heads.clear()
    try:
        data = orjson.loads(b'{"chromium_event": {}, ' + envelope + b'"has_payload": ""}')
    except ValueError:
        return None
    return heads.setdefault(envelope, data)


class _Repeated:
    """Payloads that were seen: one that comes again is compared, which is cheaper than to hash it again."""

    def __init__(self, capacity: int = 24 << 20, least: int = 1024) -> None:
        self.capacity, self.least, self.size = capacity, least, 0
        self.known: dict[str, tuple[bytes, bytes]] = {}

    def verified(self, raw: bytes, expected: object) -> bytes | None:
        """The payload of raw lines, where it has the hash that was announced."""
        if not isinstance(expected, str):
            return None
        before = self.known.get(expected)
        if before is not None and before[0] == raw:
            return before[1]
        payload = raw.replace(b"\n\t", b"\n")[1:]
        if _md5(payload) != expected:
            return None
        if self.least <= len(raw) <= self.capacity:
            self.size += len(raw)
            if self.size > self.capacity:
                self.known.clear()
                self.size = len(raw)
            self.known[expected] = (raw, payload)
        return payload


def _records(offset: int, span: bytes, last: bool, repeated: _Repeated) -> Iterator[Record | Problem]:
    """The records of one span: one, unless writers got mixed."""
    match = HEADER.match(span)
    if match is None:
        yield from _mixed(offset, span, last, 0)
        return
    newline = span.find(b"\n")
    head_end = len(span) if newline < 0 else newline
    try:
        data = orjson.loads(span[match.end() : head_end])
        kind = next(iter(data))
        if kind in ENVELOPE:
            kind = next((k for k in data if k not in ENVELOPE), "")
        expected = data.get("has_payload")
    except (ValueError, TypeError, StopIteration, AttributeError):
        yield from _mixed(offset, span, last, 1)
        return
    if expected is not None:
        payload = repeated.verified(span[head_end:], expected) if newline >= 0 else None
        if payload is not None:
            yield Record(offset, len(span), head_end, kind, data, payload, True, match[0])
        else:
            yield from _mixed(offset, span, last, head_end)
    elif newline >= 0 and span[newline:].strip():
        yield from _mixed(offset, span, last, head_end)
    else:
        yield Record(offset, len(span), head_end, kind, data, None, True, match[0])


@overload
def split_spans(chunks: Iterable[bytes], longest: int = ...) -> Iterator[tuple[int, bytes, bool]]: ...
@overload
def split_spans(
    chunks: Iterable[bytes], longest: int = ..., *, whole: re.Pattern[bytes]
) -> Iterator[tuple[int, bytes | re.Match[bytes], bool]]: ...
def split_spans(
    chunks: Iterable[bytes], longest: int = LONGEST_RECORD, *, whole: re.Pattern[bytes] | None = None
) -> Iterator[tuple[int, bytes | re.Match[bytes], bool]]:
    """Cut a stream before every line that begins like a header: (offset, bytes, cut off).

    Bytes come without their final newline; a last span that has none is cut off. The first span may be something
    else. A span longer than `longest` is handed out in pieces. A span that `whole` matches, its newline and the
    beginning of the next included, comes as the match.
    """
    base, buffer, scan = 0, b"", 0
    gathered: list[bytes] = []
    for chunk in chain(chunks, (b"",)):
        if (
            buffer and chunk
        ):  # a span of many chunks: its size is doubled each time, so that it is not copied for each
            gathered.append(chunk)
            if len(chunk) * len(gathered) < len(buffer):
                continue
        if gathered:
            chunk = b"".join(gathered)
            gathered.clear()
        buffer = buffer + chunk if buffer else chunk
        start = 0
        while True:
            if whole is not None and scan <= start and (found := whole.match(buffer, start)) is not None:
                yield base + start, found, False
                start = scan = found.end()
                continue
            at = buffer.find(b"\nV", scan if scan > start else start)
            if at < 0 or at + 6 > len(buffer):
                break
            scan = at + 1
            if buffer[at + 2 : at + 6].isdigit():
                yield base + start, buffer[start:at], False
                start = at + 1
        scan = max(0, (at if at >= 0 else len(buffer) - 1) - start)
        buffer, base = buffer[start:], base + start
        if len(buffer) > longest:
            yield base, buffer, False
            base, buffer, scan = base + len(buffer), b"", 0
    if buffer:
        ended = buffer.endswith(b"\n")
        yield base, buffer[:-1] if ended else buffer, not ended


def _mixed(offset: int, span: bytes, last: bool, start: int) -> Iterator[Record | Problem]:
    """The slow path. Records that begin in the middle of a line, from `start` on, are read by themselves."""
    begins = [0, *_embedded(span, start), len(span)]
    for begin, end in pairwise(begins):
        piece, cut = span[begin:end], last and end == len(span)
        match = HEADER.match(piece)
        if match is not None:
            yield from _careful(offset + begin, piece, cut or end < len(span), match)
        elif piece.strip():
            yield Problem(offset + begin, len(piece), "noise", "not a trace record: " + preview(piece))


def _embedded(span: bytes, start: int) -> Iterator[int]:
    """Where headers begin in the middle of a line that is no payload line: writers got mixed."""
    line, line_end = 0, -1
    for match in HEADER.finditer(span, start):
        at = match.start()
        if at > line_end:
            line = span.rfind(b"\n", 0, at) + 1
            line_end = span.find(b"\n", at)
            line_end = len(span) if line_end < 0 else line_end
        if line < at and not span.startswith(b"\t", line):
            yield at


def _careful(offset: int, span: bytes, cut: bool, match: re.Match[bytes]) -> Iterator[Record | Problem]:
    """A record whose header is odd, or whose payload is missing, damaged, mixed with other lines or not announced."""
    head_end = span.find(b"\n")
    head_end = len(span) if head_end < 0 else head_end
    head = span[match.end() : head_end]
    data = lenient_json(head)
    if not isinstance(data, dict) or not data:
        why: Reason = "truncated" if cut and head_end == len(span) else "json"
        detail = "cut off inside its header" if why == "truncated" else "the header is not a JSON object"
        yield Problem(offset, len(span), why, f"{detail}: {preview(head)}")
        return
    kind = next((k for k in data if k not in ENVELOPE), "")
    kept, noise = _part_lines(span[head_end + 1 :], offset + head_end + 1)
    expected = data.get("has_payload")
    payload = b"\n".join(kept) if kept else None
    intact = expected is None or (payload is not None and _md5(payload) == expected)
    if not intact and payload is not None and b"\r" in payload:
        plain = payload.replace(b"\r\n", b"\n").rstrip(b"\r")
        if _md5(plain) == expected:
            payload, intact = plain, True
    yield Record(offset, len(span), head_end, kind, data, payload, intact, match[0])
    yield from noise
    if not _strict(head):
        yield Problem(
            offset, head_end, "utf8", "the header is not strict JSON in UTF-8; odd bytes were replaced"
        )
    if expected is None:
        if payload is not None:
            detail = f"{kind} has payload lines but does not announce a payload; they are kept"
            yield Problem(offset, len(span), "payload", detail)
    elif payload is None:
        why = "truncated" if cut else "payload"
        yield Problem(offset, len(span), why, f"{kind} announces a payload, but none follows")
    elif not intact and cut:
        yield Problem(offset, len(span), "truncated", f"cut off inside the payload of {kind}")
    elif not intact:
        yield Problem(
            offset, len(span), "md5", f"the payload of {kind} does not have the MD5 {expected!s:.40}"
        )


def _part_lines(body: bytes, offset: int) -> tuple[list[bytes], list[Problem]]:
    """Payload lines without their tab, and what lies between them."""
    kept: list[bytes] = []
    noise: list[Problem] = []
    begin = None
    at = offset
    for line in body.split(b"\n"):
        if line.startswith(b"\t"):
            kept.append(line[1:])
            if begin is not None:
                noise.append(_noise(body, offset, begin, at))
                begin = None
        elif line.strip() and begin is None:
            begin = at
        at += len(line) + 1
    if begin is not None:
        noise.append(_noise(body, offset, begin, at))
    return kept, noise


def _noise(body: bytes, offset: int, begin: int, end: int) -> Problem:
    text = body[begin - offset : end - offset].rstrip(b"\n")
    return Problem(begin, len(text), "noise", "not a trace record: " + preview(text))


def _strict(head: bytes) -> bool:
    try:
        orjson.loads(head)
    except ValueError:
        return False
    return True


def lenient_json(data: bytes) -> Any:
    """JSON with NaN, huge numbers or invalid UTF-8 in it, made plain; None where it is not JSON at all."""
    try:
        return orjson.loads(data)
    except ValueError:
        pass
    try:
        return _plain(json.loads(data.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None


def _plain(value: Any) -> Any:
    """Without what no JSON writer takes back: lone surrogates, and numbers beyond 64 bits."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return value


def printable(text: str) -> str:
    """A text that can be written as UTF-8, as a file name need not be."""
    return text.encode("utf-8", "replace").decode("utf-8")


def preview(data: bytes, limit: int = 60) -> str:
    """The beginning of some bytes as one printable line."""
    text = data[:limit].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "." for c in text) + ("…" if len(data) > limit else "")


def _md5(payload: bytes) -> str:
    return hashlib.md5(payload, usedforsecurity=False).hexdigest()
