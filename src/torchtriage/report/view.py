"""What a report says, apart from how it looks: the sentences, groups and orders that all renderers share.

Pure functions of a diagnosis. Nothing here knows of colours, HTML or Markdown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from torchtriage.model.diagnosis import LAYERS, Cell, Culprit, Diagnosis, Symptom, Workaround
from torchtriage.model.outcome import Difference, ExceptionInfo
from torchtriage.report.text import first_line, one_line

Tone = Literal["good", "count", "bad", "unknown"]
DYNAMIC = ("None", "True", "False")
NOT_RUN = "not run"
#: What a word of the matrix means for a reader.
SYMPTOM_WORDS = {
    "value": "wrong values",
    "grad": "wrong gradients",
    "dtype": "a wrong dtype",
    "shape": "a wrong shape",
    "stride": "other strides",
    "device": "a wrong device",
    "layout": "a wrong layout",
    "subclass": "a wrong tensor class",
    "requires_grad": "a wrong requires_grad",
    "alias": "other aliasing",
    "mutation": "a wrong mutation",
    "side-effect": "a wrong side effect",
    "structure": "a wrong output structure",
    "exception": "an exception that eager does not raise",
    "missing-exception": "no exception where eager raises one",
    "recompiles": "recompilations",
    "graph-break": "graph breaks",
    "timeout": "a time limit that was passed",
    "killed": "a process that was killed",
    "exited": "a process that ended early",
    "oom": "memory that ran out",
}
KIND_NAMES = {
    "bug": "bug",
    "noise": "not a bug: noise",
    "by-design": "not a bug: by design",
    "user-error": "error in the program",
    "none": "no difference",
    "inconclusive": "no verdict",
}


@dataclass(frozen=True)
class Group:
    """Things that are the same to a reader, counted."""

    count: int
    text: str
    place: str = ""
    code: str = ""
    explanation: str = ""
    hints: tuple[str, ...] = ()


def count(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    plural = noun[:-2] + "ices" if noun.endswith("ix") else noun + "s"
    return f"{number} {noun if number == 1 else plural}"


def seconds(value: float) -> str:
    """A duration as a person would say it."""
    if not math.isfinite(value) or value < 0:
        return "?"
    if value >= 120:
        return f"{int(value // 60)} min {int(value % 60)} s"
    return (
        f"{value:.0f} s" if value >= 20 else f"{value:.1f} s" if value >= 0.95 else f"{value * 1000:.0f} ms"
    )


def place(file: str, line: int) -> str:
    """`model.py:88`, or what there is of it."""
    return f"{file}:{line}" if file and line else file or (f"line {line}" if line else "")


def symptom_words(words: Iterable[str]) -> str:
    named = []
    for word in words:
        known, _, more = word.partition(":")
        text = SYMPTOM_WORDS.get(known, known)
        named.append(f"{text} ({more})" if more and known in SYMPTOM_WORDS else text if not more else word)
    return " and ".join(dict.fromkeys(named))


def headline(d: Diagnosis) -> str:
    """The verdict in one sentence."""
    if d.kind == "bug":
        where = f"Bug in {d.first_failing_layer}" if failing_layer(d) else "Bug"
        what = one_line(symptom_words(d.symptoms), 300)
        return f"{where}: {what}." if what else f"{where}."
    if d.kind == "none" and d.program.eager_exception:
        return "The program fails in eager mode already, so nothing could be compared."
    if d.kind == "inconclusive":
        reason = one_line(d.inconclusive_reason, 400)
        return f"No verdict: {reason.rstrip('.')}." if reason else "No verdict."
    return {
        "noise": "Not a bug: the difference is within rounding noise.",
        "by-design": "Not a bug: this difference is by design.",
        "user-error": "The error is in the program, not in the compiler.",
        "none": "No difference from eager was found.",
    }[d.kind]


def failing_layer(d: Diagnosis) -> str:
    return "" if d.first_failing_layer in ("", "none") else d.first_failing_layer


def layer_label(d: Diagnosis) -> str:
    return "First failing layer" if d.kind == "bug" else "First layer that differs"


def program_line(d: Diagnosis) -> str:
    """`train.py · 2 compiled regions · 6 calls in 3 signatures`."""
    parts = [d.program.target] if d.program.target else []
    return " · ".join([*parts, *watched(d)])


def watched(d: Diagnosis) -> list[str]:
    program = d.program
    parts = [count(len(program.regions), "compiled region")]
    calls = count(program.calls, "call")
    if program.signatures:
        calls += f" in {count(program.signatures, 'signature')}"
    parts.append(calls + (" (only the first calls were watched)" if program.truncated else ""))
    return parts


def compared(d: Diagnosis) -> str:
    """What stands behind "no difference": how much was run, and under what."""
    cells = [cell for _, row in rows(d) for _, cell in row if cell]
    ran = []
    if d.own:
        ran.append("the program's own settings")
    if cells:
        backends = count(len(d.matrix), "backend")
        ran.append(f"{count(len(cells), 'cell')} of the matrix ({backends})")
    if d.modes:
        ran.append("modes " + ", ".join(d.modes))
    text = f"Compared with eager: {', '.join(watched(d))}"
    text += f"; under {' and '.join([', '.join(ran[:-1]), ran[-1]] if len(ran) > 1 else ran)}" if ran else ""
    text += f"; {count(d.trials, 'trial')}" if d.trials else ""
    return text + "."


def symptom_place(s: Symptom) -> str:
    """`Model.forward (train.py:42), call 1`."""
    where = place(s.file, s.line)
    text = f"{s.region} ({where})" if s.region and where else s.region or where
    if s.call is not None:
        text = f"{text}, call {s.call}" if text else f"call {s.call}"
    return text


def symptom_sentence(s: Symptom) -> str:
    """The symptom's own sentence, or one made of its first difference or exception."""
    if s.sentence:
        return one_line(s.sentence, 1000)
    real = [d for d in s.differences if not d.noise] or list(s.differences)
    if real:
        return difference_line(real[0])
    if s.exception:
        return f"raises {exception_line(s.exception)}"
    return symptom_words(s.words)


