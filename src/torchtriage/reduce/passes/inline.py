"""Puts functions, variables and module classes where they are used."""

from __future__ import annotations

import ast
import copy
import functools

from torchtriage.reduce import tree as trees
from torchtriage.reduce.engine import Change
from torchtriage.reduce.passes.statements import remove, substitute
from torchtriage.reduce.tree import FUNCTIONS, Block


def functions(tree: ast.Module) -> list[Change]:
    """A function that is called once, as a statement or for the value of one, becomes the statements that it has."""
    found: list[Change] = []
    read = trees.loaded(tree)
    for owner in trees.blocks(tree):
        for function in owner:
            if not isinstance(function, ast.FunctionDef) or function.decorator_list:
                continue
            if read[function.name] != 1 or not straight(function):
                continue
            for block in trees.blocks(tree):
                for statement in block:
                    call = called_in(statement)
                    if call is not None and trees.dotted(call.func) == function.name:
                        target = scope_of(tree, block)
                        found.append(
                            functools.partial(
                                inline_statement, tree, target, owner, function, block, statement, call
                            )
                        )
    return found


def called_in(statement: ast.stmt) -> ast.Call | None:
    """The call that a statement is, or assigns, or returns."""
    match statement:
        case (
            ast.Expr(value=ast.Call() as call)
            | ast.Assign(value=ast.Call() as call)
            | ast.Return(value=ast.Call() as call)
        ):
            return call
        case _:
            return None


def straight(function: ast.FunctionDef) -> bool:
    """Whether it returns at its end only, and yields nothing."""
    returns = [n for n in ast.walk(function) if isinstance(n, ast.Return)]
    own = [n for n in returns if n is not function.body[-1]]
    return not own and not any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in ast.walk(function))


def scope_of(tree: ast.Module, block: Block) -> ast.AST:
    """The function that a block lies in, or the module."""
    found: ast.AST = tree
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and any(b is block for b in trees.blocks(node)):
            found = node  # walked from the outside: the last one is the innermost
    return found


def bind(function: ast.FunctionDef, call: ast.Call) -> list[tuple[str, ast.expr]] | None:
    """Parameter and argument, in order; None where they cannot be matched by looking."""
    args = function.args
    if args.vararg or args.kwarg or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    names = [a.arg for a in (*args.posonlyargs, *args.args)]
    given: dict[str, ast.expr] = dict(zip(names, call.args, strict=False))
    given.update({k.arg: k.value for k in call.keywords if k.arg})
    defaults = dict(zip(names[len(names) - len(args.defaults) :], args.defaults, strict=True))
    defaults.update(
        {a.arg: d for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None}
    )
    wanted = [*names, *(a.arg for a in args.kwonlyargs)]
    try:
        return [(name, given[name] if name in given else defaults[name]) for name in wanted]
    except KeyError:
        return None


def inline_statement(
    tree: ast.Module,
    target: ast.AST,
    owner: Block,
    function: ast.FunctionDef,
    block: Block,
    statement: ast.stmt,
    call: ast.Call,
) -> None:
    bound = bind(function, call)
    if bound is None:
        raise ValueError("cannot match the arguments")
    body: Block = copy.deepcopy(function.body)
    said = {n for s in body if isinstance(s, ast.Global) for n in s.names}
    body = [s for s in body if not isinstance(s, (ast.Global, ast.Nonlocal))]
    locals_ = (trees.stored(ast.Module(body, [])) | {name for name, _ in bound}) - said
    taken = trees.own_names(target) - {function.name}
    renamed = {name: f"{name}_{function.name}" for name in locals_ & taken}
    wrapper = ast.Module(body=body, type_ignores=[])
    trees.Rename(renamed).visit(wrapper)
    before: Block = [
        ast.Assign(targets=[ast.Name(renamed.get(n, n), ast.Store())], value=v)
        for n, v in bound
        if not (isinstance(v, ast.Name) and v.id == renamed.get(n, n))
    ]
    last = wrapper.body[-1] if wrapper.body else None
    result: ast.expr = ast.Constant(None)
    if isinstance(last, ast.Return):
        wrapper.body.pop()
        result = last.value or result
    end: Block = []
    if isinstance(statement, ast.Expr):
        end = [ast.Expr(result)] if not isinstance(result, (ast.Constant, ast.Name)) else []
    else:
        statement.value = result  # type: ignore[attr-defined]
        end = [statement]
    if said and isinstance(target, FUNCTIONS):
        target.body.insert(0, ast.Global(names=sorted(said)))
    substitute(block, statement, [*before, *wrapper.body, *end])
    remove(owner, function)


def one_liners(tree: ast.Module) -> list[Change]:
    """A function that only returns an expression becomes that expression, at each of its calls."""
    found: list[Change] = []
    read = trees.loaded(tree)
    for owner in trees.blocks(tree):
        for function in owner:
            match function:
                case ast.FunctionDef(
                    name=name, body=[ast.Return(value=ast.expr() as value)], decorator_list=[]
                ):
                    calls = trees.calls_of(tree, name)
                    if calls and len(calls) == read[name]:
                        found.append(
                            functools.partial(inline_expression, tree, owner, function, value, calls)
                        )
    return found


def inline_expression(
    tree: ast.Module, owner: Block, function: ast.FunctionDef, value: ast.expr, calls: list[ast.Call]
) -> None:
    remove(owner, function)
    for call in calls:
        bound = bind(function, call)
        if bound is None:
            raise ValueError("cannot match the arguments")
        new: ast.AST = Substitute(dict(bound)).visit(copy.deepcopy(value))
        trees.Replace(call, new).visit(tree)


