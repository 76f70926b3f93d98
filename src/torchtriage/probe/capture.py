"""Turns what a call did into a record: plain data and tensors that another process can read and compare.

A record has *leaves*. Each is a dict with `path`, `group` (output, state, grad), `kind` (tensor, value, opaque)
and, for tensors, metadata and a copy of the data on the CPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
import sys
import zlib
from collections.abc import Iterable
from typing import Any

import torch

from torchtriage.probe import compat, walk

SAMPLE = 1 << 16
"""Tensors above this many elements times 16 are fingerprinted by a sample and their version counter."""
WHOLE = 1 << 18
"""Floating tensors up to this many elements are recorded whole."""
BLOCKS = 4096
Record = dict[str, Any]
State = dict[str, tuple[Any, Any]]
"""path -> (value, fingerprint)."""


def fingerprint(value: Any) -> Any:
    """Something that changes when the content of a leaf changes. Cheap for large tensors."""
    if isinstance(value, torch.Tensor):
        return tensor_fingerprint(value)
    if compat.is_array(value):
        return ("array", str(value.dtype), value.shape, zlib.crc32(value.tobytes()))
    return (type(value).__name__, repr(value))


def tensor_fingerprint(tensor: torch.Tensor) -> Any:
    try:
        with compat.unwatched():
            meta = (
                str(tensor.dtype), tuple(tensor.shape), str(tensor.device), str(tensor.layout),
                tensor.requires_grad, type(tensor).__name__,
            )  # fmt: skip
            parts = [checksum(part) for _, part in plain_parts(tensor)]
            return (*meta, tuple(parts))
    except Exception as error:  # a poisoned process, a fake tensor, a subclass that refuses
        return ("unreadable", type(error).__name__)


def checksum(tensor: torch.Tensor) -> int:
    tensor = tensor.detach()
    version = 0
    if tensor.numel() > 16 * SAMPLE:
        version = tensor._version if not tensor.is_inference() else 0
        flat = tensor.as_strided((tensor.numel(),), (1,)) if tensor.is_contiguous() else tensor.reshape(-1)
        tensor = flat[:: max(1, flat.numel() // SAMPLE)]
    return zlib.crc32(as_bytes(tensor)) ^ version


def as_bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().to("cpu").resolve_conj().resolve_neg().contiguous()
    if not flat.numel():
        return b""
    try:
        return flat.reshape(-1).view(torch.uint8).numpy().tobytes()  # type: ignore[no-any-return]
    except RuntimeError as error:
        if "Numpy is not available" not in str(error):
            raise
    return ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size())


def plain_parts(tensor: torch.Tensor) -> Iterable[tuple[str, torch.Tensor]]:
    """The dense tensors that a leaf consists of: itself, or what a sparse, quantised or subclass tensor holds."""
    flatten = getattr(type(tensor), "__tensor_flatten__", None)
    if flatten is not None and type(tensor) is not torch.nn.Parameter:
        names, _ = tensor.__tensor_flatten__()
        for name in names:
            for inner, part in plain_parts(getattr(tensor, name)):
                yield f".{name}{inner}", part
    elif tensor.layout == torch.sparse_coo:
        whole = tensor.coalesce()
        yield ".indices", whole.indices()
        yield ".values", whole.values()
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        yield ".crow_indices", tensor.crow_indices()
        yield ".col_indices", tensor.col_indices()
        yield ".values", tensor.values()
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        yield ".ccol_indices", tensor.ccol_indices()
        yield ".row_indices", tensor.row_indices()
        yield ".values", tensor.values()
    elif tensor.is_quantized:
        yield "", tensor.int_repr()
    else:
        yield "", tensor.as_subclass(torch.Tensor) if type(tensor) is not torch.Tensor else tensor


def state_of(roots: dict[str, Any]) -> State:
    """path -> (leaf, fingerprint) for everything reachable from the roots."""
    return {leaf.path: (leaf.value, fingerprint(leaf.value)) for leaf in walk.leaves(roots)}


def digest(state: State) -> str:
    """One word for the whole state, the random generators included."""
    sha = hashlib.sha256()
    for path, (_, mark) in sorted(state.items()):
        sha.update(f"{path}={mark}\n".encode(errors="replace"))
    sha.update(rng_mark().encode())
    return sha.hexdigest()


def rng_mark() -> str:
    parts = [zlib.crc32(as_bytes(torch.get_rng_state()))]
    if torch.cuda.is_initialized():
        parts += [zlib.crc32(as_bytes(state)) for state in torch.cuda.get_rng_state_all()]
    parts.append(zlib.crc32(repr(random.getstate()).encode()))
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        parts.append(zlib.crc32(repr(numpy.random.get_state()).encode()))
    return str(parts)


def output_leaves(result: Any, names: dict[int, str]) -> list[Record]:
    """Leaves of what the region returned. `names` maps storage keys of inputs to their paths."""
    found = walk.leaves({"output": result}, repeats=True)
    recorded = [leaf_record(leaf.path, leaf.value, "output") for leaf in found]
    known = dict(names)
    for leaf, record in zip(found, recorded, strict=True):
        if isinstance(leaf.value, torch.Tensor):
            key = compat.storage_key(leaf.value)
            if key is not None:
                record["alias"] = known.setdefault(key, leaf.path)
    recorded.append({"path": "output", "group": "structure", "kind": "value", "value": structure(result)})
    return recorded


def structure(result: Any, depth: int = 0) -> str:
    """The shape of the containers, without the leaves: `tuple(Tensor, dict(loss=Tensor))`."""
    if depth > 8:
        return "..."
    kind = type(result).__name__
    if isinstance(result, torch.Tensor):
        return "Tensor"
    if isinstance(result, dict) or hasattr(result, "keys"):
        try:
            return f"{kind}({', '.join(f'{k}={structure(v, depth + 1)}' for k, v in result.items())})"
        except Exception:
            return kind
    if isinstance(result, (list, tuple)):
        return f"{kind}({', '.join(structure(v, depth + 1) for v in result)})"
    return kind


def changed_leaves(before: State, after: State) -> list[Record]:
    """What the call did to its inputs, its module and everything else it can reach."""
    records = []
    for path, (value, mark) in after.items():
        if path not in before or before[path][1] != mark:
            if isinstance(mark, tuple) and mark[0] == "unreadable":
                continue
            records.append(leaf_record(path, value, "state"))
    records += [{"path": path, "group": "state", "kind": "gone"} for path in before if path not in after]
    return records


def leaf_record(path: str, value: Any, group: str) -> Record:
    if isinstance(value, torch.Tensor):
        return tensor_record(path, value, group)
    if compat.is_array(value):
        record = tensor_record(path, array_tensor(value), group)
        record["subclass"] = f"ndarray[{value.dtype}]"
        return record
    if isinstance(value, (bool, int, float, complex, str, bytes, type(None))):
        plain = value if type(value) in (bool, int, float, complex, str, bytes, type(None)) else repr(value)
        return {"path": path, "group": group, "kind": "value", "value": plain, "type": type(value).__name__}
    return {"path": path, "group": group, "kind": "value", "value": repr(value), "type": type(value).__name__}


def array_tensor(array: Any) -> torch.Tensor:
    try:
        return torch.from_numpy(array.copy())
    except TypeError:  # a dtype that torch lacks
        return torch.frombuffer(bytearray(array.tobytes() or b"\0"), dtype=torch.uint8)


def tensor_record(path: str, tensor: torch.Tensor, group: str) -> Record:
    """Metadata and data of one tensor. Raises whatever reading it raises."""
    record: Record = {
        "path": path,
        "group": group,
        "kind": "tensor",
        "dtype": str(tensor.dtype),
        "shape": [plain_size(n) for n in tensor.shape],
        "device": str(tensor.device),
        "layout": str(tensor.layout),
        "requires_grad": bool(tensor.requires_grad),
        "subclass": type(tensor).__qualname__,
        "inference": bool(tensor.is_inference()),
    }
    with compat.unwatched():
        if tensor.layout == torch.strided:
            try:
                record["stride"] = [plain_size(n) for n in tensor.stride()]
            except RuntimeError:
                record["stride"] = []
        if tensor.is_quantized:
            record["quantiser"] = str(tensor.qscheme()) + quantiser(tensor)
        record["parts"] = {
            f"{name}{more}": kept for name, part in plain_parts(tensor) for more, kept in kept_of(part)
        }
    return record


def plain_size(size: Any) -> Any:
    """An integer; the name of a size that is not one (of a nested tensor)."""
    try:
        return int(size)
    except Exception:
        return str(size)


def kept_of(part: torch.Tensor) -> Iterable[tuple[str, torch.Tensor]]:
    """A copy on the CPU; of a large tensor both ends, an even sample, and the extremes of each of many blocks."""
    plain = part.detach().to("cpu").resolve_conj().resolve_neg()
    if plain.numel() <= WHOLE or not plain.dtype.is_floating_point:
        yield "", plain.clone(memory_format=torch.contiguous_format)
        return
    flat = plain.reshape(-1)
    ends = WHOLE // 4
    yield "<first>", flat[:ends].clone()
    yield "<last>", flat[-ends:].clone()
    yield "<sample>", flat[:: max(1, flat.numel() // (2 * ends))].clone()
    rows = flat[: flat.numel() // BLOCKS * BLOCKS].reshape(BLOCKS, -1)
    yield "<block maxima>", rows.amax(1)
    yield "<block minima>", rows.amin(1)


def quantiser(tensor: torch.Tensor) -> str:
    try:
        return f" scale={tensor.q_scale()} zero_point={tensor.q_zero_point()}"
    except RuntimeError:
        return ""


def cotangent(path: str, tensor: torch.Tensor, position: int) -> torch.Tensor:
    """A fixed random cotangent: the same in every process for the same output."""
    generator = torch.Generator().manual_seed(1009 * (position + 1))
    dtype = tensor.dtype if tensor.dtype.is_complex else torch.float64
    drawn = torch.randn(tuple(tensor.shape), generator=generator, dtype=dtype)
    return drawn.to(tensor.dtype).to(tensor.device)


def differentiable(result: Any, before: State, versions: dict[str, int]) -> list[tuple[str, torch.Tensor]]:
    """What a backward can start from: outputs, and inputs that the call changed in place."""
    found = [(leaf.path, leaf.value) for leaf in walk.leaves({"output": result})]
    found += [(path, before[path][0]) for path in versions if mutated(path, before, versions)]
    return [
        (path, value)
        for path, value in found
        if isinstance(value, torch.Tensor)
        and value.requires_grad
        and value.grad_fn is not None
        and value.layout == torch.strided
    ]


def versions_of(state: State) -> dict[str, int]:
    """path -> version counter, for tensors that have one."""
    return {
        path: value._version
        for path, (value, _) in state.items()
        if isinstance(value, torch.Tensor) and not value.is_inference()
    }


def mutated(path: str, before: State, versions: dict[str, int]) -> bool:
    return bool(before[path][0]._version != versions[path])


def sources(before: State, versions: dict[str, int]) -> list[tuple[str, torch.Tensor]]:
    """What gradients are asked for: leaves, inputs that were not changed in place, and the leaves above inputs.

    An input that is changed in place is another point of the autograd graph afterwards: only what lies above it
    means the same in eager and compiled.
    """
    found: list[tuple[str, torch.Tensor]] = []
    seen: set[int] = set()
    for path, (value, _) in before.items():
        if not isinstance(value, torch.Tensor) or not value.requires_grad or path.endswith(".grad"):
            continue
        if (value.is_leaf or not mutated(path, before, versions)) and id(value) not in seen:
            seen.add(id(value))
            found.append((path, value))
    return found


def leaves_above(before: State) -> dict[str, list[tuple[str, torch.Tensor]]]:
    """path of an input -> the leaf tensors from which it was computed, before the call.

    Leaves are named by their content: what lies between them and the input may itself have been compiled, so
    their order says nothing.
    """
    return {
        path: [
            (f"{path}<leaf {tuple(leaf.shape)} {checksum(leaf):08x}>", leaf)
            for leaf in leaves_of(value.grad_fn)
        ]
        for path, (value, _) in before.items()
        if isinstance(value, torch.Tensor) and value.grad_fn is not None
    }


def leaves_of(root: Any) -> list[torch.Tensor]:
    found, queue, seen = [], [root], set[Any]()
    while queue and len(seen) < 2000:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        queue += [parent for parent, _ in node.next_functions]
    return found


def gradients(
    result: Any, before: State, versions: dict[str, int], above: dict[str, list[tuple[str, torch.Tensor]]]
) -> list[Record]:
    """Gradients of every input and parameter from one backward with fixed cotangents.

    Raises what the backward raises. No `.grad` is touched.
    """
    outputs = differentiable(result, before, versions)
    inputs = sources(before, versions)
    known = {id(tensor) for _, tensor in inputs}
    for path, leaves in above.items():
        if mutated(path, before, versions):
            inputs += [(name, leaf) for name, leaf in leaves if id(leaf) not in known]
    if not outputs or not inputs:
        return []
    cotangents = [cotangent(path, tensor, n) for n, (path, tensor) in enumerate(outputs)]
    with torch.enable_grad():
        found = torch.autograd.grad(
            [tensor for _, tensor in outputs],
            [tensor for _, tensor in inputs],
            cotangents,
            allow_unused=True,
        )
    return [gradient_record(path, gradient) for (path, _), gradient in zip(inputs, found, strict=True)]


def gradient_record(path: str, gradient: torch.Tensor | None) -> Record:
    name = f"grad[{path}]"
    if gradient is None:
        return {"path": name, "group": "grad", "kind": "value", "value": None, "type": "NoneType"}
    record = tensor_record(name, gradient, "grad")
    record.pop("stride", None)  # the layout of a gradient is the engine's choice
    record.pop("requires_grad", None)
    return record


def save(record: Record, path: str) -> None:
    """Write a record so that a reader never sees half of one."""
    import os

    torch.save(record, path + ".part")
    os.replace(path + ".part", path)


def load(path: str) -> Record:
    return torch.load(path, weights_only=True)  # type: ignore[no-any-return]
