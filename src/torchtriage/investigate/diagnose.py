"""From a target to the layer at fault and a workaround that was run: the order of the questions."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from torchtriage.investigate import (
    ablation,
    below,
    classify,
    documented,
    needs,
    sentences,
    symptom,
    workarounds,
)
from torchtriage.investigate.facts import (
    Asks,
    Budget,
    Facts,
    Own,
    call_of,
    failing,
    healthy,
    of_user,
    words_of,
)
from torchtriage.investigate.symptom import Seen, Suspect
from torchtriage.lab.request import Request
from torchtriage.model.diagnosis import Cell, Culprit, Diagnosis, Program, Symptom
from torchtriage.model.outcome import Differs, Inconclusive, MissingException, Outcome, Raised, Same, TimedOut
from torchtriage.model.variant import DEBUG_BACKENDS, Variant

MODES = ("default", "max-autotune", "reduce-overhead", "max-autotune-no-cudagraphs")
Note = Callable[[str], None]


def diagnose(
    lab: Asks,
    facts: Facts,
    program: Program,
    note: Note = lambda text: None,
    verdict_only: bool = False,
    enough: Callable[[], bool] = lambda: False,
) -> Diagnosis:
    """Everything that trials can say about the program. `note` is told what is being asked.

    With `verdict_only`, the search inside the layer and the workarounds are left out. Once `enough` says so, searches
    stop where they are; the verdict is always finished.
    """
    note("the program as it is")
    own = run_own(lab, facts)
    note("ablation: backends and dynamic shapes")
    seen = run_matrix(lab, facts, own)
    suspect = symptom.find(facts, seen)
    base = Diagnosis(
        kind="none",
        symptoms=("none",),
        program=program,
        matrix=ablation.cells(seen.table, seen.counted),
        own=ablation.cell(own.plain, seen.counted),
        own_settings=str(facts.first_region.get("settings", "")),
        own_dynamic=str(facts.dynamic()),
        graph_breaks=tuple(b for b in own.observed.measures.graph_breaks if of_user(b)),
        recompiles=own.observed.measures.recompile_reasons,
    )
    if suspect is None:
        return nothing_found(base, facts, seen)
    note("whose fault it is")
    verdict = classify.classify(lab, facts, suspect, seen.words)
    if verdict.kind == "bug" and isinstance(suspect.outcome, Differs) and suspect.outcome.measures.rng_used:
        suspect = with_eager_random(lab, suspect)
    judged = judge(base, facts, seen, suspect, verdict)
    return (
        judged
        if verdict_only or verdict.kind == "noise"
        else explain(Budget(lab, enough), facts, seen, suspect, judged, verdict, note)
    )


def run_own(lab: Asks, facts: Facts) -> Own:
    """The program with its own settings: plain, and observed by torch's trace.

    Where it passes, also with the caches on, with its own number of threads, and, if a line of it became very many
    graph nodes, with an empty store of kernels, to see what compiling takes.
    """
    plain, observed = lab.run([Request(), Request(observe=True)])
    if not healthy(plain):
        return Own(plain, observed)
    more: dict[str, Request] = {"cached": Request(Variant(caches=True))}
    if facts.threads > 1:
        more["threaded"] = Request(Variant(threads=facts.threads))
    if observed.measures.repeated_nodes >= symptom.UNROLLED_NODES:
        more["cold"] = Request(observe=True, fresh_store=True)
    answers = dict(zip(more, lab.run(list(more.values())), strict=True))
    return Own(plain, observed, answers.get("cached"), answers.get("threaded"), answers.get("cold") or plain)


def run_matrix(lab: Asks, facts: Facts, own: Own) -> Seen:
    """The twelve cells; up to the failing call where the program fails at a call, else to its end."""
    cells = ablation.requests(call_of_failure(own.plain))
    slow = own.cold is not None and symptom.slow_compile(own.cold, own.observed.measures.repeated_nodes)
    if slow:
        cells = [(b, d, dataclasses.replace(r, fresh_store=b == "inductor")) for b, d, r in cells]
    if isinstance(own.plain, TimedOut):
        cells = [(b, d, dataclasses.replace(r, seconds=symptom.SLOW_SECONDS)) for b, d, r in cells]
    known = {} if slow else own_cell(facts, own)
    asked = [cell for cell in cells if cell[:2] not in known]
    answers = dict(zip([c[:2] for c in asked], lab.run([r for _, _, r in asked]), strict=True))
    table = ablation.arrange(cells, [known.get(cell[:2]) or answers[cell[:2]] for cell in cells])
    counted = symptom.counted_in(own, table)
    if slow and not (counted.recompiles or counted.breaks):
        counted = dataclasses.replace(counted, slow=True)
    words = {b: {d: ablation.word(o, counted) for d, o in row.items()} for b, row in table.items()}
    return Seen(own, table, words, counted)


def own_cell(facts: Facts, own: Own) -> dict[tuple[str, str], Outcome]:
    """The cell that the program's own settings are, where they are one: it has been run already."""
    settings = {
        (str(r.get("backend")), str(r.get("dynamic") if r.get("dynamic") in (True, False) else None))
        for r in facts.regions
    }
    return {next(iter(settings)): own.plain} if len(settings) == 1 and facts.own_is_cell() else {}