def symptom_line(s: Symptom) -> str:
    """Place and sentence; the place only once where the sentence begins with it."""
    where, sentence = symptom_place(s), symptom_sentence(s)
    if not where or (s.region and sentence.startswith(s.region)):
        return sentence
    return f"{where}: {sentence}" if sentence else where


def difference_line(d: Difference) -> str:
    return one_line(f"{d.path}, {d.aspect}: {d.detail}" if d.detail else f"{d.path}, {d.aspect}", 400)


def exception_line(e: ExceptionInfo, limit: int = 300) -> str:
    message = first_line(e.message, limit)
    return f"{e.type}: {message}" if message else e.type


def shown_exception(d: Diagnosis) -> ExceptionInfo | None:
    """The exception that the report is about: compiled's own, or else eager's."""
    if d.symptom and d.symptom.exception:
        return d.symptom.exception
    return d.program.eager_exception


def exception_owner(d: Diagnosis) -> str:
    """Subject and verb for `shown_exception`: `eager raises`."""
    if not (d.symptom and d.symptom.exception) or "missing-exception" in d.symptom.words:
        return "eager raises"
    if d.kind == "user-error" and d.program.eager_exception:
        return "eager and the compiled program raise"
    return "the compiled program raises"


def layer_line(d: Diagnosis) -> str:
    """`inductor · lowering 14 of 23 (aten.ldexp), from model.py:88`."""
    return " · ".join(part for part in (failing_layer(d), culprit_line(d.culprit)) if part)


def culprit_line(c: Culprit | None) -> str:
    if c is None:
        return ""
    parts = [c.subsystem] if c.subsystem and c.subsystem not in c.detail else []
    parts += [c.detail] if c.detail else []
    text = " · ".join(parts)
    if c.operator and c.operator not in text:
        text = f"{text} ({c.operator})" if text else c.operator
    where = place(c.file, c.line)
    return f"{text}, from {where}" if text and where else text or where


def rows(d: Diagnosis) -> list[tuple[str, list[tuple[str, Cell | None]]]]:
    """The matrix in reading order: backends by layer, dynamic None, True, False; None where not run."""
    columns = dynamic_columns(d)
    known = [backend for backend in LAYERS if backend in d.matrix]
    others = [backend for backend in d.matrix if backend not in LAYERS]
    return [(b, [(c, d.matrix[b].get(c)) for c in columns]) for b in known + others]


def dynamic_columns(d: Diagnosis) -> list[str]:
    others = {key for row in d.matrix.values() for key in row} - set(DYNAMIC)
    return [*DYNAMIC, *sorted(others)]


def smallest_failing(d: Diagnosis) -> str:
    """The call of torch.compile for the first cell that is not the same as eager."""
    for backend, row in rows(d):
        for dynamic, cell in row:
            if cell and tone(cell.word) in ("bad", "count"):
                return f"torch.compile(..., backend={backend!r}, dynamic={dynamic})"
    return ""


