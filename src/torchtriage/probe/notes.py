"""Notes what the expressions of an instrumented script are, the first time that each is reached."""

from __future__ import annotations

import builtins
import math
from typing import Any

import torch

from torchtriage.probe import compat

NOTE = "__note__"
LARGE = 100.0
FEW = 4096
"""Elements up to which the values of a tensor are noted."""


def install() -> dict[int, dict[str, Any]]:
    """Make the function that instrumented scripts call. Returns what it fills: number -> note."""
    noted: dict[int, dict[str, Any]] = {}

    def note(number: int, value: Any) -> Any:
        if number not in noted:
            noted[number] = {"kind": "other"}
            with compat.unwatched():
                noted[number] = describe(value)
        return value

    setattr(builtins, NOTE, note)
    return noted


def describe(value: Any) -> dict[str, Any]:
    """Plain data about a value; `kind` is `tensor`, `plain` (with its literal) or `other`."""
    try:
        if isinstance(value, torch.Tensor):
            return tensor(value) if type(value) in (torch.Tensor, torch.nn.Parameter) else {"kind": "other"}
        if value is None or type(value) in (bool, int, float, str) or is_size(value):
            text = repr(tuple(value) if isinstance(value, tuple) else value)
            if text in ("nan", "inf", "-inf"):
                text = f"float('{text}')"
            return {"kind": "plain", "text": text} if len(text) < 80 else {"kind": "other"}
        if isinstance(value, torch.dtype):
            return {"kind": "plain", "text": str(value)}
    except Exception:  # a value that cannot be looked at is left alone
        pass
    return {"kind": "other"}


def is_size(value: Any) -> bool:
    return (
        isinstance(value, tuple) and all(type(v) is int for v in value) and type(value) in (tuple, torch.Size)
    )


def tensor(value: torch.Tensor) -> dict[str, Any]:
    if value.layout != torch.strided or value.device.type != "cpu":
        return {"kind": "other"}
    plain = value.detach()
    note: dict[str, Any] = {
        "kind": "tensor",
        "shape": list(plain.shape),
        "stride": list(plain.stride()),
        "dtype": str(plain.dtype),
        "contiguous": plain.is_contiguous(),
        "requires_grad": value.requires_grad,
        "leaf": value.is_leaf,
    }
    if (
        plain.numel()
        and not plain.is_floating_point()
        and not plain.is_complex()
        and plain.dtype != torch.bool
    ):
        note["low"], note["high"] = int(plain.min()), int(plain.max())
    if 0 < plain.numel() <= FEW and not plain.is_complex():
        note["values"] = plain.tolist()
    if plain.numel() and plain.is_floating_point():
        note["extremes"] = extremes(plain)
    return note


def extremes(values: torch.Tensor) -> list[float]:
    """What is special about values: NaN, infinities, the one of the greatest size where that is large."""
    flat = values.to(torch.float64).flatten()
    found = [math.nan] if bool(flat.isnan().any()) else []
    found += [v for v in (math.inf, -math.inf) if bool((flat == v).any())]
    finite = flat[flat.isfinite()]
    if finite.numel():
        largest = float(finite[finite.abs().argmax()])
        found += [largest] if abs(largest) >= LARGE else []
    return found
