"""A reduction as an issue under the headings of PyTorch's form, as a page with the picture of its search, and as text."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable
from html import escape

from torchtriage.model.reduction import Reduction
from torchtriage.report import markdown, view
from torchtriage.report.text import cleaned, trimmed


def issue(found: Reduction) -> str:
    """Markdown to paste into a new issue."""
    sections = [bug(found), *rest(found)]
    return "\n\n".join(block for section in sections for block in section) + "\n"


def bug(found: Reduction) -> Iterable[str]:
    yield "### 🐛 Describe the bug"
    yield f"**{markdown.prose(found.failure)}**"
    d = found.diagnosis
    if d is not None and d.first_failing_layer != "none":
        yield f"First layer that fails: {markdown.code(d.first_failing_layer)}."
    yield markdown.fence(found.script.strip(), "python")
    yield from proof(found)
    needed = [c.name for c in found.conditions if c.needed]
    free = [c.name for c in found.conditions if not c.needed]
    if needed:
        yield "It goes away without any one of: " + ", ".join(needed) + "."
    if free:
        yield "It stays without: " + ", ".join(free) + "."


def proof(found: Reduction) -> Iterable[str]:
    if found.runs:
        text = f"Run by itself in fresh processes: it fails in {found.shown} of {found.runs}."
        if found.fine_disabled:
            text += " With TORCHDYNAMO_DISABLE=1 it exits with 0."
        yield text
    if found.rate:
        yield f"The failure comes and goes: the program showed it in {found.rate}."
    if found.keeps_from:
        yield f"The script is not all that could be wished: {markdown.prose(found.keeps_from)}."


def rest(found: Reduction) -> list[Iterable[str]]:
    """The sections of the verdict; without the program's code, names and settings where those are private."""
    d = cleaned(found.diagnosis) if found.diagnosis is not None else None
    sections: list[Iterable[str]] = [logs(found)]
    if d is not None and found.redacted:
        bare = dataclasses.replace(
            d, environment=dataclasses.replace(d.environment, variables={}, configs={})
        )
        sections += [markdown._ablation(bare), markdown._versions(bare), markdown._made(bare)]
    elif d is not None:
        sections += [
            markdown._ablation(d),
            markdown._layer(d),
            markdown._workarounds(d),
            markdown._versions(d),
        ]
        sections.append(markdown._made(d))
    return sections


def without_folders(text: str) -> str:
    """Every path becomes the name of its file."""
    return re.sub(r"(?:[\w.~-]*/)+([\w.-]+)", r"\1", text)


def logs(found: Reduction) -> Iterable[str]:
    if not found.output.strip():
        return
    yield "### Error logs"
    output = without_compiler_frames(found.output)
    output = without_folders(output) if found.redacted else output
    yield markdown.fence(trimmed(output, head=40, tail=30, limit=6000), "pytb")


def without_compiler_frames(output: str) -> str:
    """A traceback without the frames that lie in torch's compiler, but for the last few."""
    rows = output.rstrip().splitlines()
    starts = [i for i, row in enumerate(rows) if re.match(r'\s+File "(.*[/\\]torch[/\\]|<string>)', row)]
    cut: set[int] = set()
    for start in starts[:-3]:
        end = start + 1
        while end < len(rows) and not re.match(r'\s+File "|\S', rows[end]):
            end += 1
        cut.update(range(start, end))
    kept = [row for i, row in enumerate(rows) if i not in cut]
    return re.sub(r'(?m)^(\s+File ")[^"]*/site-packages/', r"\1", "\n".join(kept))


