"""How good a script is for those who read issues, and what keeps it from being better."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable

from torchtriage.reduce import tree as trees

RANKS = (
    "self-contained, under 100 lines",
    "self-contained",
    "needs packages that anyone can install",
    "needs files of yours",
)


def rank(
    text: str, own: Callable[[str], str | None], is_file: Callable[[str], bool] = lambda name: False
) -> tuple[str, str]:
    """The rank, and in a sentence what the next better one would take.

    `own`: source of the user's modules; `is_file`: whether a name is that of a file of the user's.
    """
    packages = [p for p in packages_of(text) if p != "torch"]
    mine = [p for p in packages if own(p) is not None]
    if mine:
        return RANKS[3], f"it imports {', '.join(mine)}, which only you have"
    named = sorted({t for t in texts_of(text) if is_file(t)})
    if named:
        return RANKS[3], f"it reads {', '.join(named)}"
    if reads_files(text):
        return RANKS[3], "it reads files"
    if packages:
        return RANKS[2], f"it imports {', '.join(packages)}"
    if trees.lines_of(text) >= 100:
        return RANKS[1], f"it has {trees.lines_of(text)} lines"
    return RANKS[0], ""


def packages_of(text: str) -> list[str]:
    """Packages that a script imports and that do not come with Python."""
    found: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
    names = dict.fromkeys(name.partition(".")[0] for name in found)
    return [name for name in names if name not in sys.stdlib_module_names]


def texts_of(text: str) -> list[str]:
    nodes = ast.walk(ast.parse(text))
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value]


def reads_files(text: str) -> bool:
    """Whether it opens or loads something by a name."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and trees.dotted(node.func) in (
            "open",
            "torch.load",
            "np.load",
            "numpy.load",
        ):
            return True
    return False
