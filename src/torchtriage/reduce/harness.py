"""Brings a program into the form that the search works on.

A failure with an exception, a signal or a count is searched on a plain script. For another result than eager mode's,
the script gets a function `run` that does what the program did and returns what differs: it is called in both ways.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from typing import Any

from torchtriage.reduce import tree as trees
from torchtriage.reduce.passes import inline
from torchtriage.reduce.passes.statements import substitute
from torchtriage.reduce.tree import FUNCTIONS, SCOPES, Block

KEPT = "kept"
EXITS = ("sys.exit", "exit", "quit", "os._exit")


def flat(text: str) -> str:
    """The script without `if __name__ == "__main__"`, and with the functions that only it calls put in its place."""
    tree = ast.parse(text)
    for statement in list(tree.body):
        if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
            substitute(tree.body, statement, statement.body)
    for statement in list(tree.body):
        given = exit_status(statement)
        if given is not None:
            kept: Block = [ast.Expr(node) for node in given if isinstance(node, ast.Call)]
            substitute(tree.body, statement, kept)
    drop_future(tree)
    return trees.text_of(tree)


def exit_status(statement: ast.stmt) -> list[ast.expr] | None:
    """What a statement of the outermost level hands to the one who called Python; None for any other statement."""
    match statement:
        case ast.Expr(value=ast.Call(func=func, args=args)) if trees.dotted(func) in EXITS:
            return args
        case ast.Raise(exc=ast.Call(func=func, args=args)) if trees.dotted(func) == "SystemExit":
            return args
        case ast.Raise(exc=ast.Name(id="SystemExit")):
            return []
    return None


def drop_future(tree: ast.Module) -> None:
    """`from __future__` has to come first, which no longer holds once a script is taken apart."""
    tree.body = [s for s in tree.body if not (isinstance(s, ast.ImportFrom) and s.module == "__future__")]


def inlined(text: str) -> str:
    """The script with functions that are called once, as a statement of the outermost level, put there."""
    for _ in range(6):
        tree = ast.parse(text)
        before = trees.loaded(tree)
        for change in inline.functions(tree):
            statement = change.args[5]  # type: ignore[attr-defined]
            if not any(s is statement for s in tree.body):
                continue
            try:
                change()
                trees.tidy(tree, before)
                text = trees.text_of(tree)
            except ValueError:
                continue
            break
        else:
            return text
    return text


def as_run(text: str, outside: bool = True) -> str:
    """The script as a function `run`, which returns the variables that it has at its end.

    `outside`: functions and classes stay where they are; else all but imports goes into `run`.
    """
    tree = ast.parse(text)
    stay = [s for s in tree.body if trees.is_import(s) or (outside and isinstance(s, SCOPES))]
    body = [s for s in tree.body if all(s is not other for other in stay)]
    assigned = trees.stored(ast.Module([s for s in body if not isinstance(s, SCOPES)], []))
    assigned |= {s.name for s in body if isinstance(s, SCOPES)}
    inner = [n for n in ast.walk(tree) if isinstance(n, (*SCOPES, ast.Lambda))]
    read = {name for n in inner for name in trees.loaded(n)} | {
        name for n in ast.walk(tree) if isinstance(n, ast.Global) for name in n.names
    }
    shared = sorted(assigned & read)
    values = sorted(assigned - {s.name for s in body if isinstance(s, SCOPES)})
    first: Block = [ast.Global(names=shared)] if shared else []
    result = ast.parse(
        f"{{k: v for k, v in {{**globals(), **locals()}}.items() if k in {values!r}}}", mode="eval"
    ).body
    body = [s for s in body if not isinstance(s, (ast.Global, ast.Nonlocal))]
    run = empty_function("run", [*first, *body, ast.Return(result)])
    return trees.text_of(ast.Module([*stay, run], []))


def ending_at(text: str, line: int) -> str | None:
    """`run` up to the statement of it that stands there, whose exception ends it; None where there is no such statement."""
    tree = ast.parse(text)
    body = trees.functions(tree)["run"].body
    for position, statement in enumerate(body[:-1]):
        if statement.lineno <= line <= (statement.end_lineno or 0):
            caught = ast.parse("try:\n    pass\nexcept Exception:\n    pass").body[0]
            assert isinstance(caught, ast.Try)
            caught.body = [statement]
            body[position:-1] = [caught]
            return trees.text_of(tree)
    return None


def empty_function(name: str, body: Block) -> ast.FunctionDef:
    found = ast.parse(f"def {name}():\n    pass").body[0]
    assert isinstance(found, ast.FunctionDef)
    found.body = body
    return found


def returning(text: str, expression: str) -> str:
    """`run` with another result."""
    tree = ast.parse(text)
    run = trees.functions(tree)["run"]
    run.body[-1] = ast.Return(ast.parse(expression, mode="eval").body)
    return trees.text_of(tree)


def keeping(text: str, sites: Sequence[Mapping[str, Any]]) -> tuple[str, list[int]]:
    """The script with the result of each call of a region put into the list `kept`, and the calls that are.

    Only calls in simple statements, which run at once. The numbers of the calls are those in the order in which they ran.
    """
    tree = ast.parse(text)
    numbers: list[int] = []
    wanted: list[ast.Call] = []
    for site in sites:
        call = call_at(tree, site)
        if call is not None:
            numbers.append(site["call"])
            if all(call is not known for known in wanted):
                wanted.append(call)
    for call in wanted:
        keep(tree, call)
    if wanted:
        start = [ast.Global(names=[KEPT]), *ast.parse(f"{KEPT} = []").body]
        tree.body = [*start[1:], *tree.body]
    return trees.text_of(tree), numbers


def call_at(tree: ast.Module, site: Mapping[str, Any]) -> ast.Call | None:
    """The call that stands where a region was called from; by line only, the innermost one there."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and n.lineno == site["line"]]
    if site.get("col") is not None:
        calls = [
            n
            for n in calls
            if (n.col_offset, n.end_lineno, n.end_col_offset)
            == (site["col"], site["end_line"], site["end_col"])
        ]
    return calls[-1] if calls else None


