"""Operators that are not torch's own: whether they do what their schema and their fake kernel say.

The compiler believes both. An operator that changes an argument in secret, returns one as its result, or has a fake
kernel with other metadata than the real one, is compiled wrongly through no fault of the compiler's.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from torchtriage.probe import compat
from torchtriage.probe.intercept import Region
from torchtriage.probe.operations import line_running, mark
from torchtriage.probe.steps import operator_name

FILE = "operators.json"
TORCHS = frozenset(
    {
        "aten", "prims", "prim", "rngprims", "debugprims", "higher_order", "inductor", "inductor_prims", "profiler",
        "c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "fsdp", "symm_mem", "mkl", "mkldnn",
        "onednn", "quantized", "quantized_decomposed", "_quantized", "sparse", "streams", "triton_kernels", "dynamo",
        "export", "aoti_custom_ops", "aoti_torch", "quantization", "_inductor_test", "bitsandbytes_internal",
    }
)  # fmt: skip


def write(region: Region, folder: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run the call in eager mode, check the operators that are not torch's, and write `operators.json`."""
    checks = Checks()
    with (
        contextlib.suppress(BaseException),
        checks,
    ):  # an error of the program's: what was found is still right
        region.function(*args, **kwargs)
    path = os.path.join(folder, FILE)
    with open(path + ".part", "w") as file:
        json.dump(checks.found, file)
    os.replace(path + ".part", path)


class Checks(TorchDispatchMode):
    """Checks the first calls of each such operator. `found` has one row a broken promise."""

    MOST = 3
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, Any]] = []
        self.calls: dict[str, int] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(function, torch._ops.OpOverload):
            return function(*args, **kwargs)
        name = operator_name(function)
        self.calls[name] = self.calls.get(name, 0) + 1
        if name.partition(".")[0] in TORCHS or self.calls[name] > self.MOST:
            return function(*args, **kwargs)
        given = tensors_by_name(function, args, kwargs)
        before = {argument: mark(tensor) for argument, tensor in given.items()}
        promised = fake_result(function, args, kwargs)
        result = function(*args, **kwargs)
        broken = [*secret_changes(function, given, before), *secret_aliases(function, given, result)]
        if promised is not None:
            broken += other_metadata(promised, result)
        for what in broken:
            row = {"operator": name, "what": what, **line_running()}
            if not any((r["operator"], r["what"]) == (name, what) for r in self.found):
                self.found.append(row)
        return result


def tensors_by_name(function: Any, args: Any, kwargs: Any) -> dict[str, torch.Tensor]:
    """argument -> tensor, for the arguments that are tensors themselves."""
    names = [argument.name for argument in function._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}


def secret_changes(function: Any, given: dict[str, torch.Tensor], before: dict[str, str]) -> list[str]:
    open_ones = {
        a.name for a in function._schema.arguments if a.alias_info is not None and a.alias_info.is_write
    }
    written = {compat.storage_key(given[name]) for name in open_ones if name in given}
    open_ones |= {name for name, tensor in given.items() if compat.storage_key(tensor) in written}
    changed = [
        name for name, tensor in given.items() if name not in open_ones and mark(tensor) != before[name]
    ]
    return [f"changes its argument {name} in place, which its schema does not say" for name in changed]


def secret_aliases(function: Any, given: dict[str, torch.Tensor], result: Any) -> list[str]:
    if any(returned.alias_info is not None for returned in function._schema.returns):
        return []
    owners = {compat.storage_key(tensor): name for name, tensor in given.items()}
    owners.pop(None, None)
    leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    shared = {owners[key] for leaf in leaves if (key := compat.storage_key(leaf)) in owners}
    return [
        f"returns memory of its argument {name}, which its schema does not say" for name in sorted(shared)
    ]


def fake_result(function: Any, args: Any, kwargs: Any) -> Any | None:
    """What the fake kernel promises; None where there is none, or where it cannot say."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with _disable_current_modes(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fakes = tree_map_only(torch.Tensor, lambda t: mode.from_tensor(t.detach()), (args, kwargs))
            return function(*fakes[0], **fakes[1])
    except Exception:
        return None


def other_metadata(promised: Any, result: Any) -> list[str]:
    """In what the real result is not what the fake kernel promised."""
    expected = [leaf for leaf in tree_leaves(promised) if isinstance(leaf, torch.Tensor)]
    real = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    if len(expected) != len(real):
        return [f"returns {len(real)} tensors where its fake kernel returns {len(expected)}"]
    said = []
    for number, (fake, tensor) in enumerate(zip(expected, real, strict=True)):
        for what in ("dtype", "shape", "stride", "device"):
            a, b = metadata(fake, what), metadata(tensor, what)
            if a != b and not (what == "stride" and tensor.numel() < 2):
                which = f"result {number}" if len(real) > 1 else "its result"
                said.append(f"has another {what} of {which} ({b}) than its fake kernel says ({a})")
                break
    return said


def metadata(tensor: torch.Tensor, what: str) -> str:
    if what == "stride":  # that of a dimension of size 1 means nothing
        strides = zip(tensor.shape, tensor.stride(), strict=True) if tensor.layout == torch.strided else ()
        return str(tuple(stride if size > 1 else 1 for size, stride in strides))
    found = getattr(tensor, what)
    return str(tuple(found)) if what == "shape" else str(found)
