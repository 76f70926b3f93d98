"""Watches what `torch.compile` returns: the time of warm calls, and each call against an eager one from the same state.

Restores tensors, gradients, plain attributes and random numbers between the runs; what a call does to files or to other
Python objects is done twice. Only the outermost compiled call is watched.
"""

from __future__ import annotations

import functools
import importlib
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

COMPARED_CALLS = 12
#: As torch.testing.assert_close: dtype -> (relative, absolute).
TOLERANCES = {
    "torch.float16": (1e-3, 1e-5), "torch.bfloat16": (1.6e-2, 1e-5), "torch.float32": (1.3e-6, 1e-5),
    "torch.float64": (1e-7, 1e-7), "torch.complex64": (1.3e-6, 1e-5), "torch.complex128": (1e-7, 1e-7),
}  # fmt: skip
PLAIN = (int, float, bool, str, type(None))


def install(torch: Any, compare: bool) -> Watch | None:
    """Put the watch around torch.compile; None where this torch has none."""
    if not hasattr(torch, "compile"):
        return None
    watch = Watch(torch, compare)
    real = torch.compile

    @functools.wraps(real)
    def compile_(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        if model is None:
            return lambda given: compile_(given, *args, **kwargs)
        return watch.around(model, real(model, *args, **kwargs))

    torch.compile = compile_
    return watch


class Watch:
    """What the compiled calls did."""

    def __init__(self, torch: Any, compare: bool):
        self.torch, self.compare = torch, compare
        self.times: list[float] = []
        self.differences: list[str] = []
        self.calls = self.compared = 0
        self.local = threading.local()

    def around(self, eager: Any, compiled: Any) -> Any:
        if isinstance(compiled, getattr(self.torch.nn, "Module", ())):
            inner = compiled.__dict__.get("forward")
            if inner is not None:
                compiled.__dict__["forward"] = self.wrapped(eager, inner)
            return compiled
        if not callable(compiled):
            return compiled
        return self.wrapped(eager, compiled)

    def wrapped(self, eager: Any, compiled: Callable[..., Any]) -> Any:
        watch = self

        @functools.wraps(compiled)
        def call(*args: Any, **kwargs: Any) -> Any:
            if getattr(watch.local, "inside", False):
                return compiled(*args, **kwargs)
            watch.local.inside = True
            try:
                return watch.one(eager, compiled, args, kwargs)
            finally:
                watch.local.inside = False

        setattr(call, "_torchdynamo_inline", eager)  # what Dynamo follows from another compiled function
        return call

    def one(self, eager: Any, compiled: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self.calls += 1
        if self.compare and self.compared < COMPARED_CALLS:
            self.compared += 1
            return self.one_compared(eager, compiled, args, kwargs)
        before = compilations(self.torch)
        begin = time.perf_counter()
        result = compiled(*args, **kwargs)
        self.wait()
        spent = time.perf_counter() - begin
        if compilations(self.torch) == before:
            self.times.append(spent)
        return result

    def wait(self) -> None:
        cuda = getattr(self.torch, "cuda", None)
        if cuda is not None and hasattr(cuda, "is_initialized") and cuda.is_initialized():
            cuda.synchronize()

    def one_compared(self, eager: Any, compiled: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        state = State(self.torch, eager, args, kwargs)
        expected = self.record(eager, state, copied(args), copied(kwargs))
        state.restore()
        backward = bool(expected["grads"])
        got = self.record(compiled, state, copied(args), copied(kwargs)) if backward else None
        if got is not None:
            state.restore()
        result, error = None, None
        try:
            result = compiled(*args, **kwargs)
        except Exception as raised:
            error = raised
        if got is None:
            got = {"error": error, "leaves": leaves(self.torch, result), "grads": [], "state": state.values()}
            got["leaves"] = [(path, kept(self.torch, leaf)) for path, leaf in got["leaves"]]
        found = differences(self.torch, expected, got)
        if any(text.startswith("value") or text.startswith("grad") for text in found):
            found = self.beyond_noise(found, expected, got, eager, state, args, kwargs)
        self.differences += [text for text in found if text not in self.differences]
        if error is not None:
            raise error
        return result

    def beyond_noise(
        self, found: list[str], expected: Any, got: Any, eager: Any, state: State, args: Any, kwargs: Any
    ) -> list[str]:
        """Without what eager itself shows when it is run again, or when its state moves by one unit in the last place."""
        after = State(self.torch, eager, args, kwargs)
        noise: set[str] = set()
        try:
            for moved in (False, True):
                state.restore(moved)
                other = self.record(eager, state, copied(args), copied(kwargs))
                noise |= set(differences(self.torch, expected, other, scale=4.0 if moved else 1.0, than=got))
        finally:
            after.restore()
        return [text for text in found if text not in noise]

    def record(self, function: Any, state: State, args: Any, kwargs: Any) -> dict[str, Any]:
        """Run once: exception, output leaves, gradients of the outputs, state afterwards."""
        torch = self.torch
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            return {"error": error, "leaves": [], "grads": [], "state": state.values()}
        found = leaves(torch, result)
        after = state.values()
        outputs = [
            leaf for _, leaf in found
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.grad_fn is not None
        ]  # fmt: skip
        grads: list[tuple[str, Any]] = []
        wanted = [(path, tensor) for path, tensor in state.named if tensor.requires_grad]
        # What was computed before the call keeps its graph: the program's own backward needs it.
        at = [one for one in wanted if not one[1].is_leaf] or wanted
        if outputs and at and torch.is_grad_enabled():
            try:
                got = torch.autograd.grad(
                    outputs, [t for _, t in at], [torch.ones_like(o) for o in outputs], allow_unused=True
                )
                grads = [(path, g) for (path, _), g in zip(at, got, strict=False)]
            except Exception as error:
                grads = [("backward", type(error).__name__)]
        kept_leaves = [(path, kept(torch, leaf)) for path, leaf in found]
        return {"error": None, "leaves": kept_leaves, "grads": grads, "state": after}

    def result(self) -> dict[str, Any]:
        return {"steps": self.times[1:] or self.times, "calls": self.calls, "differences": self.differences}


class State:
    """What a call may change, and how to set it back: tensors, gradients, plain attributes, random numbers."""

    def __init__(self, torch: Any, function: Any, args: Any, kwargs: Any):
        self.torch = torch
        self.named: list[tuple[str, Any]] = []
        self.plain: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.seen: set[int] = set()
        self.add("input", args)
        self.add("input", kwargs)
        self.add_function(function)
        self.saved = [(t, t.detach().clone(), t.grad) for _, t in self.named]
        self.rng = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
        self.random = random.getstate()
        numpy = sys.modules.get("numpy")
        self.numpy = (numpy, numpy.random.get_state()) if numpy is not None else None

    def add(self, path: str, value: Any) -> None:
        if id(value) in self.seen or len(self.named) > 20_000:
            return
        if isinstance(value, self.torch.Tensor):
            self.seen.add(id(value))
            if value.layout == self.torch.strided and not value.is_meta:
                self.named.append((path, value))
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                self.add(f"{path}[{index}]", item)
        elif isinstance(value, dict):
            for key, item in list(value.items()):
                self.add(f"{path}[{key!r}]", item)
        elif isinstance(value, self.torch.nn.Module):
            self.seen.add(id(value))
            for name, module in value.named_modules():
                self.remember(module.__dict__)
                for kind in (module._parameters, module._buffers):
                    for key, item in kind.items():
                        self.add(".".join(filter(None, (path, name, key))), item)

    def add_function(self, function: Any) -> None:
        self.add("self", getattr(function, "__self__", None))
        self.add("self", function)
        code = getattr(function, "__code__", None) or getattr(
            getattr(function, "__func__", None), "__code__", None
        )
        for cell in getattr(function, "__closure__", None) or ():
            try:
                self.add("closure", cell.cell_contents)
            except ValueError:
                pass
        names = getattr(function, "__globals__", None)
        if code is not None and names is not None:
            used = {name: names[name] for name in code.co_names if name in names}
            self.add("global", used)
            plain = {key: value for key, value in used.items() if isinstance(value, PLAIN)}
            self.plain.append((names, plain))

    def remember(self, attributes: dict[str, Any]) -> None:
        self.plain.append((attributes, {k: v for k, v in attributes.items() if isinstance(v, PLAIN)}))

    def values(self) -> list[tuple[str, Any]]:
        return [(path, tensor.detach().clone()) for path, tensor in self.named]

    def restore(self, moved: bool = False) -> None:
        """Set everything back; `moved`: floating values by one unit in the last place away from zero."""
        torch = self.torch
        for tensor, value, grad in self.saved:
            wanted = value
            if moved and value.dtype.is_floating_point:
                wanted = value * (1 + torch.finfo(value.dtype).eps)
            if tensor.shape != wanted.shape or tensor.dtype != wanted.dtype:
                tensor.data = wanted.clone()
            elif not torch.equal(tensor.detach(), wanted):
                tensor.data.copy_(wanted)
            tensor.grad = grad
        for attributes, plain in self.plain:
            attributes.update(plain)
        torch.set_rng_state(self.rng)
        if self.cuda is not None:
            torch.cuda.set_rng_state_all(self.cuda)
        random.setstate(self.random)
        if self.numpy is not None:
            self.numpy[0].random.set_state(self.numpy[1])


def copied(value: Any) -> Any:
    """The same tensors in new containers."""
    if type(value) in (list, tuple):
        return type(value)(copied(item) for item in value)
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    return value


def kept(torch: Any, leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and not leaf.is_meta:
        return leaf.detach().clone()
    return leaf


def leaves(torch: Any, value: Any, path: str = "output", depth: int = 0) -> list[tuple[str, Any]]:
    """(path, leaf) of everything comparable in what a call returned."""
    if isinstance(value, (list, tuple)) and depth < 20:
        return [x for i, item in enumerate(value) for x in leaves(torch, item, f"{path}[{i}]", depth + 1)]
    if isinstance(value, dict) and depth < 20:
        return [x for k, item in value.items() for x in leaves(torch, item, f"{path}[{k!r}]", depth + 1)]
    if hasattr(value, "__dataclass_fields__") and depth < 20:
        return leaves(torch, {k: getattr(value, k) for k in value.__dataclass_fields__}, path, depth + 1)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray) and value.dtype.kind in "biufc":
        try:
            return [(path, torch.from_numpy(value.copy()))]
        except TypeError:
            return []
    return [(path, value)] if isinstance(value, (torch.Tensor, *PLAIN)) else []


def differences(torch: Any, expected: Any, got: Any, scale: float = 1.0, than: Any = None) -> list[str]:
    """Each difference as `kind at place`. With `than`: those in which `expected` and `got` are at least as far apart."""
    if (expected["error"] is None) != (got["error"] is None):
        kind = "missing exception" if expected["error"] is not None else "exception"
        return [f"{kind}: {type(expected['error'] or got['error']).__name__}"]
    if expected["error"] is not None:
        return []
    found = []
    for part, word in (("leaves", "value"), ("grads", "gradient"), ("state", "value")):
        others = dict(got[part])
        reference = dict(than[part]) if than is not None else {}
        if part == "leaves" and len(others) != len(expected[part]):
            found.append("structure at output")
            continue
        for path, leaf in expected[part]:
            if path in others:
                other = reference.get(path, others[path])
                differs = one_difference(torch, leaf, others[path], word)
                if than is not None:
                    differs = word if at_least_as_far(torch, leaf, others[path], other, scale) else None
                if differs:
                    found.append(f"{differs} at {'gradient of ' if part == 'grads' else ''}{path}")
    return found


def one_difference(torch: Any, a: Any, b: Any, word: str) -> str | None:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        same = type(a) is type(b) and (a == b or (a != a and b != b) or isinstance(a, float))
        return None if same or isinstance(a, torch.Tensor) != isinstance(b, torch.Tensor) else word
    if a.dtype != b.dtype:
        return "dtype"
    if a.shape != b.shape:
        return "shape"
    if a.layout != torch.strided or a.is_meta or a.numel() == 0:
        return None
    relative, absolute = TOLERANCES.get(str(a.dtype), (0.0, 0.0))
    if relative == 0.0:
        return None if torch.equal(a, b) else word
    return None if torch.allclose(a, b, rtol=relative, atol=absolute, equal_nan=True) else word


def at_least_as_far(torch: Any, leaf: Any, again: Any, compiled: Any, scale: float) -> bool:
    """Whether eager run again is about as far from eager as compiled is."""
    try:
        if leaf.shape != again.shape or leaf.shape != compiled.shape or leaf.dtype != compiled.dtype:
            return False
        if not (leaf.dtype.is_floating_point or leaf.dtype.is_complex):
            return not torch.equal(leaf, again)
        if not bool((torch.isfinite(leaf) == torch.isfinite(compiled)).all()):
            return False
        mine = torch.nan_to_num((leaf - compiled).abs().double()).max()
        own = torch.nan_to_num((leaf - again).abs().double()).max()
        return bool(own > 0 and mine <= scale * own)
    except (AttributeError, RuntimeError, TypeError):
        return False


def dynamo_utils(torch: Any) -> Any:
    if "torch._dynamo" not in sys.modules:
        return None
    try:
        return importlib.import_module("torch._dynamo.utils")
    except ImportError:
        return None


def compilations(torch: Any) -> int:
    """Frames that Dynamo has compiled so far."""
    utils = dynamo_utils(torch)
    try:
        return int(utils.counters["frames"]["total"]) if utils is not None else 0
    except (AttributeError, KeyError):
        return 0


def counts(torch: Any) -> dict[str, Any]:
    """Graph breaks, recompiles and compile seconds, as this torch counts them; None for what it does not count.

    Where nothing was compiled, no time was needed that another version could be held against.
    """
    utils = dynamo_utils(torch) if torch is not None else None
    if utils is None:
        none = 0 if torch is not None else None
        return {"graph_breaks": none, "recompiles": none, "compile_seconds": None}
    found: dict[str, Any] = {"graph_breaks": None, "recompiles": None, "compile_seconds": None}
    if hasattr(utils, "counters"):
        found["graph_breaks"] = sum(dict(utils.counters["graph_break"]).values())
    metrics = getattr(utils, "get_compilation_metrics", None)
    if metrics is not None:
        ids = [str(getattr(m, "compile_id", None) or "") for m in metrics()]
        if all("/" in text for text in ids):
            found["recompiles"] = sum(not text.split("_")[0].endswith("/0") for text in set(ids))
    times = getattr(utils, "compilation_time_metrics", {})
    for ending in ("compile_inner", "entire_frame_compile"):
        matching = [sum(v) for k, v in times.items() if k.endswith(ending)]
        if matching:
            found["compile_seconds"] = sum(matching)
            break
    return found
