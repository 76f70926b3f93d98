"""From a verdict and a program to the script and the failure that a search starts from."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

from torchtriage.lab.scripts import ScriptEnd, ScriptRequest
from torchtriage.model.diagnosis import LAYERS, Diagnosis
from torchtriage.model.variant import DEBUG_BACKENDS
from torchtriage.reduce import harness
from torchtriage.reduce.passes import statements
from torchtriage.reduce.signature import MARGIN, Failure, normalised, of_exception, shows
from torchtriage.reduce.tester import EAGER_RANDOM, Conditions, Runs, Tester

LEAST_SECONDS, PATIENCE = 20.0, 8.0
"""A script may take so many seconds, or PATIENCE times as long as the program."""
TRIES = 3
"""How often each form of a program is run until it shows a failure that may come and go."""
SLOW_SHARE, SLOW_ENOUGH = 0.4, 12.0
"""A reduced script must still take this share of the compile time of the program; so many seconds are always enough."""
HANGS_AFTER = 30.0
"""Seconds after which a script that does not end is taken for one that never does."""
CANNOT_RUN = "the program cannot be run as one script"
MOST_WRITES = 20
"""Statements that may go because they change files outside."""
REFUSED = re.compile(
    r"torchtriage (keeps reduced scripts|runs no shell)|Permission denied|Operation not permitted"
)
LATE = ("async_compile", "codecache", "cpp_builder", "triton_heuristics", "output_code", "runtime/")
"""Parts of the names of torch's files that come into play once kernels are built."""
#: what differs -> what the comparison of the script then says, and the expression that it compares
FORMS = {
    "alias": ("value", "{}"),
    "requires_grad": ("value", "{}.requires_grad"),
    "subclass": ("value", "type({}).__name__"),
    "device": ("value", "str({}.device)"),
    "structure": ("value", "{} is None"),
}


class CannotReduce(Exception):
    """There is no script that shows the failure; the text is for the user."""


@dataclass(frozen=True)
class Start:
    """What a search begins with."""

    text: str
    tester: Tester
    exception: dict[str, Any] | None = None
    """The exception as it came, where the failure is one."""
    dynamic: str = ""
    """What `dynamic` had to be set to, where the program as it is does not fail."""


def kind_of(diagnosis: Diagnosis) -> str:
    """The kind of failure that a verdict is about. Raises CannotReduce where there is none."""
    words = diagnosis.symptoms
    if diagnosis.kind in ("none", "inconclusive"):
        raise CannotReduce("nothing is wrong that could be reduced")
    if "missing-exception" in words:
        return "no-exception"
    if "exception" in words:
        return "raises"
    for word in ("recompiles", "graph-break", "killed", "oom"):
        if word in words:
            return word
    if "timeout" in words:
        return "timeout"
    return "differs"


def conditions_of(diagnosis: Diagnosis, threads: int, seconds: float) -> Conditions:
    """The layer to search at, and what else the failure needs."""
    backends = {layer: backend for backend, layer in LAYERS.items()}
    backend = backends.get(diagnosis.first_failing_layer, "")
    cell = diagnosis.matrix.get(backend, {}).get(diagnosis.own_dynamic)
    if cell is not None and cell.word == "same" and not other_dynamics(diagnosis):
        backend = ""  # it shows with the program's own mode or options only
    words = set(diagnosis.symptoms)
    switches: tuple[tuple[str, Any], ...] = ()
    if diagnosis.kind == "bug" and "rng" in diagnosis.needs:
        switches = ((EAGER_RANDOM, True),)
    return Conditions(
        backend=backend,
        lower=lower_of(diagnosis, backend),
        threads=threads if "threads" in diagnosis.needs else 1,
        switches=switches,
        eager_random=diagnosis.kind != "by-design",
        caches="caches" in diagnosis.needs,
        fresh_store="timeout" in words,
        seconds=seconds,
    )


def lower_of(diagnosis: Diagnosis, backend: str) -> str:
    """The backend below the first that fails, where the failure does not show."""
    position = DEBUG_BACKENDS.index(backend) if backend in DEBUG_BACKENDS else 0
    if not position:
        return ""
    below = DEBUG_BACKENDS[position - 1]
    cell = diagnosis.matrix.get(below, {}).get(diagnosis.own_dynamic)
    return below if cell is not None and cell.word == "same" else ""


