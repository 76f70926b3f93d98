"""The smallest function or module that heals the program when it is kept out of the compiler."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchtriage.investigate.facts import Asks, OutOfTime, healthy
from torchtriage.lab.request import Request

MOST_CHILDREN = 16


@dataclass(frozen=True)
class Function:
    """A function that the region runs, as `module:qualified.name`."""

    name: str
    file: str
    line: int


def search(
    lab: Asks,
    base: Request,
    call: int,
    acceptable: Any = healthy,
    regions: Collection[str] = (),
    working: bool = False,
) -> Function | None:
    """Walk down the call tree of the failing call, as long as disabling one function heals.

    With `working`, functions below which no operator of torch's runs are left out: only tracing them can be at fault.
    `regions` are the qualified names of functions that are themselves handed to torch.compile.

    None when not even disabling a function called by the region heals.
    """
    rows = [row for row in lab.call_tree(call) if row.get("works", True) or not working]
    tree = [spelled(row, regions) for row in rows]
    places = {row["name"]: Function(row["name"], row["file"], row["line"]) for row in tree}
    level = roots(tree)
    found: Function | None = None
    visited: set[str] = set()
    while level:
        level = [name for name in level if name not in visited][:MOST_CHILDREN]
        visited |= set(level)
        try:
            outcomes = lab.run([without(base, (name,)) for name in level])
        except OutOfTime:
            break
        healing = [name for name, outcome in zip(level, outcomes, strict=True) if acceptable(outcome)]
        if not healing:
            break
        found = places[deepest(healing, tree)]
        level = children(tree, found.name)
    return found


def spelled(row: Mapping[str, Any], regions: Collection[str]) -> dict[str, Any]:
    """A row of the call tree, with the functions that are regions marked as such."""
    marked = {n: n + "|region" if n.partition(":")[2] in regions else n for n in (row["name"], row["parent"])}
    return {**row, "name": marked[row["name"]], "parent": marked[row["parent"]]}


def roots(tree: Sequence[Mapping[str, Any]]) -> list[str]:
    """Functions that nothing else of the tree calls: the region itself, or what it calls first."""
    return list(dict.fromkeys(row["name"] for row in tree if not row["parent"]))


def children(tree: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    return list(dict.fromkeys(row["name"] for row in tree if row["parent"] == name and row["name"] != name))


def deepest(names: Sequence[str], tree: Sequence[Mapping[str, Any]]) -> str:
    """Of several that heal, the one that covers the least: the fewest functions below it."""
    return min(names, key=lambda name: len(below(tree, name)))


def below(tree: Sequence[Mapping[str, Any]], name: str) -> set[str]:
    found: set[str] = set()
    queue = [name]
    while queue:
        for child in children(tree, queue.pop()):
            if child not in found:
                found.add(child)
                queue.append(child)
    return found


def without(base: Request, names: tuple[str, ...]) -> Request:
    variant = dataclasses.replace(base.variant, disabled=base.variant.disabled + names)
    return dataclasses.replace(base, variant=variant)
