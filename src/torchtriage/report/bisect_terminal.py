"""A bisection in the terminal, and as the text that is written to a file."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from torchtriage.model.bisection import Bisection, Change, End, Verdict
from torchtriage.report.text import clean, one_line

STYLES = {"good": "green", "bad": "red", "skip": "dim"}
INDENT = 13
SHOWN = 8


def render(found: Bisection, console: Console) -> None:
    """The whole answer on about a screen."""
    for heading, lines in sections(found):
        for number, line in enumerate(lines):
            console.print(
                Text((heading if not number else "").ljust(INDENT), style="bold") + line,
                soft_wrap=True, highlight=False, markup=False,
            )  # fmt: skip


def sections(found: Bisection) -> Iterable[tuple[str, list[Text]]]:
    yield "answer", [Text(clean(found.said), style="bold")]
    yield "target", [plain(found.target)]
    if found.signature:
        yield "looked for", [plain(found.signature, 300)]
    if found.verdicts:
        yield "verdicts", [verdict_line(v, found) for v in found.verdicts]
    if found.rate is not None:
        yield "flaky", [plain(f"fails in {found.rate:.0%} of the runs at bad versions")]
    if found.confidence is not None and found.confidence < 0.999:
        yield "sure", [plain(f"{found.confidence:.1%} that this is right{premise(found)}")]
    if found.commits:
        yield "commits", [plain(found.commits)]
    for end in (found.good, found.bad):
        if end is not None and end.commit_note and not end.commit:
            yield "commit", [plain(f"{end.version}: not known, {end.commit_note}")]
        elif end is not None and "nightly" in end.commit_note:
            yield "commit", [plain(f"{end.version}: {end.commit}, {end.commit_note}")]
    yield "in between", in_between(found)
    yield "remark", [plain(remark, 400) for remark in found.remarks]
    for end in (found.good, found.bad):
        if end is not None and end.by_hand:
            yield "by hand", [plain(line, 1000) for line in end.by_hand]
    if found.runs:
        yield "effort", [plain(effort(found))]
    if found.run_folder:
        yield "report", [plain(f"{found.run_folder}/report.md · verdicts.svg · bisect.log · report.json")]


def premise(found: Bisection) -> str:
    """What the confidence rests on; measures are taken to be noisy on both sides."""
    noisy = found.regress in ("step-time", "compile-time", "memory")
    return "" if noisy else ", if a good version never fails by itself"


def plain(text: str, limit: int = 200) -> Text:
    return Text(one_line(clean(text), limit))


def verdict_line(verdict: Verdict, found: Bisection) -> Text:
    wide = max(len(v.version) for v in found.verdicts) + 2
    line = Text(clean(verdict.version).ljust(wide) + (f"{verdict.date}  " if verdict.date else ""))
    line.append(verdict.word.ljust(6), style=STYLES[verdict.word])
    if verdict.runs > 1:
        line.append(f"{verdict.failures} of {verdict.runs} runs failed  ")
    line.append(one_line(clean(verdict.reason), 140), style="dim")
    return line


def in_between(found: Bisection) -> list[Text]:
    """What helps first, then what changed, shortened."""
    helped = [c for c in found.changes if c.trial == "good"]
    lines = []
    for change in helped:
        lines.append(
            plain(
                f"{change.name} = {change.before} (there {change.after}): tried on {bad_name(found.bad)}, good"
            )
        )
        lines += [Text("  " + clean(text), style="cyan") for text in change.lines]
    rank = {"default": 1, "dependency": 2}  # before them the operators that the target uses
    other = sorted((c for c in found.changes if c.trial != "good"), key=lambda c: rank.get(c.kind, 0))
    lines += [plain(short(change)) for change in other[:SHOWN]]
    if len(other) > SHOWN:
        lines.append(plain(f"{len(other) - SHOWN} more changes in the report"))
    return lines


def bad_name(end: End | None) -> str:
    return end.version if end is not None else "the bad version"


def short(change: Change) -> str:
    tried = {"bad": " (set back: still bad)", "skip": " (set back: cannot tell)"}.get(change.trial, "")
    return f"{change.kind} {change.name}: {one_line(change.before, 60)} in good, {one_line(change.after, 60)} in bad{tried}"


def effort(found: Bisection) -> str:
    def count(number: int, word: str) -> str:
        return f"{number} {word}{'' if number == 1 else 's'}"

    tried = len(found.verdicts)
    return (
        f"{tried} of {count(found.versions, 'version')}, {count(found.installs, 'installation')}, "
        f"{count(found.runs, 'run')}, {found.seconds:.0f} s"
    )