def call_of_failure(outcome: Outcome) -> int | None:
    """The call at which the region itself fails; None where it is fine, or fails in the program after it."""
    if isinstance(outcome, Differs):
        return None if outcome.differences[0].later else outcome.differences[0].call
    if isinstance(outcome, MissingException) or (isinstance(outcome, Raised) and outcome.phase != "program"):
        return outcome.call
    return None


def nothing_found(base: Diagnosis, facts: Facts, seen: Seen) -> Diagnosis:
    """No difference: say what was compared, and what was not even captured."""
    own = seen.own
    if isinstance(own.plain, Inconclusive):
        return dataclasses.replace(
            base, kind="inconclusive", symptoms=("inconclusive",), inconclusive_reason=own.plain.reason
        )
    missing = [(b, d) for b, row in seen.table.items() for d, o in row.items() if isinstance(o, Inconclusive)]
    if missing:
        reason = getattr(seen.table[missing[0][0]][missing[0][1]], "reason", "")
        text = f"{len(missing)} of 12 cells could not be run: {reason}"
        return dataclasses.replace(
            base, kind="inconclusive", symptoms=("inconclusive",), inconclusive_reason=text
        )
    remarks = []
    measures = own.observed.measures
    if isinstance(own.plain, Same) and own.plain.eager_exception is not None:
        exception = own.plain.eager_exception
        remarks.append(
            f"eager and compiled both raise {sentences.short(exception.type)}: the program's own error"
        )
    elif not measures.captured:
        why = f": {measures.graph_breaks[0].reason}" if measures.graph_breaks else ""
        remarks.append(
            f"nothing was captured: Dynamo gave every frame up and the program ran in eager mode{why}"
        )
    return dataclasses.replace(base, remarks=tuple(remarks))


def judge(
    base: Diagnosis, facts: Facts, seen: Seen, suspect: Suspect, verdict: classify.Verdict
) -> Diagnosis:
    """The verdict: kind, symptom, layer."""
    return dataclasses.replace(
        base,
        kind=verdict.kind,
        symptoms=suspect.words,
        symptom=describe(facts, seen, suspect),
        first_failing_layer=layer_of(suspect, facts),
        monotone=ablation.monotone(seen.words, suspect.column),
        needs=tuple(dict.fromkeys((*suspect.needs, *verdict.needs))),
        remarks=(*matrix_remarks(seen.words, suspect), *suspect.remarks, *verdict.remarks),
        culprit=verdict.culprit or culprit_of(suspect),
        explanation=verdict.explanation,
        source=verdict.source,
    )