def keep(tree: ast.Module, call: ast.Call) -> None:
    """Put the call's result into the list, before the statement that it stands in."""
    for block in trees.blocks(tree):
        for statement in block:
            simple = isinstance(statement, (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return))
            if simple and any(n is call for n in ast.walk(statement)):
                scope = inline.scope_of(tree, block)
                made = copy.copy(call)
                trees.Replace(call, ast.parse(f"{KEPT}[-1]", mode="eval").body).visit(statement)
                append = ast.Expr(
                    ast.Call(
                        func=ast.Attribute(ast.Name(KEPT, ast.Load()), "append", ast.Load()),
                        args=[made],
                        keywords=[],
                    )
                )
                bare = isinstance(statement, ast.Expr) and ast.unparse(statement.value) == f"{KEPT}[-1]"
                substitute(block, statement, [append] if bare else [append, statement])
                if isinstance(scope, FUNCTIONS):
                    scope.body.insert(0, ast.Global(names=[KEPT]))
                return


def compiled_with(text: str, **arguments: Any) -> str:
    """Every torch.compile of the script with further arguments: `backend`, `dynamic`, `mode`, `fullgraph`."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for position, decorator in enumerate(getattr(node, "decorator_list", ())):
            if trees.dotted(decorator) == "torch.compile":
                node.decorator_list[position] = ast.Call(func=decorator, args=[], keywords=[])  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and is_compile(node):
            node.keywords = [k for k in node.keywords if k.arg not in arguments]
            if "backend" in arguments:
                node.keywords = [k for k in node.keywords if k.arg not in ("mode", "options")]
            node.keywords += [ast.keyword(arg=n, value=ast.Constant(v)) for n, v in arguments.items()]
    return trees.text_of(tree)


def is_compile(call: ast.Call) -> bool:
    name = trees.dotted(call.func)
    return name == "torch.compile" or (name.endswith(".compile") and not name.startswith(("re.", "torch.")))


def choose(rows: Sequence[Mapping[str, Any]], words: Sequence[str]) -> list[Mapping[str, Any]]:
    """What differs, the best first: what the symptom names, returned by a call rather than left behind, gross first."""

    def rank(row: Mapping[str, Any]) -> tuple[Any, ...]:
        path, aspect = str(row["path"]), str(row["aspect"])
        word = "grad" if ".grad" in path and aspect == "value" else aspect
        kept = path.startswith(f"{{}}['{KEPT}']")
        named = word in words or (word == "value" and "mutation" in words and not kept)
        return (not named, not row["gross"], not kept, len(path))

    return sorted(rows, key=rank)


def expression_of(path: str) -> str:
    """`{}['model'].get_parameter('w').grad` -> `model.get_parameter('w').grad`, also where it stands twice."""
    parsed = ast.parse(path.replace("{}", "__values__"), mode="eval")

    class Plain(ast.NodeTransformer):
        def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
            self.generic_visit(node)
            match node:
                case ast.Subscript(value=ast.Name(id="__values__"), slice=ast.Constant(value=str(name))):
                    return ast.Name(name, ast.Load())
            return node

    return ast.unparse(Plain().visit(parsed))
