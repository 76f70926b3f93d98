"""Writes the graphs that Dynamo captures as Python functions, with what their inputs are.

The result is torch code as a person writes it (`torch.relu(x @ w)`), not ATen operators: what Dynamo captures is that.
"""

from __future__ import annotations

import importlib
import keyword
import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchtriage.probe import notes

MOST_GRAPHS = 60
INFIX = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and_": "&", "or_": "|", "xor": "^",
    "lshift": "<<", "rshift": ">>",
}  # fmt: skip
PREFIX = {"neg": "-", "invert": "~", "pos": "+", "not_": "not "}
#: where public names are looked for, the first that has the very function wins
HOMES = (
    "torch", "torch.nn.functional", "torch.special", "torch.linalg", "torch.fft", "torch.sparse", "math", "operator",
)  # fmt: skip


class CannotWrite(Exception):
    """The graph holds something that has no Python text."""


class Captured:
    """A backend that writes each graph down, and hands it on to another backend."""

    def __init__(self, backend: str):
        self.backend = backend
        self.graphs: list[dict[str, Any]] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any], **more: Any) -> Callable[..., Any]:
        inner: Callable[..., Any] = torch._dynamo.lookup_backend(self.backend)  # type: ignore[no-untyped-call]
        if len(self.graphs) < MOST_GRAPHS:
            try:
                self.graphs.append(write(graph, inputs))
            except CannotWrite as error:
                self.graphs.append({"problem": str(error)})
        return inner(graph, inputs, **more)


