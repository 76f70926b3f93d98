"""A trace in a notebook: the summary as a small HTML table, escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchtriage.trace.load import Trace


def notebook_html(trace: Trace) -> str:
    """What `_repr_html_` shows: totals, then verdicts with their cost."""
    from torchtriage.trace.analyses.verdicts import verdicts

    t = trace.totals
    head = (
        f"<b>{escape(trace.name)}</b>: {t.logs} log(s), {t.compiles} compiles, {t.graphs} graphs, "
        f"{t.recompiles} recompiles, {t.break_sites} graph-break sites, {t.failed} failed, {t.seconds:.1f} s compiling"
    )
    rows = "".join(
        f"<tr><td style='text-align:right'>{v.seconds:.1f} s</td><td style='text-align:left'>{escape(v.title)}</td>"
        f"<td style='text-align:left'>{escape(v.advice)}</td></tr>"
        for v in verdicts(trace)
    )
    body = f"<table><tr><th>cost</th><th>what</th><th>what to do</th></tr>{rows}</table>" if rows else ""
    return f"<div>{head}{body or '<p>Nothing stands out.</p>'}</div>"
