"""Records as `probe.capture` writes them, made from plain values."""

from __future__ import annotations

from typing import Any

import torch

from torchtriage.oracle.compare import compare_records
from torchtriage.probe import capture

Leaf = dict[str, Any]


def leaf(value: Any, path: str = "output", group: str = "output", **changes: Any) -> Leaf:
    return {**capture.leaf_record(path, value, group), **changes}


def record(*leaves: Leaf) -> dict[str, Any]:
    return {"status": "returned", "leaves": list(leaves)}


def returned(result: Any) -> dict[str, Any]:
    """The record of a call that returned `result` and changed nothing."""
    return record(*capture.output_leaves(result, {}))


def differences(eager: Any, compiled: Any, group: str = "output", path: str = "", **flavours: Any) -> Any:
    """Compare one leaf, under the name that it has in its group."""
    path = path or {"output": "output", "state": "args[0]", "grad": "grad[args[0]]"}[group]

    def one(value: Any) -> dict[str, Any]:
        return record(value if isinstance(value, dict) else leaf(value, path, group))

    return compare_records(one(eager), one(compiled), {name: one(value) for name, value in flavours.items()})


def aspects(found: Any) -> list[str]:
    return [f["aspect"] for f in found]


def tensor(*values: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)