def text(found: Reduction) -> str:
    """For the terminal."""
    lines = [found.script.rstrip(), ""]
    lines.append(f"{found.failure}. {sizes(found)}, {found.tests} scripts tried.")
    if found.runs:
        lines.append(f"In fresh processes it fails {found.shown} times of {found.runs}; without the compiler it passes."
                     if found.fine_disabled else f"In fresh processes it fails {found.shown} times of {found.runs}.")  # fmt: skip
    if not found.proven and not found.stopped.startswith("interrupted"):
        lines.append(
            "It could not be shown to hold by itself: the script is the smallest that fails under torchtriage."
        )
    needed = [c.name for c in found.conditions if c.needed]
    if needed:
        lines.append("Needed: " + ", ".join(needed) + ".")
    if found.rate:
        lines.append(f"The failure comes and goes: {found.rate}.")
    if found.rank:
        lines.append(f"Form: {found.rank}" + (f" ({found.keeps_from})." if found.keeps_from else "."))
    if found.stopped:
        lines.append(f"The search ended early: {found.stopped}. The same command goes on from here.")
    for name, error in found.defects:
        lines.append(f"A fault of torchtriage, please report it: the pass '{name}' failed with {error}.")
    lines.append(f"Written to {found.folder}: repro.py, issue.md, reduction.html"
                 + (", bundle.zip." if found.bundle else "."))  # fmt: skip
    return "\n".join(lines) + "\n"


def sizes(found: Reduction) -> str:
    lines = view.count(found.lines_before, "line")
    return f"{lines} → {found.lines} (without blank lines, comments and imports)"


def page(found: Reduction) -> str:
    """One HTML file that needs nothing else."""
    rows = "".join(
        f"<tr><td>{escape(c.name)}</td><td>{'needed' if c.needed else 'not needed'}</td><td>{escape(c.trial)}</td></tr>"
        for c in found.conditions
    )
    slips = ", ".join(f"{escape(name)} ({count})" for name, count in found.slips)
    return PAGE.format(
        title=escape(found.failure),
        script=escape(found.script.rstrip()),
        proof=" ".join(escape(line) for line in proof(found)),
        conditions=f"<h2>What the failure needs</h2><table>{rows}</table>" if rows else "",
        picture=picture(found),
        passes=passes(found),
        search=escape(f"{sizes(found)}, {found.tests} scripts tried in {view.seconds(found.seconds)}"),
        slips=f"<p>Other failures met on the way, and not followed: {slips}</p>" if slips else "",
    )


def picture(found: Reduction, width: int = 720, height: int = 220) -> str:
    """Lines of the best script against seconds, as SVG."""
    points = found.history
    if len(points) < 2:
        return ""
    end = max(points[-1].seconds, 0.1)
    most = max(p.lines for p in points)
    across = [40 + (width - 60) * p.seconds / end for p in points]
    down = [10 + (height - 40) * (1 - p.lines / most) for p in points]
    path = f"M{across[0]:.1f},{down[0]:.1f}" + "".join(
        f" H{x:.1f} V{y:.1f}" for x, y in zip(across[1:], down[1:], strict=True)
    )
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{p.lines} lines after {p.seconds:.1f} s: {escape(p.by)}</title></circle>'
        for x, y, p in zip(across, down, points, strict=True)
    )
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="lines against time">'
        f'<path d="{path}" fill="none" stroke="currentColor" stroke-width="2"/>{dots}'
        f'<text x="4" y="16">{most}</text><text x="4" y="{height - 30}">0</text>'
        f'<text x="{width - 60}" y="{height - 6}">{end:.0f} s</text></svg>'
    )


def passes(found: Reduction) -> str:
    """What each pass took away, the most useful first."""
    steps = list(zip(found.history, found.history[1:], strict=False))
    times = Counter(after.by for _, after in steps)
    lines: Counter[str] = Counter()
    for before, after in steps:
        lines[after.by] += before.lines - after.lines
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{view.count(times[name], 'time')}</td><td>{view.count(lines[name], 'line')}</td></tr>"
        for name in sorted(times, key=lambda name: (-lines[name], -times[name]))
    )
    return f"<table>{rows}</table>" if rows else ""


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
pre {{ padding: 1rem; overflow: auto; border: 1px solid #8886; border-radius: 6px; }}
table {{ border-collapse: collapse; }} td {{ padding: .2rem .8rem .2rem 0; }}
svg {{ width: 100%; font: 12px system-ui; fill: currentColor; color: #2a78d0; }}
</style></head><body>
<h1>{title}</h1>
<p>{proof}</p>
<pre><code>{script}</code></pre>
{conditions}
<h2>The search</h2>
<p>{search}</p>
{picture}
{passes}
{slips}
</body></html>
"""
