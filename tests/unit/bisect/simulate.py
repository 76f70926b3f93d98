"""Histories with a known boundary, to hold the search against."""

from __future__ import annotations

import random
from dataclasses import dataclass

from torchtriage.bisect.search import Ask, Found, Observation, Rule, Step, decide


@dataclass(frozen=True)
class History:
    """One simulated search."""

    step: Step
    boundary: int
    runs: int
    versions: int
    """Different versions that were run, so installations; skips aside."""
    rounds: int

    @property
    def right(self) -> bool:
        return isinstance(self.step, Found) and (self.step.good, self.step.bad) == (
            self.boundary - 1,
            self.boundary,
        )


def search(
    n: int,
    boundary: int,
    rule: Rule,
    *,
    bad_rate: float = 1.0,
    good_rate: float = 0.0,
    skipped: frozenset[int] = frozenset(),
    seed: int = 0,
) -> History:
    """Search to the end, a version failing with its rate."""
    chance = random.Random(seed)
    seen: list[Observation] = []
    rounds = 0
    while isinstance(step := decide(n, seen, rule), Ask):
        rounds += 1
        assert rounds < 20_000, "the search does not end"
        for index in step.indices:
            rate = bad_rate if index >= boundary else good_rate
            seen.append(Observation(index, None if index in skipped else chance.random() < rate))
    tried = {o.index for o in seen if o.failed is not None}
    return History(step, boundary, len(seen), len(tried), rounds)
