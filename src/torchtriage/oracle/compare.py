"""Compares the record of a compiled call with that of the same call in eager mode, leaf by leaf.

A record is what `probe.capture` writes: plain dicts and CPU tensors. The result is plain too: dicts with the
fields of `model.outcome.Difference`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchtriage.oracle import noise

Record = Mapping[str, Any]
Leaf = Mapping[str, Any]
Found = dict[str, Any]

#: metadata -> (aspect, how to say it)
METADATA = {
    "subclass": "subclass",
    "layout": "layout",
    "device": "device",
    "dtype": "dtype",
    "shape": "shape",
    "quantiser": "dtype",
    "requires_grad": "requires_grad",
    "alias": "alias",
}
ASPECT_OF_GROUP = {"output": "value", "structure": "structure", "grad": "grad"}


def compare_records(eager: Record, compiled: Record, flavours: Mapping[str, Record]) -> list[Found]:
    """All differences between two returned calls. `flavours` are further eager runs, by name."""
    found: list[Found] = []
    ours = index(compiled)
    others = {name: index(record) for name, record in flavours.items() if record.get("status") == "returned"}
    company = usual_error(index(eager), others.get("float64", {}))
    for key, leaf in index(eager).items():
        mate = ours.pop(key, None)
        rivals = {name: table[key] for name, table in others.items() if key in table}
        if unstable_in_eager(leaf, rivals, others):
            continue
        if mate is None:
            found += missing(leaf)
        else:
            found += compare_leaf(leaf, mate, rivals, company)
    for (group, path), leaf in ours.items():
        again = others.get("again")
        if again is not None and (group, path) in again:
            continue
        found += unexpected(leaf)
    if any(f["aspect"] == "structure" and f["path"] == "output" for f in found):
        found = [f for f in found if f["aspect"] != "structure" or f["path"] == "output"]
    return found


def usual_error(eager: Mapping[tuple[str, str], Leaf], truth: Mapping[tuple[str, str], Leaf]) -> float:
    """Median of the relative errors that eager's float32 tensors have against float64."""
    errors = []
    for key, leaf in eager.items():
        exact = truth.get(key, {}).get("parts", {})
        for name, part in leaf.get("parts", {}).items():
            if part.dtype == torch.float32 and name in exact and exact[name].dtype == torch.float64:
                error = noise.relative_error(exact[name], part)
                errors += [error] if 0 < error < math.inf else []
    return statistics.median(errors) if errors else 0.0


GROSS = 0.01
"""Relative error from which what a whole program left behind is called different."""
CHAOS = 20.0
"""How much more than a nudge of one unit in the last place at the first call."""


def compare_ends(eager: Record, compiled: Record, nudged: Sequence[Record]) -> list[Found]:
    """Tensors that differ grossly when the program has ended: rounding grows over many steps, and is not meant."""
    found = []
    ours, others = index(compiled), [index(record) for record in nudged]
    for key, leaf in index(eager).items():
        mate = ours.get(key)
        rivals = [table[key] for table in others if key in table]
        if mate is None or not rivals or set(mate.get("parts", ())) != set(leaf["parts"]):
            continue
        for name, part in leaf["parts"].items():
            if not part.dtype.is_floating_point or mate["parts"][name].shape != part.shape:
                continue
            error = noise.relative_error(part, mate["parts"][name])
            swing = max(noise.relative_error(part, rival["parts"].get(name, part)) for rival in rivals)
            if error > GROSS and error > CHAOS * swing:
                aspect = "grad" if leaf["path"].endswith(".grad") else state_aspect(leaf)
                detail = f"differs from eager when the program has ended, by {error:.2g} of its size"
                found.append(difference(leaf, aspect, detail, magnitude=error, later=True))
                break
    return found


def index(record: Record) -> dict[tuple[str, str], Leaf]:
    return {(leaf["group"], leaf["path"]): leaf for leaf in record.get("leaves", ())}


def unstable_in_eager(leaf: Leaf, rivals: Mapping[str, Leaf], others: Mapping[str, Any]) -> bool:
    """Whether a value that is not a tensor changes between two eager runs (a clock, a counter of ours)."""
    if leaf["kind"] == "tensor" or "again" not in others:
        return False
    again = rivals.get("again")
    if again is None:
        return True
    return leaf["kind"] == "value" and not equal_values(leaf, again)


