"""Makes numbers small and strings short."""

from __future__ import annotations

import ast
import functools
from typing import Any

from torchtriage.reduce.engine import Change
from torchtriage.reduce.passes import elements
from torchtriage.reduce.tree import weight


def shared(tree: ast.Module) -> list[Change]:
    """A whole number wherever it stands: dimensions that belong together shrink together."""
    numbers = sorted({int(str(n.value)) for n in whole_numbers(tree)}, reverse=True)
    found: list[Change] = []
    for number in numbers:
        for smaller in smaller_than(number):
            same = [n for n in whole_numbers(tree) if n.value == number]
            found.append(functools.partial(set_all, same, smaller))
    return found


def single(tree: ast.Module) -> list[Change]:
    """Each literal by itself; of a long table of numbers none, which has a pass of its own."""
    tables = {id(e) for e in elements.of_long_tables(tree)}
    found: list[Change] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in tables:
            for smaller in simpler(node.value):
                found.append(functools.partial(set_all, [node], smaller))
    return found


def whole_numbers(tree: ast.Module) -> list[ast.Constant]:
    tables = {id(e) for e in elements.of_long_tables(tree)}
    return [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Constant) and type(n.value) is int and n.value > 1 and id(n) not in tables
    ]


def smaller_than(number: int) -> list[int]:
    """Never 0: as a dimension it mostly means something else."""
    found = [1, 2, 3, 4, 8, number // 2, number - 1]
    return [n for n in dict.fromkeys(found) if 0 < n < number]


def simpler(value: Any) -> list[Any]:
    """Literals of the same type that are simpler."""
    if type(value) is int:
        return [n for n in dict.fromkeys((1, 2, 3, value // 2, value - 1)) if 0 < n < value]
    if type(value) is float:
        rounded = [float(f"{value:.{digits}g}") for digits in (1, 2)]
        return [f for f in (1.0, 0.0, *rounded) if f != value and weight(f) < weight(value)]
    if type(value) is str and len(value) > 1:
        return [value[:1]]
    return []


def set_all(nodes: list[ast.Constant], value: Any) -> None:
    for node in nodes:
        node.value = value
