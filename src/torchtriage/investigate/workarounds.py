"""Changes that make the symptom go away, smallest first. Each is run over the whole program before it is named."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchtriage.investigate import ablation, disable, switches
from torchtriage.investigate.facts import RECOMPILES_ALLOWED, Asks, Budget, Facts, healthy, noisy, of_user
from torchtriage.investigate.steps import Guilty
from torchtriage.investigate.symptom import Suspect, setting, slow_compile
from torchtriage.lab.request import Request
from torchtriage.model.diagnosis import Workaround
from torchtriage.model.outcome import Inconclusive, Outcome
from torchtriage.model.variant import DEBUG_BACKENDS, OWN, Switch, Variant

ENOUGH = 5


@dataclass(frozen=True)
class Candidate:
    """A change to try, and why."""

    variant: Variant
    explanation: str
    size: int
    """Smaller changes are named first."""


@dataclass(frozen=True)
class Found:
    workarounds: tuple[Workaround, ...]
    tried: tuple[str, ...]


def find(
    lab: Asks,
    facts: Facts,
    suspect: Suspect,
    words: Mapping[str, Mapping[str, str]],
    short: Request,
    guilty: Guilty | None,
    documented: Sequence[Switch],
    compilers_fault: bool = True,
) -> Found:
    """Collect candidates, by search where there are many, and run each over the whole program.

    Where it is not the compiler's fault, its switches could hide it at best: they are left out.
    """
    base = (
        Request(Variant(threads=short.variant.threads, caches=short.variant.caches))
        if suspect.own_fails
        else suspect.request
    )
    search = lab if isinstance(lab, Budget) else Budget(lab)
    lab = search.lab
    candidates = of_documented(documented)
    if compilers_fault:
        candidates += search.attempt(lambda: of_switches(search, facts, suspect, short, documented), [])
    if documented:
        return verify(lab, facts, suspect, base, short, candidates)
    candidates += of_settings(facts, suspect, words)
    if guilty is not None:
        candidates += of_operator(guilty)
    candidates += search.attempt(lambda: of_functions(search, facts, suspect, short), [])
    candidates += of_backends(suspect, words)
    return verify(lab, facts, suspect, base, short, candidates)


def of_documented(found: Sequence[Switch]) -> list[Candidate]:
    return [Candidate(Variant().with_switches(*found), "the documented switch", 0)] if found else []


def of_switches(
    lab: Asks, facts: Facts, suspect: Suspect, short: Request, known: Sequence[Switch]
) -> list[Candidate]:
    if known or suspect.slow:
        return []
    if suspect.counts:
        return counting_switches(suspect)
    backend = suspect.backend or "inductor"
    rows = switches.search(lab, short, suspect.outcome, backend, facts.defaults)
    if rows is None:
        return []
    why = "; ".join(row.explanation for row in rows)
    size = 6 if any(row.switch[0].endswith("suppress_errors") for row in rows) else 1
    return [Candidate(Variant().with_switches(*(row.switch for row in rows)), why, size)]


def counting_switches(suspect: Suspect) -> list[Candidate]:
    """For counts there is no failure to bisect: the few switches that can lower them are run one by one."""
    wanted = {
        "recompiles": ("allow_unspec_int_on_nn_module", "automatic_dynamic_shapes", "specialize_float"),
        "graph-break": (
            "allow_rnn",
            "capture_scalar_outputs",
            "capture_dynamic_output_shape_ops",
            "trace_numpy",
        ),
    }
    names = [name for word in suspect.words for name in wanted.get(word, ())]
    rows = [row for row in switches.TABLE if row.switch[0].rpartition(".")[2] in names and not row.default]
    found = [Candidate(Variant().with_switches(row.switch), row.explanation, 1) for row in rows]
    free = [row.switch for row in rows if row.switch[0].endswith("allow_unspec_int_on_nn_module")]
    if free:  # several values can change at once
        both = Variant(dynamic=True).with_switches(*free)
        found.append(Candidate(both, "sizes and the integers on modules may all change", 3))
    return found


def of_settings(facts: Facts, suspect: Suspect, words: Mapping[str, Mapping[str, str]]) -> list[Candidate]:
    """Another dynamic setting, or no fullgraph, where the matrix says that it can help."""
    if not suspect.own_fails:
        return []
    found = []
    backend = str(facts.first_region.get("backend"))
    for column in ("None", "True", "False"):
        row = words.get(backend, words.get("inductor", {}))
        if column != suspect.column and not ablation.bad(row.get(column, "inconclusive")):
            found.append(
                Candidate(Variant(dynamic=setting(column)), f"dynamic={column} takes another way", 2)
            )
    if any(r.get("fullgraph") for r in facts.regions):
        found.append(Candidate(Variant(fullgraph=False), "lets the graph break", 2))
    if any(r.get("mode") or r.get("options") for r in facts.regions):
        found.append(Candidate(Variant(mode="default"), "the default mode and options", 2))
    return found


def of_operator(guilty: Guilty) -> list[Candidate]:
    """The operator at fault, sent to its eager kernel."""
    name = guilty.step.name
    if guilty.subsystem not in ("lowerings", "decomposition") or name.count(".") != 2:
        return []
    return [Candidate(Variant(eager_operators=(name,)), f"{name} runs its eager kernel", 3)]


def of_functions(lab: Asks, facts: Facts, suspect: Suspect, short: Request) -> list[Candidate]:
    """The smallest function to keep out of the compiler."""
    call = short.stop if short.stop is not None else (short.start or 0)
    acceptable = good_for(suspect)
    regions = {str(r["name"]) for r in facts.regions if r.get("function")}
    below_dynamo = suspect.backend not in (None, "eager") and not suspect.counts
    found = disable.search(lab, short, call, acceptable, regions, below_dynamo)
    if found is None:
        return []
    why = f"{found.name.rpartition(':')[2].partition('|')[0]} runs in eager mode"
    return [Candidate(Variant(disabled=(found.name,)), why, 4)]


def of_backends(suspect: Suspect, words: Mapping[str, Mapping[str, str]]) -> list[Candidate]:
    """The strongest backend that passes under the program's own dynamic setting."""
    for backend in reversed(DEBUG_BACKENDS):
        if backend == suspect.request.variant.backend:
            continue
        found = words.get(backend, {}).get(suspect.column, "inconclusive")
        if found in ("same", "within noise"):
            return [Candidate(Variant(backend=backend), f"backend {backend!r} passes", 5)]
    return []


