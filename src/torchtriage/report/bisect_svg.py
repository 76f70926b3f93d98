"""The verdicts as a picture: a line of versions, each a mark, with how often it failed. One SVG text, without scripts."""

from __future__ import annotations

from html import escape

from torchtriage.model.bisection import Bisection, Verdict
from torchtriage.report.text import clean, one_line

COLOURS = {"good": "#1a7f37", "bad": "#cf222e", "skip": "#8c959f"}
ROW, LEFT, TOP, WIDTH = 26, 190, 56, 760


def render(found: Bisection) -> str:
    """A row a version that was looked at, in the order from the good end to the bad end."""
    rows = found.verdicts
    height = TOP + ROW * len(rows) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="system-ui, sans-serif" font-size="13" role="img">',
        f"<title>{_text(found.said)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="16" y="28" font-size="15" font-weight="600">{_text(found.said, 96)}</text>',
    ]
    if rows:
        parts.append(
            f'<line x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{TOP + ROW * (len(rows) - 1)}" stroke="#d0d7de"/>'
        )
    for number, verdict in enumerate(rows):
        parts += _row(found, verdict, TOP + ROW * number)
    return "\n".join([*parts, "</svg>", ""])


def _row(found: Bisection, verdict: Verdict, y: int) -> list[str]:
    colour = COLOURS[verdict.word]
    edge = (
        found.good is not None
        and found.bad is not None
        and verdict.version in (found.good.version, found.bad.version)
    )
    weight = ' font-weight="600"' if edge else ""
    shape = (
        f'<circle cx="{LEFT}" cy="{y}" r="7" fill="{colour}"/>'
        if verdict.word != "skip"
        else f'<circle cx="{LEFT}" cy="{y}" r="6" fill="#fff" stroke="{colour}" stroke-width="2" stroke-dasharray="3 2"/>'
    )
    told = (
        f"{verdict.word}, {verdict.failures} of {verdict.runs} runs failed" if verdict.runs else verdict.word
    )
    parts = [
        f'<text x="{LEFT - 16}" y="{y + 4}" text-anchor="end"{weight}>{_text(verdict.version, 24)}</text>',
        shape,
    ]
    if verdict.runs:
        parts.append(f'<rect x="{LEFT + 20}" y="{y - 5}" width="80" height="10" fill="#eaeef2"/>')
        part = 80 * verdict.failures / verdict.runs
        parts.append(
            f'<rect x="{LEFT + 20}" y="{y - 5}" width="{part:.1f}" height="10" fill="{COLOURS["bad"]}"/>'
        )
    text = f"{told}: {verdict.reason}" if verdict.reason else told
    parts.append(f'<text x="{LEFT + 112}" y="{y + 4}" fill="#57606a">{_text(text, 60)}</text>')
    return parts


def _text(text: str, limit: int = 200) -> str:
    return escape(one_line(clean(text), limit))
