"""Bisection of a number, and minimal sets that heal."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from torchtriage.investigate.search import Answers, first_bad, minimal_set

quickly = settings(max_examples=200, deadline=None)


@quickly
@given(st.integers(1, 3000), st.integers(1, 8), st.data())
def test_the_first_bad_number_is_found_in_logarithmic_rounds(
    last: int, width: int, data: st.DataObject
) -> None:
    wanted = data.draw(st.integers(1, last))
    asked: list[list[int]] = []

    def ask(points: list[int]) -> Answers:
        asked.append(points)
        return [n >= wanted for n in points]

    assert first_bad(last, ask, width) == wanted
    assert len(asked) <= math.ceil(math.log(last, width + 1)) + 2
    assert all(1 <= len(points) <= width and points == sorted(set(points)) for points in asked)
    assert all(0 < n < last for points in asked for n in points)


def test_with_one_step_there_is_nothing_to_ask() -> None:
    assert first_bad(1, lambda points: pytest.fail("asked")) == 1


def test_a_missing_answer_ends_the_bisection_without_a_number() -> None:
    assert first_bad(100, lambda points: [None for _ in points]) is None
    assert first_bad(100, lambda points: [n >= 7 if n > 20 else None for n in points], 3) is None


members = st.sets(st.integers(0, 19), max_size=4)


def asking(heal: object) -> tuple[object, list[int]]:
    """A question that counts the trials which it takes."""
    trials: list[int] = []

    def heals(sets: list[tuple[int, ...]]) -> Answers:
        trials.append(len(sets))
        return [heal(set(s)) for s in sets]  # type: ignore[operator]

    return heals, trials


@quickly
@given(st.integers(1, 20), st.lists(members, max_size=3), st.integers(1, 8))
def test_what_is_returned_heals_and_nothing_of_it_can_be_left_out(
    size: int, healing: list[set[int]], group: int
) -> None:
    def heal(chosen: set[int]) -> bool:  # monotone: more switches never break what fewer heal
        return any(needed and needed <= chosen for needed in healing)

    heals, _ = asking(heal)
    found = minimal_set(range(size), heals, group)  # type: ignore[arg-type]
    if found is None:  # then no group heals by itself
        assert not any(heal(set(range(n, min(n + group, size)))) for n in range(0, size, group))
        return
    assert heal(set(found))
    assert not any(heal(set(found) - {one}) for one in found)


@quickly
@given(st.integers(0, 19), st.integers(0, 19), st.integers(1, 20))
def test_a_healing_member_is_found_beside_a_poisonous_one(good: int, poison: int, group: int) -> None:
    assume(good != poison)

    def heal(chosen: set[int]) -> bool | None:
        return None if poison in chosen else good in chosen

    heals, _ = asking(heal)
    assert minimal_set(range(20), heals, group) == (good,)  # type: ignore[arg-type]


def test_groups_are_asked_together_and_only_the_healing_one_is_taken_apart() -> None:
    heals, trials = asking(lambda chosen: 7 in chosen)
    assert minimal_set(range(12), heals, 6) == (7,)  # type: ignore[arg-type]
    # both groups; (6 .. 11) by halves and by leaving one out; (6, 7, 8) in the same way; (7, 8) by halves
    assert trials == [2, 2 + 6, 4, 2]


def test_no_set_is_asked_about_twice_in_one_round() -> None:
    rounds: list[list[tuple[int, ...]]] = []

    def heals(sets: list[tuple[int, ...]]) -> Answers:
        rounds.append(sets)
        return [7 in s for s in sets]

    minimal_set(range(6, 9), heals)
    assert all(len(sets) == len(set(sets)) for sets in rounds)


def test_a_group_in_which_the_failure_stays_is_not_looked_at_again() -> None:
    heals, trials = asking(lambda chosen: False)
    assert minimal_set(range(30), heals, 6) is None  # type: ignore[arg-type]
    assert trials == [5]


def test_without_candidates_nothing_is_asked() -> None:
    assert minimal_set((), lambda sets: pytest.fail("asked")) is None