class Substitute(ast.NodeTransformer):
    """Puts expressions in the place of names."""

    def __init__(self, values: dict[str, ast.expr]):
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and node.id in self.values:
            return copy.deepcopy(self.values[node.id])
        return node


def variables(tree: ast.Module) -> list[Change]:
    """A variable that is assigned once becomes its value, where it is read once or its value is simple."""
    found: list[Change] = []
    read = trees.loaded(tree)
    writes = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    for block in trees.blocks(tree):
        for statement in block:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if writes.count(name) == 1:
                    if read[name] == 1 or (read[name] and isinstance(value, (ast.Constant, ast.Name))):
                        found.append(functools.partial(inline_variable, tree, block, statement, name, value))
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    found += next_use(block, statement, name, value)
    return found


def inline_variable(tree: ast.Module, block: Block, statement: ast.stmt, name: str, value: ast.expr) -> None:
    remove(block, statement)
    Substitute({name: value}).visit(tree)


def next_use(block: Block, statement: ast.stmt, name: str, value: ast.expr) -> list[Change]:
    """`x = f(x); x = g(x)`: a value that only the very next statement reads goes into it."""
    position = next(i for i, s in enumerate(block) if s is statement)
    if position + 1 >= len(block):
        return []
    after = block[position + 1]
    last = isinstance(after, ast.Return) or (
        isinstance(after, ast.Assign)
        and len(after.targets) == 1
        and isinstance(after.targets[0], ast.Name)
        and after.targets[0].id == name
    )
    if not last or trees.loaded(after)[name] != 1:
        return []

    def change() -> None:
        remove(block, statement)
        Substitute({name: value}).visit(after)

    return [change]


def classes(tree: ast.Module) -> list[Change]:
    """A module class that is made once becomes variables for its attributes and functions for its methods."""
    found: list[Change] = []
    for owner in trees.blocks(tree):
        for node in owner:
            if isinstance(node, ast.ClassDef) and trees.loaded(tree)[node.name] == 1:
                for block in trees.blocks(tree):
                    for statement in block:
                        for call in trees.calls_of(statement, node.name):
                            if not isinstance(statement, trees.SCOPES):
                                found.append(
                                    functools.partial(unclass, tree, owner, node, block, statement, call)
                                )
    return found


def unclass(
    tree: ast.Module, owner: Block, node: ast.ClassDef, block: Block, statement: ast.stmt, call: ast.Call
) -> None:
    methods = {s.name: s for s in node.body if isinstance(s, ast.FunctionDef)}
    entry = methods.pop("forward", None) or methods.pop("__call__", None)
    init = methods.pop("__init__", None)
    if entry is None or any(m.decorator_list for m in (entry, *methods.values())):
        raise ValueError("not a plain module")
    setup: Block = []
    if init is not None:
        bound = bind(
            init, ast.Call(func=call.func, args=[ast.Constant(None), *call.args], keywords=call.keywords)
        )
        if bound is None:
            raise ValueError("cannot match the arguments")
        setup = [ast.Assign(targets=[ast.Name(n, ast.Store())], value=v) for n, v in bound[1:]]
        setup += [s for s in init.body if "super()" not in ast.unparse(s)]
        unself(ast.Module(setup, []), first_name(init))
    setup += [s for s in node.body if isinstance(s, ast.Assign)]
    new: Block = []
    for method in (*methods.values(), entry):
        own = first_name(method)
        method.args.args = method.args.args[1:]
        unself(method, own)
        new.append(method)
    entry.name = node.name.lower() if node.name.lower() not in trees.stored(tree) else f"{node.name}_forward"
    trees.Replace(call, ast.Name(entry.name, ast.Load())).visit(statement)
    substitute(owner, node, new)
    substitute(block, statement, [*setup, statement])
    scope = scope_of(tree, block)
    if isinstance(scope, FUNCTIONS) and setup:
        scope.body.insert(0, ast.Global(names=sorted(trees.stored(ast.Module(setup, [])))))


def first_name(method: ast.FunctionDef) -> str:
    if not method.args.args:
        raise ValueError("no self")
    return method.args.args[0].arg


def unself(node: ast.AST, own: str) -> None:
    Unself(own).visit(node)
    if trees.loaded(node)[own]:
        raise ValueError("the object itself is used")


class Unself(ast.NodeTransformer):
    """`self.x` becomes `x`."""

    def __init__(self, own: str):
        self.own = own

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == self.own:
            return ast.Name(node.attr, node.ctx)
        return node


def lists(tree: ast.Module) -> list[Change]:
    """A list that gets one element by `append` becomes that element."""
    found: list[Change] = []
    for block in trees.blocks(tree):
        for statement in block:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=[])):
                    adds = appends(tree, name)
                    if len(adds) == 1:
                        found.append(functools.partial(unlist, tree, block, statement, name, *adds[0]))
    return found


def appends(tree: ast.Module, name: str) -> list[tuple[Block, ast.stmt, ast.expr]]:
    """Statements `name.append(value)`."""
    found: list[tuple[Block, ast.stmt, ast.expr]] = []
    for block in trees.blocks(tree):
        for statement in block:
            match statement:
                case ast.Expr(
                    value=ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="append"), args=[value])
                ) if owner == name:
                    found.append((block, statement, value))
    return found


def unlist(
    tree: ast.Module, block: Block, start: ast.stmt, name: str, where: Block, add: ast.stmt, value: ast.expr
) -> None:
    remove(block, start)
    substitute(where, add, [ast.Assign(targets=[ast.Name(name, ast.Store())], value=value)])
    for node in list(ast.walk(tree)):
        match node:
            case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant() | ast.UnaryOp()) if (
                owner == name
            ):
                trees.Replace(node, ast.Name(name, ast.Load())).visit(tree)
