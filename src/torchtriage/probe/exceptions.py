"""Turns an exception into plain data: what the program saw, where in the user's code, where in torch."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from typing import Any

from torchtriage.probe import compat

LIMIT = 20_000
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
STDLIB = sysconfig.get_paths()["stdlib"] + "/"


def describe(error: BaseException) -> dict[str, Any]:
    """Fields of `model.outcome.ExceptionInfo`. Never raises."""
    cause = innermost(error)
    where = user_place(error)
    return {
        "type": f"{type(error).__module__}.{type(error).__qualname__}",
        "message": text_of(error),
        "bases": [c.__name__ for c in type(error).__mro__],
        "chain": [type(e).__name__ for e in chain(error)[1:]],
        "cause_message": text_of(cause),
        "torch_frames": torch_frames(cause)[-6:],
        "traceback": trimmed_traceback(error),
        "category": category(error),
        **where,
    }


def text_of(error: BaseException) -> str:
    try:
        return str(error)[:LIMIT]
    except Exception:
        return "<the exception cannot be printed>"


def chain(error: BaseException) -> list[BaseException]:
    """The exception and those that led to it, outermost first."""
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and all(current is not known for known in found) and len(found) < 20:
        found.append(current)
        inner = getattr(current, "inner_exception", None)
        inner = inner if isinstance(inner, BaseException) else None
        current = (
            inner or current.__cause__ or (None if current.__suppress_context__ else current.__context__)
        )
    return found


def innermost(error: BaseException) -> BaseException:
    return chain(error)[-1]


def torch_frames(error: BaseException) -> list[str]:
    root = compat.torch_root()
    return [
        f"torch{frame.filename[len(root) :]}:{frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(root)
    ]


def user_place(error: BaseException) -> dict[str, Any]:
    """The innermost line of the user's code: from Dynamo's own stack, from the message, or from the traceback."""
    for link in chain(error):
        stack = getattr(link, "real_stack", None)
        frames = [f for f in stack or () if is_users(f.filename)]
        if frames:
            last = frames[-1]
            return {"user_file": last.filename, "user_line": last.lineno or 0, "user_code": last.line or ""}
    found = place_in_message(text_of(error))
    if found:
        return found
    for link in chain(error):
        frames = [f for f in traceback.extract_tb(link.__traceback__) if is_users(f.filename)]
        if frames:
            last = frames[-1]
            return {"user_file": last.filename, "user_line": last.lineno or 0, "user_code": last.line or ""}
    return {}


def place_in_message(message: str) -> dict[str, Any] | None:
    rows = message.splitlines()
    found = None
    for position, row in enumerate(rows):
        match = re.match(r'\s*File "(.+)", line (\d+), in ', row)
        if match and is_users(match[1]):
            code = rows[position + 1].strip() if position + 1 < len(rows) else ""
            found = {"user_file": match[1], "user_line": int(match[2]), "user_code": code}
    return found


def is_users(filename: str) -> bool:
    return not (
        filename.startswith((compat.torch_root(), "<"))
        or (filename.startswith(STDLIB) and "/site-packages/" not in filename)
        or "/site-packages/sympy/" in filename
        or filename.startswith(PACKAGE)
        or is_generated(filename)
    )


def is_generated(filename: str) -> bool:
    """Whether Inductor wrote it."""
    store = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
    return "/torchinductor_" in filename or bool(store and filename.startswith(store + os.sep))


def trimmed_traceback(error: BaseException) -> str:
    """The traceback without our own frames, long runs of torch frames cut in the middle."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    kept = [line for line in lines if PACKAGE not in line and "/site-packages/torchtriage/" not in line]
    if len(kept) > 60:
        kept = [*kept[:20], f"  ... {len(kept) - 50} frames ...\n", *kept[-30:]]
    return "".join(kept)[-LIMIT:]


def category(error: BaseException) -> str:
    """Dynamo's own word on whose fault it is: from the hints that it prints with the error."""
    text = " ".join(text_of(link) for link in chain(error))
    if "likely to be a Dynamo bug" in text:
        return "dynamo-bug"
    if "Your code may result in an error when running in eager" in text:
        return "user-error"
    if "fundamental" in text and "unlikely that Dynamo" in text:
        return "fundamental"
    return ""
