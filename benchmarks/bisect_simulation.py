"""Bisection of flaky failures by simulation: ours and the public `git_bayesect` on the same histories, side by side.

python benchmarks/bisect_simulation.py [--versions 60] [--histories 1000] [--rates 1.0 0.9 0.5 0.3 0.2]

Both are asked to be 95 % sure. Ours checks both ends and measures the rate, which the other does not; an installation is
a version that is run for the first time. Needs `pip install git_bayesect` (with numpy and scipy); without it only ours runs.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from torchtriage.bisect.search import Ask, Found, Observation, Rule, decide


@dataclass(frozen=True)
class Ended:
    """One simulated search."""

    right: bool
    runs: int
    installs: int


def ours(n: int, boundary: int, rate: float, good_rate: float, chance: random.Random, rule: Rule) -> Ended:
    seen: list[Observation] = []
    while isinstance(step := decide(n, seen, rule), Ask):
        for index in step.indices:
            seen.append(Observation(index, chance.random() < (rate if index >= boundary else good_rate)))
    right = isinstance(step, Found) and (step.good, step.bad) == (boundary - 1, boundary)
    return Ended(right, len(seen), len({one.index for one in seen}))


def public(n: int, boundary: int, rate: float, good_rate: float, chance: random.Random, rule: Rule) -> Ended:
    """It counts from the newest version on, and is stopped once one version has 95 % of the posterior."""
    import numpy
    from git_bayesect import Bisector

    bisector = Bisector(numpy.ones(n))
    runs, tried = 0, set()
    while bisector.distribution.max() < 1 - rule.error and runs < 5000:
        place = bisector.select()
        version = n - 1 - place
        tried.add(version)
        runs += 1
        bisector.record(place, chance.random() < (rate if version >= boundary else good_rate))
    return Ended(n - 1 - int(bisector.distribution.argmax()) == boundary, runs, len(tried))


def measure(
    search: Callable[..., Ended], n: int, rates: tuple[float, float], histories: int, rule: Rule
) -> str:
    chance = random.Random(20)
    found = [search(n, chance.randrange(1, n), *rates, chance, rule) for _ in range(histories)]
    bound = math.ceil(math.log2(n)) + 2
    return (
        f"{sum(f.right for f in found) / histories:7.1%}  {statistics.mean(f.runs for f in found):7.1f}  "
        f"{statistics.mean(f.installs for f in found):7.1f}  {max(f.installs for f in found):5d}  "
        f"{sum(f.installs <= bound for f in found) / histories:9.1%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--versions", type=int, default=60)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--rates", type=float, nargs="*", default=[1.0, 0.9, 0.5, 0.3, 0.2])
    parser.add_argument(
        "--good-rate", type=float, default=0.0, help="failures of good versions; above 0, both are noisy"
    )
    chosen = parser.parse_args()
    n = chosen.versions
    bound = math.ceil(math.log2(n)) + 2
    noise = "both" if chosen.good_rate else "one-sided"
    tools: list[tuple[str, Callable[..., Ended], Rule]] = [
        ("torchtriage", ours, Rule(noise="both" if chosen.good_rate else "one-sided", patience=200)),
    ]
    if noise == "one-sided":
        tools.append((f"torchtriage, {bound} installs", ours, Rule(patience=200, installs=bound)))
    try:
        import git_bayesect  # noqa: F401

        tools.append(("git_bayesect", public, Rule()))
    except ImportError:
        print("git_bayesect is not installed: only torchtriage is measured")
    print(
        f"{n} versions, {chosen.histories} histories a row, good versions fail in {chosen.good_rate:.0%} of their runs"
    )
    print(f"{'rate':>5}  {'':24}  {'right':>7}  {'runs':>7}  {'instal.':>7}  {'most':>5}  {f'in {bound}':>9}")
    for rate in chosen.rates:
        for name, search, rule in tools:
            rates = (rate, chosen.good_rate)
            print(f"{rate:5.2f}  {name:24}  {measure(search, n, rates, chosen.histories, rule)}", flush=True)


if __name__ == "__main__":
    main()
