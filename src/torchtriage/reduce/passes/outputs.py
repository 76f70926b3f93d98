"""Cuts a straight function off early: it returns a value that it computes on the way, and what is left unused goes."""

from __future__ import annotations

import ast
import functools

from torchtriage.reduce import tree as trees
from torchtriage.reduce.engine import Change
from torchtriage.reduce.tree import Block

LONG = 3
"""Statements from which a function is worth cutting."""


def cut(tree: ast.Module) -> list[Change]:
    """Return each variable in turn: the middle one first, then those in the middle of the halves."""
    found: list[Change] = []
    for function in trees.functions(tree).values():
        if function.name == "run" or not isinstance(function.body[-1], ast.Return):
            continue
        named = [
            (position, statement.targets[0].id)
            for position, statement in enumerate(function.body)
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
        ]
        if len(named) >= LONG:
            found += [functools.partial(end_at, function, *named[i]) for i in halving(len(named))]
    return found


def halving(count: int) -> list[int]:
    """0 … count-1, the middle first: a search that ends where nothing smaller works halves as it goes."""
    order: list[int] = []
    queue = [(0, count)]
    while queue:
        low, high = queue.pop(0)
        if low < high:
            middle = (low + high) // 2
            order.append(middle)
            queue += [(low, middle), (middle + 1, high)]
    return order


def end_at(function: ast.FunctionDef, position: int, name: str) -> None:
    last = function.body[-1]
    assert isinstance(last, ast.Return)
    several = isinstance(last.value, ast.Tuple)
    value: ast.expr = ast.Name(name, ast.Load())
    last.value = ast.Tuple([value], ast.Load()) if several else value
    function.body[position + 1 : -1] = []
    drop_dead(function.body)


def unused(tree: ast.Module) -> list[Change]:
    """In each function, what only leads to values that nothing reads."""
    return [functools.partial(drop_dead, f.body) for f in trees.functions(tree).values()]


def drop_dead(body: Block) -> None:
    """Remove assignments of names that no later statement reads, from the end."""
    live: set[str] = set()
    for statement in reversed(list(body)):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) if name not in live:
                body[:] = [s for s in body if s is not statement]
            case _:
                live |= set(trees.loaded(statement))
