"""A bisection as Markdown: the paragraph for the issue first, then the table, the ends, and how to check by hand."""

from __future__ import annotations

from torchtriage.model.bisection import Bisection, Change, End
from torchtriage.report.text import clean, one_line

COMPARE = "https://github.com/pytorch/pytorch/compare"
#: Distributions that are told of an environment in the paragraph; the table has all.
TOLD = ("numpy", "triton", "torchvision", "torchaudio")


def render(found: Bisection) -> str:
    """Fit to be pasted into an issue."""
    parts = [paragraph(found), "", *verdicts(found)]
    parts += helped(found) + changes(found) + remarks(found)
    for end in (found.good, found.bad):
        if end is not None:
            parts += ["", *end_lines(end)]
    if found.command:
        parts += ["", f"Found with torchtriage {found.tool}: {code(found.command)}"]
    return "\n".join(parts) + "\n"


def paragraph(found: Bisection) -> str:
    """The answer, what it rests on, and the commits."""
    sentences = [f"**{cell(found.said, 400)}.**"]
    if found.signature:
        sentences.append(f"What was looked for: {code(found.signature)}.")
    for word, end in (("good", found.good), ("bad", found.bad)):
        told = next((v for v in found.verdicts if end is not None and v.version == end.version), None)
        if told is not None and told.runs:
            times = (
                f"failed in {told.failures} of {told.runs} runs"
                if told.runs > 1
                else f"{cell(told.reason, 200)}"
            )
            sentences.append(f"{cell(told.version)} ({word}): {times}.")
    if found.confidence is not None and found.rate is not None:
        sentences.append(
            f"It fails in {found.rate:.0%} of the runs at bad versions; confidence {found.confidence:.1%}."
        )
    if found.commits:
        span = found.commits.split()[0]
        link = f" ([compare]({COMPARE}/{span.replace('..', '...')}))" if found.package == "torch" else ""
        sentences.append(f"Commits: {code(found.commits)}{link}.")
    return " ".join(sentences)


def verdicts(found: Bisection) -> list[str]:
    if not found.verdicts:
        return []
    rows = [
        f"| {cell(v.version)} | {v.date} | {v.word} | {f'{v.failures} of {v.runs}' if v.runs else ''} | {cell(v.reason, 160)} |"
        for v in found.verdicts
    ]
    return ["| version | date | verdict | runs that failed | what was seen |", "|---|---|---|---|---|", *rows]


def helped(found: Bisection) -> list[str]:
    lines: list[str] = []
    for change in found.changes:
        if change.trial == "good" and found.bad is not None:
            lines += [
                "", f"On {cell(found.bad.version)}, setting {code(change.name)} back to {code(change.before)} was run and makes it good:",
                "", "```python", *map(clean, change.lines), "```",
            ]  # fmt: skip
    return lines


def changes(found: Bisection) -> list[str]:
    if not found.changes:
        return []
    rows = [
        f"| {c.kind} | {code(c.name)} | {cell(c.before)} | {cell(c.after)} | {tried(c)} |"
        for c in found.changes
    ]
    return [
        "", f"<details><summary>What else differs ({len(rows)})</summary>", "",
        "| | name | in the good one | in the bad one | set back on the bad one |", "|---|---|---|---|---|", *rows, "", "</details>",
    ]  # fmt: skip


def tried(change: Change) -> str:
    if change.kind != "default":
        return ""
    return {"good": "good", "bad": "still bad", "skip": "cannot tell"}.get(change.trial, "not tried")


def remarks(found: Bisection) -> list[str]:
    return ["", *(f"- {cell(remark, 400)}" for remark in found.remarks)] if found.remarks else []


def end_lines(end: End) -> list[str]:
    about = [f"Python {end.python}" if end.python else "", cell(end.platform)]
    about += [f"{name} {end.packages[name]}" for name in TOLD if name in end.packages]
    commit = f"commit {code(end.commit)}" if end.commit else ""
    note = cell(end.commit_note) if end.commit_note else ""
    lines = [f"**{cell(end.version)}**: " + ", ".join(part for part in (*about, commit, note) if part)]
    if end.by_hand:
        lines += ["", "```sh", *(one_line(clean(line), 2000) for line in end.by_hand), "```"]
    if end.packages:
        listed = "\n".join(f"{name}=={version}" for name, version in end.packages.items())
        lines += [
            "",
            f"<details><summary>All packages ({len(end.packages)})</summary>",
            "",
            "```",
            clean(listed),
            "```",
            "",
            "</details>",
        ]
    return lines


def cell(text: str, limit: int = 120) -> str:
    """Text that breaks neither a table nor Markdown around it."""
    plain = one_line(clean(text), limit)
    for character in "\\`*_|<>[]":
        plain = plain.replace(character, "\\" + character)
    return plain


def code(text: str, limit: int = 300) -> str:
    plain = one_line(clean(text), limit)
    ticks = "`"
    while ticks in plain:
        ticks += "`"
    space = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{ticks}{space}{plain.replace('|', chr(92) + '|')}{space}{ticks}"
