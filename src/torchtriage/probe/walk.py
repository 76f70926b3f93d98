"""Finds every tensor and scalar that a call can read or write: arguments, the bound object, closures, globals.

The walk is bounded and gives each leaf a stable path, so that two processes that ran the same code agree on names.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from torchtriage.probe import compat

MAX_LEAVES = 20_000
MAX_DEPTH = 12
SCALARS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
#: Attributes of nn.Module that are bookkeeping, not state of the user's.
MODULE_INTERNALS = frozenset(torch.nn.Module().__dict__) - {"training"} | {
    "_compiled_call_impl",
    "_forward_hooks",
    "forward",
    "dynamo_ctx",
    "_torchdynamo_orig_callable",
    "_torchdynamo_wrapper_id",
    "get_compiler_config",
    "_super_module_initialized",
}


@dataclasses.dataclass(frozen=True)
class Leaf:
    path: str
    value: Any


def leaves(roots: Mapping[str, Any], repeats: bool = False) -> list[Leaf]:
    """All leaves below `roots`, each object visited once, in an order that depends only on the program.

    With `repeats`, a tensor that is found at several paths is a leaf at each.
    """
    found: list[Leaf] = []
    seen: set[int] = set()
    alive: list[Any] = []  # ids in `seen` must not be given to new objects while the walk goes on
    queue: deque[tuple[str, Any, int]] = deque((name, value, 0) for name, value in roots.items())
    while queue and len(found) < MAX_LEAVES:
        path, value, depth = queue.popleft()
        if isinstance(value, SCALARS):
            found.append(Leaf(path, value))
            continue
        if repeats and id(value) in seen and isinstance(value, torch.Tensor):
            found.append(Leaf(path, value))
        if id(value) in seen or depth > MAX_DEPTH:
            continue
        seen.add(id(value))
        alive.append(value)
        if isinstance(value, torch.Tensor):
            found.append(Leaf(path, value))
            grad = compat.grad_of(value)
            if grad is not None:
                queue.append((f"{path}.grad", grad, depth + 1))
            continue
        if compat.is_array(value):
            found.append(Leaf(path, value))
            continue
        try:
            queue.extend((name, child, depth + 1) for name, child in children(path, value))
        except Exception:  # a property or mapping of the user's that raises: it stays unread
            continue
    return with_own_names(found)


def with_own_names(found: list[Leaf]) -> list[Leaf]:
    """Two globals of one name in two modules are two leaves: the later ones get a number."""
    counts: dict[str, int] = {}
    named = []
    for leaf in found:
        number = counts[leaf.path] = counts.get(leaf.path, 0) + 1
        named.append(leaf if number == 1 else Leaf(f"{leaf.path} ({number})", leaf.value))
    return named


def children(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of one object, with their paths."""
    if isinstance(value, torch.nn.Module):
        yield from module_parts(path, value)
    elif isinstance(value, torch.optim.Optimizer):
        yield f"{path}.param_groups", value.param_groups
        for position, state in enumerate(value.state.values()):
            yield f"{path}.state[{position}]", state
    elif isinstance(value, Mapping):
        for position, (key, child) in enumerate(value.items()):
            name = repr(key) if isinstance(key, SCALARS) else f"#{position}"
            yield f"{path}[{name}]", child
    elif isinstance(value, (list, tuple, deque)):
        names = getattr(value, "_fields", None)
        for position, child in enumerate(value):
            yield (f"{path}.{names[position]}" if names else f"{path}[{position}]"), child
    elif isinstance(value, (set, frozenset)):
        for position, child in enumerate(sorted(value, key=repr)):
            yield f"{path}{{{position}}}", child
    elif isinstance(value, functools.partial):
        yield f"{path}.func", value.func
        yield f"{path}.args", value.args
        yield f"{path}.keywords", value.keywords
    elif isinstance(value, types.MethodType):
        yield f"{path}.self", value.__self__
        yield path, value.__func__
    elif isinstance(value, types.FunctionType):
        yield from function_parts(path, value)
    elif isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType)):
        return
    elif is_users(value):
        for name, child in attributes(value):
            yield f"{path}.{name}", child


def attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, in its dictionary and in slots."""
    yield from getattr(value, "__dict__", {}).items()
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)


def module_parts(path: str, module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    for table in (module._parameters, module._buffers, module._modules):
        for name, child in table.items():
            yield f"{path}.{name}", child
    for name, child in vars(module).items():
        if name not in MODULE_INTERNALS:
            yield f"{path}.{name}", child


def function_parts(path: str, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    original = compat.original_function(function)
    if original is not function:
        yield path, original
        return
    if compat.is_torch_module(function.__module__) and not function.__closure__:
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f"{path}.<{name}>", cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield f"{path}.<defaults>", function.__defaults__ or ()
    if compat.is_torch_module(function.__module__):
        return
    for name in sorted(names_used(function.__code__)):
        if name in function.__globals__:
            child = function.__globals__[name]
            if not isinstance(child, (types.ModuleType, type)):
                yield f"globals.{name}", child


def names_used(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= names_used(constant)
    return names


def is_users(value: Any) -> bool:
    """Whether `value` is an ordinary object whose attributes are state of the program."""
    module = type(value).__module__ or ""
    if compat.is_torch_module(module) and not module.startswith("torch.optim"):
        return dataclasses.is_dataclass(value)
    held = hasattr(value, "__dict__") or hasattr(type(value), "__slots__")
    return held and module not in ("builtins", "_thread", "threading", "logging")
