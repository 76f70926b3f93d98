"""Making strings fit to be shown: control sequences out, lengths bounded, backtick spans told apart.

Everything shown comes from a program that is not trusted. What is a sentence is decided in `view`.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from typing import Any

from torchtriage.model.diagnosis import Diagnosis

#: No single string in a report is longer than this.
FIELD_LIMIT = 20_000
_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movement
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC: window title, links
    r"|\x1b[@-Z\\-_]"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
#: Characters that reorder the text around them (https://trojansource.codes), and Unicode's own line ends.
_REORDERING = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029"
)
_SUSPECT = re.compile(r"[^\n\t\x20-\x7e\xa0-\u0618\u0620-\u1fff\u2030-\u205f\u2070-\ud7ff]")
_CODE_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def clean(text: str, limit: int = FIELD_LIMIT) -> str:
    """The text without terminal sequences; other control characters become visible escapes."""
    text = _ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return clip_middle(_SUSPECT.sub(_visible, text), limit)


def _visible(match: re.Match[str]) -> str:
    char = match.group()
    if unicodedata.category(char) not in ("Cc", "Cs", "Cn") and char not in _REORDERING:
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cleaned(diagnosis: Diagnosis) -> Diagnosis:
    """The same diagnosis with every string in it cleaned."""
    result = _cleaned(diagnosis)
    assert isinstance(result, Diagnosis)
    return result


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(
            value, **{f.name: _cleaned(getattr(value, f.name)) for f in dataclasses.fields(value)}
        )
    if isinstance(value, (tuple, list)):
        return type(value)(_cleaned(item) for item in value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    return value


def clip_middle(text: str, limit: int) -> str:
    """The text, or its two ends with a word on how much is missing between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def one_line(text: str, limit: int = 200) -> str:
    """The text on one line, its end cut off where it is longer than `limit`."""
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def first_line(text: str, limit: int = 200) -> str:
    """The first line that is not empty; an ellipsis tells that there are more."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    shown = one_line(lines[0], limit)
    return shown + " …" if len(lines) > 1 and not shown.endswith("…") else shown


def trimmed(text: str, head: int = 6, tail: int = 40, limit: int = 12_000, width: int = 400) -> str:
    """The first and last lines of a long text, such as a traceback; the last lines matter most."""
    lines = [line if len(line) <= width else line[: width - 1] + "…" for line in text.strip("\n").split("\n")]
    if len(lines) > head + tail:
        left_out = f"... {len(lines) - head - tail} lines left out ..."
        lines = [*lines[:head], left_out, *lines[-tail:]]
    return clip_middle("\n".join(lines), limit)


def spans(text: str) -> list[tuple[bool, str]]:
    """Pieces of a sentence, each with True where it stood between single backticks."""
    pieces = _CODE_SPAN.split(text)
    return [(index % 2 == 1, piece) for index, piece in enumerate(pieces) if piece]
