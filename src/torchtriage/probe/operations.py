"""What a call does, operation by operation: which ATen operator, from which line of the program, with which result.

Kept for one call in eager mode and for the same call as Dynamo captured it (`backend="eager"`): the first operation
in which they part is where Dynamo's idea of the program begins to be wrong.
"""

from __future__ import annotations

import json
import linecache
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from torchtriage.probe import capture, compat
from torchtriage.probe.steps import operator_name, user_line

MOST = 20_000
FILE = "operations.json"
Row = dict[str, Any]


class Operations(TorchDispatchMode):
    """Writes down every operation that runs inside. `place` says from which line of the program it comes.

    A row holds the operator, a mark of each tensor that it returns, and whether one of them is new: an operation
    that only hands on what it was given (a view of the same shape, an alias) is not.
    """

    supports_higher_order_operators = True

    def __init__(self, rows: list[Row], place: Callable[[], Row]):
        super().__init__()
        self.rows, self.place = rows, place

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if len(self.rows) >= MOST or not isinstance(function, torch._ops.OpOverload):
            return function(*args, **(kwargs or {}))
        given = {mark(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        result = function(*args, **(kwargs or {}))
        marks = [mark(leaf) for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if not given.issuperset(marks):
            self.rows.append({"operator": operator_name(function), "marks": marks, **self.place()})
        return result


def mark(tensor: torch.Tensor) -> str:
    """A word for the content and the metadata of a tensor."""
    try:
        with compat.unwatched():
            content = capture.checksum(tensor)
        return f"{tensor.dtype}{tuple(tensor.shape)}{content:08x}"
    except Exception as error:  # a fake tensor, a subclass that refuses
        return type(error).__name__


def line_running() -> Row:
    """The innermost line of the program's own that is running."""
    frame: Any = sys._getframe(1)
    while frame is not None and compat.is_torch_module(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    if frame is None:
        return {}
    file, line = frame.f_code.co_filename, frame.f_lineno
    return {"file": file, "line": line, "code": linecache.getline(file, line).strip()}


class Recording:
    """A backend that runs graphs as they were captured and writes down their operations."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.runs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any], **more: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            self.runs += 1
            place = Place(self.runs)
            with Operations(self.rows, place.row):
                return Runner(graph, place).run(*args)

        return run


class Place:
    """Which node of which run of a graph is running."""

    def __init__(self, run: int):
        self.run = run
        self.node: torch.fx.Node | None = None

    def row(self) -> Row:
        return {"run": self.run, **user_line(self.node)}


class Runner(torch.fx.Interpreter):
    """Runs a graph and says where it is."""

    def __init__(self, graph: torch.fx.GraphModule, place: Place):
        super().__init__(graph)
        self.place = place

    def run_node(self, node: torch.fx.Node) -> Any:
        self.place.node = node
        return super().run_node(node)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A region inside of the graph is run node by node as well; other higher-order operators run unwatched."""
        if not isinstance(target, torch._ops.HigherOrderOperator):
            return super().call_function(target, args, kwargs)
        if str(target) == "invoke_subgraph" and isinstance(args[0], torch.fx.GraphModule):
            return Runner(args[0], self.place).run(*args[2:])
        with _disable_current_modes():
            return super().call_function(target, args, kwargs)


def watched(function: Callable[..., Any], folder: str) -> Callable[..., Any]:
    """The function in eager mode, with its operations written to `folder` however it ends."""

    def run(*args: Any, **kwargs: Any) -> Any:
        rows: list[Row] = []
        try:
            with Operations(rows, line_running):
                return function(*args, **kwargs)
        finally:
            write(rows, folder)

    return run


def write(rows: list[Row], folder: str) -> None:
    with open(os.path.join(folder, FILE), "w") as file:
        json.dump(rows, file)
