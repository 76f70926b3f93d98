"""Deletes statements, and replaces a statement by what is inside of it."""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Callable, Collection

from torchtriage.reduce import tree as trees
from torchtriage.reduce.engine import Change
from torchtriage.reduce.tree import Block


def remove(block: Block, statement: ast.stmt) -> None:
    if any(s is statement for s in block):
        block[:] = [s for s in block if s is not statement]


def substitute(block: Block, statement: ast.stmt, new: Block) -> None:
    for position, known in enumerate(block):
        if known is statement:
            block[position : position + 1] = new
            return


def delete(tree: ast.Module) -> list[Change]:
    """Each statement of each block, but not what seeds random numbers."""
    return [
        functools.partial(remove, block, statement)
        for block in trees.blocks(tree)
        for statement in block
        if not isinstance(statement, ast.Pass) and not is_seed(statement)
    ]


def seeds(tree: ast.Module) -> list[Change]:
    """Each statement that seeds random numbers. Late: without it every script has to fail several times."""
    return [
        functools.partial(remove, block, statement)
        for block in trees.blocks(tree)
        for statement in block
        if is_seed(statement)
    ]


def is_seed(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and trees.dotted(statement.value.func).endswith("manual_seed")
    )


def uncovered(lines: Collection[int]) -> Callable[[ast.Module], list[Change]]:
    """Statements of which no line was run. `lines`: those of the very text that is given."""

    def changes(tree: ast.Module) -> list[Change]:
        found: list[Change] = []
        for block in trees.blocks(tree):
            for statement in block:
                span = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
                if isinstance(statement, (ast.Pass, ast.Global, ast.Nonlocal)) or not lines:
                    continue
                if not any(line in lines for line in span):
                    found.append(functools.partial(remove, block, statement))
        return found

    return changes


def unwrap(tree: ast.Module) -> list[Change]:
    """A branch, loop, context or try becomes its body; a loop also its first round."""
    found: list[Change] = []
    for block in trees.blocks(tree):
        for statement in block:
            for new in insides(statement):
                found.append(functools.partial(substitute, block, statement, new))
    return found


def insides(statement: ast.stmt) -> list[Block]:
    """What a compound statement can be replaced by."""
    match statement:
        case ast.If(body=body, orelse=orelse):
            return [body] + ([orelse] if orelse else [])
        case ast.With(items=items, body=body):
            bound = [
                ast.Assign(targets=[i.optional_vars], value=i.context_expr) for i in items if i.optional_vars
            ]
            return [body] + ([[*bound, *body]] if bound else []) + fewer_items(statement)
        case ast.Try(body=body, orelse=orelse, finalbody=final):
            return [[*body, *orelse, *final]]
        case ast.While(body=body):
            return [flat(body)]
        case ast.For(target=target, iter=source, body=body):
            first = call("next", call("iter", source))
            return [flat(body), [ast.Assign(targets=[target], value=first), *flat(body)]]
        case _:
            return []


def fewer_items(statement: ast.With) -> list[Block]:
    """The same `with`, without one of its several items."""
    if len(statement.items) < 2:
        return []
    return [
        [ast.With(items=[i for i in statement.items if i is not item], body=statement.body)]
        for item in statement.items
    ]


def call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(name, ast.Load()), args=list(args), keywords=[])


def flat(body: Block) -> Block:
    """A loop's body without what belongs to the loop."""
    return [s for s in body if not isinstance(s, (ast.Break, ast.Continue))]


def split(tree: ast.Module) -> list[Change]:
    """`a, b = x, y` becomes an assignment each, of what is read."""
    found: list[Change] = []
    read = trees.loaded(tree)
    for block in trees.blocks(tree):
        for statement in block:
            match statement:
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(
                    names
                ) == len(values):
                    new: Block = [
                        ast.Assign(targets=[n], value=v)
                        for n, v in zip(names, values, strict=True)
                        if not (isinstance(n, ast.Name) and not read[n.id])
                    ]
                    found.append(functools.partial(substitute, block, statement, new))
    return found


def unused_targets(tree: ast.Module) -> list[Change]:
    """`x = f()` becomes `f()` where nothing reads x."""
    read = trees.loaded(tree)
    found: list[Change] = []
    for block in trees.blocks(tree):
        for statement in block:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as value) if not read[name]:
                    found.append(functools.partial(substitute, block, statement, [ast.Expr(value)]))
    return found


def join(tree: ast.Module) -> list[Change]:
    """Two assignments of simple values in a row become one line's work: `x = y = v` where they are the same."""
    found: list[Change] = []
    for block in trees.blocks(tree):
        for one, two in itertools.pairwise(block):
            match one, two:
                case ast.Assign(targets=[ast.Name()], value=a), ast.Assign(targets=[ast.Name()], value=b) if (
                    ast.dump(a) == ast.dump(b) and not isinstance(a, ast.Call)
                ):
                    found.append(functools.partial(merge, block, one, two))
    return found


def merge(block: Block, one: ast.Assign, two: ast.Assign) -> None:
    one.targets = [*one.targets, *two.targets]
    remove(block, two)


def without_line(text: str, line: int) -> str | None:
    """The script without the statement that stands there, the innermost one; None where there is none."""
    tree = ast.parse(text)
    found: tuple[Block, ast.stmt] | None = None
    for block in trees.blocks(tree):
        for statement in block:
            if statement.lineno <= line <= (statement.end_lineno or 0) and not isinstance(
                statement, trees.SCOPES
            ):
                found = block, statement  # outer blocks come first
    if found is None:
        return None
    before = trees.loaded(tree)
    remove(*found)
    trees.tidy(tree, before)
    return trees.text_of(tree)
