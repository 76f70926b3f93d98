"""What a program registers with torch: a lowering, a decomposition, an operator, a backend. It stays what it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection

from torchtriage.reduce import tree as trees
from torchtriage.reduce.files import Read, own_imports, registers

CHANGES_TORCH = re.compile(
    r"torch\.library|register_lowering|\blowerings\[|\bdecompositions\[|register_backend|register_fake|custom_op\("
)


def changes_torch(statement: ast.stmt) -> bool:
    """Whether a statement, or a function that it defines, registers something with torch."""
    return bool(CHANGES_TORCH.search(ast.unparse(statement)))


LONGEST_FROZEN = 40
"""Lines of a function that registers something: a longer one is the program itself, and is reduced."""


def keeper(text: str, read: Read) -> Callable[[ast.Module], list[str]]:
    """What of a script must stay as it is, as text; `text` is the script that a search begins with."""
    modules = registering_modules(ast.parse(text), read)
    return lambda tree: statements(tree, modules)


def registering_modules(tree: ast.AST, read: Read) -> set[str]:
    """Modules of the user's that change torch, by the names that the script has for them."""
    found = set()
    for node, name in own_imports(tree, read):
        if registers(read(name) or "") and isinstance(node, ast.Import):
            found |= {alias.asname or alias.name for alias in node.names if alias.name == name}
    return found


def statements(tree: ast.Module, modules: Collection[str] = ()) -> list[str]:
    """What the program itself registers with torch stays, with what that is made of.

    The fault may lie in it, and is not to be made another.
    """
    run = trees.functions(tree).get("run")
    all_of = [s for s in (*tree.body, *(run.body if run is not None else ())) if s is not run]
    frozen = [s for s in all_of if is_frozen(s, modules)]
    while True:
        read = {name for statement in frozen for name in trees.loaded(statement)}
        called = {s.name for s in frozen if isinstance(s, trees.FUNCTIONS)}
        more = [s for s in all_of if s not in frozen and (defines(s, read) or calls_only(s, called))]
        if not more:
            return [ast.unparse(s) for s in all_of if s in frozen]
        frozen += more


def is_frozen(statement: ast.stmt, modules: Collection[str]) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=func)) if trees.dotted(func).rpartition(".")[0] in modules:
            return True
    return changes_torch(statement) and lines_long(statement) <= LONGEST_FROZEN


def setup(text: str, read: Read) -> list[str]:
    """Lines that make torch what the program makes it: for a script of one graph, which has nothing else of the program."""
    tree = ast.parse(text)
    names = [name for _, name in own_imports(tree, read) if registers(read(name) or "")]
    lines = [f"import {name}" for name in dict.fromkeys(names)]
    modules = registering_modules(tree, read)
    for node in ast.walk(tree):  # also where a function of the program calls it
        if (
            isinstance(node, ast.Expr)
            and is_frozen(node, modules)
            and not trees.undefined(ast.Module([node], [])) - modules
        ):
            lines.append(ast.unparse(node))
    own = statements(tree)
    wanted = {name for row in own for name in trees.loaded(ast.parse(row))}
    imports = [s for s in tree.body if trees.is_import(s) and wanted & {trees.bound_by(a) for a in s.names}]  # type: ignore[attr-defined]
    return list(dict.fromkeys([*lines, *map(ast.unparse, imports), *own]))


def lines_long(statement: ast.stmt) -> int:
    return (statement.end_lineno or statement.lineno) - statement.lineno + 1


def defines(statement: ast.stmt, names: set[str]) -> bool:
    """Whether a statement is a function, a class or a variable with one of these names."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name in names
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in names
    return False


def calls_only(statement: ast.stmt, names: set[str]) -> bool:
    """Whether a statement is a call of one of these functions."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return name in names
    return False