def explain(
    search: Budget,
    facts: Facts,
    seen: Seen,
    suspect: Suspect,
    judged: Diagnosis,
    verdict: classify.Verdict,
    note: Note,
) -> Diagnosis:
    """What the failure needs, what inside the layer is at fault, and what makes it go away."""
    note("what the failure needs")
    found = needs.find(search.lab, facts, suspect)
    inside = below.Below()
    modes: dict[str, Cell] = {}
    if not suspect.counts and not (verdict.kind != "bug" and is_named(suspect, verdict)):
        note("below the layer")
        inside = search.attempt(lambda: below.search(search, facts, suspect, found), inside)
    if verdict.kind == "bug" and not suspect.counts and not suspect.slow:
        modes = search.attempt(lambda: run_modes(search, facts, suspect, found.short, seen), modes)
    note("workarounds")
    fixes = workarounds.find(
        search,
        facts,
        suspect,
        seen.words,
        found.short,
        inside.step,
        verdict.switches,
        verdict.culprit is None,
    )
    stopped = ("the searches for causes and workarounds were stopped for time",) if search.exceeded else ()
    return dataclasses.replace(
        judged,
        modes=modes,
        needs=tuple(dict.fromkeys((*found.words, *verdict.needs))),
        remarks=tuple(
            dict.fromkeys((*matrix_remarks(seen.words, suspect), *found.remarks, *verdict.remarks, *stopped))
        ),
        culprit=verdict.culprit or placed(facts, suspect, below.culprit(inside) or culprit_of(suspect)),
        workarounds=fixes.workarounds,
        tried=fixes.tried,
    )


def with_eager_random(lab: Asks, suspect: Suspect) -> Suspect:
    """Compiled random numbers differ by design and hide where the fault begins: look for it with eager's."""
    setting = symptom.setting(suspect.column)
    variants = [
        Variant(backend=backend, dynamic=setting).with_switches(documented.FALLBACK_RANDOM)
        for backend in DEBUG_BACKENDS
    ]
    outcomes = lab.run([Request(variant) for variant in variants])
    for backend, variant, outcome in zip(DEBUG_BACKENDS, variants, outcomes, strict=True):
        if failing(outcome):
            if backend == suspect.backend:
                return suspect
            remark = f"with fallback_random = True the first backend that fails is {backend}"
            request = dataclasses.replace(
                suspect.request, variant=suspect.request.variant.with_switches(*variant.switches)
            )
            return dataclasses.replace(
                suspect, backend=backend, outcome=outcome, words=words_of(outcome), request=request,
                remarks=(*suspect.remarks, remark),
            )  # fmt: skip
    return suspect


def layer_of(suspect: Suspect, facts: Facts) -> str:
    if suspect.backend is not None:
        return ablation.layer_of(suspect.backend)
    backend = str(facts.first_region.get("backend"))
    return ablation.layer_of(backend) if backend in DEBUG_BACKENDS else f"backend {backend}"


def run_modes(lab: Asks, facts: Facts, suspect: Suspect, short: Request, seen: Seen) -> dict[str, Cell]:
    """The Inductor modes, when the fault is there. Without CUDA some of them are the default one."""
    if suspect.backend != "inductor":
        return {}
    column = suspect.column
    cells = {"default": seen.table["inductor"][column]}
    modes = [m for m in MODES if m != "default"] if facts.cuda else ["max-autotune"]
    base = below.at_backend(suspect, short)
    requests = [
        dataclasses.replace(base, variant=dataclasses.replace(base.variant, mode=mode)) for mode in modes
    ]
    cells.update(zip(modes, lab.run(requests), strict=True))
    found = {mode: ablation.cell(outcome) for mode, outcome in cells.items()}
    if not facts.cuda:
        found["reduce-overhead"] = Cell(word="no CUDA, as default")
    return found