def start(lab: Runs, text: str, diagnosis: Diagnosis, conditions: Conditions, tries: int = TRIES) -> Start:
    """The script that the search begins with, seen to fail. Raises CannotReduce where none is found."""
    kind = kind_of(diagnosis)
    texts = dict.fromkeys((harness.inlined(harness.flat(text)), harness.flat(text), text))
    problem = ""
    refused: set[str] = set()
    for dynamic in ("", *other_dynamics(diagnosis)):
        for script in [text for text in texts for _ in range(tries)]:
            if script in refused:
                continue
            changed = harness.compiled_with(script, dynamic=eval_setting(dynamic)) if dynamic else script
            try:
                found = start_of(lab, kind, changed, diagnosis, conditions)
            except CannotReduce as error:
                problem = problem or str(error)
                if str(error).startswith(CANNOT_RUN):  # that does not come and go
                    refused.add(script)
                continue
            return dataclasses.replace(found, dynamic=dynamic)
    raise CannotReduce(problem or "the program does not show the failure when it is run as one script")


def other_dynamics(diagnosis: Diagnosis) -> list[str]:
    """Settings of `dynamic` under which the program fails, where it does not as it is."""
    own = diagnosis.own
    if own is not None and own.word != "same":
        return []
    backends = [b for b, layer in LAYERS.items() if layer == diagnosis.first_failing_layer]
    rows = [diagnosis.matrix.get(b, {}) for b in backends]
    return [d for row in rows for d, cell in row.items() if cell.word not in ("same", "")]


def eval_setting(dynamic: str) -> bool | None:
    return {"True": True, "False": False}.get(dynamic)


def start_of(lab: Runs, kind: str, text: str, diagnosis: Diagnosis, conditions: Conditions) -> Start:
    if kind == "differs":
        return start_of_difference(lab, text, diagnosis, conditions)
    compiled = lab.run(conditions.request(text))
    exception: dict[str, Any] | None = None
    match kind:
        case "raises":
            exception = compiled.exception
            if exception is None:
                raise CannotReduce(f"the program, run as one script, raises nothing: {told(compiled)}")
            known = diagnosis.symptom.exception if diagnosis.symptom is not None else None
            if known is not None and known.torch_frames and not exception["torch_frames"]:
                raise CannotReduce(f"the program, run as one script, fails in another way: {told(compiled)}")
            failure = of_exception("raises", exception)
            return checked(
                lab, text, failure, early_end(lab, text, failure, conditions), exception, seen=True
            )
        case "no-exception":
            eager = lab.run(conditions.request(text, mode="eager"))
            exception = eager.exception
            if exception is None:
                raise CannotReduce("the program, run as one script in eager mode, raises nothing")
            failure = of_exception("no-exception", exception)
        case "killed":
            failure = Failure("killed", signal=compiled.signal)
        case "timeout" if compiled.reason != "timeout":  # it ends: what takes long is compiling
            took = float(compiled.counts.get("compile_seconds", 0))
            failure = Failure("slow", seconds=min(took * SLOW_SHARE, SLOW_ENOUGH))
            conditions = dataclasses.replace(conditions, seconds=failure.seconds * MARGIN + LEAST_SECONDS)
        case "timeout":
            seconds = min(conditions.seconds, max(HANGS_AFTER, PATIENCE * diagnosis.program.seconds))
            conditions = dataclasses.replace(conditions, seconds=seconds)
            failure = Failure("timeout", seconds=seconds)
        case "recompiles":
            failure = Failure("recompiles")
        case _:
            failure = Failure("graph-break", reason=reason_of(compiled, diagnosis))
    return checked(lab, text, failure, conditions, exception)


def inside_the_fence(lab: Runs, text: str, conditions: Conditions) -> str:
    """The script without what changes files outside of its folder, which is refused to reduced scripts.

    A program that saves its results to a path of its own would not come to its end otherwise.
    """
    for _ in range(MOST_WRITES):
        end = lab.run(conditions.request(text, mode="eager", before="", fresh_store=False))
        if end.exception is None or not REFUSED.search(str(end.exception["message"])):
            return text
        without = statements.without_line(text, int(end.exception.get("script_line", 0)))
        if without is None:
            return text
        text = without
    return text


