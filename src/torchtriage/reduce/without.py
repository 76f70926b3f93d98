"""Takes one condition out of a script: a statement, a context, an argument, an alias, a call. Each says if there was one."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from torchtriage.reduce import harness
from torchtriage.reduce import tree as trees
from torchtriage.reduce.passes.statements import substitute
from torchtriage.reduce.tree import Block

Change = Callable[[ast.Module], bool]
"""Takes a condition away in place. Whether there was anything to take away."""
VIEWS = re.compile(
    r"\.(as_strided|transpose|permute|swapaxes|t|expand|unfold|diagonal|movedim)\(|\.(T|mT|H)\b|channels_last|::"
)
"""Expressions whose result is, as a rule, not contiguous."""


def statements(pattern: str) -> Change:
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


def contexts(pattern: str) -> Change:
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


def arguments(*names: str) -> Change:
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


def mutation(tree: ast.Module) -> bool:
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


# --- what compiled functions are given -------------------------------------------------------------------------


def outer_blocks(tree: ast.Module) -> Iterator[Block]:
    """Statements that run outside of compiled code: those of the script and of `run`, with what they enclose."""
    run = trees.functions(tree).get("run")
    for body in (tree.body, run.body if run is not None else []):
        for block in trees.blocks(ast.Module([s for s in body if not isinstance(s, trees.SCOPES)], [])):
            yield body if block and block[0] in body else block


def compiled_names(tree: ast.Module) -> set[str]:
    """Names of what is compiled: decorated functions, and variables that torch.compile's result is put into."""
    found = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, trees.FUNCTIONS)
        for d in node.decorator_list
        if trees.dotted(d.func if isinstance(d, ast.Call) else d) == "torch.compile"
    }
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if harness.is_compile(
                call
            ):
                found.add(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="compile")) if name not in (
                "re",
                "torch",
            ):
                found.add(name)
    return found


def compiled_calls(tree: ast.Module) -> list[ast.Call]:
    """Calls of compiled functions, in the order in which they stand."""
    names = compiled_names(tree)
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (
            trees.dotted(node.func) in names
            or (isinstance(node.func, ast.Call) and harness.is_compile(node.func))
        )
    ]


def strides(tree: ast.Module) -> bool:
    """Inputs that are not contiguous become so where they are made."""
    found = False
    for block in outer_blocks(tree):
        for statement in block:
            if isinstance(statement, ast.Assign) and VIEWS.search(ast.unparse(statement.value)):
                statement.value, found = method(statement.value, "contiguous"), True
    for call in compiled_calls(tree):
        for position, given in enumerate(call.args):
            if VIEWS.search(ast.unparse(given)):
                call.args[position], found = method(given, "contiguous"), True
    return found


def aliases(tree: ast.Module) -> bool:
    """What a compiled function is given no longer shares memory: each argument is a copy."""
    found = False
    for call in compiled_calls(tree):
        roots = [set(trees.loaded(given)) for given in call.args]
        shared = any(one & other for i, one in enumerate(roots) for other in roots[:i])
        if shared or any(assigned_as_view(tree, name) for root in roots for name in root):
            call.args = [a if isinstance(a, ast.Constant) else method(a, "clone") for a in call.args]
            found = True
    return found


def assigned_as_view(tree: ast.Module, name: str) -> bool:
    """Whether a variable is a part of another one, or the same tensor by another way."""
    pattern = (
        rf"^{name} = \w+(\[.*\]|\.(view|detach|data|reshape|view_as|t|T|flatten|squeeze|unsqueeze)\b.*)$"
    )
    return any(re.match(pattern, ast.unparse(s)) for block in outer_blocks(tree) for s in block)


def method(value: ast.expr, name: str) -> ast.expr:
    return ast.Call(func=ast.Attribute(value, name, ast.Load()), args=[], keywords=[])


def subclasses(tree: ast.Module) -> bool:
    """A tensor of a class of the script's own becomes the plain tensor that it is made of."""
    names = {
        s.name
        for s in ast.walk(tree)
        if isinstance(s, ast.ClassDef) and any(trees.dotted(b).endswith("Tensor") for b in s.bases)
    }
    found = False
    for node in list(ast.walk(tree)):
        if not isinstance(node, ast.Call):
            continue
        wrapped = node.args[0] if trees.dotted(node.func) in names and node.args else None
        if isinstance(node.func, ast.Attribute) and node.func.attr == "as_subclass":
            wrapped = node.func.value
        if wrapped is not None:
            trees.Replace(node, wrapped).visit(tree)
            found = True
    return found


def operators(tree: ast.Module) -> bool:
    """A custom operator becomes the plain function that it was made of."""
    plain: dict[str, str] = {}
    for block in trees.blocks(tree):
        for statement in list(block):
            heads = [ast.unparse(d) for d in getattr(statement, "decorator_list", ())]
            if any(re.search(r"register_(fake|autograd|kernel|vmap)|impl_abstract", h) for h in heads):
                block.remove(statement)
            elif isinstance(statement, ast.FunctionDef) and any("custom_op" in h for h in heads):
                statement.decorator_list = [
                    d for d in statement.decorator_list if "custom_op" not in ast.unparse(d)
                ]
                for found in re.findall(r"['\"]([\w.]+)::([\w.]+)['\"]", " ".join(heads)):
                    plain[f"torch.ops.{found[0]}.{found[1]}"] = statement.name
                plain.setdefault(statement.name, statement.name)
    if not plain:
        return False
    statements(r"\.register_(fake|autograd|kernel|vmap)\(")(tree)
    for node in list(ast.walk(tree)):
        name = re.sub(r"\.default$", "", trees.dotted(node)) if isinstance(node, ast.Attribute) else ""
        if name in plain:
            trees.Replace(node, ast.Name(plain[name], ast.Load())).visit(tree)
    return True


def further_calls(tree: ast.Module) -> bool:
    """Only the last statement that calls a compiled function stays, and of a loop one turn."""
    calls = {id(call) for call in compiled_calls(tree)}
    found = False
    for block in outer_blocks(tree):
        calling = [s for s in block if any(id(n) in calls for n in ast.walk(s))]
        for statement in calling[:-1]:
            block.remove(statement)
            found = True
        if calling and isinstance(calling[-1], ast.For) and isinstance(calling[-1].target, ast.Name):
            loop = calling[-1]
            first = ast.parse(f"{ast.unparse(loop.target)} = next(iter({ast.unparse(loop.iter)}))").body
            substitute(block, loop, [*first, *loop.body])
            found = True
    return found
