"""Reads the texts that torch gives for graph breaks and recompilations. Lenient: what does not parse is kept as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchtriage.model.outcome import GraphBreak, Recompile

Note = Mapping[str, Any]
TORCH_FOLDERS = ("_dynamo/", "_functorch/", "_inductor/", "nn/modules/", "optim/", "utils/")
PLACE = re.compile(r'File "(.+?)", line (\d+)')


def graph_breaks(notes: Sequence[Note]) -> Iterator[GraphBreak]:
    """One for each record of torch's."""
    for note in notes:
        if note.get("name") == "dynamo_graph_break_reason":
            yield graph_break(note["text"])


def graph_break(text: str) -> GraphBreak:
    file, line, code = "", 0, ""
    head = re.match(r"Graph break in user code at (.+):(\d+)", text)
    if head:
        file, line = head[1], int(head[2])
    body = text.partition("User code traceback:")[2].partition("Traceback (most recent call last)")[0]
    rows = body.splitlines()
    for position, row in enumerate(rows):
        place = PLACE.search(row)
        if place and (not file or (place[1] == file and int(place[2]) == line)):
            file, line = place[1], int(place[2])
            code = rows[position + 1].strip() if position + 1 < len(rows) else ""
    reason = labelled(text, "Graph Break Reason") or first_line(text)
    kind = gb_type(text)
    return GraphBreak(
        reason=kind or reason,
        file=file,
        line=line,
        code=code,
        hints=tuple(dict.fromkeys(re.findall(r"^\s*Hint: (.+)$", text, re.M))),
        identifier=(re.search(r"gb/(gb\d+)\.html", text) or ["", ""])[1],
        explanation=labelled(text, "Explanation"),
    )


def gb_type(text: str) -> str:
    """The line above `Explanation:` names the kind of break."""
    before = text.partition("  Explanation:")[0].rstrip().splitlines()
    last = before[-1].strip() if "  Explanation:" in text and before else ""
    return last.removeprefix("Graph Break Reason: ")


def labelled(text: str, label: str) -> str:
    found = re.search(rf"{label}: (.+)", text)
    return found[1].strip() if found else ""


def first_line(text: str) -> str:
    rows = [row.strip() for row in text.splitlines() if row.strip()]
    return rows[0] if rows else ""


def recompiles(notes: Sequence[Note]) -> Iterator[Recompile]:
    """One for each recompilation, with torch's first failing guard of the newest cache entry."""
    names = {n.get("frame"): n for n in notes if n.get("name") == "frame" and n.get("function")}
    for note in notes:
        if note.get("name") != "recompile_reasons":
            continue
        text = str(note["text"])
        text = first_of_list(text)
        reason = re.sub(r"^\d+/\d+(_\d+)?: ", "", first_line(text))
        place = re.search(r"# \(?(\S+):(\d+) in", reason)
        frame = names.get(note.get("frame"), {})
        file = whole_path(place[1], text) if place else ""
        line = int(place[2]) if place else int(frame.get("line", 0) or 0)
        user_file, user_line = frame.get("user") or ("", 0)
        if user_file and not_the_users(file):
            file, line = str(user_file), int(user_line)  # the program's line that runs torch's frame
        plain = guard_of(reason)
        failing = [guard_of(text) for text in note.get("failing") or ()]
        also = tuple(guard for guard in dict.fromkeys(failing) if same_guard(guard) != same_guard(plain))
        yield Recompile(str(frame.get("function", "")), plain, file, line, also)


def guard_of(reason: str) -> str:
    """The guard alone, without the code and the place that torch writes behind it."""
    return reason.split("  # ")[0].strip()


def same_guard(guard: str) -> str:
    """torch writes `L['x']` in a guard and `x` in the reason for the same local."""
    return re.sub(r"L\['(\w+)'\]", r"\1", guard)


def not_the_users(file: str) -> bool:
    """torch names its own files by what follows its folder, as `optim/adam.py`, or in full. Ours call the regions."""
    return not file or "/torch/" in file or "torchtriage/probe/" in file or file.startswith(TORCH_FOLDERS)


def first_of_list(text: str) -> str:
    """The newest reason: torch writes a JSON list, or the bare text where there is only one."""
    if not text.lstrip().startswith("["):
        return text
    try:
        found = json.loads(text)
        return str(found[0]) if found else ""
    except (ValueError, TypeError, KeyError):
        quoted = re.findall(r'"((?:[^"\\]|\\.)*)"', text)
        return quoted[0].replace("\\n", "\n") if quoted else text


def whole_path(cut: str, text: str) -> str:
    """torch cuts long paths in guards; the user stack below has the whole one."""
    for found, _ in PLACE.findall(text):
        if found.endswith(cut.removeprefix("...")):
            return str(found)
    return cut
