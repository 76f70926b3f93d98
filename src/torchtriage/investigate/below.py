"""Below the layer: the compiler step, the captured node and the line of the program at fault.

Three searches, each of trials: torch's own bisection hooks say which pass, lowering or decomposition; a backend that
compiles only part of the captured nodes says which of them; and where Dynamo itself is at fault, its capture and
eager mode are compared operation by operation.
"""

from __future__ import annotations

import dataclasses

from torchtriage.investigate import steps, symptom
from torchtriage.investigate.facts import Asks, Facts, OutOfTime, failing, same_failure
from torchtriage.investigate.needs import Needs, is_later
from torchtriage.investigate.steps import Guilty
from torchtriage.investigate.symptom import Suspect
from torchtriage.lab.request import Request
from torchtriage.model.diagnosis import Culprit
from torchtriage.model.outcome import Differs, Divergence, TimedOut
from torchtriage.model.variant import GRAPH_NODES


@dataclasses.dataclass(frozen=True)
class Below:
    """What was found, as far as each search came."""

    step: Guilty | None = None
    node: Guilty | None = None
    divergence: Divergence | None = None


def search(lab: Asks, facts: Facts, suspect: Suspect, needs: Needs) -> Below:
    """Ask what inside the first failing layer is at fault."""
    backend = suspect.backend
    if backend is None or suspect.slow or isinstance(suspect.outcome, TimedOut):
        return Below()
    base = at_backend(suspect, needs.short)
    if backend == "eager":
        return Below(divergence=parting(lab, facts, suspect, base))
    step = None
    if backend in steps.SUBSYSTEMS:
        own = needs.short if suspect.own_fails and backend == "inductor" else base
        step = steps.search(lab, own, suspect.outcome, backend, facts.jobs)
    if (step is not None and step.operator and step.step.line) or "flaky" in needs.words:
        return Below(step)
    try:
        return Below(step, steps.within(lab, base, suspect.outcome, backend, GRAPH_NODES, facts.jobs))
    except OutOfTime:  # the step is known all the same
        return Below(step)


def at_backend(suspect: Suspect, short: Request) -> Request:
    """The short request under the first backend that fails, at the program's own dynamic setting."""
    variant = dataclasses.replace(
        short.variant, backend=str(suspect.backend), dynamic=symptom.setting(suspect.column), mode="own"
    )
    return dataclasses.replace(short, variant=variant)


def parting(lab: Asks, facts: Facts, suspect: Suspect, base: Request) -> Divergence | None:
    """The first operation in which what Dynamo captured is not what eager does, in a trial that shows the failure."""
    outcome = suspect.outcome
    if not isinstance(outcome, Differs) or is_later(outcome) or facts.rerun:
        return None
    asked = dataclasses.replace(base, stop=outcome.differences[0].call, operations=True, flavours=("eager",))
    answer = lab.run([asked])[0]
    if not (failing(answer) and same_failure(answer, outcome)):
        return None
    return answer.measures.divergence


def culprit(found: Below) -> Culprit | None:
    """What was found, in one: the step's own account, with operator and line from the node where the step has none."""
    step, node = found.step, found.node
    if found.divergence is not None:
        return of_divergence(found.divergence)
    if step is None:
        return of_guilty(node) if node is not None else None
    said = of_guilty(step)
    if node is None:
        return said
    if step.step.line or not node.step.line:
        return dataclasses.replace(said, operator=said.operator or node.operator)
    return dataclasses.replace(
        said,
        operator=said.operator or node.operator,
        file=node.step.file,
        line=node.step.line,
        code=node.step.code,
        how=f"{said.how}; {node.text}: {how(node)}",
    )


def of_guilty(guilty: Guilty) -> Culprit:
    step = guilty.step
    return Culprit(
        guilty.subsystem, guilty.text, guilty.operator, step.file, step.line, step.code, how(guilty)
    )


def how(guilty: Guilty) -> str:
    """The experiments behind a guilty step, in words."""
    number = guilty.number
    if guilty.subsystem == GRAPH_NODES:
        if guilty.alone:
            return "compiled alone, with the other nodes in eager mode, it fails as well"
        return "with these nodes compiled and the others in eager mode it fails; without the first or the last it does not"
    if number > 1:
        return f"the first {number - 1} alone give the same as eager, with this one it fails"
    return "without it the call is the same as eager"


def of_divergence(found: Divergence) -> Culprit:
    said = {
        "": "eager mode runs the same operation on this line and gets another result",
        "eager": "eager mode runs this operation, what Dynamo captured does not",
        "captured": "eager mode runs no such operation with this result here",
    }[found.only_in]
    detail = f"the first operation that parts from eager ({found.operator})"
    return Culprit("capture", detail, found.operator, found.file, found.line, found.code, said)
