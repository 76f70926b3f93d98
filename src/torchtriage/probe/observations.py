"""What a script lets one see: its values as leaves with the expressions that reach them, and how two runs of them differ."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

import torch

from torchtriage.probe import compat

MOST, DEEP = 4000, 6
GROSS = 0.01
"""Relative error from which a difference is more than rounding can explain in most programs."""


def take(value: Any, grads: bool = False) -> dict[str, Any]:
    """Expression (with `{}` for the value itself) -> a copy of each leaf. `grads`: those of each tensor as well."""
    found: dict[str, Any] = {}
    with compat.unwatched():
        walk(value, "{}", found, 0, set(), grads)
    return found


def walk(value: Any, path: str, found: dict[str, Any], depth: int, seen: set[int], grads: bool) -> None:
    if len(found) >= MOST or depth > DEEP:
        return
    if isinstance(value, torch.Tensor):
        found[path] = Leaf(value)
        if grads and (grad := compat.grad_of(value)) is not None:
            found[f"{path}.grad"] = Leaf(grad)
        return
    if value is None or isinstance(value, (bool, numbers.Number, str)) or compat.is_array(value):
        found[path] = value.copy() if compat.is_array(value) else value
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    for more, part in parts(value):
        walk(part, path + more, found, depth + 1, seen, grads)


def parts(value: Any) -> list[tuple[str, Any]]:
    """What a container holds, with the text that gets it."""
    if isinstance(value, torch.nn.Module):
        named = [(f".get_parameter({n!r})", p) for n, p in value.named_parameters()]
        return named + [(f".get_buffer({n!r})", b) for n, b in value.named_buffers()]
    if isinstance(value, Mapping):
        return [(f"[{k!r}]", v) for k, v in value.items() if isinstance(k, (str, int))]
    if isinstance(value, (list, tuple)):
        return [(f"[{i}]", v) for i, v in enumerate(value)]
    if hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
        return [(f".{k}", v) for k, v in vars(value).items() if not k.startswith("_")]
    return []


class Leaf:
    """A tensor as it was at one moment."""

    def __init__(self, tensor: torch.Tensor):
        self.kind = type(tensor).__name__
        self.dtype, self.shape, self.device = tensor.dtype, tuple(tensor.shape), tensor.device
        self.requires_grad = tensor.requires_grad
        self.storage = compat.storage_key(tensor)
        self.stride: Any = None
        self.values: torch.Tensor | None = None
        try:
            self.stride = tensor.stride()
            self.values = tensor.detach().clone()
        except (RuntimeError, NotImplementedError):  # sparse, a functorch wrapper
            pass


def compare(
    eager: dict[str, Any], compiled: dict[str, Any], aspects: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """How the leaves of two runs differ: `path`, `aspect`, `detail`, `gross`, `size`."""
    found: list[dict[str, Any]] = []
    with compat.unwatched():
        for path, leaf in eager.items():
            if path not in compiled:
                found.append(row(path, "structure", "missing when compiled", True))
            elif (difference := leaf_difference(leaf, compiled[path], aspects)) is not None:
                found.append({**difference, "path": path})
        found += [row(p, "structure", "only there when compiled", True) for p in compiled if p not in eager]
        if "alias" in aspects:
            found += aliases(eager, compiled)
    return found


def row(path: str, aspect: str, detail: str, gross: bool, size: float = math.inf) -> dict[str, Any]:
    return {"path": path, "aspect": aspect, "detail": detail, "gross": gross, "size": size}


def leaf_difference(eager: Any, compiled: Any, aspects: tuple[str, ...]) -> dict[str, Any] | None:
    if not (isinstance(eager, Leaf) and isinstance(compiled, Leaf)):
        return plain_difference(eager, compiled)
    for name in ("kind", "device", "dtype", "shape"):
        ours, theirs = getattr(eager, name), getattr(compiled, name)
        if ours != theirs:
            return row("", {"kind": "subclass"}.get(name, name), f"{ours} in eager mode, {theirs}", True)
    for name in ("requires_grad", "stride"):
        ours, theirs = getattr(eager, name), getattr(compiled, name)
        if name in aspects and ours != theirs:
            return row("", name, f"{ours} in eager mode, {theirs}", True)
    return value_difference(eager.values, compiled.values)


def plain_difference(eager: Any, compiled: Any) -> dict[str, Any] | None:
    if isinstance(eager, Leaf) or isinstance(compiled, Leaf) or type(eager) is not type(compiled):
        return row("", "structure", f"{type(eager).__name__} in eager mode, {type(compiled).__name__}", True)
    if compat.is_array(eager):
        if eager.dtype != compiled.dtype:
            return row("", "dtype", f"{eager.dtype} in eager mode, {compiled.dtype}", True)
        if eager.shape != compiled.shape:
            return row("", "shape", f"{eager.shape} in eager mode, {compiled.shape}", True)
        if eager.dtype.kind not in "fiub":
            return None
        return value_difference(torch.from_numpy(eager), torch.from_numpy(compiled))
    if isinstance(eager, float):
        return value_difference(torch.tensor(eager), torch.tensor(compiled))
    return None if eager == compiled else row("", "value", f"{eager!r} in eager mode, {compiled!r}", True)


def value_difference(eager: torch.Tensor | None, compiled: torch.Tensor | None) -> dict[str, Any] | None:
    """By the tolerances of torch.testing.assert_close, NaN equal to NaN."""
    if eager is None or compiled is None:
        return None
    try:
        torch.testing.assert_close(compiled, eager, equal_nan=True)
        return None
    except AssertionError as error:
        detail = str(error)
    except Exception:  # a type that cannot be compared
        return None
    if not (eager.is_floating_point() or eager.is_complex()) or eager.layout != torch.strided:
        return row("", "value", detail, True)
    size = relative_error(eager, compiled)
    return row("", "value", detail, size > GROSS, size)


def relative_error(eager: torch.Tensor, compiled: torch.Tensor) -> float:
    """The largest error, relative to the largest value; infinite where one is finite and the other is not."""
    ours, theirs = (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in (eager, compiled))
    ours, theirs = ours.to("cpu", torch.float64), theirs.to("cpu", torch.float64)
    finite = ours.isfinite()
    if not torch.equal(finite, theirs.isfinite()) or not torch.equal(
        ours[~finite].nan_to_num(), theirs[~finite].nan_to_num()
    ):
        return math.inf
    if not bool(finite.any()):
        return math.inf
    scale = float(ours[finite].abs().max())
    return float((ours[finite] - theirs[finite]).abs().max()) / (scale or 1e-30)


def aliases(eager: dict[str, Any], compiled: dict[str, Any]) -> list[dict[str, Any]]:
    """Pairs of leaves that share their storage in one run only, as an expression that says so."""
    tensors = [
        p for p, leaf in eager.items() if isinstance(leaf, Leaf) and isinstance(compiled.get(p), Leaf)
    ][:60]
    found = []
    for position, one in enumerate(tensors):
        for other in tensors[:position]:
            ours, theirs = (run[one].storage == run[other].storage for run in (eager, compiled))
            if ours != theirs:
                text = f"{one}.untyped_storage().data_ptr() == {other}.untyped_storage().data_ptr()"
                found.append(row(text, "alias", f"{ours} in eager mode, {theirs}", True))
    return found