def tone(word: str) -> Tone:
    """How a reader should take a cell: good, a count to look at, bad, or unknown."""
    if word in ("same", "within-noise", "noise"):
        return "good"
    if word in ("", NOT_RUN, "inconclusive", "skipped"):
        return "unknown"
    kind, _, what = word.partition(":")
    return "count" if kind == "differs" and set(what.split("+")) <= {"recompiles", "graph-break"} else "bad"


def cell_facts(cell: Cell) -> list[tuple[str, str]]:
    """What is known of a cell besides its word."""
    facts = [("trial", cell.trial)] if cell.trial else []
    facts += [("detail", cell.detail)] if cell.detail else []
    facts += [("took", seconds(cell.seconds))] if cell.seconds else []
    facts.append(("graphs", str(cell.graphs)))
    facts.append(("graph breaks", str(cell.breaks)))
    return [*facts, ("captured", str(cell.captured))]


def mode_text(mode: str, cell: Cell) -> str:
    """`max-autotune differs:value`; a word that is not a failure keeps its detail."""
    detail = one_line(cell.detail, 80) if tone(cell.word) in ("good", "unknown") else ""
    return f"{mode} {cell.word or NOT_RUN}" + (f" ({detail})" if detail else "")


def ratio(w: Workaround) -> str:
    """`step time x1.02`; empty where it was not measured."""
    value = w.step_time_ratio
    if value is None or not math.isfinite(value):
        return ""
    number = f"x{value:.0f}" if value >= 100 else f"x{value:.2f}" if value >= 0.01 else "below x0.01"
    return f"step time {number}" + ("" if w.ratio_against == "own" else f" of {w.ratio_against}")


def ran(w: Workaround) -> str:
    """`ran: same, step time x1.02`."""
    return "ran: " + ", ".join(part for part in (w.outcome, ratio(w)) if part)


def paste(w: Workaround) -> tuple[str, ...]:
    """The lines to paste, a line each."""
    return tuple(line for text in w.lines for line in text.splitlines())


def says_itself(w: Workaround) -> bool:
    """True where the change is named by the very line to paste."""
    return not w.lines or "\n".join(paste(w)).strip() == w.change.strip()


def remarks(d: Diagnosis) -> list[str]:
    """The diagnosis' remarks, with the matrix' shape if none of them speaks of it."""
    said = list(d.remarks)
    if not d.monotone and not any("monoton" in remark.lower() for remark in said):
        said.insert(0, "The matrix is not monotone: a later backend passes where an earlier one fails.")
    return said


def grouped_breaks(d: Diagnosis) -> list[Group]:
    """Graph breaks, the most frequent first."""
    groups: dict[tuple[str, str], Group] = {}
    for b in d.graph_breaks:
        key = (b.reason, place(b.file, b.line))
        seen = groups[key].count if key in groups else 0
        groups[key] = Group(seen + 1, b.reason, key[1], b.code, b.explanation, b.hints)
    return by_count(groups.values())


def grouped_recompiles(d: Diagnosis) -> list[Group]:
    """Recompilations by frame, the most frequent first; the reasons as hints, each once."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for r in d.recompiles:
        also = f" (and {'; '.join(r.also)})" if r.also else ""
        reasons.setdefault((r.frame, place(r.file, r.line)), []).append(r.reason + also)
    return by_count(
        Group(len(said), frame, where, hints=tuple(dict.fromkeys(said)))
        for (frame, where), said in reasons.items()
    )


def by_count(groups: Iterable[Group]) -> list[Group]:
    return sorted(groups, key=lambda group: -group.count)


def environment(d: Diagnosis) -> list[tuple[str, str]]:
    """Versions and machine, only what is known."""
    e = d.environment
    torch = f"{e.torch} (git {e.torch_git})" if e.torch and e.torch_git else e.torch or e.torch_git
    named: Sequence[tuple[str, str]] = (
        ("torch", torch),
        ("Python", e.python),
        ("OS", e.os),
        ("CPU", e.cpu),
        ("threads", str(e.threads) if e.threads else ""),
        ("GPU", e.gpu),
        ("driver", e.driver),
        ("C++ compiler", e.compiler),
        ("triton", e.triton),
        ("torchtriage", d.version),
    )
    return [(name, value) for name, value in named if value]


def trace_link(d: Diagnosis) -> str:
    """A plain file name beside the report, or nothing: it becomes a link."""
    return d.trace_page if re.fullmatch(r"[\w-]+\.html", d.trace_page) else ""


def report_files(d: Diagnosis) -> tuple[str, ...]:
    """The reports as `write_all` names them, the first with its folder."""
    if not d.run_folder:
        return ()
    trace = (trace_link(d),) if trace_link(d) else ()
    return (f"{d.run_folder.rstrip('/')}/report.html", "report.md", "report.json", *trace)
