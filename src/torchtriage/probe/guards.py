"""All guards that fail when a frame is compiled again: torch reports the first of them only. Tried on torch 2.13.0.

Leaf guards can be called one by one; what they look at is named by a source expression, which is evaluated in the
frame's own scope, as torch does.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import torch

MOST = 50
NAME = "torchtriage_failing_guards"


def watch(tell: Callable[[list[str]], None]) -> None:
    """Call `tell` with the failing guards of the newest cache entry, just before torch logs its own reason."""
    from torch._dynamo import convert_frame

    real = getattr(convert_frame, "get_and_maybe_log_recompilation_reasons", None)
    if real is None:
        return

    def reasons(entries: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):  # to explain a recompilation must never change it
            found = failing(entries[0].guard_manager, frame.f_locals)
            tell(found)
            torch._logging.trace_structured(
                "artifact", metadata_fn=lambda: {"name": NAME, "encoding": "json"}, payload_fn=lambda: found
            )
        return real(entries, frame, *args, **kwargs)

    convert_frame.get_and_maybe_log_recompilation_reasons = reasons  # type: ignore[attr-defined]


def failing(manager: Any, f_locals: dict[str, Any]) -> list[str]:
    """The texts of all guards of one cache entry that do not hold for a frame's locals, as torch words them."""
    scope = {"L": f_locals, "G": manager.global_scope["G"], **manager.closure_vars}
    names = dict(manager.global_scope)
    found: list[str] = []
    queue = [("", manager.root)]
    while queue:
        source, node = queue.pop()
        try:
            value = eval(source, names, scope) if source else f_locals
        except Exception:  # what it looks at is not there any more: a guard above says so
            continue
        strange = False
        for leaf in node.get_leaf_guards():
            with contextlib.suppress(Exception):  # guards on several values at once cannot be called
                if not leaf(value):
                    found += texts(leaf, value, names, scope)
                    strange = strange or bool(source)
        if (
            not strange
        ):  # below something that is another thing nothing is read: reading can run the program's code
            queue += [(child.get_source(), child) for child in reversed(node.get_child_managers())]
    for leaf in manager.root.get_epilogue_lambda_guards():
        with contextlib.suppress(Exception):
            if not leaf(f_locals):
                found += texts(leaf, f_locals, names, scope)
    return list(dict.fromkeys(found))[:MOST]


def texts(leaf: Any, value: Any, names: dict[str, Any], scope: dict[str, Any]) -> list[str]:
    """What one failing leaf says. One that stands for several conditions is asked which of them fail."""
    if hasattr(leaf, "check_verbose"):
        return list(leaf.check_verbose(value).verbose_code_parts)
    parts = [str(part) for part in leaf.verbose_code_parts()]
    if isinstance(value, torch.Tensor) and parts and parts[0].startswith("check_tensor("):
        return [tensor_mismatch(parts[0], value)]
    if len(parts) < 2:
        return parts
    return [part for part in parts if fails(part, names, scope)] or parts[:1]


def fails(part: str, names: dict[str, Any], scope: dict[str, Any]) -> bool:
    try:
        return not eval(part.partition("  # ")[0], names, scope)
    except Exception:
        return False


def tensor_mismatch(part: str, tensor: torch.Tensor) -> str:
    """`tensor 'x' size mismatch at index 0. expected 2, actual 5  # code  # place`, as torch's own check words it."""
    given, sep, comment = part.partition("  # ")
    source = re.match(r"check_tensor\((.+?), [A-Z]\w*, DispatchKeySet", given)
    name = re.sub(r"^L\['(\w+)'\]", r"\1", source[1]) if source else "?"
    said = ""
    for what, actual in (("size", tensor.shape), ("stride", tensor.stride())):
        match = re.search(rf"{what}=\[([^\]]*)\]", given)
        expected = [part.strip() for part in match[1].split(",") if part.strip()] if match else []
        if what == "size" and match and len(expected) != tensor.dim():
            said = f"tensor '{name}' rank mismatch. expected {len(expected)}, actual {tensor.dim()}"
            break
        for index, (one, other) in enumerate(zip(expected, actual, strict=False)):
            if one.lstrip("-").isdigit() and int(one) != int(other):
                said = (
                    f"tensor '{name}' {what} mismatch at index {index}. expected {one}, actual {int(other)}"
                )
                break
        if said:
            break
    said = said or other_mismatch(given, name, tensor) or given
    return said + sep + comment


def other_mismatch(given: str, name: str, tensor: torch.Tensor) -> str:
    dtype = re.search(r"torch\.\w+", given)
    if dtype and dtype[0] != str(tensor.dtype):
        return f"tensor '{name}' dtype mismatch. expected {dtype[0]}, actual {tensor.dtype}"
    grad = re.search(r"requires_grad=(True|False)", given)
    if grad and grad[1] != str(tensor.requires_grad):
        return f"tensor '{name}' requires_grad mismatch. expected requires_grad={int(grad[1] == 'True')}"
    return ""
