"""What the failure needs: an earlier call, fullgraph, the backward, a config value, caches, threads. Each by a trial."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from torchtriage.investigate.facts import Asks, Facts, failing, healthy, same_failure
from torchtriage.investigate.symptom import Suspect
from torchtriage.lab.request import ALL_FLAVOURS, Request
from torchtriage.model.outcome import Differs, Exited, Killed, Outcome, Raised, TimedOut, aspects
from torchtriage.model.variant import Variant

REPEATS = 2


@dataclass(frozen=True)
class Needs:
    """The conditions that were found necessary, and the shortest request that still shows the failure."""

    words: tuple[str, ...]
    remarks: tuple[str, ...]
    short: Request
    """Stops at the failing call, and starts there where earlier calls do not matter."""


def find(lab: Asks, facts: Facts, suspect: Suspect) -> Needs:
    """Ask which conditions are needed. A few trials, all at once."""
    outcome = suspect.outcome
    call = getattr(outcome, "call", None)
    if isinstance(outcome, Differs):
        call = outcome.differences[0].call
    after_region = (isinstance(outcome, Raised) and outcome.phase == "program") or is_later(outcome)
    stop = None if after_region or suspect.counts or suspect.slow else call
    whole = dataclasses.replace(
        suspect.request, stop=stop, flavours=ALL_FLAVOURS if stop is not None else ("eager",)
    )
    alone = dataclasses.replace(whole, start=call) if call else None
    questions: dict[str, Request] = {}
    if alone is not None and not after_region:
        questions["alone"] = alone
    if suspect.own_fails and facts.region_of(call).get("fullgraph"):
        questions["fullgraph"] = changed(whole, fullgraph=False)
    for name, default in literal_defaults(facts):
        questions[f"config {name}"] = changed(whole, switches=((name, default),))
    for number in range(REPEATS if may_be_flaky(outcome) else 0):
        questions[f"repeat {number}"] = dataclasses.replace(whole, repeat=number + 1)
    answers = dict(zip(questions, lab.run(list(questions.values())), strict=True))
    return read(suspect, answers, whole, alone)


def read(suspect: Suspect, answers: dict[str, Outcome], whole: Request, alone: Request | None) -> Needs:
    words, remarks, short = list(suspect.needs), list(suspect.remarks), whole
    outcome = suspect.outcome
    own_outcome = answers.get("repeat 0", outcome)
    if "alone" in answers:
        if failing(answers["alone"]) and alone is not None and same_failure(answers["alone"], own_outcome):
            short = alone
        elif healthy(answers["alone"]):
            words.append("second-call")
            remarks.append("the failure needs an earlier call: the call alone is the same as eager")
    if "fullgraph" in answers and healthy(answers["fullgraph"]):
        words.append("fullgraph")
        remarks.append("with fullgraph=False it does not fail")
    for name, answer in answers.items():
        if name.startswith("config ") and healthy(answer):
            words.append("config")
            remarks.append(f"with {name[7:]} at its default it does not fail")
    repeats = [answer for name, answer in answers.items() if name.startswith("repeat ")]
    if any(healthy(answer) for answer in repeats) and not suspect.slow:
        failed = sum(failing(answer) for answer in repeats) + 1
        words.append("flaky")
        remarks.append(f"flaky: {failed} of {len(repeats) + 1} runs fail")
    if only_backward(outcome):
        words.append("backward")
        remarks.append("only the backward fails")
    return Needs(tuple(dict.fromkeys(words)), tuple(dict.fromkeys(remarks)), short)


def is_later(outcome: Outcome) -> bool:
    """Whether the difference shows only at the end of the program."""
    return isinstance(outcome, Differs) and outcome.differences[0].later


def may_be_flaky(outcome: Outcome) -> bool:
    """What happens at run time can depend on chance; what a compiler pass raises does not."""
    if isinstance(outcome, Raised):
        return outcome.phase != "forward"
    return isinstance(outcome, (Killed, Exited, Differs)) or (
        isinstance(outcome, TimedOut) and outcome.phase != "compile"
    )


def only_backward(outcome: Outcome) -> bool:
    if isinstance(outcome, Differs):
        return aspects(outcome.differences) == ["grad"]
    return isinstance(outcome, Raised) and outcome.phase == "backward"


def changed(request: Request, **fields: object) -> Request:
    variant: Variant = dataclasses.replace(request.variant, **fields)  # type: ignore[arg-type]
    return dataclasses.replace(request, variant=variant)


def literal_defaults(facts: Facts) -> list[tuple[str, object]]:
    from torchtriage.investigate.switches import defaults

    return list(defaults(facts.defaults))[:8]
