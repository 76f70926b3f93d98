"""The diagnosis as Markdown, under the headings of PyTorch's issue form for torch.compile.

Text of the program goes into code spans and fences whose delimiters it cannot close. Lists are bounded, so
that the whole stays below GitHub's 65536 characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from html import escape

from torchtriage.model.diagnosis import Diagnosis, Workaround
from torchtriage.report import view
from torchtriage.report.text import cleaned, first_line, one_line, spans, trimmed

#: At most so many entries of each list.
TOP = 10
CONFIGS = 60
#: GitHub refuses issues of more than 65536 characters.
LIMIT = 65_000
_MENTION = re.compile(r"(?<![\w`])@(?=\w)")
_SPECIAL = re.compile(r"[\\`*~$]|\](?=[(\[:])|(?<![^\W_])_|_(?![^\W_])")
_BLOCK = re.compile(r"^(?:([#+=-])|(\d+)([.)]))")


def render(diagnosis: Diagnosis) -> str:
    """The text of an issue."""
    d = cleaned(diagnosis)
    blocks = [block for section in SECTIONS for block in section(d)]
    text = "\n\n".join(blocks) + "\n"
    if len(text) <= LIMIT:
        return text
    return _within(blocks)


def _within(blocks: Sequence[str]) -> str:
    """As many whole blocks as fit: half a fence would swallow what follows it."""
    kept, used = [], 0
    for block in blocks:
        if used + len(block) + 200 <= LIMIT:
            kept.append(block)
            used += len(block) + 2
    return "\n\n".join([*kept, "Parts were left out: the report is too long for an issue."]) + "\n"


def prose(text: str, limit: int = 1500) -> str:
    """A sentence that renders as it reads; what stands between backticks stays code."""
    text = one_line(text, limit)
    shown = "".join(code(piece) if is_code else _escaped(piece) for is_code, piece in spans(text))
    return _BLOCK.sub(lambda m: f"\\{m[1]}" if m[1] else f"{m[2]}\\{m[3]}", shown)


def _escaped(text: str) -> str:
    text = _SPECIAL.sub(lambda m: "\\" + m.group(), escape(text, quote=False))
    return _MENTION.sub("@<!-- -->", text)


def code(text: str, limit: int = 1000) -> str:
    """An inline code span that the text cannot end."""
    text = one_line(text, limit)
    if not text:
        return ""
    ticks = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    space = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def fence(text: str, language: str = "") -> str:
    """A fenced block that the text cannot end."""
    ticks = "`" * max((len(run) + 1 for run in re.findall("```+", text)), default=3)
    return f"{ticks}{language}\n{text}\n{ticks}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are Markdown already; a pipe in them is escaped here."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|")


def details(summary: str, *blocks: str) -> list[str]:
    """Folded blocks, as one block, so that none of them is left open."""
    return ["\n\n".join([f"<details>\n<summary>{escape(summary)}</summary>", *blocks, "</details>"])]


def bullets(items: Iterable[str]) -> list[str]:
    text = "\n".join(f"- {item}" for item in items if item)
    return [text] if text else []


def _more(number: int, shown: int) -> list[str]:
    return [f"… and {number - shown} more."] if number > shown else []


def _bug(d: Diagnosis) -> Iterable[str]:
    yield "### 🐛 Describe the bug" if d.kind == "bug" else "### What was found"
    yield f"**{prose(view.headline(d))}**"
    if d.kind == "none" and not d.program.eager_exception:
        yield prose(view.compared(d))
    if d.symptom:
        yield prose(view.symptom_line(d.symptom))
    evidence = d.symptom.evidence if d.symptom else ()
    yield from bullets(prose(sentence) for sentence in [*evidence, *view.remarks(d)][: 2 * TOP])
    if d.explanation:
        yield prose(d.explanation)
    if d.source:
        yield f"Source: {prose(d.source)}"
    if d.needs:
        yield "Needed for it to show: " + ", ".join(code(need) for need in d.needs) + "."
    yield from _differences(d)


def _differences(d: Diagnosis) -> Iterable[str]:
    found = d.symptom.differences if d.symptom else ()
    if not found:
        return
    rows = [
        (
            str(f.call),
            code(f.path, 200),
            f.aspect + (" (within noise)" if f.noise else ""),
            prose(f.detail + (f" ({f.why_noise})" if f.why_noise else ""), 300),
            *(code(value, 120) for value in (f.eager, f.compiled, f.float64)),
        )
        for f in found[:TOP]
    ]
    yield table(("call", "where", "what", "difference", "eager", "compiled", "float64"), rows)
    yield from _more(len(found), TOP)


def _program(d: Diagnosis) -> Iterable[str]:
    yield "### To reproduce"
    yield f"Program: {code(d.program.target)} ({', '.join(view.watched(d))})."
    regions = d.program.regions
    yield from bullets(
        f"{code(r.name)} at {code(view.place(r.file, r.line))}"
        + (f", compiled with {code(r.settings)}" if r.settings else "")
        for r in regions[:TOP]
    )
    yield from _more(len(regions), TOP)
    if d.command:
        yield "Command:"
        yield fence(one_line(d.command, 2000), "sh")
    failing = view.smallest_failing(d)
    if failing:
        yield f"First setting of the matrix that differs: {code(failing)}."


def _ablation(d: Diagnosis) -> Iterable[str]:
    if d.matrix or d.own or d.modes:
        yield "### Ablation"
    if d.matrix:
        head = ("backend", *(f"dynamic={column}" for column in view.dynamic_columns(d)))
        rows = [
            (code(backend), *(code(cell.word) if cell and cell.word else view.NOT_RUN for _, cell in row))
            for backend, row in view.rows(d)
        ]
        yield table(head, rows)
    if d.own:
        settings = f" ({code(d.own_settings)})" if d.own_settings else ""
        yield f"The program's own settings{settings}: {code(d.own.word)}."
    if d.modes:
        yield table(
            ("mode", "outcome", "detail"),
            [(code(m), code(c.word) or view.NOT_RUN, prose(c.detail, 300)) for m, c in d.modes.items()],
        )


def _layer(d: Diagnosis) -> Iterable[str]:
    layer, culprit = view.failing_layer(d), d.culprit
    if not layer and culprit is None:
        return
    yield "### Layer and culprit"
    found = [f"{view.layer_label(d)}: {code(layer)}"] if layer else []
    if culprit:
        inside = culprit.detail if culprit.subsystem in culprit.detail else ""
        found += [
            f"Subsystem: {prose(inside or ' · '.join(filter(None, (culprit.subsystem, culprit.detail))))}"
        ]
        found += [f"Operator: {code(culprit.operator)}"] if culprit.operator else []
        where = view.place(culprit.file, culprit.line)
        found += [f"Source: {code(where)}"] if where else []
        found += [f"How it was found: {prose(culprit.how)}"] if culprit.how else []
    yield from bullets(item for item in found if not item.endswith(": "))
    if culprit and culprit.code.strip():
        yield fence(trimmed(culprit.code, limit=2000), "python")


def _workarounds(d: Diagnosis) -> Iterable[str]:
    if d.workarounds:
        yield "### Workarounds that were run"
    for w in d.workarounds[:TOP]:
        yield from _workaround(w)
    yield from _more(len(d.workarounds), TOP)
    if d.tried:
        tried = bullets(code(change, 300) for change in d.tried[: 3 * TOP])
        more = _more(len(d.tried), 3 * TOP)
        yield from details(f"{view.count(len(d.tried), 'change')} tried that did not help", *tried, *more)


def _workaround(w: Workaround) -> Iterable[str]:
    name = code(first_line(w.change)) if view.says_itself(w) else prose(w.change, 300)
    outcome = ", ".join([code(w.outcome), *filter(None, [view.ratio(w)])])
    yield f"**{name}**: ran, {outcome}." + (f" {prose(w.explanation)}" if w.explanation else "")
    if w.lines:
        yield fence("\n".join(view.paste(w)), "python")


def _error(d: Diagnosis) -> Iterable[str]:
    raised = view.shown_exception(d)
    if raised is None:
        return
    yield "### Error logs"
    where = view.place(raised.user_file, raised.user_line)
    said = f"{view.exception_owner(d).capitalize()} {code(raised.type)}"
    yield said + (f" at {code(where)}:" if where else ":")
    yield fence(trimmed(raised.message, head=20, tail=10, limit=4000))
    if raised.user_code:
        yield f"Line of the program: {code(raised.user_code)}"
    if raised.chain:
        yield "Raised from: " + ", ".join(code(name) for name in raised.chain[:TOP]) + "."
    if raised.cause_message and raised.cause_message.strip() not in raised.message:
        yield fence(trimmed(raised.cause_message, head=20, tail=10, limit=2000))
    if raised.traceback:
        yield from details("Traceback", fence(trimmed(raised.traceback, limit=10_000), "pytb"))
    elif raised.torch_frames:
        yield from details("Innermost frames of torch", fence("\n".join(raised.torch_frames[-TOP:])))


def _counts(d: Diagnosis) -> Iterable[str]:
    breaks, recompiles = view.grouped_breaks(d), view.grouped_recompiles(d)
    if breaks:
        yield f"### Graph breaks ({len(d.graph_breaks)})"
        yield from bullets(
            f"{g.count} × {code(first_line(g.text), 400)}" + (f" at {code(g.place)}" if g.place else "")
            for g in breaks[:TOP]
        )
        yield from _more(len(breaks), TOP)
    if recompiles:
        yield f"### Recompilations ({len(d.recompiles)})"
        for g in recompiles[:TOP]:
            yield f"{g.count} × {code(g.text)}" + (f" at {code(g.place)}" if g.place else "") + ":"
            yield from bullets(code(first_line(reason), 300) for reason in g.hints[:TOP])
            yield from _more(len(g.hints), TOP)
        yield from _more(len(recompiles), TOP)


def _versions(d: Diagnosis) -> Iterable[str]:
    known, e = view.environment(d), d.environment
    named: tuple[tuple[str, dict[str, str]], ...] = (
        ("Non-default torch configs", e.configs),
        ("Environment variables", e.variables),
        ("Packages", e.packages),
    )
    if known or any(values for _, values in named):
        yield "### Versions"
    if known:
        yield fence("\n".join(f"{name}: {one_line(value)}" for name, value in known), "text")
    for title, values in named:
        if values:
            lines = [f"{name} = {one_line(value)}" for name, value in sorted(values.items())]
            more = _more(len(lines), CONFIGS)
            yield from details(f"{title} ({len(lines)})", fence("\n".join(lines[:CONFIGS]), "text"), *more)


def _made(d: Diagnosis) -> Iterable[str]:
    parts = [view.count(d.trials, "trial")] if d.trials else []
    parts += [view.seconds(d.seconds)] if d.seconds else []
    parts += [one_line(d.started)] if d.started else []
    name = f"torchtriage {one_line(d.version)}".strip()
    yield f"_Made by {prose(name)}" + (f": {prose(', '.join(parts))}" if parts else "") + "._"


SECTIONS: tuple[Callable[[Diagnosis], Iterable[str]], ...] = (
    _bug,
    _program,
    _ablation,
    _layer,
    _error,
    _workarounds,
    _counts,
    _versions,
    _made,
)
