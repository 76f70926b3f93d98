"""Removes what a program can mostly do without: annotations, docstrings, decorators, base classes, assertions."""

from __future__ import annotations

import ast
import functools

from torchtriage.reduce import tree as trees
from torchtriage.reduce.engine import Change
from torchtriage.reduce.passes.statements import remove, substitute
from torchtriage.reduce.tree import FUNCTIONS


def drop(tree: ast.Module) -> list[Change]:
    found: list[Change] = []
    for block in trees.blocks(tree):
        for statement in block:
            match statement:
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    new = ast.Assign(targets=[target], value=value)
                    found.append(functools.partial(substitute, block, statement, [new]))
                case ast.Assert() | ast.Expr(value=ast.Constant()):
                    found.append(functools.partial(remove, block, statement))
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None:
            found.append(functools.partial(setattr, node, "annotation", None))
        if isinstance(node, FUNCTIONS) and node.returns is not None:
            found.append(functools.partial(setattr, node, "returns", None))
    return found


def undecorate(tree: ast.Module) -> list[Change]:
    """Decorators and base classes, each by itself."""
    found: list[Change] = []
    for node in ast.walk(tree):
        for decorator in getattr(node, "decorator_list", ()):
            found.append(functools.partial(node.decorator_list.remove, decorator))  # type: ignore[attr-defined]
        if isinstance(node, ast.ClassDef):
            found += [functools.partial(node.bases.remove, base) for base in node.bases]
            found += [functools.partial(node.keywords.remove, keyword) for keyword in node.keywords]
    return found
