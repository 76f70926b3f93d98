"""The search finds the boundary, in few verdicts, whatever is flaky or broken."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulate import search

from torchtriage.bisect.search import (
    Ask,
    EndFails,
    Found,
    Observation,
    Rule,
    alternatives,
    chance_of_passes,
    decide,
    most_verdicts,
    posterior,
    runs_needed,
    tally,
)

ONCE = Rule(first=1)
#: Runs that git_bayesect 1.2 needs on average for 60 versions and a failure that shows in 30 % of runs, to be 95 % sure:
#: benchmarks/bisect_simulation.py, 1,000 histories.
PUBLIC_RUNS = 88.0


@st.composite
def places(draw: st.DrawFn, most: int = 300) -> tuple[int, int]:
    n = draw(st.integers(2, most))
    return n, draw(st.integers(1, n - 1))


# --- without noise --------------------------------------------------------------------------------


@given(places())
def test_without_noise_each_version_is_looked_at_once_and_few_are(place: tuple[int, int]) -> None:
    n, boundary = place
    found = search(n, boundary, ONCE)
    assert found.right
    assert found.runs <= math.ceil(math.log2(n)) + 2


@given(places())
def test_repeats_at_the_ends_add_no_versions(place: tuple[int, int]) -> None:
    n, boundary = place
    found = search(n, boundary, Rule())
    assert found.right
    assert found.versions <= math.ceil(math.log2(n)) + 2


@given(places(), st.integers(1, 6))
def test_several_at_a_time_find_the_same_in_fewer_rounds(place: tuple[int, int], jobs: int) -> None:
    n, boundary = place
    found = search(n, boundary, Rule(first=1, jobs=jobs))
    assert found.right
    assert found.rounds <= math.ceil(math.log(n, jobs + 1)) + 3
    assert found.versions <= most_verdicts(n, jobs)


@given(places(), st.data())
def test_versions_that_cannot_be_run_only_widen_the_answer(
    place: tuple[int, int], data: st.DataObject
) -> None:
    n, boundary = place
    inner = st.integers(1, max(1, n - 2))
    broken = data.draw(st.frozensets(inner, max_size=n)) if n > 2 else frozenset()
    found = search(n, boundary, ONCE, skipped=broken)
    assert isinstance(found.step, Found)
    assert found.step.good < boundary <= found.step.bad
    assert set(range(found.step.good + 1, found.step.bad)) <= broken


def test_a_block_of_broken_versions_is_stepped_out_of() -> None:
    broken = frozenset(range(80, 120))
    seen: list[Observation] = []
    while isinstance(step := decide(200, seen, ONCE), Ask):
        seen += [Observation(i, None if i in broken else i >= 150) for i in step.indices]
    assert sum(o.failed is None for o in seen) <= 8
    assert isinstance(step, Found) and (step.good, step.bad) == (149, 150)


@given(places(60), st.randoms(use_true_random=False))
def test_what_comes_next_depends_on_what_was_seen_and_not_on_its_order(
    place: tuple[int, int], chance: random.Random
) -> None:
    n, boundary = place
    seen: list[Observation] = []
    for _ in range(6):
        step = decide(n, seen, Rule())
        if isinstance(step, Ask):
            seen += [Observation(i, i >= boundary) for i in step.indices]
    shuffled = list(seen)
    chance.shuffle(shuffled)
    assert decide(n, shuffled, Rule()) == decide(n, seen, Rule())


# --- the ends -------------------------------------------------------------------------------------


def test_the_ends_come_first_the_bad_one_before_the_good_one() -> None:
    assert decide(9, [], ONCE) == Ask((8,))
    assert decide(9, [Observation(8, True)], ONCE) == Ask((0,))


def test_a_bad_end_that_never_fails_ends_the_search() -> None:
    seen = [Observation(8, False)] * 8
    assert decide(9, seen, Rule(patience=8)) == EndFails("bad", "passes", 8)


def test_a_good_end_that_fails_ends_the_search() -> None:
    assert decide(9, [Observation(8, True), Observation(0, True)], ONCE) == EndFails("good", "fails", 1)


@pytest.mark.parametrize(("index", "end"), [(8, "bad"), (0, "good")])
def test_an_end_that_cannot_be_run_ends_the_search(index: int, end: str) -> None:
    seen = [Observation(8, True)] * (index == 0) + [Observation(index, None)]
    assert decide(9, seen, ONCE) == EndFails(end, "skipped", 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("index", "end"), [(8, "bad"), (0, "good")])
@pytest.mark.parametrize("noise", ["one-sided", "both"])
def test_an_end_is_tried_again_unless_that_cannot_help(index: int, end: str, noise: Any) -> None:
    """The failure of another kind may have been a passing one."""
    rule = Rule(noise=noise)
    before = [Observation(8, True)] * 10 * (index == 0)
    lost = Observation(index, None)
    assert decide(9, [*before, lost, lost], rule) == Ask((index,))
    gone = EndFails(end, "skipped", 0)  # type: ignore[arg-type]
    assert decide(9, [*before, lost, lost, lost], rule) == gone
    assert decide(9, [*before, Observation(index, None, True)], rule) == gone


@pytest.mark.parametrize("noise", ["one-sided", "both"])
@pytest.mark.parametrize("first", [True, False, None])
def test_a_search_ends_whatever_versions_do_from_run_to_run(noise: Any, first: bool | None) -> None:
    """As where each run leaves something behind in which the next one fails in another way."""
    for unsteady in range(9):
        history: list[Observation] = []
        while isinstance(step := decide(9, history, Rule(noise=noise)), Ask):
            for index in step.indices:
                again = any(seen.index == index for seen in history)
                history.append(
                    Observation(index, (None if again else first) if index == unsteady else index >= 5)
                )
            assert len(history) < 200
        if unsteady == 8 and first:
            assert step == EndFails("bad", "unsteady", 8)
        if isinstance(step, Found):
            assert step.good < 5 <= step.bad or unsteady in (4, 5)


def test_one_version_is_no_search() -> None:
    with pytest.raises(ValueError, match="two versions"):
        decide(1, [])


# --- a history that is not monotone ----------------------------------------------------------------


def test_the_last_change_is_found_and_the_earlier_bad_ones_are_told() -> None:
    seen = [Observation(9, True), Observation(0, False), Observation(3, True), Observation(6, False)]
    while isinstance(step := decide(10, seen, ONCE), Ask):
        seen += [Observation(i, i >= 8 or i in (3, 4)) for i in step.indices]
    assert step == Found(7, 8, step.confidence, also_bad=(3,))


# --- flaky ----------------------------------------------------------------------------------------


@given(st.integers(1, 30), st.integers(0, 60), st.floats(0.001, 0.4))
def test_the_runs_needed_are_just_enough(failures: int, passes: int, error: float) -> None:
    k = runs_needed(failures, passes, error)
    assert chance_of_passes(k, failures, passes) <= error
    assert k == 1 or chance_of_passes(k - 1, failures, passes) > error


@given(st.integers(1, 30), st.integers(0, 60))
def test_more_passes_at_bad_versions_ask_for_more_runs(failures: int, passes: int) -> None:
    assert runs_needed(failures, passes + 1, 0.02) >= runs_needed(failures, passes, 0.02)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_a_failure_that_shows_now_and_then_is_found(rate: float) -> None:
    chance = random.Random(4)
    rule = Rule(patience=200)
    found = [search(60, chance.randrange(1, 60), rule, bad_rate=rate, seed=i) for i in range(200)]
    assert sum(f.right for f in found) >= 0.92 * len(found)


def test_at_30_percent_it_is_right_and_cheaper_than_the_public_tool_over_a_thousand_histories() -> None:
    chance = random.Random(11)
    rule = Rule(patience=100)
    found = [search(60, chance.randrange(1, 60), rule, bad_rate=0.3, seed=i) for i in range(1000)]
    most = math.ceil(math.log2(60)) + 2
    assert sum(f.right for f in found) >= 950
    assert statistics.mean(f.runs for f in found) < PUBLIC_RUNS
    assert sum(f.versions <= most for f in found) >= 980


def test_with_a_limit_on_installations_it_keeps_to_it_and_is_right_all_the_same() -> None:
    chance = random.Random(12)
    most = math.ceil(math.log2(60)) + 2
    rule = Rule(patience=100, installs=most)
    found = [search(60, chance.randrange(1, 60), rule, bad_rate=0.3, seed=i) for i in range(1000)]
    assert sum(f.right for f in found) >= 950
    assert max(f.versions for f in found) <= most
    assert statistics.mean(f.runs for f in found) < PUBLIC_RUNS


def test_a_version_that_passed_once_is_not_good_where_the_failure_is_flaky() -> None:
    seen = [Observation(9, False), *[Observation(9, True)] * 4, Observation(0, False), Observation(4, False)]
    assert decide(10, seen, Rule()) == Ask((4,))


# --- noise on both sides --------------------------------------------------------------------------


@given(places(40), st.data())
def test_the_posterior_is_a_distribution(place: tuple[int, int], data: st.DataObject) -> None:
    n, _ = place
    runs = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.booleans()), max_size=40))
    weights = posterior(n, tally([Observation(i, failed) for i, failed in runs]))
    assert len(weights) == n and weights[0] == 0.0
    assert math.isclose(sum(weights), 1.0)


@settings(deadline=None, max_examples=20)
@given(places(30))
def test_where_nothing_is_noisy_after_all_the_posterior_finds_it(place: tuple[int, int]) -> None:
    n, boundary = place
    assert search(n, boundary, Rule(noise="both")).right


def test_noise_on_both_sides_is_stood() -> None:
    chance = random.Random(3)
    rule = Rule(noise="both")
    found = [
        search(30, chance.randrange(1, 30), rule, bad_rate=0.9, good_rate=0.1, seed=i) for i in range(60)
    ]
    assert sum(f.right for f in found) >= 0.9 * len(found)


def test_ends_that_do_not_differ_are_told_apart_from_those_that_do() -> None:
    same = [Observation(9, False)] * 10 + [Observation(0, False)] * 10
    assert decide(10, same, Rule(noise="both")) == EndFails("bad", "passes", 10)


# --- beforehand -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "most"), [(2, 2), (3, 3), (60, 8), (64, 8), (65, 8), (66, 9)])
def test_what_is_told_beforehand_holds(n: int, most: int) -> None:
    assert most_verdicts(n) == most
    assert max(search(n, b, ONCE).versions for b in range(1, n)) == most


def test_the_next_candidates_are_known_before_the_present_one_has_run() -> None:
    seen = [Observation(8, True), Observation(0, False)]
    assert decide(9, seen, ONCE) == Ask((4,))
    assert set(alternatives(9, seen, ONCE, (4,))) == {2, 6}