def write(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> dict[str, Any]:
    """`text`: functions, the last of which is the graph; `name` of it; `inputs`: name and note of each; `imports`."""
    writer = Writer()
    text = writer.function(graph, "f")
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    described = []
    for node, value in zip(placeholders, inputs, strict=False):
        if isinstance(value, torch.SymInt) or type(value) is int:
            described.append([writer.names[node], {"kind": "plain", "text": str(int(value)), "size": True}])
            continue
        if isinstance(value, torch.SymFloat) or type(value) is float:
            described.append([writer.names[node], {"kind": "plain", "text": repr(float(value))}])
            continue
        note = notes.describe(value)
        if note["kind"] == "other":
            raise CannotWrite(f"an input is a {type(value).__name__}")
        described.append([writer.names[node], note])
    described += writer.constants
    nodes = sum(n.op.startswith("call_") for n in graph.graph.nodes)
    return {
        "text": "\n".join([*writer.done, text]),
        "inputs": described,
        "nodes": nodes,
        "imports": sorted(writer.imports),
    }


class Writer:
    """Names for nodes, and text for what they do."""

    def __init__(self) -> None:
        self.names: dict[torch.fx.Node, str] = {}
        self.taken = {"torch", "f", "run", "kept", "math", "operator"}
        self.done: list[str] = []
        self.constants: list[list[Any]] = []
        self.imports: set[str] = {"torch"}

    def function(self, graph: torch.fx.GraphModule, name: str) -> str:
        """A graph as a function; graphs inside of it go to `done` first."""
        rows: list[str] = []
        parameters: list[str] = []
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                parameters.append(self.name(node))
            elif node.op == "output":
                rows.append(f"return {self.value(node.args[0])}")
            elif node.op == "get_attr":
                self.attribute(graph, node, parameters if name == "f" else None)
            else:
                rows.append(self.statement(node))
        return f"def {name}({', '.join(parameters)}):\n" + "".join(f"    {row}\n" for row in rows or ["pass"])

    def attribute(
        self, graph: torch.fx.GraphModule, node: torch.fx.Node, parameters: list[str] | None
    ) -> None:
        found: Any = graph
        for part in str(node.target).split("."):
            found = getattr(found, part)
        if isinstance(found, torch.fx.GraphModule):
            self.names[node] = self.free(str(node.target))
            self.done.append(self.function(found, self.names[node]))
            return
        note = notes.describe(found)
        if parameters is None or note["kind"] != "tensor":
            raise CannotWrite(f"the graph holds a {type(found).__name__}")
        parameters.append(self.name(node))
        self.constants.append([self.names[node], note])

    def name(self, node: torch.fx.Node) -> str:
        self.names[node] = self.free(node.name)
        return self.names[node]

    def free(self, wanted: str) -> str:
        """A short name that nothing has yet: `l_self_modules_proj_parameters_weight_` becomes `proj_weight`."""
        text = re.sub(r"^[LlGg]_|_+$", "", wanted)
        text = re.sub(r"_?(self|modules|parameters|buffers|args|kwargs|stack\d*)_+", "_", text).strip("_")
        parts = [p for p in text.split("_") if p]
        text = "_".join(parts[-2:]) if len(parts) > 3 else "_".join(parts)
        if not text.isidentifier() or keyword.iskeyword(text):
            text = f"v{text}" if f"v{text}".isidentifier() else "v"
        found, number = text, 1
        while found in self.taken:
            number += 1
            found = f"{text}_{number}"
        self.taken.add(found)
        return found

    # --- what a node does ---------------------------------------------------------------------------------

    def statement(self, node: torch.fx.Node) -> str:
        args, kwargs = node.args, node.kwargs
        if node.target is operator.setitem:
            target, index, value = args
            return f"{self.value(target)}[{self.index(index)}] = {self.value(value)}"
        text = self.expression(node, args, kwargs)
        return f"{self.name(node)} = {text}" if node.users else text

    def expression(self, node: torch.fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        target: Any = node.target
        if node.op == "call_method":
            return f"{self.operand(args[0])}.{target}({self.arguments(args[1:], kwargs)})"
        if node.op != "call_function":
            raise CannotWrite(f"a node is a {node.op}")
        short = getattr(target, "__name__", "")
        if target is operator.getitem:
            return f"{self.operand(args[0])}[{self.index(args[1])}]"
        if target is getattr:
            return f"{self.operand(args[0])}.{args[1]}"
        if getattr(operator, short, None) is target and short in INFIX:
            return f"{self.operand(args[0])} {INFIX[short]} {self.operand(args[1])}"
        if getattr(operator, short, None) is target and short in PREFIX:
            return f"{PREFIX[short]}{self.operand(args[0])}"
        special = self.higher_order(target, args, kwargs)
        return special or f"{self.function_name(target)}({self.arguments(args, kwargs)})"

    def higher_order(self, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        """The user's spelling of operators that take functions."""
        if not isinstance(target, torch._ops.HigherOrderOperator):
            return ""
        if target.name() == "tag_activation_checkpoint":
            self.imports.add("torch.utils.checkpoint")
            return f"torch.utils.checkpoint.checkpoint({self.arguments(args, {})}, use_reentrant=False)"
        if target.name() == "cond":
            return f"torch.cond({self.arguments(args, {})})"
        raise CannotWrite(f"the graph calls {target.name()}")

    def function_name(self, target: Any) -> str:
        if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            return f"torch.ops.{target!s}"
        short = getattr(target, "__name__", "")
        for home in HOMES:
            if getattr(importlib.import_module(home), short, None) is target:
                self.imports.add(home.partition(".")[0])
                return f"{home}.{short}"
        module = str(getattr(target, "__module__", "") or "")
        if module == "torch._C._nn" or getattr(torch._C._nn, short, None) is target:
            return f"torch._C._nn.{short}"
        try:
            found = getattr(importlib.import_module(module), short) is target
        except (ImportError, AttributeError, ValueError):
            found = False
        if not found:
            raise CannotWrite(f"the graph calls {target!r}")
        self.imports.add(module)
        return f"{module}.{short}"

    # --- arguments ----------------------------------------------------------------------------------------

    def arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        return ", ".join([*map(self.value, args), *(f"{k}={self.value(v)}" for k, v in kwargs.items())])

    def operand(self, value: Any) -> str:
        text = self.value(value)
        return (
            text
            if re.fullmatch(r"[\w.]+", text) and not text[0].isdigit()
            else f"({text})"
            if not isinstance(value, (int, float))
            else text
        )

    def value(self, value: Any) -> str:
        match value:
            case torch.fx.Node():
                return self.names[value]
            case torch.SymInt() | torch.SymFloat() | torch.SymBool():
                raise CannotWrite("a symbolic size is a constant of the graph")
            case float() if math.isinf(value) or math.isnan(value):
                return f"float('{value}')"
            case None | bool() | int() | float() | str() | complex():
                return repr(value)
            case torch.dtype() | torch.layout() | torch.memory_format():
                return str(value)
            case torch.device():
                return repr(str(value))
            case slice():
                return f"slice({self.value(value.start)}, {self.value(value.stop)}, {self.value(value.step)})"
            case tuple():
                inner = ", ".join(map(self.value, value))
                return f"({inner},)" if len(value) == 1 else f"({inner})"
            case list():
                return f"[{', '.join(map(self.value, value))}]"
            case dict():
                return "{" + ", ".join(f"{k!r}: {self.value(v)}" for k, v in value.items()) + "}"
        if value is Ellipsis:
            return "..."
        raise CannotWrite(f"an argument is a {type(value).__name__}")

    def index(self, value: Any) -> str:
        """What stands in square brackets, slices with colons."""
        if isinstance(value, tuple) and value:
            return ", ".join(map(self.index, value)) + ("," if len(value) == 1 else "")
        if isinstance(value, slice):
            ends = ["" if v is None else self.value(v) for v in (value.start, value.stop)]
            return ":".join(ends) + ("" if value.step is None else f":{self.value(value.step)}")
        return self.value(value)
