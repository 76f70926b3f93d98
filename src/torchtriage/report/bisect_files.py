"""Writes the reports of a bisection to its run folder."""

from __future__ import annotations

import json
from pathlib import Path

from torchtriage.model.bisection import Bisection
from torchtriage.report import bisect_markdown, bisect_svg
from torchtriage.report.jsonout import valid


def as_json(found: Bisection) -> str:
    return json.dumps(valid(found.to_json()), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def write_all(found: Bisection, folder: Path) -> None:
    """report.md, report.json, verdicts.svg."""
    (folder / "report.md").write_text(bisect_markdown.render(found), encoding="utf-8")
    (folder / "report.json").write_text(as_json(found), encoding="utf-8")
    (folder / "verdicts.svg").write_text(bisect_svg.render(found), encoding="utf-8")
