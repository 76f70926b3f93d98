"""Replaces expressions by values of the same kind, and computations inside a compiled function by further inputs."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable

from torchtriage.reduce import tree as trees
from torchtriage.reduce.engine import Change
from torchtriage.reduce.notes import Notes, literals, wanted
from torchtriage.reduce.passes.arguments import calls_by_name
from torchtriage.reduce.passes.expressions import places, put
from torchtriage.reduce.passes.statements import remove


def values(notes: Notes, whole: bool = True) -> Callable[[ast.Module], list[Change]]:
    """Each expression that depends on something, by a literal or a fresh tensor. `whole`: also by long tables."""

    def changes(tree: ast.Module) -> list[Change]:
        known = trees.modules(tree)
        run = trees.functions(tree).get("run")
        result = run.body[-1] if run is not None else None  # what is compared must not become a constant
        inner = inside_functions(tree)
        found: list[Change] = []
        for parent, field, position, node in places(tree):
            if parent is result or not wanted(parent, field, node) or not depends(node, known):
                continue
            note = notes.get(ast.unparse(node))
            for text in literals(note, whole) if note else ():
                if "rand" in text and id(node) in inner:
                    continue  # compiled code draws other numbers than eager mode: that would be another failure
                new = ast.parse(text, mode="eval").body
                found.append(functools.partial(put, parent, field, position, new))
        return found

    return changes


def inside_functions(tree: ast.Module) -> set[int]:
    """Identities of the nodes that lie in a function or class other than `run` itself."""
    outer = trees.functions(tree).get("run")
    scopes = [
        s for block in trees.blocks(tree) for s in block if isinstance(s, trees.SCOPES) and s is not outer
    ]
    return {id(node) for scope in scopes for node in ast.walk(scope)}


OUTSIDE = {
    "sys",
    "os",
    "time",
    "datetime",
    "random",
    "uuid",
    "socket",
    "platform",
    "getpass",
    "pathlib",
    "json",
    "argparse",
}
"""Modules whose values are those of the machine or of the moment."""


def depends(node: ast.expr, known: set[str]) -> bool:
    """Whether a value is computed from others, or comes from outside of the script."""
    names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    return any(name not in known or name in OUTSIDE for name in names)


def inputs(notes: Notes, choice: int) -> Callable[[ast.Module], list[Change]]:
    """A variable that a function computes becomes a parameter of it. `choice`: which of the possible values is passed."""

    def changes(tree: ast.Module) -> list[Change]:
        found: list[Change] = []
        for function in trees.functions(tree).values():
            calls = calls_by_name(tree, {function.name})
            if len(calls) != 1 or function.name == "run":
                continue
            for statement in function.body:
                match statement:
                    case ast.Assign(targets=[ast.Name(id=name)], value=value):
                        note = notes.get(ast.unparse(value))
                        options = literals(note) if note and note["kind"] == "tensor" else []
                        if options and len(options) > choice:  # the last of them are the very values
                            found.append(
                                functools.partial(
                                    make_input, function, calls[0], statement, name, options[choice]
                                )
                            )
        return found

    return changes


def make_input(function: ast.FunctionDef, call: ast.Call, statement: ast.stmt, name: str, text: str) -> None:
    remove(function.body, statement)
    if all(a.arg != name for a in function.args.args):
        function.args.args.append(ast.arg(arg=name))
        call.args.append(ast.parse(text, mode="eval").body)
