"""Puts the user's own modules into the script, and says which modules have to stay what they are."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from torchtriage.reduce import tree as trees

Read = Callable[[str], "str | None"]
"""Dotted name of a module -> its source, where it is one of the user's own."""
REGISTERS = re.compile(
    r"torch\._inductor|torch\._dynamo|torch\._functorch|torch\._decomp|torch\.library|TORCH_LIBRARY|register_backend"
)


def reader(folders: Sequence[str]) -> Read:
    """Reads modules that lie in these folders."""

    def read(name: str) -> str | None:
        for folder in folders:
            base = Path(folder, *name.split("."))
            for path in (base.with_suffix(".py"), base / "__init__.py"):
                if path.is_file():
                    return path.read_text(errors="replace")
        return None

    return read


def registers(source: str) -> bool:
    """Whether importing a module may change torch: then it is what the failure needs, and no part of the program."""
    return bool(REGISTERS.search(source))


def own_imports(tree: ast.AST, read: Read) -> list[tuple[ast.stmt, str]]:
    """Imports of the user's own modules, with the dotted name of each."""
    found: list[tuple[ast.stmt, str]] = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and not node.level
            and read(node.module) is not None
        ):
            found.append((node, node.module))
        elif isinstance(node, ast.Import):
            found += [(node, alias.name) for alias in node.names if read(alias.name) is not None]
    return found


def with_modules(text: str, read: Read, most: int = 60) -> str:
    """The script with the user's modules put in the place of their imports, as far as names allow."""
    done: set[str] = set()
    for _ in range(most):
        tree = ast.parse(text)
        name_submodules(tree, read)
        step = next(
            (
                (statement, name)
                for statement, name in own_imports(tree, read)
                if statement in tree.body and not registers(read(name) or "")
            ),
            None,
        )
        if step is None:
            return text
        try:
            put_in(tree, step[0], step[1], read, done)
            text = trees.text_of(tree)
        except (ValueError, SyntaxError):
            return text
    return text


def put_in(tree: ast.Module, statement: ast.stmt, name: str, read: Read, done: set[str]) -> None:
    """Replace one import by the module. Raises ValueError where names would collide."""
    body: list[ast.stmt] = []
    if name not in done:
        body = module_body(file_name(name, read), read(name) or "")
        fresh = trees.own_names(ast.Module(body, [])) - imported(body)
        if fresh & (trees.own_names(tree) - {trees.bound_by(a) for a in getattr(statement, "names", ())}):
            raise ValueError(f"names of {name} are in use")
        done.add(name)
    if isinstance(statement, ast.ImportFrom):
        for alias in statement.names:
            if alias.asname and alias.asname != alias.name:
                target = ast.Name(alias.asname, ast.Store())
                body.append(ast.Assign(targets=[target], value=ast.Name(alias.name, ast.Load())))
    elif isinstance(statement, ast.Import):
        others = [a for a in statement.names if a.name != name]
        bound = next(a.asname or a.name for a in statement.names if a.name == name)
        Members(bound).visit(tree)
        if others:
            body.append(ast.Import(names=others))
    position = tree.body.index(statement)
    tree.body[position : position + 1] = body


def file_name(name: str, read: Read) -> str:
    """What relative imports start from: in a package's own file it is one level deeper than the package's name."""
    inside = f"{name}.__init__"
    return inside if read(inside) is not None else name


def name_submodules(tree: ast.Module, read: Read) -> None:
    """`from pkg import model`, where that is a module, becomes `import pkg.model as model`."""
    for position, node in enumerate(tree.body):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [(f"{node.module}.{alias.name}", alias.asname or alias.name) for alias in node.names]
            if all(read(whole) is not None for whole, _ in names):
                tree.body[position] = ast.Import(
                    names=[ast.alias(name=whole, asname=short) for whole, short in names]
                )


def imported(body: list[ast.stmt]) -> set[str]:
    return {trees.bound_by(a) for s in body if isinstance(s, (ast.Import, ast.ImportFrom)) for a in s.names}


def module_body(name: str, source: str) -> list[ast.stmt]:
    """A module's statements, without its own `__main__` part and with relative imports made absolute."""
    tree = ast.parse(source)
    kept: list[ast.stmt] = []
    for statement in tree.body:
        if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
            continue
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            continue
        kept.append(statement)
    absolute(ast.Module(kept, []), name)
    return kept


def absolute(tree: ast.AST, name: str) -> None:
    """`from .layers import X` in `pkg.model` becomes `from pkg.layers import X`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            parts = name.split(".")[: -node.level]
            node.module = ".".join([*parts, *([node.module] if node.module else [])])
            node.level = 0


class Members(ast.NodeTransformer):
    """`models.Net` becomes `Net`."""

    def __init__(self, module: str):
        self.module = module

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        return ast.Name(node.attr, node.ctx) if trees.dotted(node.value) == self.module else node


def absolute_text(source: str, name: str) -> str:
    """A module's text with its relative imports made absolute. Raises SyntaxError where it is not Python."""
    tree = ast.parse(source)
    absolute(tree, name)
    return ast.unparse(tree) + "\n"


def installed_imports(text: str, read: Read) -> tuple[str, ...]:
    """Statements of a program, or of its modules, that import installed packages other than torch and numpy."""
    try:
        tree = ast.parse(with_modules(text, read))
    except SyntaxError:
        return ()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)) and others(node):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            if all(read(name) is None and read(name.partition(".")[0]) is None for name in names):
                found.append(ast.unparse(node))
    return tuple(dict.fromkeys(found))


def others(node: ast.Import | ast.ImportFrom) -> bool:
    """Whether an import is of neither torch nor numpy nor Python's own library."""
    if isinstance(node, ast.ImportFrom) and (node.level or not node.module):
        return False
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
    heads = {name.partition(".")[0] for name in names}
    return not heads <= {"torch", "numpy", *sys.stdlib_module_names}
