"""The compact summary in the terminal: headings on the left, one screen, nothing that must be scrolled for.

Piped output has the full lines and no colour; in a terminal, lines are wrapped at spaces under their heading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from torchtriage.model.diagnosis import Cell, Diagnosis, Workaround
from torchtriage.report import view
from torchtriage.report.text import cleaned, first_line, one_line

HEADING = 13
INDENT = 2
#: At most so many of each are shown; the other reports have all.
WORKAROUNDS = 5
TOP = 3
STYLES = {"good": "green", "count": "yellow", "bad": "red", "unknown": "dim"}
KIND_STYLES = {"bug": "bold red", "user-error": "bold yellow", "inconclusive": "bold yellow"}
_ASCII = {"·": "-", "…": "...", "×": "x", "—": "-"}


@dataclass(frozen=True)
class Line:
    """One line below a heading. `whole` lines are pasted by users and never wrapped."""

    text: Text
    whole: bool = False


Section = Callable[[Diagnosis, int | None], Iterable[Line]]


def render(diagnosis: Diagnosis, console: Console) -> None:
    """Print the summary of a diagnosis."""
    d = cleaned(diagnosis)
    width = console.width - HEADING - INDENT if console.is_terminal else None
    width = max(width, 20) if width is not None else None
    for heading, section in SECTIONS:
        for line in section(d, width):
            for text in _wrapped(line, width):
                left = Text(" " * INDENT + heading.ljust(HEADING), style="bold cyan", end="")
                whole = Text.assemble(left, text)
                whole.rstrip()
                console.print(_printable(whole, console.encoding), soft_wrap=True)
                heading = ""


def _wrapped(line: Line, width: int | None) -> list[Text]:
    """The line, cut at spaces only: a word longer than the line, such as a path, stays whole."""
    text = line.text
    if width is None or line.whole or cell_len(text.plain) <= width:
        return [text]
    hang = _leading(text) + 2
    cuts, used, room = [], 0, width
    for word in re.finditer(r"\s*\S+", text.plain):
        if used and used + cell_len(word.group()) > room:
            cuts.append(word.start())
            used, room = cell_len(word.group().strip()), width - hang
        else:
            used += cell_len(word.group())
    first, *rest = text.divide(cuts)
    return [first, *(Text(" " * hang) + part[_leading(part) :] for part in rest)]


def _leading(text: Text) -> int:
    return len(text.plain) - len(text.plain.lstrip())


def _printable(text: Text, encoding: str) -> Text:
    """The text as it can be written in an encoding such as ASCII."""
    try:
        text.plain.encode(encoding)
    except LookupError:
        return text
    except UnicodeEncodeError:
        plain = text.plain
        for char, plainer in _ASCII.items():
            plain = plain.replace(char, plainer)
        return Text(plain.encode(encoding, "backslashreplace").decode(encoding))
    return text


def _lines(*texts: str, style: str = "") -> Iterator[Line]:
    return (Line(Text(text, style=style)) for text in texts if text)


def _program(d: Diagnosis, _: int | None) -> Iterable[Line]:
    yield from _lines(view.program_line(d))


def _verdict(d: Diagnosis, _: int | None) -> Iterable[Line]:
    yield from _lines(view.headline(d), style=KIND_STYLES.get(d.kind, "bold green"))
    if d.explanation:
        yield from _lines(one_line(d.explanation, 600))
    if d.source:
        yield from _lines(f"source: {one_line(d.source)}", style="dim")
    if d.kind == "none" and not d.program.eager_exception:
        yield from _lines(view.compared(d))


def _symptom(d: Diagnosis, _: int | None) -> Iterable[Line]:
    said = ""
    if d.symptom:
        said = view.symptom_line(d.symptom)
        yield from _lines(said)
        yield from _lines(*(one_line(sentence, 300) for sentence in d.symptom.evidence))
    raised = view.shown_exception(d)
    if raised is None:
        return
    if one_line(view.exception_line(raised)) not in said:
        yield from _lines(f"{view.exception_owner(d)} {view.exception_line(raised, 240)}")
    where, code = view.place(raised.user_file, raised.user_line), one_line(raised.user_code)
    if where and (code or where not in said):
        yield from _lines(f"at {where}: {code}" if code else f"at {where}")


def _ablation(d: Diagnosis, width: int | None) -> Iterable[Line]:
    if d.matrix:
        yield from _matrix(d, width)
    if d.own:
        text = Text("own settings ")
        text.append(f"({one_line(d.own_settings, 80)}) " if d.own_settings else "")
        yield Line(text + _cell(d.own, d.own.word))
    if d.modes:
        text = Text("mode (inductor) ")
        for index, (mode, cell) in enumerate(d.modes.items()):
            text.append(" · " if index else "")
            text.append(view.mode_text(mode, cell), style=STYLES[view.tone(cell.word)])
        yield Line(text)


def _cell(cell: Cell | None, shown: str) -> Text:
    return Text(shown or view.NOT_RUN, style=STYLES[view.tone(cell.word if cell else "")])


def _matrix(d: Diagnosis, width: int | None) -> Iterable[Line]:
    """As a table; with numbered words, or a line a backend, where the table is too wide."""
    rows = view.rows(d)
    words = {cell.word: cell.word for _, row in rows for _, cell in row if cell}
    short, notes = _numbered(words)
    for shown in (words, short):
        table = _table(d, shown)
        if width is None or all(cell_len(line.plain) <= width for line in table):
            yield from (Line(text, whole=True) for text in table)
            break
    else:
        shown = short
        for backend, row in rows:
            yield Line(Text(backend))
            text = Text("  ")
            for index, (dynamic, cell) in enumerate(row):
                text.append((" · " if index else "") + f"{dynamic} ")
                text.append_text(_cell(cell, shown.get(cell.word, "") if cell else ""))
            yield Line(text)
    if shown is short:
        yield from _lines(*notes, style="dim")


def _table(d: Diagnosis, shown: dict[str, str]) -> list[Text]:
    rows, columns = view.rows(d), view.dynamic_columns(d)
    heads = [f"dynamic={columns[0]}", *columns[1:]]
    first = max(cell_len(name) for name in ["backend", *d.matrix]) + 2
    cells = [[shown.get(cell.word, "") if cell else view.NOT_RUN for _, cell in row] for _, row in rows]
    widths = [max(cell_len(text) for text in column) + 2 for column in zip(heads, *cells, strict=True)]
    head = "backend".ljust(first) + "".join(h.ljust(w) for h, w in zip(heads, widths, strict=True))
    table = [Text(head.rstrip(), style="dim")]
    for (backend, row), texts in zip(rows, cells, strict=True):
        line = Text(backend.ljust(first))
        for (_, cell), text, width in zip(row, texts, widths, strict=True):
            line.append_text(_cell(cell, text))
            line.append(" " * (width - cell_len(text or view.NOT_RUN)))
        line.rstrip()
        table.append(line)
    return table


def _numbered(words: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Long words as `raises [1]`, with the lines that say what [1] is."""
    short = dict(words)
    notes: list[str] = []
    for word in words:
        if len(word) > 13:
            notes.append(f"[{len(notes) + 1}] {word}")
            short[word] = f"{word.partition(':')[0][:13]} [{len(notes)}]"
    return short, notes


