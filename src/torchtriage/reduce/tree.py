"""What the passes know about a script's syntax tree: its size, its blocks, its names, and how to tidy it."""

from __future__ import annotations

import ast
import builtins
import functools
import warnings
from collections import Counter
from collections.abc import Iterator

BUILTINS = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__"}
Block = list[ast.stmt]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (*FUNCTIONS, ast.ClassDef)


def text_of(tree: ast.AST) -> str:
    """The tree as a script. Raises ValueError where it is not valid Python."""
    try:
        text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # candidates may look odd
            compile(text, "repro.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return text


Size = tuple[int, int, int, float]


@functools.lru_cache(maxsize=256)
def size_of(text: str) -> Size:
    """Lines that are no import, nodes, characters, weight of literals: what is made smaller, in this order."""
    tree = ast.parse(text)
    nodes = sum(1 for node in ast.walk(tree) if not isinstance(node, ast.expr_context))
    literals = sum(weight(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return lines_of(text), nodes, len(text), literals


def is_smaller(text: str, other: str) -> bool:
    return size_of(text) < size_of(other)


def needs_less(text: str, other: str) -> bool:
    """Whether a script reads fewer of its own names, or modules: what they were computed from can then go."""
    return reads_of(text) < reads_of(other) or (
        reads_of(text) == reads_of(other) and module_reads_of(text) < module_reads_of(other)
    )


@functools.lru_cache(maxsize=256)
def module_reads_of(text: str) -> int:
    tree = ast.parse(text)
    known = modules(tree) - {"torch"}
    return sum(count for name, count in loaded(tree).items() if name in known)


@functools.lru_cache(maxsize=256)
def reads_of(text: str) -> int:
    tree = ast.parse(text)
    known = modules(tree) | BUILTINS
    return sum(count for name, count in loaded(tree).items() if name not in known)


def weight(value: object) -> float:
    """How complicated a literal is, among those with as many characters."""
    if type(value) is int:
        return abs(value)
    if type(value) is float:
        return 0 if value == 1.0 else 1 if value == 0.0 else 2 + len(repr(value))
    return 0


def lines_of(text: str) -> int:
    """Lines of a script, blank ones, comments and imports not counted."""
    rows = [row.strip() for row in text.splitlines()]
    return sum(bool(row) and not row.startswith(("#", "import ", "from ")) for row in rows)


def blocks(tree: ast.AST) -> Iterator[Block]:
    """Every list of statements, outer ones first."""
    queue: list[ast.AST] = [tree]
    while queue:
        node = queue.pop(0)
        for name in ("body", "orelse", "finalbody"):
            found = getattr(node, name, None)
            if isinstance(found, list) and found and isinstance(found[0], ast.stmt):
                yield found
        queue.extend(ast.iter_child_nodes(node))


def loaded(tree: ast.AST) -> Counter[str]:
    """How often each name is read."""
    return Counter(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))


def stored(tree: ast.AST) -> set[str]:
    """Every name that is bound anywhere."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.arg(arg=name):
                found.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found.update(bound_by(alias) for alias in names)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                found.add(name)
    return found


def bound_by(alias: ast.alias) -> str:
    """The name that an import binds."""
    return alias.asname or alias.name.partition(".")[0]


def undefined(tree: ast.AST) -> set[str]:
    """Names that are read and bound nowhere: such a script cannot run to where they are."""
    bound = stored(tree)
    if "*" in bound:
        return set()
    return {name for name in loaded(tree) if name not in bound and name not in BUILTINS}


@functools.lru_cache(maxsize=256)
def undefined_in(text: str) -> frozenset[str]:
    """The same for a text; a search asks it of its best script each time."""
    return frozenset(undefined(ast.parse(text)))


def is_import(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom))


def tidy(tree: ast.Module, before: Counter[str]) -> None:
    """Remove what a change left without a use: imports, functions and classes that were read before and are no longer.

    What was never read stays: it may be there for what it does. Blocks that became empty get a `pass`.
    """
    for _ in range(10):
        now = loaded(tree)
        gone = {name for name in before if not now[name]}
        changed = False
        for block in blocks(tree):
            for statement in list(block):
                changed |= drop_unused(statement, block, gone)
        before = now
        if not changed:
            break
    for node in ast.walk(tree):
        fill(node)


def drop_unused(statement: ast.stmt, block: Block, gone: set[str]) -> bool:
    if is_import(statement):
        names = statement.names  # type: ignore[attr-defined]
        left = [alias for alias in names if bound_by(alias) not in gone]
        if len(left) == len(names):
            return False
        if left:
            statement.names = left  # type: ignore[attr-defined]
        else:
            block.remove(statement)
        return True
    if isinstance(statement, SCOPES) and statement.name in gone:
        block.remove(statement)
        return True
    return False


def fill(node: ast.AST) -> None:
    """A block must not be empty, and `global` only names what is bound in its function."""
    body = getattr(node, "body", None)
    if isinstance(body, list):
        if isinstance(node, FUNCTIONS):
            prune_globals(node)
        body[:] = [s for s in body if not isinstance(s, ast.Pass)]
        if not body and not isinstance(node, ast.Module):
            body.append(ast.Pass())
    if isinstance(node, ast.Try):
        node.finalbody = [s for s in node.finalbody if not isinstance(s, ast.Pass)]
        if not node.handlers and not node.finalbody:
            node.finalbody = [ast.Pass()]
    if isinstance(node, (ast.If, ast.For, ast.While, ast.Try)):
        node.orelse = [s for s in node.orelse if not isinstance(s, ast.Pass)]


def prune_globals(function: ast.AST) -> None:
    bound = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    bound |= {n.name for n in ast.walk(function) if isinstance(n, SCOPES)}
    body: Block = function.body  # type: ignore[attr-defined]
    for statement in list(body):
        if isinstance(statement, (ast.Global, ast.Nonlocal)):
            statement.names = [name for name in statement.names if name in bound]
            if not statement.names:
                body.remove(statement)


def dotted(node: ast.AST) -> str:
    """`torch.nn.functional` for the expression that says so; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def modules(tree: ast.AST) -> set[str]:
    """Names that are bound to modules by `import`."""
    return {
        bound_by(alias) for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }


def functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Functions of the script by name, those of the outermost level and of `run`."""
    found: dict[str, ast.FunctionDef] = {}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            found[statement.name] = statement
            if statement.name == "run":
                found.update({s.name: s for s in statement.body if isinstance(s, ast.FunctionDef)})
    return found


def calls_of(tree: ast.AST, name: str) -> list[ast.Call]:
    return [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == name
    ]


def own_names(scope: ast.AST) -> set[str]:
    """Names that are bound in a function or module itself, not in the functions and classes inside of it."""
    found: set[str] = set()
    queue = list(ast.iter_child_nodes(scope))
    while queue:
        node = queue.pop()
        if isinstance(node, SCOPES):
            found.add(node.name)
            continue
        if isinstance(node, ast.Lambda):
            continue
        found |= (
            stored(node)
            if not list(ast.iter_child_nodes(node))
            or isinstance(node, (ast.Name, ast.arg, ast.Import, ast.ImportFrom))
            else set()
        )
        queue.extend(ast.iter_child_nodes(node))
    return found


class Replace(ast.NodeTransformer):
    """Puts one expression in the place of another, by identity."""

    def __init__(self, old: ast.AST, new: ast.AST):
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


class Rename(ast.NodeTransformer):
    """Renames variables, parameters and what `global` says, everywhere."""

    def __init__(self, names: dict[str, str]):
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self.names.get(node.arg, node.arg)
        return node
