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
from torchtriage.model.outcome import Outcome, Step
from torchtriage.model.variant import Limit

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
}
ALL = 1 << 30


@dataclass(frozen=True)
class Guilty:
    """The step without which the failure goes away."""

    backend: str
    subsystem: str
    number: int
    total: int
    step: Step

    @property
    def text(self) -> str:
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
    return Guilty(backend, name, number, total, step_at(steps, number))


def verdict(outcome: Outcome, failure: Outcome) -> bool | None:
    """True when the failure is there. Another failure is no verdict."""
    if healthy(outcome):
        return False
    return True if same_failure(outcome, failure) else None


def step_at(steps: Sequence[Step], number: int) -> Step:
    return next((step for step in steps if step.index == number), Step(number, ""))


def limited(base: Request, backend: str, subsystem: str, maximum: int) -> Request:
    variant = dataclasses.replace(base.variant, limit=Limit(backend, subsystem, maximum))
    return dataclasses.replace(base, variant=variant)