def good_for(suspect: Suspect) -> Any:
    """What counts as healed: eager's behaviour, and for counts the count as well."""

    def good(outcome: Outcome) -> bool:
        if not healthy(outcome):
            return False
        measures = outcome.measures
        if "recompiles" in suspect.words and measures.recompiles > RECOMPILES_ALLOWED:
            return False
        if "graph-break" in suspect.words and suspect.counts:
            breaks = [b for b in measures.graph_breaks if of_user(b)]
            if breaks or measures.breaks or not measures.captured:
                return False
        return not (suspect.slow and slow_compile(outcome, measures.repeated_nodes))

    return good


def verify(
    lab: Asks, facts: Facts, suspect: Suspect, base: Request, short: Request, candidates: Sequence[Candidate]
) -> Found:
    """Run each candidate over the whole program, and time a warm step of those that pass."""
    unique = list({repr(c.variant): c for c in reversed(candidates)}.values())[::-1]
    unique.sort(key=lambda c: c.size)
    watch = suspect.counts or suspect.slow
    requests = [
        dataclasses.replace(apply(base, c.variant), observe=watch, fresh_store=suspect.slow) for c in unique
    ]
    outcomes = lab.run(requests)
    good = good_for(suspect)
    passed = [(c, o) for c, o in zip(unique, outcomes, strict=True) if good(o)]
    passed = [(c, o) for c, o in passed if not any(goes_beyond(c.variant, few.variant) for few, _ in passed)]
    passed = passed[:ENOUGH]
    tried = [
        change_of(c.variant) + effect(suspect, o)
        for c, o in zip(unique, outcomes, strict=True)
        if not (good(o) or isinstance(o, Inconclusive))
    ]
    times, against = step_times(lab, suspect, base, short, [c for c, _ in passed])
    workarounds = tuple(
        Workaround(
            change=change_of(candidate.variant),
            lines=tuple(paste_lines(candidate.variant)),
            outcome="within noise" if noisy(outcome) else "same",
            explanation=candidate.explanation,
            step_time_ratio=ratio,
            ratio_against=against,
            variant=candidate.variant.to_json(),
        )
        for (candidate, outcome), ratio in zip(passed, times, strict=True)
    )
    return Found(workarounds, tuple(tried))


