"""Cuts a straight function off early: it returns a value that it computes on the way, and what is left unused goes."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from torchtriage.reduce import tree as trees
from torchtriage.reduce.engine import Change, Pass
from torchtriage.reduce.tree import Block

LONG = 3
"""Statements from which a function is worth cutting."""


def cut(nth: int) -> Pass:
    """End the `nth` longest function after each assignment in turn, the first one first."""

    def changes(tree: ast.Module) -> list[Change]:
        functions = sorted(trees.functions(tree).values(), key=lambda f: -len(f.body))
        straight = [f for f in functions if f.name != "run" and isinstance(f.body[-1], ast.Return)]
        if len(straight) <= nth:
            return []
        function = straight[nth]
        named = [
            (position, statement.targets[0].id)
            for position, statement in enumerate(function.body)
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
        ]
        return [functools.partial(end_at, function, *place) for place in named] if len(named) >= LONG else []

    return changes


def end_at(function: ast.FunctionDef, position: int, name: str) -> None:
    """Return `name`; a function that returns a tuple also returns what the rest would have read."""
    last = function.body[-1]
    assert isinstance(last, ast.Return)
    if isinstance(last.value, ast.Tuple):
        later = set(trees.loaded(ast.Module(function.body[position + 1 :], [])))
        names = [n for n in dict.fromkeys(assigned(function.body[:position])) if n in later]
        last.value = ast.Tuple([ast.Name(n, ast.Load()) for n in [*names, name]], ast.Load())
    else:
        last.value = ast.Name(name, ast.Load())
    function.body[position + 1 : -1] = []
    drop_dead(function.body)


def assigned(body: Block) -> Iterator[str]:
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def fewer(tree: ast.Module) -> list[Change]:
    """Leave out each value of a returned tuple, and what only leads to it."""
    return [
        functools.partial(leave_out, function.body, last.value, value)
        for function in trees.functions(tree).values()
        if isinstance(last := function.body[-1], ast.Return) and isinstance(last.value, ast.Tuple)
        for value in last.value.elts
        if len(last.value.elts) > 1
    ]


def leave_out(body: Block, values: ast.Tuple, value: ast.expr) -> None:
    if len(values.elts) == 1:
        raise ValueError("nothing would be left")  # whichever stayed would be in the place of the first
    values.elts = [v for v in values.elts if v is not value]
    drop_dead(body)


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
