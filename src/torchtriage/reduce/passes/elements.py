"""Finds the few elements of a tensor that matter, where it is written out in full: the others become ones, or go."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator
from typing import TypeVar

from torchtriage.reduce import tree as trees
from torchtriage.reduce.engine import Change

LONG = 16
"""The numbers of a table with more of them are not looked at one by one by other passes."""
MOST_GROUPS = 64
WORTH_WORDS = 8
"""A table with more elements, all the same but one, is said in words."""


def plain(base: int) -> Callable[[ast.Module], list[Change]]:
    """Elements become `base`, as a number of their own type: each by itself, of a long table some at a time."""

    def changes(tree: ast.Module) -> list[Change]:
        found: list[Change] = []
        for whole in written(tree):
            floating = any(not isinstance(e, ast.Constant) or type(e.value) is float for e in leaves(whole))
            value = float(base) if floating else base
            others = [
                (row, element)
                for row in innermost(whole)
                for element in row.elts
                if not (isinstance(element, ast.Constant) and element.value == value)
            ]
            found += [functools.partial(put_all, group, value) for group in groups_of(others)]
        return found

    return changes


def put_all(places: list[tuple[ast.List, ast.expr]], value: float) -> None:
    """Put a number in the place of each of these elements."""
    gone = {id(element) for _, element in places}
    for row in {id(row): row for row, _ in places}.values():
        row.elts = [ast.Constant(value) if id(e) in gone else e for e in row.elts]


T = TypeVar("T")


def groups_of(items: list[T]) -> list[list[T]]:
    """At most MOST_GROUPS groups of neighbours: where nothing can go, a pass must not ask for each element."""
    size = -(-len(items) // MOST_GROUPS)
    return [items[i : i + size] for i in range(0, len(items), max(size, 1))]


def fewer(tree: ast.Module) -> list[Change]:
    """Rows or columns less, of all tensors that have as many, and of one alone."""
    tables = list(written(tree))
    found: list[Change] = []
    for depth in range(max((depth_of(t) for t in tables), default=0)):
        axes = [(table, lists) for table in tables if (lists := at_depth(table, depth))]
        lengths = sorted({len(lists[0].elts) for _, lists in axes}, reverse=True)
        for length in lengths:
            same = [lists for _, lists in axes if len(lists[0].elts) == length and length > 1]
            sets = [[row for lists in same for row in lists], *(same if len(same) > 1 else ())]
            for rows in filter(None, sets):
                columns = list(zip(*(row.elts for row in rows), strict=True)) if level(rows) else []
                found += [functools.partial(drop, rows, group) for group in groups_of(columns)]
    return found


def level(group: list[ast.List]) -> bool:
    return len({len(row.elts) for row in group}) == 1


def drop(rows: list[ast.List], columns: list[tuple[ast.expr, ...]]) -> None:
    gone = {id(element) for column in columns for element in column}
    for row in rows:
        row.elts = [e for e in row.elts if id(e) not in gone]
        if not row.elts:
            raise ValueError("nothing would be left")


def short(tree: ast.Module) -> list[Change]:
    """A table whose elements are all the same, but for one at most, as an expression that says so."""
    found: list[Change] = []
    for call in calls(tree):
        whole = call.args[0]
        assert isinstance(whole, ast.List)
        for text in shorter(whole):
            found.append(functools.partial(replace, tree, call, text))
    return found


def shorter(whole: ast.List) -> list[str]:
    shape, values = shape_of(whole), [ast.unparse(e) for e in leaves(whole)]
    if len(values) < 3:
        return []
    size = ", ".join(map(str, shape))
    usual = max(set(values), key=values.count)
    others = [i for i, value in enumerate(values) if value != usual]
    if not others:
        known = {"1.0": f"torch.ones({size})", "0.0": f"torch.zeros({size})"}
        return [known.get(usual, f"torch.full(({size},), {usual})")]
    if len(others) > 1 or len(values) <= WORTH_WORDS:
        return []
    text = f"torch.where(torch.arange({len(values)}) == {others[0]}, {values[others[0]]}, {usual})"
    return [text if len(shape) == 1 else f"{text}.reshape({size})"]


def replace(tree: ast.Module, call: ast.Call, text: str) -> None:
    new = ast.parse(text, mode="eval").body
    if call.keywords:  # the dtype, and whether a gradient is wanted
        method, keywords = "to", [k for k in call.keywords if k.arg == "dtype"]
        wants_grad = any(k.arg == "requires_grad" for k in call.keywords)
        if keywords:
            new = ast.Call(ast.Attribute(new, method, ast.Load()), [keywords[0].value], [])
        if wants_grad:
            new = ast.Call(ast.Attribute(new, "requires_grad_", ast.Load()), [], [])
    trees.Replace(call, new).visit(tree)


# --- tables of numbers -------------------------------------------------------------------------------------


def calls(tree: ast.Module) -> list[ast.Call]:
    """`torch.tensor([...])` of numbers only."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and trees.dotted(node.func) == "torch.tensor"
        and len(node.args) == 1
        and isinstance(node.args[0], ast.List)
        and is_table(node.args[0])
    ]


def written(tree: ast.Module) -> Iterator[ast.List]:
    for call in calls(tree):
        if isinstance(call.args[0], ast.List):
            yield call.args[0]


def of_long_tables(tree: ast.Module) -> Iterator[ast.expr]:
    """Lists and numbers of tables that are for the passes of this file only."""
    for table in written(tree):
        if len(leaves(table)) > LONG:
            for depth in range(depth_of(table)):
                yield from at_depth(table, depth)
            yield from leaves(table)


def is_table(node: ast.List) -> bool:
    """Whether a list is numbers, or lists of as many numbers each."""
    if not node.elts:
        return False
    if all(isinstance(e, ast.List) for e in node.elts):
        rows = [e for e in node.elts if isinstance(e, ast.List)]
        return len({shape_of(row) for row in rows}) == 1 and all(map(is_table, rows))
    return all(is_number(e) for e in node.elts)


def is_number(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return type(value) in (int, float)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return is_number(operand)
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str())]):
            return True
    return False


def shape_of(node: ast.List) -> tuple[int, ...]:
    first = node.elts[0] if node.elts else None
    return (len(node.elts), *(shape_of(first) if isinstance(first, ast.List) else ()))


def depth_of(node: ast.List) -> int:
    return len(shape_of(node))


def at_depth(node: ast.List, depth: int) -> list[ast.List]:
    """The lists that hold one dimension of a table."""
    found = [node]
    for _ in range(depth):
        found = [e for row in found for e in row.elts if isinstance(e, ast.List)]
    return found


def innermost(node: ast.List) -> list[ast.List]:
    return at_depth(node, depth_of(node) - 1)


def leaves(node: ast.List) -> list[ast.expr]:
    return [e for row in innermost(node) for e in row.elts]
