"""Notes where a script calls its regions from."""

from __future__ import annotations

import sys
from typing import Any

from torchtriage.probe import compat, intercept
from torchtriage.probe.intercept import Region


class Sites:
    """A dispatcher that runs every call in eager mode and notes where in the script `name` it came from."""

    def __init__(self, name: str):
        self.name = name
        self.found: list[dict[str, Any]] = []
        self.inside = False

    def call(self, region: Region, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.inside:
            return region.function(*args, **kwargs)
        frame: Any = sys._getframe(1)
        while frame is not None and compat.is_torch_module(frame.f_globals.get("__name__", "")):
            frame = frame.f_back
        row: dict[str, Any] = {"call": len(self.found), "line": 0, "region": region.name}
        if frame is not None and frame.f_code.co_filename == self.name:
            row |= {"line": frame.f_lineno, **place(frame)}
        self.found.append(row)
        self.inside = True
        try:
            return region.function(*args, **kwargs)
        finally:
            self.inside = False


def place(frame: Any) -> dict[str, Any]:
    """First and last line and column of the expression that is being run; Python 3.11 and newer."""
    positions = getattr(frame.f_code, "co_positions", None)
    if positions is None:
        return {}
    line, end_line, col, end_col = list(positions())[frame.f_lasti // 2]
    return {"line": line, "end_line": end_line, "col": col, "end_col": end_col} if line is not None else {}


def watch(name: str) -> Sites:
    """From now on, calls of regions are noted."""
    found = Sites(name)
    intercept.install()
    intercept.set_dispatcher(found)
    return found
