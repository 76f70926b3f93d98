"""The record of a bisection as a text that can be kept, edited and replayed: a line a version.

good 2.9.1 runs=14 failures=0
bad 2.13.0 runs=5 failures=3
skip 2.11.0 reason="pip: no matching distribution"
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torchtriage.bisect.errors import BadInput
from torchtriage.model.bisection import Bisection, Verdict

LINE = re.compile(r"(good|bad|skip)\s+(\S+)(.*)")


@dataclass(frozen=True)
class Replayed:
    """What a log says of one version: its runs, each with whether it failed; None: it is skipped."""

    runs: tuple[bool, ...] | None
    reason: str = ""


def log_text(found: Bisection) -> str:
    """The verdicts, with what they are verdicts of as comments."""
    head = [
        f"# torchtriage bisect of {found.package}: {found.find}, {found.regress}",
        f"# target: {found.target}",
        *([f"# looked for: {found.signature}"] if found.signature else []),
    ]
    return "\n".join([*head, *map(line, found.verdicts), f"# {found.said}", ""])


def line(verdict: Verdict) -> str:
    if verdict.word == "skip":
        return f"skip {verdict.version} reason={json.dumps(verdict.reason, ensure_ascii=False)}"
    return f"{verdict.word} {verdict.version} runs={verdict.runs} failures={verdict.failures}"


def read_log(text: str) -> dict[str, Replayed]:
    """The inverse of `log_text`; lines of `git bisect log`'s kind (`good VERSION`) do as well. Raises BadInput."""
    found: dict[str, Replayed] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        plain = raw.strip()
        if not plain or plain.startswith("#"):
            continue
        match = LINE.fullmatch(plain)
        if match is None:
            raise BadInput(f"line {number} of the log is not `good|bad|skip VERSION`: {plain[:80]}")
        word, version, rest = match.groups()
        found[version] = replayed(word, rest, number)
    return found


def replayed(word: str, rest: str, number: int) -> Replayed:
    if word == "skip":
        reason = re.search(r'reason=(".*")', rest)
        try:
            return Replayed(None, json.loads(reason.group(1)) if reason else "skipped in the log")
        except ValueError:
            return Replayed(None, "skipped in the log")
    counts = {name: int(value) for name, value in re.findall(r"(runs|failures)=(\d+)", rest)}
    runs = counts.get("runs", 1)
    failures = counts.get("failures", runs if word == "bad" else 0)
    if not 0 <= failures <= runs or runs < 1:
        raise BadInput(f"line {number} of the log has {failures} failures in {runs} runs")
    # As it was run: the passes came first, for a version is left at its first failure.
    return Replayed((*[False] * (runs - failures), *[True] * failures))


def table(verdicts: Sequence[Verdict], order: Iterable[str]) -> tuple[Verdict, ...]:
    """The verdicts in the order of their versions."""
    place = {version: index for index, version in enumerate(order)}
    return tuple(sorted(verdicts, key=lambda v: place.get(v.version, -1)))
