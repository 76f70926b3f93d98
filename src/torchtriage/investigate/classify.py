"""Whose fault it is: bug, noise, by design, the user's, or none. Each answer names the trial or the table it rests on."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchtriage.investigate import documented
from torchtriage.investigate.ablation import bad
from torchtriage.investigate.facts import Asks, Facts, call_of, healthy, of_user
from torchtriage.investigate.search import minimal_set
from torchtriage.investigate.symptom import Suspect
from torchtriage.lab.request import Request
from torchtriage.model.diagnosis import Culprit, Kind
from torchtriage.model.outcome import Differs, MissingException, Outcome, Raised, Recompile
from torchtriage.model.variant import Switch


@dataclass(frozen=True)
class Verdict:
    """The kind, why, and where it is documented."""

    kind: Kind
    explanation: str = ""
    source: str = ""
    switches: tuple[Switch, ...] = ()
    """Switches that were run and that take the difference away."""
    needs: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    culprit: Culprit | None = None
    """Where the verdict itself names it."""


def classify(lab: Asks, facts: Facts, suspect: Suspect, words: Mapping[str, Mapping[str, str]]) -> Verdict:
    """Judge a suspect."""
    verdict = judge(lab, facts, suspect, words)
    if verdict.kind == "bug" and not suspect.counts and not suspect.slow:
        return of_own_operator(lab, suspect, verdict)
    return verdict


def of_own_operator(lab: Asks, suspect: Suspect, verdict: Verdict) -> Verdict:
    """The compiler believes what an operator says of itself: where that is not so, it is not the compiler's fault.

    Believed only where the failure goes away once the operator is kept out of the graph.
    """
    rows = lab.own_operators(call_of(suspect.outcome) or 0)
    names = list(dict.fromkeys(row["operator"] for row in rows))
    answers = dict(zip(names, lab.run([without_operator(suspect.request, n) for n in names]), strict=True))
    for row in rows:
        name, what = row["operator"], row["what"]
        if not healthy(answers[name]):
            continue
        how = "seen in an eager run with its operators checked; kept out of the graph, the failure goes away"
        culprit = Culprit(
            "operator",
            f"{name} {what}",
            name,
            row.get("file", ""),
            row.get("line", 0),
            row.get("code", ""),
            how,
        )
        why = f"the operator {name} is not torch's, and {what}; the compiler relies on it"
        return Verdict("user-error", why, f"{documented.DOCS}/library.html", culprit=culprit)
    strange = tuple(
        f"the operator {row['operator']} {row['what']}; the failure stays without it" for row in rows
    )
    return dataclasses.replace(verdict, remarks=(*verdict.remarks, *strange))


def without_operator(base: Request, name: str) -> Request:
    variant = dataclasses.replace(base.variant, eager_operators=(name,), fullgraph=False)
    return dataclasses.replace(base, variant=variant)


def judge(lab: Asks, facts: Facts, suspect: Suspect, words: Mapping[str, Mapping[str, str]]) -> Verdict:
    """The verdict from the outcome alone, and from trials with documented switches."""
    if suspect.noise:
        why = next((d.why_noise for d in getattr(suspect.outcome, "differences", ()) if d.why_noise), "")
        return Verdict("noise", why)
    if suspect.counts:
        return of_counts(facts, suspect, words)
    outcome = suspect.outcome
    if isinstance(outcome, Raised):
        return of_exception(outcome)
    if isinstance(outcome, MissingException):
        if documented.more_than_eager(outcome.exception):
            why = "eager has no kernel for this and says so; compiled code accepts more than eager"
            return Verdict(
                "by-design", why, f"{documented.DOCS}/user_guide/torch_compiler/torch.compiler_faq.html"
            )
        return Verdict("bug", "an error that eager reports goes unnoticed when compiled")
    if isinstance(outcome, Differs):
        return of_difference(lab, suspect, outcome)
    return Verdict("bug")


def of_exception(outcome: Raised) -> Verdict:
    exception = outcome.exception
    if documented.is_user_error(exception):
        return Verdict("user-error", "the compiler says that the program asks for something that cannot be")
    row = documented.refusal(exception)
    if row is not None:
        return Verdict("by-design", row.explanation, row.source)
    if exception.type.endswith(".Unsupported"):
        if documented.is_likely_bug(exception):
            return Verdict("bug", "Dynamo itself calls this a likely bug")
        if documented.asks_for_change(documented.hints_of(exception)):
            return Verdict(
                "user-error",
                f"Dynamo cannot trace this and asks for a change: {documented.hints_of(exception)[0]}",
                source_of(exception.message),
            )
        hints = documented.hints_of(exception)
        hint = f"; its hint: {hints[0]}" if hints else ""
        return Verdict(
            "by-design", f"Dynamo does not support this and says so{hint}", source_of(exception.message)
        )
    return Verdict("bug")


def source_of(message: str) -> str:
    """The page that torch names in its own message."""
    return next((w.rstrip(".,)") for w in message.split() if w.startswith("https://") and "/gb/" in w), "")


def of_counts(facts: Facts, suspect: Suspect, words: Mapping[str, Mapping[str, str]]) -> Verdict:
    measures = suspect.outcome.measures
    if "recompiles" in suspect.words:
        if suspect.backend not in (None, "eager"):
            why = "Dynamo alone does not recompile here: the backend makes a constant of a value that changes"
            return Verdict("bug", why, needs=("second-call",))
        row = words.get(suspect.backend or "eager", {})
        if suspect.column == "False" and not bad(row.get("None", "same")):
            why = "dynamic=False makes a constant of every size and number; with dynamic=None it is compiled fewer times"
            return Verdict(
                "user-error",
                why,
                f"{documented.DOCS}/generated/torch.compile.html",
                needs=("second-call", "static-shapes"),
            )
        why = "Dynamo compiles anew for each new value of " + changing_values(measures.recompile_reasons)
        source = f"{documented.DOCS}/user_guide/torch_compiler/compile/programming_model.recompilation.html"
        return Verdict("by-design", why, source, needs=("second-call",))
    breaks = [b for b in measures.graph_breaks if of_user(b)]
    kind = documented.break_kind(breaks)
    why = f"Dynamo does not trace this: {breaks[0].reason}" if breaks else "Dynamo does not trace part of it"
    source = (
        f"https://meta-pytorch.github.io/compile-graph-break-site/gb/{breaks[0].identifier}.html"
        if breaks and breaks[0].identifier
        else ""
    )
    return Verdict("user-error" if kind == "user-error" else "by-design", why, source)


def of_difference(lab: Asks, suspect: Suspect, outcome: Differs) -> Verdict:
    """A wrong value is by design only if a documented switch was run and took it away."""
    earlier = any(d.call > 0 for d in outcome.differences)
    gradient = any(d.aspect == "grad" and not d.noise for d in outcome.differences)
    rows = documented.candidates(outcome.measures.rng_used, earlier, gradient)
    answers = lab.run([healing(suspect.request, row.switches) for row in rows])
    healed: list[tuple[documented.Documented, ...]] = [
        (row,) for row, answer in zip(rows, answers, strict=True) if healthy(answer)
    ]
    if not healed and len(rows) > 1:  # several documented differences can come together
        found = minimal_set(
            rows, lambda sets: [healthy(o) for o in lab.run([together(suspect.request, s) for s in sets])]
        )
        healed = [found] if found else []
    if healed:
        return by_design(healed[0])
    remarks = random_remarks(rows, answers, outcome)
    return Verdict("bug", remarks=remarks)


def by_design(rows: Sequence[documented.Documented]) -> Verdict:
    return Verdict(
        "by-design",
        "; ".join(row.explanation for row in rows),
        rows[0].source,
        tuple(switch for row in rows for switch in row.switches),
        tuple(row.needs for row in rows if row.needs),
    )


def together(base: Request, rows: Sequence[documented.Documented]) -> Request:
    return healing(base, [switch for row in rows for switch in row.switches])


def random_remarks(
    rows: Sequence[documented.Documented], answers: Sequence[Outcome], outcome: Differs
) -> tuple[str, ...]:
    """With eager's random numbers some differences may go and others stay: say which."""
    for row, answer in zip(rows, answers, strict=True):
        if row.needs_rng and isinstance(answer, Differs):
            before = {(d.path, d.aspect) for d in outcome.differences if not d.noise}
            after = {(d.path, d.aspect) for d in answer.differences if not d.noise}
            if after and after < before:
                return (
                    "part of the difference is the random numbers, which differ by design; the rest stays with fallback_random = True",
                )
    return ()


def changing_values(reasons: Sequence[Recompile]) -> str:
    """What the guards that failed were about, most frequent first: `self.step`, the size of `x` at index 1."""
    counts = Counter(guarded(text) for reason in reasons for text in (reason.reason, *reason.also))
    counts.pop("", None)
    return ", ".join(name for name, _ in counts.most_common(3)) or "something that changes from call to call"


def guarded(reason: str) -> str:
    """What one guard is about, as torch words it."""
    size = re.search(r"tensor '(?:L\['(\w+)'\]|([^']+))' (size|stride) mismatch at index (\d+)", reason)
    if size:
        return f"the {size[3]} of {size[1] or size[2]} at index {size[4]}"
    value = re.match(r"(?:___\w+\()?(?:L\['(\w+)'\]|(\w+))((?:\.\w+|\[[^\]]*\])*)\s*==", reason)
    return (value[1] or value[2]) + value[3] if value else ""


def healing(base: Request, switches: Sequence[Switch]) -> Request:
    return dataclasses.replace(base, variant=base.variant.with_switches(*switches))
