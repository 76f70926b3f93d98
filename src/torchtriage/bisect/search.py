"""The mathematics of a bisection that stands noise: from what was seen so far to what to run next. No I/O, no clock.

Versions are the numbers 0 (the good end) to n - 1 (the bad end); the *boundary* is the first bad one. `decide` is a
function of the whole history, so a search that was killed goes on by being given its history again.

One-sided noise. A good version never fails; a bad one fails with an unknown probability p, a Beta variable whose counts
are pooled over all versions known to be bad. After F failures and S passes there, the chance that one more bad version
passes k times in a row is

    P(k) = prod_{i<k} (b + i) / (a + b + i),   a = F + 1/2, b = S + 1/2

A version is believed good once P(k) is at most the error that one decision may have. By monotony, what passes at a version
speaks for all older ones as well: only the newest good version has to be settled, and the good end is settled only if
nothing newer is. Repeats of one version share its environment, so this costs far fewer installations than a search that
moves after each run.

Noise on both sides. Failures have probability p below the boundary and q above it, each with a Beta prior; integrating
them out gives the posterior of each boundary in closed form (a ratio of Beta functions). The next run is at the median.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

#: What one run said: True failed, False passed, None nothing (a skip).
Seen: TypeAlias = "bool | None"
PRIOR = 0.5
#: Flatter where both rates are unknown: with 1/2, a few runs look like rates of 0 and 1, and it is sure too early.
BOTH_PRIOR = 1.0
LONGEST = 10_000
#: Runs of an end that may tell nothing before it is given up; another failure may be a passing one.
TRIES = 3
#: Runs of a version that tell nothing, though others of it did, after which it is too unsteady to be of use.
LOST = 8


@dataclass(frozen=True)
class Observation:
    """One run of one version."""

    index: int
    failed: Seen
    final: bool = False
    """Another run would tell nothing either, as where there is no environment."""


@dataclass(frozen=True)
class Rule:
    """How much noise to expect, and how sure to be."""

    noise: Literal["one-sided", "both"] = "one-sided"
    error: float = 0.05
    """Probability of a wrong answer that is accepted."""
    first: int = 4
    """Runs at the bad end; if all fail, one run a version is enough until something says otherwise. 1: never repeat."""
    failures: int = 4
    """Failures wanted at the bad end before its rate is believed, once it is known to be flaky."""
    patience: int = 8
    """Runs at the bad end without any failure after which there is nothing to look for."""
    jobs: int = 1
    """Versions at a time."""
    ends: int = 10
    """Runs of each end where both sides are noisy."""
    limit: int = 1000
    """Runs after which the likeliest answer is given as it is, where both sides are noisy."""
    installs: int = 0
    """Versions that may be tried, skips aside; the answer may then be a range. 0: as many as it takes."""


@dataclass(frozen=True)
class Ask:
    """Run these versions once each, at the same time if that is possible."""

    indices: tuple[int, ...]


@dataclass(frozen=True)
class Found:
    """The boundary lies after `good` and not after `bad`; what lies between could not be run."""

    good: int
    bad: int
    confidence: float
    """Probability that this is right, as far as the rates are as assumed."""
    also_bad: tuple[int, ...] = ()
    """Older than `good` and bad all the same: the history is not monotone."""


@dataclass(frozen=True)
class EndFails:
    """An end is not what it was said to be, so there is nothing to search."""

    end: Literal["good", "bad"]
    why: Literal["skipped", "passes", "fails", "unsteady"]
    runs: int


Step: TypeAlias = "Ask | Found | EndFails"


@dataclass(frozen=True)
class Tally:
    """What was seen, by version."""

    failures: dict[int, int]
    passes: dict[int, int]
    skipped: frozenset[int]
    lost: dict[int, int]
    """Runs that told nothing."""
    unsteady: frozenset[int] = frozenset()
    """Those of which some runs told something, and more did not."""

    def unusable(self, index: int, end: Literal["good", "bad"], rule: Rule) -> EndFails | None:
        """Why an end cannot be used; None if it can, or is to be tried again."""
        if index in self.unsteady:
            return EndFails(end, "unsteady", self.lost[index])
        tries = TRIES if rule.first > 1 else 1
        if index in self.skipped and self.lost[index] >= tries:
            return EndFails(end, "skipped", 0)
        return None

    def runs(self, index: int) -> int:
        return self.failures.get(index, 0) + self.passes.get(index, 0)


def tally(history: Sequence[Observation]) -> Tally:
    failures: dict[int, int] = {}
    passes: dict[int, int] = {}
    lost: dict[int, int] = {}
    for seen in history:
        counts = lost if seen.failed is None else failures if seen.failed else passes
        counts[seen.index] = counts.get(seen.index, 0) + (TRIES if seen.final else 1)
    told = {index: failures.get(index, 0) + passes.get(index, 0) for index in lost}
    unsteady = frozenset(index for index, k in lost.items() if k >= LOST and k > told[index] > 0)
    passes = {index: k for index, k in passes.items() if index in failures or index not in unsteady}
    skipped = frozenset(index for index in lost if index not in failures and index not in passes)
    return Tally(failures, passes, skipped, lost, unsteady)


def decide(n: int, history: Sequence[Observation], rule: Rule = Rule()) -> Step:
    """What to run next, or the answer. `n` versions, at least 2."""
    if n < 2:
        raise ValueError("a bisection needs two versions")
    seen = tally(history)
    return _decide_both(n, seen, rule) if rule.noise == "both" else _decide_one_sided(n, seen, rule)


# --- one-sided ------------------------------------------------------------------------------------


def chance_of_passes(k: int, failures: int, passes: int) -> float:
    """Probability that a bad version passes k times in a row, after these counts at bad versions."""
    a, b = failures + PRIOR, passes + PRIOR
    return math.exp(math.lgamma(b + k) - math.lgamma(b) + math.lgamma(a + b) - math.lgamma(a + b + k))


def runs_needed(failures: int, passes: int, error: float) -> int:
    """The smallest number of passes in a row after which a version is believed good."""
    low, high = 1, 1
    while chance_of_passes(high, failures, passes) > error and high < LONGEST:
        low, high = high, high * 2
    while low < high:
        middle = (low + high) // 2
        if chance_of_passes(middle, failures, passes) > error:
            low = middle + 1
        else:
            high = middle
    return high


def share(n: int, error: float) -> float:
    """The error of one decision: of log2 n decisions, half are at bad versions, and only those can go wrong.

    A part is held back for what the rate at the bad end may mislead about (see benchmarks/bisect_simulation.py).
    """
    return error / 1.7 / max(1.0, math.log2(n) / 2)


def _decide_one_sided(n: int, seen: Tally, rule: Rule) -> Step:
    end = _bad_end(n, seen, rule)
    if end is not None:
        return end
    unusable = seen.unusable(0, "good", rule)
    if unusable is not None:
        return unusable
    if seen.failures.get(0):
        return EndFails("good", "fails", seen.runs(0))
    if not seen.passes.get(0):
        return Ask((0,))
    bad = sorted(seen.failures)
    known_failures = sum(seen.failures.values())
    known_passes = sum(seen.passes.get(i, 0) for i in bad)
    steady = known_passes == 0
    settled = 1 if steady else runs_needed(known_failures, known_passes, share(n, rule.error))
    low = max(i for i, k in seen.passes.items() if i not in seen.failures and (k >= settled or i == 0))
    high = min(i for i in bad if i > low)
    also_bad = tuple(i for i in bad if i < low)
    opened = [i for i in seen.passes if low < i < high and i not in seen.failures]
    fresh = [i for i in range(low + 1, high) if i not in seen.skipped and i not in opened]
    room = rule.jobs - len(opened)
    spent = rule.installs and len(seen.failures.keys() | seen.passes.keys()) >= rule.installs
    if opened or (fresh and not spent):
        room = 0 if spent else room
        edges = [low, *opened, high]
        return Ask((*sorted(opened, reverse=True)[: rule.jobs], *_spread(edges, fresh, seen.skipped, room)))
    wanted = 1 if rule.first == 1 else _confirming(known_failures, known_passes, settled, rule, also_bad)
    if seen.passes.get(low, 0) < wanted:
        return Ask((low,) * min(rule.jobs, wanted - seen.passes[low]))
    doubt = chance_of_passes(seen.passes[low], known_failures, known_passes)
    decisions = 0 if steady else max(0, round(math.log2(n) / 2) - 1)
    return Found(low, high, max(0.0, 1 - doubt - decisions * share(n, rule.error)), also_bad)


def _confirming(failures: int, passes: int, settled: int, rule: Rule, also_bad: tuple[int, ...]) -> int:
    """Passes that the newest good version needs before it is the answer; more where the history is not monotone."""
    error = rule.error / 10 if also_bad else rule.error
    return max(settled, runs_needed(failures, passes, error))


def _bad_end(n: int, seen: Tally, rule: Rule) -> Step | None:
    """What the bad end still needs; None once it is known to fail, and how often."""
    last = n - 1
    failures, passes = seen.failures.get(last, 0), seen.passes.get(last, 0)
    unusable = seen.unusable(last, "bad", rule)
    if unusable is not None:
        return unusable
    if not failures and passes >= rule.patience:
        return EndFails("bad", "passes", passes)
    wanted = rule.failures if passes and rule.first > 1 else rule.first
    if failures >= wanted:
        return None
    return Ask((last,) * max(1, min(rule.jobs, wanted - failures)))


def _spread(edges: list[int], fresh: list[int], skipped: frozenset[int], count: int) -> tuple[int, ...]:
    """Up to `count` fresh versions that split the widest gaps, away from those that could not be run."""
    chosen: list[int] = []
    edges = sorted(edges)
    if len(edges) == 2 and count > 1:  # nothing is open: split evenly
        low, high = edges
        for part in range(1, count + 1):
            left = [i for i in fresh if i not in chosen]
            if left:
                chosen.append(_nearest(low + (high - low) * part / (count + 1), left, skipped, high - low))
        return tuple(sorted(chosen))
    while len(chosen) < count:
        gaps = sorted(itertools.pairwise(edges), key=lambda gap: gap[0] - gap[1])
        for low, high in gaps:
            inside = [i for i in fresh if low < i < high]
            if inside:
                chosen.append(_nearest((low + high) / 2, inside, skipped, high - low))
                edges = sorted([*edges, chosen[-1]])
                break
        else:
            break
    return tuple(chosen)


def _nearest(middle: float, candidates: list[int], skipped: frozenset[int], width: int) -> int:
    """The candidate nearest to the middle; each one skipped there pushes further away, for neighbours break together."""
    near = [i for i in skipped if abs(i - middle) <= width / 2]
    reach = min(width / 4, 2.0 ** (len(near) - 1)) if near else 0.0

    def cost(index: int) -> tuple[float, int]:
        pushed = sum(max(0.0, reach - abs(index - i)) for i in near)
        return abs(index - int(middle)) + 2 * pushed, index

    return min(candidates, key=cost)


# --- both sides -----------------------------------------------------------------------------------


def posterior(n: int, seen: Tally) -> list[float]:
    """Probability of each boundary 1 to n - 1 (entry 0 is zero), the rates of both sides integrated out."""

    def evidence(failed: int, passed: int) -> float:
        return (
            math.lgamma(failed + BOTH_PRIOR)
            + math.lgamma(passed + BOTH_PRIOR)
            - math.lgamma(failed + passed + 2 * BOTH_PRIOR)
        )

    all_failed, all_passed = sum(seen.failures.values()), sum(seen.passes.values())
    failed = passed = 0
    logs = [-math.inf]
    for boundary in range(1, n):
        failed += seen.failures.get(boundary - 1, 0)
        passed += seen.passes.get(boundary - 1, 0)
        below, above = (failed, passed), (all_failed - failed, all_passed - passed)
        rate_below = (below[0] + BOTH_PRIOR) / (sum(below) + 2 * BOTH_PRIOR)
        rate_above = (above[0] + BOTH_PRIOR) / (sum(above) + 2 * BOTH_PRIOR)
        likely = evidence(*below) + evidence(*above)
        logs.append(likely if rate_above > rate_below else -math.inf)
    top = max(logs)
    if top == -math.inf:
        return [0.0] + [1.0 / (n - 1)] * (n - 1)
    weights = [math.exp(value - top) for value in logs]
    total = sum(weights)
    return [weight / total for weight in weights]


def _decide_both(n: int, seen: Tally, rule: Rule) -> Step:
    bad, good = seen.unusable(n - 1, "bad", rule), seen.unusable(0, "good", rule)
    if bad is not None or good is not None:
        return bad or good  # type: ignore[return-value]
    for index in (n - 1, 0):
        if seen.runs(index) < rule.ends:
            return Ask((index,) * min(rule.jobs, rule.ends - seen.runs(index)))
    bad_rate = seen.failures.get(n - 1, 0) / seen.runs(n - 1)
    good_rate = seen.failures.get(0, 0) / seen.runs(0)
    if bad_rate <= good_rate:
        if bad_rate < 0.5:
            return EndFails("bad", "passes", seen.runs(n - 1))
        return EndFails("good", "fails", seen.runs(0))
    weights, gone = posterior(n, seen), seen.skipped | seen.unsteady
    groups = _groups(n, weights, gone)
    low, high, mass = max(groups, key=lambda group: group[2])
    if mass >= 1 - rule.error or sum(map(seen.runs, range(n))) >= rule.limit:
        return Found(low, high, mass)
    at_or_below, options = 0.0, []
    for index in range(1, n - 1):
        at_or_below += weights[index]
        if index not in gone:  # where two split as well, the one that was run less
            options.append((round(abs(at_or_below - 0.5), 2), seen.runs(index), index))
    if not options:
        return Found(low, high, mass)
    best = min(options)
    known = [o for o in options if o[0] <= max(0.2, best[0]) and o[1]]
    index = min(known)[2] if known else best[2]
    return Ask(tuple(dict.fromkeys((index, *_quantiles(weights, gone, n, rule.jobs - 1)))))


def _groups(n: int, weights: list[float], skipped: frozenset[int]) -> list[tuple[int, int, float]]:
    """(last runnable, next runnable, probability that the boundary lies in between): skipped ones cannot be told apart."""
    runnable = [i for i in range(n) if i not in skipped]
    return [(a, b, sum(weights[a + 1 : b + 1])) for a, b in itertools.pairwise(runnable)]


def _quantiles(weights: list[float], skipped: frozenset[int], n: int, count: int) -> list[int]:
    """Further versions at even quantiles of the posterior, for the other jobs."""
    found, total, part = [], 0.0, 1
    for index in range(1, n - 1):
        total += weights[index]
        while part <= count and total >= part / (count + 1):
            if index not in skipped:
                found.append(index)
            part += 1
    return found


# --- what is told beforehand ----------------------------------------------------------------------


def most_verdicts(n: int, jobs: int = 1) -> int:
    """Versions that are looked at where nothing is flaky or broken: the two ends, then the search."""
    left, rounds = n - 1, 0
    while left > 1:
        left = math.ceil(left / (jobs + 1))
        rounds += 1
    return 2 + min(rounds * jobs, n - 2)


def alternatives(
    n: int, history: Sequence[Observation], rule: Rule, asked: tuple[int, ...]
) -> tuple[int, ...]:
    """What would be asked next, whichever way the asked versions turn out: their environments can be made meanwhile."""
    found: list[int] = []
    for failed in (True, False):
        step = decide(n, [*history, *(Observation(i, failed) for i in asked)], rule)
        if isinstance(step, Ask):
            found += [i for i in step.indices if i not in asked and i not in found]
    return tuple(found)
