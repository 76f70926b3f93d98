"""Removes arguments, parameters together with what is passed for them, and elements of lists, tuples and dicts."""

from __future__ import annotations

import ast
import functools
from typing import Any

from torchtriage.reduce import tree as trees
from torchtriage.reduce.engine import Change
from torchtriage.reduce.passes import elements


def drop(tree: ast.Module) -> list[Change]:
    """Each argument of each call, each element of each container."""
    found: list[Change] = []
    tables = {id(node) for node in elements.of_long_tables(tree)}
    for node in ast.walk(tree):
        if id(node) in tables:
            continue
        match node:
            case ast.Call(args=args, keywords=keywords):
                found += [functools.partial(take_out, args, a) for a in args]
                found += [functools.partial(take_out, keywords, k) for k in keywords]
            case ast.List(elts=items, ctx=ast.Load()) | ast.Tuple(elts=items, ctx=ast.Load()):
                if len(items) > 1:  # an empty tensor is a special one
                    found += [functools.partial(take_out, items, e) for e in items]
            case ast.Dict(keys=keys, values=values):
                found += [functools.partial(take_pair, keys, values, v) for v in values]
            case ast.arguments():
                found += [functools.partial(drop_default, node, d) for d in node.defaults[:1]]
    return found


def take_out(items: list[Any], item: ast.AST) -> None:
    items[:] = [i for i in items if i is not item]


def take_pair(keys: list[Any], values: list[Any], value: ast.AST) -> None:
    for position, known in enumerate(values):
        if known is value:
            del keys[position], values[position]
            return


def drop_default(arguments: ast.arguments, default: ast.expr) -> None:
    arguments.defaults = [d for d in arguments.defaults if d is not default]


def parameters(tree: ast.Module) -> list[Change]:
    """Each parameter, with the argument for it wherever the function is called by a name that we can follow."""
    found: list[Change] = []
    for function, calls, skip in callables(tree):
        args = function.args
        names = [a.arg for a in (*args.posonlyargs, *args.args)]
        for position in range(skip, len(names)):
            given = [passed(call, position - skip) for call in calls]
            found.append(functools.partial(drop_parameter, function, calls, names[position], given))
        for keyword in args.kwonlyargs:
            found.append(functools.partial(drop_parameter, function, calls, keyword.arg, []))
        for name in ("vararg", "kwarg"):
            if getattr(args, name) is not None:
                found.append(functools.partial(setattr, args, name, None))
    return found


def callables(tree: ast.Module) -> list[tuple[ast.FunctionDef, list[ast.Call], int]]:
    """Functions and methods with their calls, and how many of their first parameters are not passed (`self`)."""
    found: list[tuple[ast.FunctionDef, list[ast.Call], int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    found.append((method, calls_of_method(tree, node.name, method.name), 1))
        elif isinstance(node, (ast.Module, ast.FunctionDef)):
            for function in node.body:
                if isinstance(function, ast.FunctionDef):
                    found.append((function, calls_by_name(tree, {function.name}), 0))
    return found


def calls_of_method(tree: ast.Module, owner: str, method: str) -> list[ast.Call]:
    """Calls of a method, by what can be seen: `Class(...)`, an object that was made so, `self.method(...)`."""
    if method == "__init__":
        return trees.calls_of(tree, owner)
    if method in ("forward", "__call__"):
        return calls_by_name(tree, {owner}, through=True)
    return [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in (method, "apply")
    ]


def calls_by_name(tree: ast.Module, names: set[str], through: bool = False) -> list[ast.Call]:
    """Calls of a function, also through what torch.compile made of it. `through`: of what calling the name returns."""
    known = set() if through else set(names)
    makers = set(names)
    for _ in range(3):  # model = Model(); net = torch.compile(model)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                inside = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
                wraps = trees.dotted(node.value.func).endswith(("compile", *makers))
                if wraps and inside & (known | makers):
                    known |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in known:
            found.append(node)
        elif isinstance(node.func, ast.Call):
            inside = {n.id for n in ast.walk(node.func) if isinstance(n, ast.Name)}
            if inside & (known | makers):
                found.append(node)
    return found


def passed(call: ast.Call, position: int) -> ast.expr | None:
    """What a call passes at a position, where that can be seen."""
    if position >= len(call.args) or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    return call.args[position]


def drop_parameter(
    function: ast.FunctionDef, calls: list[ast.Call], name: str, given: list[ast.expr | None]
) -> None:
    """`given`: what each call passes for it. By the node, for positions move when several parameters go at once."""
    args = function.args
    plain = [*args.posonlyargs, *args.args]
    index = next((i for i, a in enumerate(plain) if a.arg == name), None)
    if index is None:
        args.kwonlyargs, args.kw_defaults = drop_keyword_only(args, name)
    else:
        defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
        kept = [(a, d) for i, (a, d) in enumerate(zip(plain, defaults, strict=True)) if i != index]
        args.posonlyargs, args.args = [], [a for a, _ in kept]
        args.defaults = [d for _, d in kept if d is not None]
    for call in calls:
        call.keywords = [k for k in call.keywords if k.arg != name]
        call.args = [a for a in call.args if not any(a is g for g in given)]


def drop_keyword_only(args: ast.arguments, name: str) -> tuple[list[ast.arg], list[ast.expr | None]]:
    kept = [(a, d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if a.arg != name]
    return [a for a, _ in kept], [d for _, d in kept]
