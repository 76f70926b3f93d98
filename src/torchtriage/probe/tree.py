"""The call tree of one region call in eager mode: which functions of the user's it runs, from where."""

from __future__ import annotations

import json
import os
import sys
import types
from typing import Any

import torch

from torchtriage.probe import compat
from torchtriage.probe.intercept import Region

MOST = 400


def write(region: Region, folder: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run the call in eager mode and write `tree.json`: a list of functions, parents before children."""
    recorder = Recorder()
    sys.setprofile(recorder)
    try:
        region.function(*args, **kwargs)
    except BaseException:  # an error of the program's: the tree up to there is still right
        pass
    finally:
        sys.setprofile(None)
    path = os.path.join(folder, "tree.json")
    with open(path + ".part", "w") as file:
        json.dump(recorder.functions(), file)
    os.replace(path + ".part", path)


class Recorder:
    """A profile function that keeps each (caller, callee) pair of functions that can be named and replaced."""

    def __init__(self) -> None:
        self.stack: list[tuple[types.FrameType, int]] = []
        self.known: dict[types.CodeType, str | None] = {}
        self.edges: dict[tuple[str, str], int] = {}
        self.places: dict[str, tuple[str, int]] = {}
        self.works: set[str] = set()
        """Functions below which an operator of torch's runs."""

    def __call__(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if event == "call":
            name = self.name_of(frame)
            parent = self.current()
            if name is not None and len(self.edges) < MOST:
                edge = (parent, name)
                self.edges[edge] = self.edges.get(edge, 0) + 1
            self.stack.append((frame, len(self.stack)))
        elif event == "c_call":
            if of_torch(arg):
                self.works.update(self.known.get(f.f_code) or "" for f, _ in self.stack)
        elif event == "return" and self.stack and self.stack[-1][0] is frame:
            self.stack.pop()

    def current(self) -> str:
        for frame, _ in reversed(self.stack):
            name = self.known.get(frame.f_code)
            if name is not None:
                return name
        return ""

    def name_of(self, frame: types.FrameType) -> str | None:
        code = frame.f_code
        if code not in self.known:
            self.known[code] = resolve(frame)
            name = self.known[code]
            if name is not None:
                self.places[name] = (code.co_filename, code.co_firstlineno)
        return self.known[code]

    def functions(self) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "parent": parent,
                "count": count,
                "file": self.places[name][0],
                "line": self.places[name][1],
                "works": name in self.works,
            }
            for (parent, name), count in self.edges.items()
        ]


def of_torch(function: Any) -> bool:
    """Whether a builtin is an operator of torch's: a function of its C modules, or a method of a tensor."""
    owner = getattr(function, "__self__", None)
    return isinstance(owner, torch.Tensor) or str(getattr(function, "__module__", "") or "").startswith(
        "torch"
    )


def resolve(frame: types.FrameType) -> str | None:
    """`module:qualified.name` when that name leads back to this very code, so that it can be replaced there."""
    code = frame.f_code
    module_name = frame.f_globals.get("__name__", "")
    qualified = getattr(code, "co_qualname", code.co_name)
    if "<" in qualified or not module_name or skipped(module_name, qualified):
        return None
    if not hasattr(code, "co_qualname") and "self" in frame.f_locals:  # Python 3.10
        qualified = qualified_by_class(type(frame.f_locals["self"]), code) or qualified
    found: Any = sys.modules.get(module_name)
    try:
        for part in qualified.split("."):
            found = vars(found)[part]
    except (KeyError, TypeError):
        return None
    kind = type(found).__name__ if isinstance(found, (staticmethod, classmethod)) else ""
    found = compat.original_function(getattr(found, "__func__", found))
    if getattr(found, "__code__", None) is not code:
        return None
    return f"{module_name}:{qualified}" + (f"|{kind}" if kind else "")


def qualified_by_class(cls: type, code: types.CodeType) -> str | None:
    for base in cls.__mro__:
        held = vars(base).get(code.co_name)
        if getattr(getattr(held, "__func__", held), "__code__", None) is code:
            return f"{base.__qualname__}.{code.co_name}"
    return None


def skipped(module: str, qualified: str) -> bool:
    """Functions that no user would think of disabling: torch's machinery, the standard library."""
    if module.startswith("torchtriage"):
        return True
    if module.startswith("torch.nn.modules."):
        return not qualified.endswith(".forward") or qualified.startswith("Module.")
    root = module.partition(".")[0]
    return root in ("torch", "numpy", "sympy") or root in getattr(sys, "stdlib_module_names", ())