def missing(leaf: Leaf) -> list[Found]:
    if leaf["group"] == "state":
        if leaf["kind"] == "gone":
            return [difference(leaf, "side-effect", "eager removes it, compiled leaves it")]
        return [
            difference(
                leaf, state_aspect(leaf), f"eager changes it{shown(leaf)}, compiled leaves it as it was"
            )
        ]
    if leaf["group"] == "grad":
        return [difference(leaf, "grad", "compiled has no such gradient")]
    return [difference(leaf, "structure", "compiled does not return it")]


def unexpected(leaf: Leaf) -> list[Found]:
    if leaf["group"] == "state":
        if leaf["kind"] == "gone":
            return [difference(leaf, "side-effect", "compiled removes it, eager leaves it")]
        return [
            difference(
                leaf, state_aspect(leaf), f"compiled changes it{shown(leaf)}, eager leaves it as it was"
            )
        ]
    if leaf["group"] == "grad":
        return [difference(leaf, "grad", "eager has no such gradient")]
    return [difference(leaf, "structure", "eager does not return it")]


def state_aspect(leaf: Leaf) -> str:
    """An input or a tensor of the module is mutated; what hangs on closures and globals is a side effect."""
    own = leaf["path"].startswith(("args[", "kwargs[", "self."))
    return "mutation" if own and leaf["kind"] == "tensor" else "side-effect"


def aspect_of(leaf: Leaf) -> str:
    return state_aspect(leaf) if leaf["group"] == "state" else ASPECT_OF_GROUP[leaf["group"]]


def shown(leaf: Leaf) -> str:
    return f" to {leaf['value']!r}"[:80] if leaf["kind"] == "value" else ""


def compare_leaf(
    eager: Leaf, compiled: Leaf, rivals: Mapping[str, Leaf], company: float = 0.0
) -> list[Found]:
    if eager["kind"] != compiled["kind"]:
        aspect = aspect_of(eager)
        detail = (
            f"eager gives a {eager['kind']}{shown(eager)}, compiled a {compiled['kind']}{shown(compiled)}"
        )
        return [difference(eager, aspect, detail)]
    if eager["kind"] == "gone":
        return []
    if eager["kind"] == "value":
        return compare_value(eager, compiled)
    return compare_tensor(eager, compiled, rivals, company)


def compare_value(eager: Leaf, compiled: Leaf) -> list[Found]:
    if equal_values(eager, compiled):
        return []
    aspect = aspect_of(eager)
    detail = f"eager {eager['value']!r}, compiled {compiled['value']!r}"[:400]
    close = nearly(eager["value"], compiled["value"])
    why = "a Python float that was computed in float32" if close else ""
    return [difference(eager, aspect, detail, noise=close, why_noise=why)]


def equal_values(a: Leaf, b: Leaf) -> bool:
    x, y = a.get("value"), b.get("value")
    if isinstance(x, float) and isinstance(y, float) and math.isnan(x) and math.isnan(y):
        return True
    return type(x) is type(y) and bool(x == y)


def nearly(x: Any, y: Any) -> bool:
    return isinstance(x, float) and isinstance(y, float) and math.isclose(x, y, rel_tol=1e-5, abs_tol=1e-6)


def compare_tensor(
    eager: Leaf, compiled: Leaf, rivals: Mapping[str, Leaf], company: float = 0.0
) -> list[Found]:
    """Metadata exactly, then values up to noise."""
    found = [
        difference(eager, aspect, f"eager {plain(eager.get(name))}, compiled {plain(compiled.get(name))}")
        for name, aspect in METADATA.items()
        if eager.get(name) != compiled.get(name) and not harmless(name, eager, compiled)
    ]
    if "stride" in eager and not found and strides_differ(eager, compiled):
        detail = f"eager {tuple(eager['stride'])}, compiled {tuple(compiled['stride'])}"
        found.append(difference(eager, "stride", detail))
    if eager["shape"] != compiled["shape"]:
        return [ill_conditioned(f, eager, rivals) if f["aspect"] == "shape" else f for f in found]
    if set(eager["parts"]) != set(compiled["parts"]):
        return found
    for name, part in eager["parts"].items():
        found += compare_part(name, part, eager, compiled, rivals, company)
    return found


