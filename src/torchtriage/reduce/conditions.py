"""What of a finished script the failure needs: each condition that maintainers ask about, taken away in a trial."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchtriage.model.reduction import Condition
from torchtriage.reduce import harness
from torchtriage.reduce import tree as trees
from torchtriage.reduce.passes.statements import substitute
from torchtriage.reduce.tester import Tester

Change = Callable[[ast.Module], bool]
"""Takes a condition away in place. Whether there was anything to take away."""


@dataclass(frozen=True)
class Row:
    """One condition: its name, and how the script is changed to be without it."""

    name: str
    change: Change


def without_statements(pattern: str) -> Change:
    """Simple statements whose text has the pattern go."""

    def change(tree: ast.Module) -> bool:
        found = False
        for block in trees.blocks(tree):
            for statement in list(block):
                if not isinstance(statement, trees.SCOPES) and re.search(pattern, head_of(statement)):
                    block.remove(statement)
                    found = True
        return found

    return change


def head_of(statement: ast.stmt) -> str:
    return ast.unparse(statement) if not hasattr(statement, "body") else ""


def without_context(pattern: str) -> Change:
    """A `with` of this kind becomes its body; a decorator of this kind goes."""

    def change(tree: ast.Module) -> bool:
        found = False
        for block in trees.blocks(tree):
            for statement in list(block):
                if isinstance(statement, ast.With) and re.search(
                    pattern, ast.unparse(statement.items[0].context_expr)
                ):
                    substitute(block, statement, statement.body)
                    found = True
        for node in ast.walk(tree):
            kept = [d for d in getattr(node, "decorator_list", []) if not re.search(pattern, ast.unparse(d))]
            if len(kept) < len(getattr(node, "decorator_list", [])):
                node.decorator_list = kept  # type: ignore[attr-defined]
                found = True
        return found

    return change


def replaced(pattern: str, new: str) -> Change:
    """Dotted names that match become another one."""

    def change(tree: ast.Module) -> bool:
        found = False
        for parent in ast.walk(tree):
            for name, value in ast.iter_fields(parent):
                items = value if isinstance(value, list) else [value]
                for position, item in enumerate(items):
                    if isinstance(item, ast.Attribute) and re.fullmatch(pattern, trees.dotted(item)):
                        fresh = ast.parse(new, mode="eval").body
                        found = True
                        if isinstance(value, list):
                            value[position] = fresh
                        else:
                            setattr(parent, name, fresh)
        return found

    return change


def without_argument(*names: str) -> Change:
    """Keyword arguments of these names go."""

    def change(tree: ast.Module) -> bool:
        found = False
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                kept = [k for k in node.keywords if k.arg not in names]
                found |= len(kept) < len(node.keywords)
                node.keywords = kept
        return found

    return change


def static(tree: ast.Module) -> bool:
    """Compiled with dynamic=False."""
    changed = ast.parse(harness.compiled_with(ast.unparse(tree), dynamic=False))
    tree.body = changed.body
    return True


def without_mutation(tree: ast.Module) -> bool:
    """`x.add_(1)` becomes `x.add(1)`, `x += 1` becomes `x = x + 1`."""
    found = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"[a-z]\w*[a-z0-9]_", node.attr):
            if node.attr in ("requires_grad_", "manual_seed_"):
                continue
            node.attr, found = node.attr[:-1], True
    for block in trees.blocks(tree):
        for statement in list(block):
            if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                read = ast.Name(statement.target.id, ast.Load())
                value = ast.BinOp(left=read, op=statement.op, right=statement.value)
                substitute(block, statement, [ast.Assign(targets=[statement.target], value=value)])
                found = True
    return found


#: The reporting guide's checklist. One row a question; what the script does not have is not asked.
TABLE = (
    Row("backward", without_statements(r"\.backward\(")),
    Row("requires_grad", without_argument("requires_grad")),
    Row("no_grad", without_context(r"no_grad|set_grad_enabled")),
    Row("inference mode", without_context("inference_mode")),
    Row("autocast", without_context("autocast")),
    Row("function or dispatch mode", without_context(r"Mode\(")),
    Row(
        "activation checkpointing",
        replaced(r"torch\.utils\.checkpoint\.checkpoint", "(lambda f, *a, **k: f(*a))"),
    ),
    Row(
        "float16, bfloat16 or float64",
        replaced(r"torch\.(float16|bfloat16|float64|half|double)", "torch.float32"),
    ),
    Row("a mode or options", without_argument("mode", "options")),
    Row("fullgraph", without_argument("fullgraph")),
    Row("a config value", without_statements(r"config\.\w+(\.\w+)* =")),
    Row("mutation", without_mutation),
    Row("hooks", without_statements(r"register_\w*hook")),
    Row("train or eval mode", without_statements(r"\.(eval|train)\(\)$")),
    Row("dynamic shapes", static),
)
#: the same for what lies outside of the script
OUTSIDE: tuple[tuple[str, str, tuple[str, Any]], ...] = (
    (
        "vector instructions",
        "torch._inductor.config.cpp.simdlen = 1",
        ("torch._inductor.config.cpp.simdlen", 1),
    ),
    (
        "what the partitioner saves for backward",
        "torch._functorch.config.activation_memory_budget = 0.0",
        ("torch._functorch.config.activation_memory_budget", 0.0),
    ),
)


def find(text: str, tester: Tester) -> list[Condition]:
    """Each condition that the script has, with the answer of a trial."""
    found: list[Condition] = []
    for row in TABLE:
        tree = ast.parse(text)
        before = trees.loaded(tree)
        if not row.change(tree):
            continue
        try:
            trees.tidy(tree, before)
            without = trees.text_of(tree)
        except ValueError:
            continue
        if without != text:
            found.append(Condition(row.name, not tester(without), "the script without it"))
    found += outside(text, tester)
    return found


def outside(text: str, tester: Tester) -> list[Condition]:
    given = tester.conditions
    found: list[Condition] = []
    if given.backend in ("", "inductor"):
        name, change, switch = OUTSIDE[0]
        found.append(Condition(name, not with_(tester, switches=(*given.switches, switch))(text), change))
    if ".backward(" in text:
        name, change, switch = OUTSIDE[1]
        found.append(Condition(name, not with_(tester, switches=(*given.switches, switch))(text), change))
    if given.threads > 1:
        found.append(
            Condition("several threads", not with_(tester, threads=1)(text), "torch.set_num_threads(1)")
        )
    if given.caches:
        found.append(Condition("the compiler's caches", not with_(tester, caches=False)(text), "caches off"))
    return found


def with_(tester: Tester, **changes: Any) -> Tester:
    return Tester(
        tester.lab, tester.failure, dataclasses.replace(tester.conditions, **changes), tester.repeats
    )
