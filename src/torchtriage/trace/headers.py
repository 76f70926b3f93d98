"""What headers of records say besides their name: stacks, file names, sizes. Read from the file when a page is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torchtriage.trace.build import COMMON, TOLD
from torchtriage.trace.frames import innermost, place_of, stack_of
from torchtriage.trace.load import Trace
from torchtriage.trace.model import Artifact, Compile, Log, Place
from torchtriage.trace.records import ENVELOPE, HEADER, lenient_json

#: Conditions and symbols of one compile whose stacks are read, and different stacks that are kept.
READ, KEPT = 5000, 500
#: The user's stack and the compiler's.
Stacks = tuple[tuple[Place, ...], tuple[Place, ...]]


def readable(value: Any, strings: dict[int, str], depth: int = 0) -> Any:
    """A value of a header with frames as text: in the log their files are numbers."""
    if depth > 50:
        return value
    if isinstance(value, dict):
        if "filename" in value and "line" in value:
            place = place_of(value, strings)
            return f"{place} in {place.function}{': ' + place.code if place.code else ''}" if place else value
        return {key: readable(item, strings, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [readable(item, strings, depth + 1) for item in value]
    return value


def guard_list(payload: bytes, strings: dict[int, str]) -> bytes:
    """A `dynamo_guards` payload as a line a guard, with the user's line that it comes from; as it is where it is odd."""
    rows = lenient_json(payload)
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "code" in row for row in rows):
        return payload
    lines = []
    for row in rows:
        place = innermost(row.get("user_stack"), strings)
        lines.append(f"{row['code']}{f'  # {place} {place.code}'.rstrip() if place else ''}")
    return "\n".join(lines).encode("utf-8", "replace")


def about(trace: Trace, log: Log, one: Artifact) -> dict[str, Any]:
    """What the header of an artefact says beside what it is; of one without a payload, that is shown already."""
    header = trace.header(log, one)
    meta = header.get(one.kind)
    found: dict[str, Any] = {}
    if one.digest and isinstance(meta, dict):
        found = {
            key: value for key, value in meta.items() if key not in COMMON and value not in ({}, [], None)
        }
    for key, value in header.items():
        if key != one.kind and (key in TOLD or key not in ENVELOPE):
            found["written by" if key == "stack" else key] = value
    plain: dict[str, Any] = readable(found, log.strings)
    return plain


def stacks_of(log: Log, compile: Compile) -> tuple[list[Stacks], list[int], list[int]]:
    """The different stacks of a compile's conditions and symbols, and for each of those the number of its stacks.

    -1 where the record has none.
    """
    known: dict[Stacks, int] = {}
    if not compile.shape_guards and not compile.symbols:
        return [], [], []
    with open(log.path, "rb") as file:

        def number(records: Sequence[tuple[int, int]]) -> Iterable[int]:
            for offset, length in records[:READ]:
                file.seek(offset)
                stacks = _both(file.read(length), log.strings)
                if stacks in known:
                    yield known[stacks]
                elif any(stacks) and len(known) < KEPT:
                    yield known.setdefault(stacks, len(known))
                else:
                    yield -1

        guards = list(number([one.record for one in compile.shape_guards]))
        symbols = list(number([one.record for one in compile.symbols]))
    return list(known), guards, symbols


def _both(raw: bytes, strings: dict[int, str]) -> Stacks:
    match = HEADER.match(raw)
    plain = lenient_json(raw[match.end() :]) if match else None
    meta = next(iter(plain.values()), None) if isinstance(plain, dict) else None
    if not isinstance(meta, dict):
        return (), ()
    return stack_of(meta.get("user_stack"), strings), stack_of(meta.get("stack"), strings)
