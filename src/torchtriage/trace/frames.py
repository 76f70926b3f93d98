"""Stack frames of records: interned file names resolved, and the user's frames told from torch's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from torchtriage.trace.model import Place

#: Files that the user did not write: torch, installed packages, the import machinery, generated code.
_LIBRARY = re.compile(
    r"(?:^|/)(?:torch|torchgen|functorch)/(?!.*(?:^|/)test)|(?:^|/)torchtriage/probe/|/(?:site|dist)-packages/|/lib/python3|<frozen |<eval_with_key"
    r"|^<string>|^(?:_dynamo|_inductor|_functorch|_subclasses|_higher_order_ops|fx|nn/modules|nn/functional)[/.]"
)
_STRING = re.compile(r"Line: (\d+), Name: (.*?), Filename: (.*)", re.S)


def place_of(frame: Any, strings: dict[int, str]) -> Place | None:
    """One frame record as a place; None where it is not one."""
    if not isinstance(frame, dict):
        return None
    name = frame.get("filename")
    if isinstance(name, str):
        file = name
    else:
        file = strings.get(name, f"<string {name}>") if isinstance(name, int) else "?"
    line, code = frame.get("line"), frame.get("loc")
    return _place(
        file,
        line if isinstance(line, int) else 0,
        str(frame.get("name", "")),
        code if isinstance(code, str) else "",
    )


@lru_cache(maxsize=65536)
def _place(file: str, line: int, function: str, code: str) -> Place:
    """The same place is the same object: stacks repeat, and a large log has many."""
    return Place(file, line, function, code)


def stack_of(frames: Any, strings: dict[int, str]) -> tuple[Place, ...]:
    """All frames of a stack, outermost first."""
    if not isinstance(frames, list):
        return ()
    places = (place_of(frame, strings) for frame in frames)
    return tuple(place for place in places if place is not None)


def innermost(frames: Any, strings: dict[int, str]) -> Place | None:
    """The innermost frame of a stack, without resolving the others."""
    return place_of(frames[-1], strings) if isinstance(frames, list) and frames else None


def is_library(file: str) -> bool:
    return _LIBRARY.search(file) is not None


def user_frames(stack: Sequence[Place]) -> tuple[Place, ...]:
    return tuple(place for place in stack if not is_library(place.file))


def call_site(stack: Sequence[Place]) -> Place | None:
    """The user's line that called the compiled function: the innermost user frame but the function itself."""
    users = user_frames(stack[:-1])
    return users[-1] if users else None


def in_full(place: Place, files: Iterable[str]) -> Place:
    """A place whose path torch has shortened, with the whole path where one of the files ends in it."""
    if place.file.startswith(("/", "<")):
        return place
    whole = next((file for file in files if file.endswith("/" + place.file)), None)
    return place if whole is None else replace(place, file=whole)


def stack_of_strings(lines: Any) -> tuple[Place, ...]:
    """The `stack_trace` field of the metrics: lines of `Line: 5, Name: f, Filename: …`."""
    if not isinstance(lines, list):
        return ()
    found = (_STRING.match(line) for line in lines if isinstance(line, str))
    return tuple(Place(m[3], int(m[1]), m[2]) for m in found if m)
