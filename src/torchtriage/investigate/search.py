"""Searches over trials, apart from what is searched: bisection of a number, and minimal healing sets.

`ask` takes a list of questions and answers each with True, False or None (no verdict); questions of one call may
run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
Answers = list[bool | None]


def first_bad(last: int, ask: Callable[[list[int]], Answers], width: int = 1) -> int | None:
    """The smallest n in 1..last such that applying the first n steps fails. Assumes that 0 is good and `last` bad.

    `width` numbers are asked at a time (k-ary search). None when an answer is missing.
    """
    good, bad = 0, last
    while bad - good > 1:
        step = max(1, (bad - good) // (width + 1))
        points = sorted({min(good + step * (k + 1), bad - 1) for k in range(width)})
        answers = ask(points)
        if None in answers:
            return None
        for point, failed in zip(points, answers, strict=True):
            if failed:
                bad = point
                break
            good = point
    return bad


def minimal_set(
    candidates: Sequence[T], heals: Callable[[list[tuple[T, ...]]], Answers], group: int = 6
) -> tuple[T, ...] | None:
    """A set of candidates that heals and of which none can be left out, found by groups and delta debugging.

    None when no group heals. A group in which one member breaks things is taken apart.
    """
    groups = [tuple(candidates[n : n + group]) for n in range(0, len(candidates), group)]
    while groups:
        answers = heals(groups)
        for found, healed in zip(groups, answers, strict=True):
            if healed:
                return shrink(found, heals)
        # A group that only changed the symptom may hide a member that heals: look at its halves.
        groups = [half for g, a in zip(groups, answers, strict=True) if a is None for half in halves(g)]
    return None


def halves(items: tuple[T, ...]) -> list[tuple[T, ...]]:
    if len(items) < 2:
        return []
    middle = len(items) // 2
    return [items[:middle], items[middle:]]


def shrink(found: tuple[T, ...], heals: Callable[[list[tuple[T, ...]]], Answers]) -> tuple[T, ...]:
    """Leave out what can be left out: halves first, then one at a time."""
    while len(found) > 1:
        smaller = halves(found)
        if len(found) > 2:
            smaller += [found[:n] + found[n + 1 :] for n in range(len(found))]
            smaller = [s for n, s in enumerate(smaller) if s not in smaller[:n]]
        answers = heals(smaller)
        healing = [s for s, healed in zip(smaller, answers, strict=True) if healed]
        if not healing:
            return found
        found = min(healing, key=len)
    return found
