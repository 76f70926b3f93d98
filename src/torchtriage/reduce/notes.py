"""What the expressions of a script are when it runs in eager mode: an instrumented script, and the literals for its notes."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any

from torchtriage.reduce import tree as trees
from torchtriage.reduce.passes.expressions import places, put

NOTE = "__note__"
LONG = 16
"""A table of more values is written out only where nothing simpler will do."""
Notes = Mapping[str, Mapping[str, Any]]
"""Text of an expression -> what its value was."""


def wanted(parent: ast.AST, field: str, node: ast.expr) -> bool:
    """Whether an expression's value is worth a note."""
    if field in ("func", "decorator_list", "annotation", "returns", "bases", "format_spec", "slice"):
        return False
    if isinstance(parent, (ast.FormattedValue, ast.JoinedStr, ast.Starred)) or field == "targets":
        return False
    return isinstance(
        node, (ast.Call, ast.BinOp, ast.Subscript, ast.Attribute, ast.IfExp, ast.ListComp, ast.Name)
    )


def instrument(text: str) -> tuple[str, list[str]]:
    """The script with each expression inside of a call of NOTE, and the text of each."""
    tree = ast.parse(text)
    known = trees.modules(tree)
    found = [
        (parent, field, position, node)
        for parent, field, position, node in places(tree)
        if wanted(parent, field, node) and not (isinstance(node, ast.Name) and node.id in known)
    ]
    shown = [ast.unparse(node) for *_, node in found]
    # from the inside: what is put in has the inner expressions already
    for number in range(len(found) - 1, -1, -1):
        parent, field, position, node = found[number]
        call = ast.Call(func=ast.Name(NOTE, ast.Load()), args=[ast.Constant(number), node], keywords=[])
        put(parent, field, position, call)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n", shown


def literals(note: Mapping[str, Any], tables: bool = True) -> list[str]:
    """Expressions that make a value like the one noted, the simplest first. `tables`: also long ones of its values."""
    if note["kind"] == "plain":
        return [note["text"]]
    if note["kind"] != "tensor":
        return []
    shape, kind = tuple(note["shape"]), note["dtype"]
    grad = ", requires_grad=True" if note["requires_grad"] and note["leaf"] else ""
    size = ", ".join(map(str, shape)) if shape else "()"
    dtype = "" if kind == "torch.float32" else f", dtype={kind}"
    found: list[str] = []
    if kind.startswith(("torch.float", "torch.bfloat", "torch.complex")):
        found = [f"torch.ones({size}{dtype}{grad})", f"torch.randn({size}{dtype}{grad})"]
        whole = f"({size}{',' if len(shape) == 1 else ''})"
        found += [f"torch.full({whole}, {number(v)}{dtype}{grad})" for v in note.get("extremes", ())]
    elif kind == "torch.bool":
        found = [f"torch.ones({size}{dtype})", f"torch.zeros({size}{dtype})"]
    else:
        whole = "" if kind == "torch.int64" else f", dtype={kind}"
        found = [f"torch.zeros({size}, dtype={kind})", f"torch.ones({size}, dtype={kind})"]
        if len(shape) == 1:
            found.append(f"torch.arange({size}{whole})")
        if note.get("high") is not None and note["low"] >= 0 and math.prod(shape) > 1:
            found.append(
                f"torch.randint({note['high'] + 1}, ({size}{',' if len(shape) == 1 else ''}){whole})"
            )
    if not note["contiguous"] and found:
        room = 1 + sum((n - 1) * s for n, s in zip(shape, note["stride"], strict=True))
        strided = f"torch.randn({room}{dtype}).as_strided({shape}, {tuple(note['stride'])})"
        found.append(strided)
    if note.get("values") is not None and (tables or math.prod(shape) <= LONG):
        found.append(f"torch.tensor({number(note['values'])}{dtype if kind != 'torch.int64' else ''}{grad})")
    return found


def number(value: Any) -> str:
    """A number, or a nested list of them, as Python text; `repr` has none for NaN and infinities."""
    if isinstance(value, list):
        return f"[{', '.join(map(number, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)