def _layer(d: Diagnosis, _: int | None) -> Iterable[Line]:
    yield from _lines(view.layer_line(d))
    if d.culprit:
        yield from _lines(one_line(d.culprit.code), style="italic")
        yield from _lines(one_line(d.culprit.how, 300), style="dim")


def _needs(d: Diagnosis, _: int | None) -> Iterable[Line]:
    yield from _lines(" · ".join(d.needs))


def _remarks(d: Diagnosis, _: int | None) -> Iterable[Line]:
    yield from _lines(*(one_line(remark, 400) for remark in view.remarks(d)))


def _workarounds(d: Diagnosis, width: int | None) -> Iterable[Line]:
    shown = d.workarounds[:WORKAROUNDS]
    room = max((cell_len(_change(w)) for w in shown), default=0) + 3
    beside = width is None or all(room + cell_len(view.ran(w)) <= width for w in shown)
    for w in shown:
        change, ran = Text(_change(w), style="bold"), Text(view.ran(w), style="green")
        if beside:
            yield Line(change + Text(" " * (room - cell_len(change.plain))) + ran, whole=True)
        else:
            yield Line(change, whole=view.says_itself(w))
        lines = view.paste(w)[1:] if view.says_itself(w) else view.paste(w)
        indent = "" if view.says_itself(w) else "  "
        yield from (Line(Text(indent + line, style="cyan"), whole=True) for line in lines)
        if not beside:
            yield Line(Text("  ") + ran)
    if len(d.workarounds) > WORKAROUNDS:
        yield from _lines(f"{len(d.workarounds) - WORKAROUNDS} more in the report", style="dim")
    if d.tried:
        yield from _lines(f"{view.count(len(d.tried), 'change')} tried that did not help", style="dim")


def _change(w: Workaround) -> str:
    """A change on one line; one that is its own lines is named by the first of them."""
    return view.paste(w)[0] if view.says_itself(w) and view.paste(w) else one_line(w.change)


def _breaks(d: Diagnosis, _: int | None) -> Iterable[Line]:
    yield from _groups(view.grouped_breaks(d), "graph break", lambda group: first_line(group.text, 120))


def _recompiles(d: Diagnosis, _: int | None) -> Iterable[Line]:
    def text(group: view.Group) -> str:
        more = f" (and {len(group.hints) - 1} other reasons)" if len(group.hints) > 1 else ""
        return f"{one_line(group.text, 60)}: {first_line(group.hints[0], 140)}{more}"

    yield from _groups(view.grouped_recompiles(d), "recompilation", text)


def _groups(groups: list[view.Group], noun: str, text: Callable[[view.Group], str]) -> Iterable[Line]:
    for group in groups[:TOP]:
        times = f"{group.count} x " if group.count > 1 else ""
        yield from _lines(f"{times}{text(group)}" + (f", at {group.place}" if group.place else ""))
    if len(groups) > TOP:
        left = sum(group.count for group in groups[TOP:])
        yield from _lines(f"{view.count(left, f'more {noun}')} in the report", style="dim")


def _spent(d: Diagnosis, _: int | None) -> Iterable[Line]:
    parts = [view.count(d.trials, "trial")] if d.trials else []
    parts += [f"in {view.seconds(d.seconds)}"] if d.seconds else []
    yield from _lines(" ".join(parts), style="dim")


def _report(d: Diagnosis, _: int | None) -> Iterable[Line]:
    files = view.report_files(d)
    if files:
        yield Line(Text(" · ".join(files)), whole=True)


SECTIONS: tuple[tuple[str, Section], ...] = (
    ("program", _program),
    ("verdict", _verdict),
    ("symptom", _symptom),
    ("ablation", _ablation),
    ("layer", _layer),
    ("needs", _needs),
    ("remark", _remarks),
    ("workaround", _workarounds),
    ("graph break", _breaks),
    ("recompile", _recompiles),
    ("effort", _spent),
    ("report", _report),
)
