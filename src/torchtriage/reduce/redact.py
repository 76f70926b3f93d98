"""Takes what is private out of a script: names of functions, classes, variables and attributes, and texts."""

from __future__ import annotations

import ast
import string
from collections.abc import Iterator

from torchtriage.reduce import tree as trees
from torchtriage.reduce.engine import Search

KEEP = {"run", "self", "cls", "forward", "backward", "setup_context", "ctx", "kept", "apply"}


def rename(search: Search) -> None:
    """Offer the script with every name and text of its own replaced; where that changes the failure, one at a time."""
    tree = ast.parse(search.best)
    table = dict(zip(own_names(tree), fresh_names(tree), strict=False))
    if not search.offer(renamed(search.best, table), "redact"):
        for name, new in table.items():
            search.offer(renamed(search.best, {name: new}), "redact")
    for number, text in enumerate(own_texts(ast.parse(search.best))):
        search.offer(renamed(search.best, {text: f"s{number}"}), "redact")


def own_names(tree: ast.Module) -> list[str]:
    """Names that the script gives itself, and its texts."""
    known = {
        trees.bound_by(alias)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    found: dict[str, None] = dict.fromkeys(sorted(trees.stored(tree) - known))
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Store(), value=ast.Name(id="self")):
                found[name] = None
    return [name for name in found if name not in KEEP and not name.startswith("__")]


def own_texts(tree: ast.Module) -> list[str]:
    """Texts of the script: whether they mean something to torch, a trial says."""
    found = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [text for text in dict.fromkeys(found) if text]


def fresh_names(tree: ast.Module) -> Iterator[str]:
    taken = trees.stored(tree) | set(trees.loaded(tree))
    number = 0
    while True:
        for letter in string.ascii_lowercase:
            name = letter if not number else f"{letter}{number}"
            if name not in taken:
                yield name
        number += 1


def renamed(text: str, table: dict[str, str]) -> str:
    tree = ast.parse(text)
    Renamer(table).visit(tree)
    return trees.text_of(tree)


class Renamer(ast.NodeTransformer):
    """Every place in which a name can stand, and texts that are no words of torch's."""

    def __init__(self, table: dict[str, str]):
        self.table = table

    def visit(self, node: ast.AST) -> ast.AST:
        for field in ("id", "arg", "attr", "name"):
            value = getattr(node, field, None)
            if isinstance(value, str) and value in self.table and not isinstance(node, ast.alias):
                setattr(node, field, self.table[value])
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            node.names = [self.table.get(n, n) for n in node.names]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in self.table:
            node.value = self.table[node.value]
        return self.generic_visit(node)
