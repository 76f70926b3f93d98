"""Replaces an expression by a part of it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from torchtriage.reduce import tree as trees
from torchtriage.reduce.engine import Change


def simplify(tree: ast.Module) -> list[Change]:
    """Each expression by each of its parts, outer expressions first."""
    known = trees.modules(tree)
    found: list[Change] = []
    for parent, name, position, node in places(tree):
        for part in parts(node):
            if not (isinstance(part, ast.Name) and part.id in known):
                found.append(functools.partial(put, parent, name, position, part))
    return found


def places(tree: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.expr]]:
    """Every expression that is read, with where it stands."""
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if isinstance(value, ast.expr) and reads(value):
                yield parent, name, None, value
            elif isinstance(value, list):
                for position, item in enumerate(value):
                    if isinstance(item, ast.expr) and reads(item):
                        yield parent, name, position, item


def reads(node: ast.expr) -> bool:
    return not isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del))


def put(parent: ast.AST, name: str, position: int | None, new: ast.expr) -> None:
    if position is None:
        setattr(parent, name, new)
    else:
        getattr(parent, name)[position] = new


def parts(node: ast.expr) -> list[ast.expr]:
    """What an expression can be replaced by: something inside of it."""
    match node:
        case ast.Call(func=func, args=args, keywords=keywords):
            inner = [a.value if isinstance(a, ast.Starred) else a for a in args]
            owner = [func.value] if isinstance(func, ast.Attribute) else []
            called = [func] if isinstance(func, ast.Call) else []
            return [*owner, *called, *inner, *(k.value for k in keywords)]
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.BoolOp(values=values):
            return list(values)
        case ast.Compare(left=left, comparators=others):
            return [left, *others, ast.Constant(True)]
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
        case ast.Subscript(value=ast.Dict(values=values)):
            return list(values)
        case ast.Subscript(value=ast.List(elts=values) | ast.Tuple(elts=values)):
            return list(values)
        case ast.Subscript(value=value) | ast.Attribute(value=value) | ast.NamedExpr(value=value):
            return [value]
        case ast.JoinedStr():
            return [ast.Constant("")]
        case ast.ListComp(elt=elt, generators=[ast.comprehension(target=target, iter=source)]):
            return [source, elt] if isinstance(target, ast.expr) else []
        case ast.GeneratorExp(elt=elt, generators=[only]):
            return [only.iter]
        case ast.Tuple(elts=elements) | ast.List(elts=elements) if len(elements) == 1:
            return list(elements)
        case ast.Lambda(body=body):
            return [body]
        case _:
            return []
