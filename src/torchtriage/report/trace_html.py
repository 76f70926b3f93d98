"""A trace as one self-contained HTML page: no request leaves it, everything from the log is escaped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

if TYPE_CHECKING:
    from torchtriage.trace.bundle import Bundle
    from torchtriage.trace.diff import Change, Details

#: What must not stand inside a `script` element, and U+2028/9, which old scripts take for line ends.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def render_html(bundle: Bundle, header: str = "") -> str:
    """The page. `header` is HTML of the caller's for its top, taken as it is."""
    return "".join(_parts(bundle, header))


def _parts(bundle: Bundle, header: str) -> Iterator[str]:
    template = _environment().get_template("trace_report.html.j2")
    return template.generate(
        page=bundle.page, operators=bundle.operators, totals=bundle.page.totals, index=script_json(bundle.index),
        blocks=bundle.blocks, order=bundle.index["order"], widest=max((s for _, s in bundle.page.time.phases), default=0.0) or 1.0,
        header=Markup(header), whole=sum(s for _, s in bundle.page.time.phases) or 1.0,
    )  # fmt: skip


def render_diff(changes: tuple[Change, ...], names: tuple[str, str], details: Details) -> str:
    """What changed between two traces, as a page."""
    return (
        _environment()
        .get_template("trace_diff.html.j2")
        .render(changes=changes, names=names, details=details)
    )


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("torchtriage.report", "templates"), autoescape=select_autoescape(default=True),
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["seconds"] = seconds
    environment.filters["megabytes"] = lambda size: f"{size / 1e6:.1f} MB"
    return environment


def write_html(bundle: Bundle, path: Path, header: str = "") -> None:
    """The page as a file; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:  # part by part: a large page is not held as one text
        file.writelines(_parts(bundle, header))


def script_json(value: Any) -> Markup:
    """JSON that cannot end the script element that holds it."""
    text = orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS).decode("utf-8")
    for char, escape in _ESCAPES.items():
        text = text.replace(char, escape)
    return Markup(text)


def seconds(value: float) -> str:
    """`12.3 s`; nothing for nothing."""
    return f"{value:.1f} s" if value >= 0.05 else f"{value * 1000:.0f} ms" if value > 0 else ""


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    raise TypeError(type(value).__name__)