def reason_of(compiled: ScriptEnd, diagnosis: Diagnosis) -> str:
    """Why the graph breaks: the reason that the verdict names first, else the first that was counted."""
    counted = [normalised(r) for r in compiled.counts.get("breaks", ())]
    named = [normalised(b.reason) for b in diagnosis.graph_breaks]
    return next((r for r in named if r in counted), counted[0] if counted else "")


def checked(
    lab: Runs,
    text: str,
    failure: Failure,
    conditions: Conditions,
    exception: dict[str, Any] | None = None,
    seen: bool = False,
) -> Start:
    """The start, once the script was `seen` to fail; without the layer below where it fails there as well."""
    for given in (conditions, dataclasses.replace(conditions, lower="")):
        tester = Tester(lab, failure, given)
        if tester.fails_there_only(text) if seen else tester(text):
            return Start(text, tester, exception)
    raise CannotReduce(f"the program, run as one script, does not show it: {failure.words()}")


def early_end(lab: Runs, text: str, failure: Failure, conditions: Conditions) -> Conditions:
    """Where the failure comes before any kernel is built, candidates that come so far are ended there."""
    if any(late in frame for frame in failure.frames for late in LATE):
        return conditions
    for before in ("codegen", "build"):
        early = dataclasses.replace(conditions, before=before)
        if shows(failure, lab.run(early.request(text))):
            return early
    return conditions


def told(end: ScriptEnd) -> str:
    if end.exception is not None:
        return (
            str(end.exception["type"]) + ": " + str(end.exception["message"]).strip().partition("\n")[0][:200]
        )
    return end.reason or end.signal or "it came to its end"


def start_of_difference(lab: Runs, text: str, diagnosis: Diagnosis, conditions: Conditions) -> Start:
    """Find what of the program differs, by looking at the results of its compiled calls and at its variables."""
    problem = "nothing that the program returns or leaves behind differs when it is run as one script"
    for script in with_kept(lab, text, conditions):
        for form in dict.fromkeys(harness.as_run(script, outside) for outside in (True, False)):
            whole, seen = observed(lab, form, conditions)
            if seen.exception is not None:
                problem = f"{CANNOT_RUN}: {told(seen)}"
                continue
            for row in harness.choose(seen.found, diagnosis.symptoms)[:6]:
                aspect, form = FORMS.get(str(row["aspect"]), (str(row["aspect"]), "{}"))
                expression = form.format(harness.expression_of(str(row["path"])))
                given = dataclasses.replace(conditions, aspects=("stride",) if aspect == "stride" else ())
                failure = Failure("differs", aspect=aspect, gross=bool(row["gross"]))
                try:
                    return checked(lab, harness.returning(whole, expression), failure, given)
                except CannotReduce as error:
                    problem = str(error)
    raise CannotReduce(problem)


def observed(lab: Runs, whole: str, conditions: Conditions) -> tuple[str, ScriptEnd]:
    """What `run` leaves behind; where another failure ends it, without what comes after that."""
    aspects = ("stride", "requires_grad", "alias")
    seen = lab.run(conditions.request(whole, mode="observe", aspects=aspects))
    if seen.exception is not None and seen.exception["type"].rpartition(".")[2] != "EagerFails":
        ended = harness.ending_at(whole, int(seen.exception.get("run_line", 0)))
        if ended is not None:
            return ended, lab.run(conditions.request(ended, mode="observe", aspects=aspects))
    return whole, seen


def with_kept(lab: Runs, text: str, conditions: Conditions) -> list[str]:
    """The script with the results of its compiled calls kept, and as it is."""
    request: ScriptRequest = conditions.request(text, mode="sites", backend="", before="")
    sites = [s for s in lab.run(request).sites if s["line"]]
    if not sites:
        return [text]
    kept, _ = harness.keeping(text, sites)
    return [kept, with_backward(kept), text]


def with_backward(text: str) -> str:
    """A backward of the last result that was kept, for gradients that the program itself does not ask for."""
    return text + f"{harness.KEPT}[-1].sum().backward()\n"
