"""The road over the captured graph: scripts that compile one graph of a program, by itself, with fresh inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchtriage.reduce.notes import literals


def scripts(graphs: Sequence[Mapping[str, Any]], backward: bool, last_first: bool) -> Iterator[str]:
    """Scripts to try, for each graph that could be written. `last_first`: the last graph is the one that failed."""
    written = [g for g in graphs if "text" in g]
    unique = {g["text"]: g for g in (reversed(written) if last_first else written)}
    for values in ("random", "noted", "ones"):
        for graph in unique.values():
            for more in dict.fromkeys((backward, True)):
                yield script(graph, values, more)


def script(graph: Mapping[str, Any], values: str, backward: bool) -> str:
    """One graph, compiled and called, with `values` (random, noted, ones) for its inputs."""
    imports = [f"import {name}" for name in graph["imports"]]
    lines = [*imports, "", graph["text"], "torch.manual_seed(0)"]
    symbolic = any(note.get("size") for _, note in graph["inputs"])
    given = [choose(note, values) for _, note in graph["inputs"]]
    dynamic = ", dynamic=True" if symbolic else ""
    lines.append(f"out = torch.compile(f{dynamic})({', '.join(given)})")
    if backward:
        lines.append(
            "sum(o.float().sum() for o in out if isinstance(o, torch.Tensor) and o.requires_grad).backward()"
        )
    return "\n".join(lines) + "\n"


def choose(note: Mapping[str, Any], values: str) -> str:
    options = literals(note)
    if not options:
        return "None"
    wanted = {"random": ("randn", "randint", "as_strided"), "noted": ("tensor(",), "ones": ("ones",)}[values]
    if not note.get("contiguous", True):
        wanted = ("as_strided", *wanted)
    for word in wanted:
        for option in options:
            if word in option:
                return option
    return options[0]
