"""Pastes a printed workaround into the program that it was printed for, as a person would."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any


def pasted(source: str, lines: Sequence[str]) -> str:
    """`source` with a workaround: arguments go to torch.compile, other lines below the last definition.

    `torch.compile(..., dynamic=True)` is meant for each torch.compile, `torch.compile(f, ..., disable=True)` for f's.
    """
    arguments: dict[str, Any] = {}
    only = ""
    rest = []
    for line in lines:
        if line.startswith("torch.compile("):
            call = ast.parse(line.replace("..., ", "")).body[0].value  # type: ignore[attr-defined]
            arguments = {k.arg: k.value for k in call.keywords}
            only = ast.unparse(call.args[0]) if call.args else ""
        else:
            rest.append(line)
    tree = ast.parse(source)
    if arguments:
        tree = ast.fix_missing_locations(Arguments(arguments, only).visit(tree))
    switches = [line for line in rest if "torch.compiler.disable" not in line]
    disables = [line for line in rest if "torch.compiler.disable" in line]
    body: list[ast.stmt] = list(tree.body)
    first_use = after_imports(body)
    body[first_use:first_use] = ast.parse("\n".join(["import torch", *switches])).body
    if disables:
        last = max((n for n, node in enumerate(body) if defines(node)), default=first_use)
        body[last + 1 : last + 1] = ast.parse("\n".join(disables)).body
    tree.body = body
    return ast.unparse(ast.fix_missing_locations(tree))


def after_imports(body: list[ast.stmt]) -> int:
    return max(
        (n + 1 for n, node in enumerate(body) if isinstance(node, (ast.Import, ast.ImportFrom))), default=0
    )


def defines(node: ast.stmt) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.ClassDef))


class Arguments(ast.NodeTransformer):
    """Sets keyword arguments of torch.compile, as a call, a decorator or a method of a module."""

    def __init__(self, arguments: dict[str, ast.expr], only: str):
        self.arguments, self.only = arguments, only.rpartition(".")[2]
        self.decorating = ""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        compiled = self.decorating or "".join(ast.unparse(a) for a in node.args[:1]).rpartition(".")[2]
        if self.only not in ("", compiled):
            return node
        if isinstance(node.func, ast.Attribute) and node.func.attr == "compile":
            kept = [k for k in node.keywords if k.arg not in self.arguments]
            node.keywords = kept + [ast.keyword(name, value) for name, value in self.arguments.items()]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.decorating = node.name
        node.decorator_list = [self.visit(self.decorator(d)) for d in node.decorator_list]
        self.decorating = ""
        decorators, node.decorator_list = node.decorator_list, []
        self.generic_visit(node)
        node.decorator_list = decorators
        return node

    def decorator(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Attribute) and node.attr == "compile":
            return ast.Call(node, [], [])
        return node
