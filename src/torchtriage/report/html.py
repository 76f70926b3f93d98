"""The diagnosis as one HTML file that asks the network for nothing. The page is `templates/report.html.j2`.

Escaping is Jinja2's autoescape, everywhere; the only markup made here is in `prose` and `source_link`.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from torchtriage.model.diagnosis import Cell, Diagnosis
from torchtriage.report import text, view

#: A mark for each tone, so that colour is never the only sign.
MARKS = {"good": "✓", "count": "△", "bad": "✕", "unknown": "?"}
#: Where a long name may be broken: after punctuation, and before a capital inside it.
_BREAKS = re.compile(r"(?<=[:+./_])(?=\w)(?!py\b)|(?<=[a-z])(?=[A-Z])")
_ISSUE = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")
_LINK = re.compile(r"https?://[^\s<>\"'`]+|[\w.-]+/[\w.-]+#\d+")


def render(diagnosis: Diagnosis) -> str:
    """The whole page."""
    d = text.cleaned(diagnosis)
    environment = _environment()
    script, _, _ = environment.loader.get_source(environment, "report.js")  # type: ignore[union-attr]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = environment.get_template("report.html.j2")
    return page.render(d=d, view=view, script=Markup(script), script_hash=digest, sections=sections(d)) + "\n"


def sections(d: Diagnosis) -> list[tuple[str, str]]:
    """Anchor and title of the sections that have something to show, in order."""
    shown = {
        ("workarounds", "Workarounds"): d.workarounds or d.tried,
        ("matrix", "Ablation"): d.matrix or d.own or d.modes,
        ("layer", "Layer and culprit"): view.layer_line(d),
        ("differences", "Differences"): d.symptom and (d.symptom.differences or d.symptom.signature),
        ("exception", "Exception"): view.shown_exception(d),
        ("graph-breaks", "Graph breaks"): d.graph_breaks,
        ("recompiles", "Recompilations"): d.recompiles,
        ("program", "Program"): True,
        ("environment", "Environment"): True,
    }
    return [named for named, something in shown.items() if something]


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("torchtriage.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        prose=prose,
        links=links,
        tone=view.tone,
        mark=lambda word: MARKS[view.tone(word)],
        facts=facts,
        breakable=breakable,
        one_line=text.one_line,
        first_line=text.first_line,
        trimmed=text.trimmed,
        seconds=view.seconds,
    )
    environment.globals.update(count=view.count, place=view.place, trace_link=view.trace_link)
    return environment


def prose(sentence: Any) -> Markup:
    """A sentence; what stands between backticks is set as code."""
    pieces = text.spans(str(sentence))
    return Markup("").join(
        Markup("<code>{}</code>").format(p) if is_code else escape(p) for is_code, p in pieces
    )


def breakable(name: Any) -> Markup:
    """A long name, such as a path or a class, that breaks where a reader would break it."""
    return Markup("<wbr>").join(_BREAKS.split(str(name)))


def links(sentence: Any) -> Markup:
    """A sentence in which web addresses and `owner/repository#number` can be followed."""
    out, end, given = Markup(""), 0, str(sentence)
    for found in _LINK.finditer(given):
        issue = _ISSUE.fullmatch(found.group())
        address = f"https://github.com/{issue[1]}/issues/{issue[2]}" if issue else found.group()
        out += escape(given[end : found.start()])
        out += Markup('<a href="{}" rel="noopener noreferrer">{}</a>').format(address, found.group())
        end = found.end()
    return out + escape(given[end:])


def facts(cell: Cell) -> str:
    """What is known of a cell, for a tooltip."""
    return " · ".join(f"{name} {value}" for name, value in view.cell_facts(cell))