def compare_part(
    name: str,
    part: torch.Tensor,
    eager: Leaf,
    compiled: Leaf,
    rivals: Mapping[str, Leaf],
    company: float = 0.0,
) -> list[Found]:
    mate = compiled["parts"][name]
    if part.shape != mate.shape:
        detail = f"{name or 'data'}: eager {tuple(part.shape)}, compiled {tuple(mate.shape)}"
        return [difference(eager, "shape", detail)]
    if part.dtype != mate.dtype:
        common = torch.promote_types(part.dtype, mate.dtype)
        coarse = coarser(part, mate)
        part, mate = part.to(coarse).to(common), mate.to(coarse).to(common)
    truth = rivals.get("float64", {}).get("parts", {}).get(name)
    nudged = [
        leaf["parts"][name]
        for flavour, leaf in rivals.items()
        if flavour != "float64" and leaf["kind"] == "tensor" and name in leaf["parts"]
    ]
    verdict = noise.compare(part, mate, truth, nudged, company if part.dtype == torch.float32 else 0.0)
    if verdict.same:
        return []
    aspect = aspect_of(eager)
    at = f" at {list(verdict.index)}" if verdict.index else ""
    more = f", {verdict.count} of {part.numel()} elements" if part.numel() > 1 else ""
    detail = f"differs from eager by {verdict.magnitude:.2g}{at} (eager {verdict.eager}, compiled {verdict.compiled}{more})"
    return [
        difference(
            eager, aspect, detail,
            magnitude=verdict.magnitude, noise=verdict.noise, why_noise=verdict.why,
            eager=verdict.eager, compiled=verdict.compiled, float64=verdict.truth,
        )
    ]  # fmt: skip


def coarser(a: torch.Tensor, b: torch.Tensor) -> torch.dtype:
    """Where the dtypes differ, values are compared at the coarser of the two: the dtype is its own finding."""
    ranks = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
    floats = [t.dtype for t in (a, b) if t.dtype in ranks]
    if len(floats) == 2:
        return max(floats, key=ranks.index)
    return torch.promote_types(a.dtype, b.dtype)


def harmless(name: str, eager: Leaf, compiled: Leaf) -> bool:
    """Metadata that may differ: a Parameter and its tensor, aliases of what has no elements."""
    if name == "subclass":
        return {eager["subclass"], compiled["subclass"]} <= {"Tensor", "Parameter", "Buffer"}
    if name == "alias":
        return 0 in eager["shape"] or eager["group"] != "output"
    return False


def strides_differ(eager: Leaf, compiled: Leaf) -> bool:
    """Strides of dimensions with more than one element, in a tensor with any element."""
    if eager["group"] == "grad" or 0 in eager["shape"] or eager["shape"] != compiled["shape"]:
        return False
    pairs = zip(eager["shape"], eager["stride"], compiled.get("stride", eager["stride"]), strict=False)
    return any(size > 1 and a != b for size, a, b in pairs)


def ill_conditioned(found: Found, eager: Leaf, rivals: Mapping[str, Leaf]) -> Found:
    """A size that depends on the data is noise where eager's own size depends on the last bit."""
    unsure = [
        name for name, leaf in rivals.items() if leaf["kind"] == "tensor" and leaf["shape"] != eager["shape"]
    ]
    if not unsure:
        return found
    where = "in float64" if "float64" in unsure else "when its inputs move by one unit in the last place"
    return {
        **found,
        "noise": True,
        "why_noise": f"eager gives another size {where}: the size hangs on rounding",
    }


def plain(value: Any) -> str:
    if isinstance(value, list):
        return str(tuple(value))
    return str(value).removeprefix("torch.")


def difference(leaf: Leaf, aspect: str, detail: str, **more: Any) -> Found:
    return {"path": leaf["path"], "aspect": aspect, "detail": detail, **more}
