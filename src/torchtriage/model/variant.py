"""What is changed about a compilation for one trial. Plain data: hashable, comparable, JSON in and out.

A field that is `OWN` leaves that aspect as the program has it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

OWN: Literal["own"] = "own"
DEBUG_BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")
DYNAMIC_SETTINGS: tuple[bool | None, ...] = (None, True, False)

#: One switch: the dotted name of a torch config value, and the value that it is given.
Switch = tuple[str, Any]


#: The subsystem whose steps are the nodes that Dynamo captured, for any backend: nodes past the limit stay eager.
GRAPH_NODES = "graph nodes"


@dataclass(frozen=True)
class Limit:
    """Apply only the first `maximum` steps of a subsystem (a pass, a lowering, a decomposition, a graph node)."""

    backend: str
    subsystem: str
    maximum: int
    start: int = 0
    """Steps up to this number are left out as well; graph nodes only."""


@dataclass(frozen=True)
class Variant:
    """How the regions of a program are compiled in one trial."""

    backend: str = OWN
    dynamic: bool | Literal["own"] | None = OWN
    mode: str = OWN
    fullgraph: bool | Literal["own"] = OWN
    switches: tuple[Switch, ...] = ()
    disabled: tuple[str, ...] = ()
    """Functions to wrap in `torch.compiler.disable`, as `module:qualified.name`, with `|staticmethod` and the like.

    A function that is itself handed to torch.compile (`|region`) would be unwrapped again: it is not compiled instead.
    """
    eager_operators: tuple[str, ...] = ()
    """ATen overloads that Inductor sends to their eager kernel, as `aten.ldexp.Tensor`."""
    limit: Limit | None = None
    caches: bool = False
    """Whether the compiler's caches are on, in a folder private to the trial."""
    threads: int = 1

    def with_switches(self, *more: Switch) -> Variant:
        merged = dict(self.switches)
        merged.update(more)
        return dataclasses.replace(self, switches=tuple(sorted(merged.items())))

    def to_json(self) -> dict[str, Any]:
        """Only the fields that are not at their default, so that keys stay short and stable."""
        plain: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default or isinstance(value, bool) != isinstance(field.default, bool):
                plain[field.name] = dataclasses.asdict(value) if isinstance(value, Limit) else value
        return plain

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Variant:
        fields = dict(plain)
        if fields.get("limit"):
            fields["limit"] = Limit(**fields["limit"])
        for name in ("disabled", "eager_operators"):
            if name in fields:
                fields[name] = tuple(fields[name])
        if "switches" in fields:
            fields["switches"] = tuple((name, value) for name, value in fields["switches"])
        return cls(**fields)

    def lines(self) -> list[str]:
        """The change as Python that a user can paste at the top of the program, a line each."""
        return [line for change in self.changes() for line in change.splitlines()]

    def changes(self) -> list[str]:
        changes = [f"{name} = {value!r}" for name, value in self.switches]
        changes += [disable_line(name) for name in self.disabled]
        changes += [eager_operator_lines(name) for name in self.eager_operators]
        arguments = []
        if self.backend != OWN:
            arguments.append(f"backend={self.backend!r}")
        if self.dynamic != OWN:
            arguments.append(f"dynamic={self.dynamic!r}")
        if self.mode != OWN:
            arguments.append(f"mode={self.mode!r}")
        if self.fullgraph != OWN:
            arguments.append(f"fullgraph={self.fullgraph!r}")
        if arguments:
            changes.append(f"torch.compile(..., {', '.join(arguments)})")
        return changes


def disable_line(name: str) -> str:
    """`pkg.mod:Block.rescale` -> the assignment that keeps it out of the compiler."""
    module, _, rest = name.partition(":")
    qualified, _, kind = rest.partition("|")
    dotted = qualified if module == "__main__" else f"{module}.{qualified}"
    if kind == "region":
        return f"torch.compile({qualified}, ..., disable=True)"
    if kind == "staticmethod":
        return f"{dotted} = staticmethod(torch.compiler.disable({dotted}))"
    if kind == "classmethod":
        return f"{dotted} = classmethod(torch.compiler.disable({dotted}.__func__))"
    return f"{dotted} = torch.compiler.disable({dotted})"


def eager_operator_lines(name: str) -> str:
    """The lines that make Inductor call the eager kernel of one overload; what is not torch's is left out of the graph."""
    if not name.startswith(("aten.", "prims.")):
        return f"import torch._dynamo\ntorch._dynamo.disallow_in_graph(torch.ops.{name})"
    return (
        "import torch._inductor.decomposition, torch._inductor.lowering\n"
        f"torch._inductor.decomposition.decompositions.pop(torch.ops.{name}, None)\n"
        f"torch._inductor.lowering.make_fallback(torch.ops.{name}, warn=False, override_decomp=True)"
    )