def describe(facts: Facts, seen: Seen, suspect: Suspect) -> Symptom:
    """The symptom in the user's terms."""
    shown = suspect.outcome
    if suspect.own_fails and not suspect.counts and failing(seen.own.plain):
        shown = seen.own.plain
    call = call_of(shown)
    region = facts.region_of(call)
    sentence = sentences.symptom_sentence(shown)
    if suspect.counts:
        sentence = sentences.counts_sentence(suspect.words, seen.own.observed.measures)
    elif suspect.slow:
        sentence = (
            sentences.slow_sentence(suspect.outcome.measures) if not isinstance(shown, TimedOut) else sentence
        )
    return Symptom(
        words=suspect.words,
        region=str(region.get("name", "")),
        file=str(region.get("file", "")),
        line=int(region.get("line", 0)),
        call=call,
        sentence=sentence,
        differences=getattr(shown, "differences", ()),
        exception=getattr(shown, "exception", None),
        evidence=sentences.evidence(shown),
        signature=signature(shown),
    )


def signature(outcome: Outcome) -> str:
    """What makes two failures the same, as text."""
    if isinstance(outcome, (Raised, MissingException)):
        exception = outcome.exception
        return " | ".join(
            (
                outcome.kind,
                exception.type,
                sentences.first_line(exception.message),
                *exception.torch_frames[-2:],
            )
        )
    if isinstance(outcome, Differs):
        return " | ".join(
            (outcome.kind, *(f"{d.path}:{d.aspect}" for d in outcome.differences if not d.noise))
        )
    return outcome.kind


def placed(facts: Facts, suspect: Suspect, culprit: Culprit | None) -> Culprit | None:
    """Inside a module of torch's own no line is the program's: then it is the one that makes the call."""
    if culprit is None or culprit.line or not culprit.operator:
        return culprit
    file, line = facts.site_of(call_of(suspect.outcome))
    how = f"{culprit.how}; the line is the one that calls the region" if line else culprit.how
    return dataclasses.replace(culprit, file=file, line=line, how=how)


def is_named(suspect: Suspect, verdict: classify.Verdict) -> bool:
    """Whether the line is known without a search: an exception, or the verdict itself, names it."""
    exception = getattr(suspect.outcome, "exception", None)
    return verdict.culprit is not None or bool(exception is not None and exception.user_line)


def culprit_of(suspect: Suspect) -> Culprit | None:
    """Operator and line where torch, or the counts, point without a search."""
    outcome = suspect.outcome
    measures = outcome.measures
    if suspect.counts:
        return counted_culprit(suspect, measures)
    if suspect.slow and measures.repeated_nodes:
        text = f"one line of this loop became {measures.repeated_nodes} graph nodes"
        return Culprit(
            "unrolled loop",
            text,
            "",
            measures.repeated_file,
            measures.repeated_line,
            "",
            "counted in the captured graph",
        )
    exception = getattr(outcome, "exception", None)
    if exception is not None and exception.user_line:
        how = "the line that the exception names"
        return Culprit("", "", "", exception.user_file, exception.user_line, exception.user_code, how)
    return None


def counted_culprit(suspect: Suspect, measures: Any) -> Culprit | None:
    if "recompiles" in suspect.words and measures.recompile_reasons:
        reasons = measures.recompile_reasons
        frequent = Counter(classify.guarded(r.reason) for r in reasons)
        ranked = sorted(reasons, key=lambda r: -frequent[classify.guarded(r.reason)])
        first = next((r for r in ranked if r.file and "/torch/" not in r.file), ranked[0])
        return Culprit(
            "guards", first.reason, "", first.file, first.line, "", "the guard that torch says failed"
        )
    breaks = [b for b in measures.graph_breaks if of_user(b)]
    if breaks:
        first = breaks[0]
        return Culprit(
            "graph break", first.reason, "", first.file, first.line, first.code, "the line that Dynamo names"
        )
    return None


def matrix_remarks(words: Mapping[str, Mapping[str, str]], suspect: Suspect) -> tuple[str, ...]:
    said = []
    if not ablation.monotone(words, suspect.column):
        said.append("the matrix is not monotone: a later backend passes where an earlier one fails")
    if ablation.changes_symptom(words, suspect.column):
        said.append("the symptom changes from backend to backend")
    columns = ablation.failing_columns(words)
    if len(columns) == 1 and not suspect.counts:
        said.append(f"only dynamic={next(iter(columns))} fails")
    return tuple(said)