def goes_beyond(big: Variant, small: Variant) -> bool:
    """Whether `big` changes all that `small` changes by its switches, and more."""
    size = [len(v.to_json()) + len(v.switches) for v in (big, small)]
    return size[0] > size[1] and bool(small.switches) and all(s in big.switches for s in small.switches)


def effect(suspect: Suspect, outcome: Outcome) -> str:
    """What a change that is not enough does to the count that is the symptom."""
    before, after = suspect.outcome.measures.recompiles, outcome.measures.recompiles
    if "recompiles" not in suspect.words or not healthy(outcome) or after >= before:
        return ""
    return f"  # compiled {after + 1} times instead of {before + 1}"


def step_times(
    lab: Asks, suspect: Suspect, base: Request, short: Request, passed: Sequence[Candidate]
) -> tuple[list[float | None], str]:
    """Warm step time of each candidate against the program's own; against eager where compiled has none."""
    if not passed or suspect.slow:
        return [None] * len(passed), "own"
    stop = short.stop if short.stop is not None else 0
    timed = [
        dataclasses.replace(apply(base, c.variant), stop=stop, time_step=True, backward=False) for c in passed
    ]
    plain = dataclasses.replace(base, stop=stop, time_step=True, backward=False)
    *measured, own = [outcome.measures for outcome in lab.run([*timed, plain])]
    if own.step_seconds:
        return [ratio(m.step_seconds, own.step_seconds) for m in measured], "own"
    return [ratio(m.step_seconds, m.eager_step_seconds) for m in measured], "eager"


def ratio(mine: float | None, other: float | None) -> float | None:
    return round(mine / other, 3) if mine and other else None


def apply(base: Request, change: Variant) -> Request:
    """The base request with the fields that `change` sets."""
    fields: dict[str, Any] = {
        f.name: getattr(change, f.name)
        for f in dataclasses.fields(change)
        if getattr(change, f.name) != f.default
    }
    fields.update({name: change.dynamic for name in ("dynamic",) if change.dynamic is not OWN})
    if "switches" in fields:
        fields["switches"] = base.variant.with_switches(*fields["switches"]).switches
    return dataclasses.replace(base, variant=dataclasses.replace(base.variant, **fields))


def change_of(variant: Variant) -> str:
    """One line that names a change."""
    if variant.eager_operators:
        return f"torch._inductor.lowering.make_fallback(torch.ops.{variant.eager_operators[0]}, warn=False, override_decomp=True)"
    return "; ".join(variant.changes())


def paste_lines(variant: Variant) -> list[str]:
    """Lines to paste, with the imports that they need."""
    imports = sorted({f"import {name.rpartition('.config')[0]}.config" for name, _ in variant.switches})
    for name in variant.disabled:
        module = name.partition(":")[0]
        if module != "__main__":
            imports.append(f"import {module}")
    return [*imports, *variant.lines()]
