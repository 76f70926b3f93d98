"""Keeps what torch's own trace records say about breaks, recompilations and unrolled loops."""

from __future__ import annotations

import ast
import logging
from typing import Any

from torchtriage.probe import exceptions


def most_repeated(graph: str) -> tuple[int, str, int]:
    """(nodes, file, line) of the line of the program that became the most nodes of a printed graph."""
    counts: dict[tuple[str, int], int] = {}
    where: tuple[str, int] | None = None
    for row in graph.splitlines():
        row = row.strip()
        if row.startswith("# File: "):
            place = row[8:].partition(" in ")[0].rpartition(":")
            where = (place[0], int(place[2])) if place[2].isdigit() else None
        elif where is not None and " = " in row and not row.startswith("#"):
            counts[where] = counts.get(where, 0) + 1
    if not counts:
        return (0, "", 0)
    found = max(counts, key=lambda key: counts[key])
    return (counts[found], *found)


class Observer(logging.Handler):
    """Keeps torch's own records of graph breaks and recompilations."""

    WANTED = ("dynamo_graph_break_reason", "recompile_reasons", "dynamo_error")

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[dict[str, Any]] = []
        self.repeated: tuple[int, str, int] = (0, "", 0)
        self.files: dict[int, str] = {}
        """torch numbers the file names of its stacks, and tells each once."""
        self.failing: list[str] = []
        """All guards that failed, for the recompilation that torch logs next."""

    def unrolled(self) -> tuple[int, str, int]:
        """Nodes, file and line of the loop whose line became the most nodes (of the line, where it is in none)."""
        nodes, file, line = self.repeated
        return nodes, file, loop_around(file, line)

    def emit(self, record: logging.LogRecord) -> None:
        metadata = getattr(record, "metadata", None) or {}
        if "str" in metadata:
            name, number = metadata["str"]
            self.files[number] = name
        name = (metadata.get("artifact") or {}).get("name")
        if name in self.WANTED and len(self.notes) < 200:
            self.notes.append(
                {
                    "name": name,
                    "text": str(getattr(record, "payload", ""))[:6000],
                    "failing": self.taken() if name == "recompile_reasons" else [],
                    "frame": metadata.get("frame_id"),
                    "compile": metadata.get("frame_compile_id"),
                }
            )
        if "dynamo_output_graph" in metadata:
            self.repeated = max(self.repeated, most_repeated(str(getattr(record, "payload", ""))))
        if "dynamo_start" in metadata and len(self.notes) < 400:
            stack = metadata["dynamo_start"].get("stack") or [{}]
            self.notes.append(
                {
                    "name": "frame",
                    "frame": metadata.get("frame_id"),
                    "compile": metadata.get("frame_compile_id"),
                    "function": stack[-1].get("name", ""),
                    "line": stack[-1].get("line", 0),
                    "user": self.user_frame(stack),
                }
            )

    def failed(self, guards: list[str]) -> None:
        self.failing = guards

    def taken(self) -> list[str]:
        found, self.failing = self.failing, []
        return found

    def user_frame(self, stack: list[dict[str, Any]]) -> tuple[str, int]:
        """File and line of the innermost frame of a stack outside torch."""
        for frame in reversed(stack):
            file = str(self.files.get(frame.get("filename", -1), frame.get("filename", "")))
            if file and not file.isdigit() and exceptions.is_users(file):
                return file, int(frame.get("line", 0))
        return "", 0


def loop_around(file: str, line: int) -> int:
    """The line on which the innermost loop around a line begins; the line itself where there is none."""
    try:
        with open(file, encoding="utf-8") as source:
            tree = ast.parse(source.read())
    except (OSError, ValueError, SyntaxError):
        return line
    loops = (ast.For, ast.While, ast.AsyncFor)
    around = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, loops) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(around, default=line)
