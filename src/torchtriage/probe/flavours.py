"""Ways of running the same call in eager mode that say what a difference means.

`again` repeats it, `float64` runs it in high precision, `ulp1`.. nudge every floating input by a unit in the last
place, and so every result of an operator in half precision: its rounding is what counts there. Each is run in a process of its own, so it may change the program's state as it likes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchtriage.probe import compat, walk

LOW = (torch.float16, torch.bfloat16, torch.float32)
HALF = (torch.float16, torch.bfloat16)
NUDGED = (*LOW, torch.float64)
FLAVOURS = ("eager", "again", "float64", "ulp1", "ulp2", "ulp3")


@contextlib.contextmanager
def prepared(flavour: str, roots: dict[str, Any]) -> Iterator[None]:
    """Change what is reachable from `roots`, and how operators run, as the flavour asks."""
    if flavour == "float64":
        to_double(tensors(roots))
        with HighPrecision():
            yield
        return
    if flavour.startswith("ulp"):
        nudge(tensors(roots), int(flavour[3:]))
        with OtherRounding(int(flavour[3:])):
            yield
        return
    yield


def tensors(roots: dict[str, Any]) -> list[torch.Tensor]:
    return [leaf.value for leaf in walk.leaves(roots) if isinstance(leaf.value, torch.Tensor)]


def to_double(found: list[torch.Tensor]) -> None:
    """In place, keeping the aliases between strided tensors that share storage."""
    whole: dict[int, torch.Tensor] = {}
    with compat.unwatched():
        for tensor in found:
            if tensor.dtype not in LOW or tensor.layout != torch.strided or type(tensor) not in PLAIN:
                continue
            key = compat.storage_key(tensor)
            if key is None:
                tensor.data = tensor.data.double()
                continue
            if key not in whole:
                flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
                flat.set_(tensor.untyped_storage())  # type: ignore[call-overload]
                whole[key] = flat.double()
            view = whole[key].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
            tensor.data = view


PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def nudge(found: list[torch.Tensor], seed: int) -> None:
    """Add -1, 0 or 1 unit in the last place to each element, drawn with a fixed seed; specials stay."""
    generator = torch.Generator().manual_seed(seed)
    done: set[int] = set()
    with compat.unwatched():
        for tensor in found:
            key = compat.storage_key(tensor)
            if tensor.dtype not in NUDGED or key is None or key in done:
                continue
            if tensor.layout != torch.strided or type(tensor) not in PLAIN or tensor.is_inference():
                continue
            done.add(key)
            flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            flat.set_(tensor.untyped_storage())  # type: ignore[call-overload]
            nudge_flat(flat, generator)


def nudge_flat(flat: torch.Tensor, generator: torch.Generator) -> None:
    steps = torch.randint(-1, 2, flat.shape, generator=generator).to(flat.device)
    up = torch.nextafter(flat, torch.full_like(flat, float("inf")))
    down = torch.nextafter(flat, torch.full_like(flat, float("-inf")))
    moved = torch.where(steps > 0, up, torch.where(steps < 0, down, flat))
    special = ~torch.isfinite(flat) | ~torch.isfinite(moved) | (flat == 0) | (flat == flat.round())
    flat.copy_(torch.where(special, flat, moved))


class OtherRounding(TorchDispatchMode):
    """Moves what operators return in half precision by a unit in the last place, as other roundings would."""

    supports_higher_order_operators = True

    def __init__(self, seed: int):
        super().__init__()
        self.generator = torch.Generator().manual_seed(1000 + seed)

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not rounds(func, args):
            return result
        for tensor in result if isinstance(result, (list, tuple)) else (result,):
            if type(tensor) is torch.Tensor and tensor.dtype in HALF and tensor.layout == torch.strided:
                with contextlib.suppress(RuntimeError):  # an expanded result has no flat view
                    nudge_flat(tensor.view(-1), self.generator)
        return result


#: Operators whose results are rounded, by the beginning of their names. What only moves or chooses numbers is exact.
ROUNDING = (
    "_log_softmax", "_scaled_dot_product", "_softmax", "_to_copy", "add", "adaptive_avg", "avg_pool", "baddbmm", "bmm",
    "celu", "conv", "cos", "cumprod", "cumsum", "div", "dot", "elu", "erf", "exp", "gelu", "group_norm", "hardswish",
    "layer_norm", "lerp", "linalg", "log", "matmul", "mean", "mish", "mm", "mul", "mv", "native_batch_norm",
    "native_group_norm", "native_layer_norm", "nll_loss", "norm", "pow", "prod", "reciprocal", "rms_norm", "rsqrt",
    "rsub", "sigmoid", "silu", "sin", "softplus", "sqrt", "std", "sub", "sum", "tan", "upsample", "var",
)  # fmt: skip


def rounds(func: Any, args: Any) -> bool:
    """Whether an operator makes numbers that it has to round."""
    if not isinstance(func, torch._ops.OpOverload) or any(
        r.alias_info is not None for r in func._schema.returns
    ):
        return False
    name = func._schema.name.partition("::")[2]
    if name == "_to_copy":  # to a wider or the same precision it is exact
        return bool(args) and isinstance(args[0], torch.Tensor) and args[0].dtype not in HALF
    return name.startswith(ROUNDING) or name.endswith("_backward")


class HighPrecision(TorchDispatchMode):
    """Runs every floating operator in float64, also where the program asks for less."""

    supports_higher_order_operators = True

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **kwargs)
        if kwargs.get("dtype") in LOW:
            kwargs["dtype"] = torch.float64
        if kwargs.get("dtype") is None and creates(func):
            kwargs["dtype"] = default_dtype(func, args)
        writes = written(func)
        raised_args = [value if n in writes else raised(value) for n, value in enumerate(args)]
        raised_kwargs = {k: value if k in writes else raised(value) for k, value in kwargs.items()}
        return func(*raised_args, **raised_kwargs)


def raised(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.dtype in LOW and value.layout == torch.strided else value
    if isinstance(value, (list, tuple)):
        return type(value)(raised(v) for v in value)
    return torch.float64 if value in LOW and isinstance(value, torch.dtype) else value


def written(func: Any) -> set[int | str]:
    """Positions and names of the arguments that an operator writes to or returns a view of."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return set()
    found: set[int | str] = set()
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None:
            found |= {position, argument.name}
    return found


def creates(func: Any) -> bool:
    schema = getattr(func, "_schema", None)
    if schema is None or not any(a.name == "dtype" for a in schema.arguments):
        return False
    return not any("Tensor" in str(a.type) for a in schema.arguments)


def default_dtype(func: Any, args: Any) -> torch.dtype | None:
    """What a factory makes when it is given no dtype: float64 in place of the default float."""
    name = str(func)
    if any(
        part in name
        for part in ("arange", "full", "scalar_tensor", "randint", "randperm", "tril_ind", "triu_ind")
    ):
        return None
    return torch.float64
