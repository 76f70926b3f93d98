"""The compiler's own bisection hooks, driven by number, in memory. Tried on torch 2.13.0."""

from __future__ import annotations

import contextlib
import re
import types
from collections.abc import Callable
from typing import Any

import torch


class StepLog:
    """Counts the steps of one subsystem, notes what each was, and switches off those past a limit.

    Stands in for CompilerBisector.disable_subsystem, whose own state is files in the user's cache folder.
    """

    def __init__(self, backend: str, subsystem: str, maximum: int, limit_of_notes: int = 5000):
        self.backend, self.subsystem, self.maximum = backend, subsystem, maximum
        self.steps: list[dict[str, Any]] = []
        self.limit_of_notes = limit_of_notes
        self.count = 0

    def __call__(self, backend: str, subsystem: str, debug_info: Callable[[], str] | None = None) -> bool:
        if (backend, subsystem) != (self.backend, self.subsystem):
            return False
        self.count += 1
        if len(self.steps) < self.limit_of_notes:
            self.steps.append({"index": self.count, **describe_step(subsystem, debug_info)})
        return self.count > self.maximum


def describe_step(subsystem: str, debug_info: Callable[[], str] | None) -> dict[str, Any]:
    """Name and source line of the step that is about to be taken."""
    name = ""
    if debug_info is not None:
        with contextlib.suppress(Exception):
            name = str(debug_info())
    node = current_node()
    if subsystem == "lowerings" and node is not None:
        name = operator_name(node.target)
    if subsystem == "decomposition":
        name = name.removeprefix("<OpOverload(op='").rstrip(">").replace("', overload='", ".").rstrip("')")
    return {"name": name, **user_line(node)}


def operator_name(target: Any) -> str:
    """`aten.ldexp.Tensor` for an overload, a readable name for anything else."""
    text = str(target)
    return text.removeprefix("torch.ops.")


def current_node() -> Any | None:
    """The FX node that Inductor is lowering, or that AOTAutograd is tracing."""
    with contextlib.suppress(Exception):
        from torch._inductor.virtualized import V

        node = V.current_node
        if isinstance(node, torch.fx.Node):
            return node
    with contextlib.suppress(Exception):
        from torch.fx.traceback import get_current_meta

        meta = get_current_meta()
        if meta:
            return types.SimpleNamespace(meta=meta, target="")
    return None


def user_line(node: Any | None) -> dict[str, Any]:
    """File, line and code of the innermost frame of the user's below one node.

    Nodes of modules that are torch's own have no frame outside torch: then the module is what there is to name.
    """
    meta = getattr(node, "meta", None) or {}
    if meta.get("stack_trace"):
        return last_frame(meta["stack_trace"])
    modules = list((meta.get("nn_module_stack") or {}).values())
    if not modules:
        return {}
    path, kind = modules[-1]
    return {"code": f"module {module_path(str(path))} ({getattr(kind, '__name__', kind)})"}


def module_path(source: str) -> str:
    """`L['self'].layers['0'].drop` as `layers.0.drop`; the region's own module is `self`."""
    plain = re.sub(r"\[['\"]?(\w+)['\"]?\]", r".\1", source).removeprefix("L.")
    first, _, rest = plain.partition(".")
    return rest if rest and first in ("self", "fn", "mod") else first if not rest else plain


def last_frame(trace: str) -> dict[str, Any]:
    """The innermost frame, outside torch where there is one, of a printed stack."""
    found: dict[str, Any] = {}
    rows = trace.splitlines()
    for position, row in enumerate(rows):
        match = re.match(r'\s*File "(.+)", line (\d+)', row)
        if not match:
            continue
        if "/torch/" in match[1] and found:
            continue
        code = rows[position + 1].strip() if position + 1 < len(rows) else ""
        found = {"file": match[1], "line": int(match[2]), "code": code}
    return found


def limit_steps(log: StepLog) -> None:
    from torch._inductor.compiler_bisector import CompilerBisector

    CompilerBisector.bisection_enabled = True
    CompilerBisector.disable_subsystem = staticmethod(log)  # type: ignore[method-assign,assignment]
