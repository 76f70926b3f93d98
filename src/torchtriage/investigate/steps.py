"""Below the layer: which application of which compiler step the failure needs.

Drives torch's own bisection hooks (passes, lowerings, decompositions) by number, in memory, a trial a question.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from torchtriage.investigate.facts import Asks, failing, healthy, same_failure
from torchtriage.investigate.search import Answers, first_bad
from torchtriage.lab.request import Request
from torchtriage.model.outcome import Outcome, Raised, Step
from torchtriage.model.variant import GRAPH_NODES, Limit

#: backend -> subsystems that can be limited, in the order in which the compiler runs them
SUBSYSTEMS = {
    "aot_eager_decomp_partition": ("decomposition",),
    "inductor": ("pre_grad_passes", "joint_graph_passes", "post_grad_passes", "lowerings"),
}
SINGULAR = {
    "decomposition": "decomposition",
    "pre_grad_passes": "pre-grad pass",
    "joint_graph_passes": "joint-graph pass",
    "post_grad_passes": "post-grad pass",
    "lowerings": "lowering",
    GRAPH_NODES: "captured node",
}
ALL = 1 << 30
MOST_NAMED = 4


@dataclass(frozen=True)
class Guilty:
    """The step without which the failure goes away."""

    backend: str
    subsystem: str
    number: int
    total: int
    step: Step
    together: tuple[Step, ...] = ()
    """Graph nodes: the failure needs all of these compiled together, `step` among them."""

    @property
    def operator(self) -> str:
        """The ATen operator of the step; for a graph node whatever it calls."""
        known = self.step.name.startswith(("aten.", "prims."))
        return self.step.name if known or self.subsystem == GRAPH_NODES else ""

    @property
    def alone(self) -> bool:
        return len(self.together) < 2

    @property
    def text(self) -> str:
        if not self.alone:
            first, last = self.together[0].index, self.together[-1].index
            named = ", ".join(named_with_line(step) for step in self.together[:MOST_NAMED])
            more = "" if len(self.together) <= MOST_NAMED else ", …"
            return f"{SINGULAR[self.subsystem]}s {first} to {last} of {self.total} ({named}{more})"
        return f"{SINGULAR[self.subsystem]} {self.number} of {self.total} ({self.step.name or 'unnamed'})"


def search(lab: Asks, base: Request, failure: Outcome, backend: str, width: int = 1) -> Guilty | None:
    """The first step, over all subsystems of the backend, whose application brings the failure."""
    subsystems = SUBSYSTEMS.get(backend, ())
    without = lab.run([limited(base, backend, name, 0) for name in subsystems])
    for name, outcome in zip(subsystems, without, strict=True):
        if healthy(outcome):
            found = within(lab, base, failure, backend, name, width)
            if found is not None:
                return found
    return None


def within(lab: Asks, base: Request, failure: Outcome, backend: str, name: str, width: int) -> Guilty | None:
    whole = lab.run([limited(base, backend, name, ALL)])[0]
    steps = whole.measures.steps
    if not steps or not failing(whole):
        return None

    def ask(points: list[int]) -> Answers:
        outcomes = lab.run([limited(base, backend, name, point) for point in points])
        return [verdict(outcome, failure) for outcome in outcomes]

    total = max(whole.measures.step_count, len(steps))
    number = first_bad(total, ask, width)
    if number is None:
        return None
    if name != GRAPH_NODES:
        return Guilty(backend, name, number, total, step_at(steps, number))
    first = first_needed(lab, base, failure, backend, number, width)
    together = tuple(step for step in steps if first <= step.index <= number)
    return Guilty(backend, name, number, total, telling(together) or step_at(steps, number), together)


def first_needed(lab: Asks, base: Request, failure: Outcome, backend: str, last: int, width: int) -> int:
    """The highest node such that compiling from it to `last` still fails: `last` itself where it fails alone."""

    def ask(counts: list[int]) -> Answers:
        requests = [limited(base, backend, GRAPH_NODES, last, last - count) for count in counts]
        return [verdict(outcome, failure) for outcome in lab.run(requests)]

    alone = ask([1])[0] if last > 1 else True
    if alone:
        return last
    count = first_bad(last, ask, width)
    return last - count + 1 if count is not None else 1


def telling(together: Sequence[Step]) -> Step | None:
    """Of nodes that fail only together: the one that changes something in place, else the last."""
    in_place = [step for step in together if step.name.endswith("_") and not step.name.endswith("__")]
    return next(iter(in_place), together[-1] if together else None)


def named_with_line(step: Step) -> str:
    return f"{step.name}, line {step.line}" if step.line else step.name


def verdict(outcome: Outcome, failure: Outcome) -> bool | None:
    """True when the failure is there. Another failure is no verdict, nor is a graph that could not be divided."""
    if isinstance(outcome, Raised) and "torchtriage cannot divide" in outcome.exception.message:
        return None
    if healthy(outcome):
        return False
    return True if same_failure(outcome, failure) else None


def step_at(steps: Sequence[Step], number: int) -> Step:
    return next((step for step in steps if step.index == number), Step(number, ""))


def limited(base: Request, backend: str, subsystem: str, maximum: int, start: int = 0) -> Request:
    variant = dataclasses.replace(base.variant, limit=Limit(backend, subsystem, maximum, start))
    return dataclasses.replace(base, variant=variant)
