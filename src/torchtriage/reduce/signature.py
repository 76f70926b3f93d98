"""The failure that a search keeps: what it is, and whether the end of a script shows the same one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torchtriage.lab.scripts import ScriptEnd

Kind = Literal["raises", "no-exception", "differs", "killed", "timeout", "slow", "recompiles", "graph-break"]
RECOMPILES_ALLOWED = 2
MARGIN = 1.4
"""Slow scripts are looked for that take this many times as long as the finished script is allowed to."""


@dataclass(frozen=True)
class Failure:
    """What makes two failures the same."""

    kind: Kind
    type: str = ""
    """Class of the exception, with its module."""
    message: str = ""
    """Its first line, numbers and names taken out."""
    frames: tuple[str, ...] = ()
    """The innermost frames of torch."""
    aspect: str = ""
    """What differs: `value`, `dtype`, `shape`..."""
    gross: bool = False
    """Whether the difference is more than rounding can explain."""
    signal: str = ""
    reason: str = ""
    """Of the graph break."""
    seconds: float = 0.0
    """Slow: compiling takes longer than this, by MARGIN. Time-out: the script does."""
    text: str = field(default="", compare=False)
    """First line of the message as it came."""

    def words(self) -> str:
        """For a person, in a few words."""
        short = self.type.rpartition(".")[2]
        return {
            "raises": f"torch.compile raises {short}",
            "no-exception": f"eager mode raises {short}, torch.compile does not",
            "differs": f"torch.compile gives another {self.aspect} than eager mode",
            "killed": f"torch.compile is killed by {self.signal}",
            "timeout": f"torch.compile does not end within {self.seconds:.0f} s",
            "slow": f"torch.compile takes more than {self.seconds:.0f} s",
            "recompiles": f"torch.compile compiles one function more than {RECOMPILES_ALLOWED + 1} times",
            "graph-break": f"the graph breaks: {self.reason}",
        }[self.kind]


def of_exception(kind: Literal["raises", "no-exception"], exception: Mapping[str, Any]) -> Failure:
    """The signature of an exception that is described as in `model.outcome.ExceptionInfo`."""
    return Failure(
        kind,
        type=exception["type"],
        message=normalised(exception.get("cause_message") or exception["message"]),
        frames=tuple(exception.get("torch_frames", ()))[-2:],
        text=first_line(exception.get("cause_message") or exception["message"]),
    )


def whole_line(message: str) -> str:
    """The first line of a message that is not empty."""
    return next((row.strip() for row in message.splitlines() if row.strip()), "")


def first_line(message: str) -> str:
    """The same, cut to the length of a comment."""
    return whole_line(message)[:100]


def normalised(message: str) -> str:
    """The first line that says something, without what changes from script to script."""
    text = re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?", "N", whole_line(message))
    text = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "Q", text)
    text = re.sub(r"[\[(][^\[\]()]*[\])]", "B", text)
    text = re.sub(
        r"\b(torch\.)?(float|bfloat|int|uint|Float|Half|BFloat16|Double|Long|Int|c10::\w+)N?\b", "T", text
    )
    return re.sub(r"\s+", " ", text)[:200]


def same_exception(failure: Failure, exception: Mapping[str, Any] | None) -> bool:
    """Whether an exception is the one that is looked for.

    Of class, message and the place in torch, the class and one of the two others have to be the same: messages name
    what was reduced, and torch raises one error from several places.
    """
    if exception is None or exception["type"] != failure.type:
        return False
    other = of_exception("raises", exception)
    same_place = bool(failure.frames) and other.frames[-1:] == failure.frames[-1:]
    if not failure.frames:
        return other.message == failure.message
    return same_place and (other.message == failure.message or alike(other.message, failure.message))


def alike(one: str, other: str) -> bool:
    """Whether two messages are the same sentence with other words in it."""
    ours, theirs = set(one.split()), set(other.split())
    return len(ours & theirs) >= 0.6 * max(len(ours), len(theirs), 1)


def shows(failure: Failure, compiled: ScriptEnd) -> bool:
    """Whether the compiled run (or the comparison) of a script shows the failure."""
    if compiled.reason == "timeout":
        return failure.kind in ("timeout", "slow")
    if failure.kind == "timeout":
        return False
    if compiled.reason or compiled.past:
        return False
    if failure.kind == "killed":
        return compiled.signal == failure.signal
    if failure.kind == "raises":
        return same_exception(failure, compiled.exception)
    if compiled.exception is not None or compiled.exit or compiled.signal:
        return False
    match failure.kind:
        case "differs":
            return any(
                row["aspect"] == failure.aspect and row["gross"] >= failure.gross for row in compiled.found
            )
        case "slow":
            return float(compiled.counts.get("compile_seconds", 0)) > failure.seconds * MARGIN
        case "recompiles":
            return int(compiled.counts.get("recompiles", 0)) > RECOMPILES_ALLOWED
        case "graph-break":
            return failure.reason in {normalised(r) for r in compiled.counts.get("breaks", ())}
    return True


def fine_in_eager(failure: Failure, eager: ScriptEnd) -> bool:
    """Whether the eager run of a script is as it was: without an error, or with the one that compiled code misses."""
    if eager.reason or eager.signal or eager.past:
        return False
    if failure.kind == "no-exception":
        return eager.exception is not None and same_eager_error(failure, eager.exception)
    return eager.exception is None and not eager.exit


def same_eager_error(failure: Failure, exception: Mapping[str, Any]) -> bool:
    other = of_exception("no-exception", exception)
    return other.type == failure.type and (
        other.message == failure.message or alike(other.message, failure.message)
    )
