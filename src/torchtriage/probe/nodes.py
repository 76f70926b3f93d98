"""A backend that hands only some of the captured nodes to another backend; the others run as Dynamo captured them.

Which node a compiler gets wrong is then a question of numbers, for every backend and every kind of failure.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.passes.split_module import split_module

from torchtriage.probe.steps import operator_name, user_line

CANNOT_SPLIT = "torchtriage cannot divide the graph here"
BEFORE, CHOSEN, AFTER = 0, 1, 2


class Nodes:
    """Counts the nodes of all graphs in the order in which they are compiled, and chooses a range of them.

    `count` and `steps` are those of a step log: what can be limited, and what each step was.
    """

    def __init__(self, backend: str, start: int, maximum: int, limit_of_notes: int = 5000):
        self.backend, self.start, self.maximum = backend, start, maximum
        self.limit_of_notes = limit_of_notes
        self.steps: list[dict[str, Any]] = []
        self.count = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any], **more: Any) -> Callable[..., Any]:
        inner: Callable[..., Any] = torch._dynamo.lookup_backend(self.backend)  # type: ignore[no-untyped-call]
        nodes = [node for node in graph.graph.nodes if node.op.startswith("call_")]
        sides = self.sides(nodes)
        chosen = [node for node in nodes if sides[node] == CHOSEN]
        if not chosen:
            return graph.forward
        if len(chosen) == len(nodes):
            return inner(graph, inputs, **more)  # type: ignore[no-any-return]
        whole = split_module(graph, None, lambda node: sides[node], keep_original_order=True)  # type: ignore[arg-type,return-value]
        part = getattr(whole, f"submod_{CHOSEN}")
        known = dict(zip((n.name for n in graph.graph.find_nodes(op="placeholder")), inputs, strict=False))
        wanted = part.graph.find_nodes(
            op="placeholder"
        )  # they keep the names and the metadata of their nodes
        examples = [known[n.name] if n.name in known else n.meta["example_value"] for n in wanted]
        single, mode = tuple_output(part), grad_mode_after(part)
        setattr(whole, f"submod_{CHOSEN}", Compiled(inner(part, examples), single, mode))
        return whole.forward

    def sides(self, nodes: Sequence[torch.fx.Node]) -> dict[torch.fx.Node, int]:
        """Where each node runs. What takes an item of a result that is no tensor goes with its node: it is no step."""
        found: dict[torch.fx.Node, int] = {}
        for node in nodes:
            owner = node.args[0] if node.target is operator.getitem else None
            several = isinstance(owner, torch.fx.Node) and holds_several(owner)
            found[node] = found[owner] if several and owner in found else self.side(node)  # type: ignore[index]
        return found

    def side(self, node: torch.fx.Node) -> int:
        self.count += 1
        if len(self.steps) < self.limit_of_notes:
            self.steps.append({"index": self.count, "name": name_of(node), **user_line(node)})
        if self.count <= self.start:
            return BEFORE
        return CHOSEN if self.count <= self.maximum else AFTER


class CannotSplit(Exception):
    """The graph cannot be divided here. Never the failure that is looked for."""


def holds_several(node: torch.fx.Node) -> bool:
    """Whether a node's result is a tuple or the like, and no tensor."""
    return isinstance(node.meta.get("example_value"), (tuple, list))


class Compiled(torch.nn.Module):
    """A compiled part, as the module that a split graph wants."""

    def __init__(self, function: Callable[..., Any], single: bool, grad_mode: bool | None):
        super().__init__()
        self.function, self.single, self.grad_mode = function, single, grad_mode

    def forward(self, *args: Any) -> Any:
        result = self.function(*args)
        if self.grad_mode is not None:  # AOTAutograd can lose the change where a part begins in no_grad
            torch._C._set_grad_enabled(self.grad_mode)
        return result[0] if self.single else result


def grad_mode_after(part: torch.fx.GraphModule) -> bool | None:
    """The grad mode that a graph leaves behind, where it sets one."""
    found = [n.args[0] for n in part.graph.nodes if n.target is torch._C._set_grad_enabled]
    return bool(found[-1]) if found else None


def tuple_output(part: torch.fx.GraphModule) -> bool:
    """Backends want graphs that return tuples. Whether this one did not, and had to be changed."""
    output = next(iter(part.graph.find_nodes(op="output")))
    if any(holds_several(node) for node in output.all_input_nodes):
        raise CannotSplit(CANNOT_SPLIT)
    if isinstance(output.args[0], (tuple, list)):
        return False
    output.args = ((output.args[0],),)
    part.recompile()
    return True


def name_of(node: torch.fx.Node) -> str:
    """`aten.ldexp` where the node is a function of torch's with an ATen operator of that name, else what it calls."""
    target = node.target
    if isinstance(target, str):
        found = target if node.op == "call_module" else f"aten.{target}"
        return found if node.op == "call_module" or hasattr(torch.ops.aten, target) else f"Tensor.{target}"
    if isinstance(target, torch._ops.OpOverload):
        return operator_name(target)
    short = str(getattr(target, "__name__", target))
    if hasattr(torch.ops.aten, short):
        return f"aten.{short}"
    module = str(getattr(target, "__module__", "") or "").lstrip("_")
    return f"{module}.{short}" if module else short
