"""Runs one call of a region and writes down everything that can be compared about it."""

from __future__ import annotations

import os
import random
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

from torchtriage.probe import capture, compat, exceptions, flavours, intercept, keeper, operations, walk
from torchtriage.probe.intercept import Region


def roots_of(region: Region, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The names under which the walk starts."""
    target = compat.wrapped_inline(region.function) or region.function
    owner = getattr(target, "__self__", None)
    if isinstance(target, torch.nn.Module):
        owner = target
    roots: dict[str, Any] = {f"args[{n}]": value for n, value in enumerate(args)}
    roots.update({f"kwargs[{name!r}]": value for name, value in kwargs.items()})
    if owner is not None:
        roots["self"] = owner
    elif not isinstance(target, type):
        roots["fn"] = target
    function = getattr(type(owner), "forward", None) if isinstance(owner, torch.nn.Module) else target
    if function is not None and function is not target:
        roots["fn"] = function
    elif owner is not None:
        roots["fn"] = getattr(target, "__func__", None)
    return roots


def storage_names(state: dict[str, tuple[Any, Any]]) -> dict[int, str]:
    names: dict[int, str] = {}
    for path, (value, _) in state.items():
        if isinstance(value, torch.Tensor):
            key = compat.storage_key(value)
            if key is not None:
                names.setdefault(key, path)
    return names


class Call:
    """One call of a region, with the state that it starts from."""

    def __init__(self, region: Region, args: tuple[Any, ...], kwargs: dict[str, Any]):
        self.region, self.args, self.kwargs = region, args, kwargs
        self.roots = roots_of(region, args, kwargs)
        self.before = capture.state_of(self.roots)
        self.versions = capture.versions_of(self.before)
        self.above = capture.leaves_above(self.before) if torch.is_grad_enabled() else {}
        self.names = storage_names(self.before)
        self.rng = capture.rng_mark()

    @property
    def digest(self) -> str:
        return capture.digest(self.before)

    def run(self, function: Callable[..., Any], path: str) -> Any:
        """Call `function`, write the record to `path`, and return or raise what the call did."""
        start = time.perf_counter()
        try:
            result = function(*self.args, **self.kwargs)
            compat.synchronize()  # a fault of the GPU's belongs to this call
        except BaseException as error:
            self.save_raised(error, path, time.perf_counter() - start)
            raise
        seconds = time.perf_counter() - start
        try:
            self.save_returned(result, path, seconds)
        except Exception:  # an output that cannot be written down must not become an error of the program's
            traceback.print_exc()
            capture.save({"status": "returned", "unreadable": traceback.format_exc(), "leaves": []}, path)
        return result

    def save_raised(self, error: BaseException, path: str, seconds: float) -> None:
        record: dict[str, Any] = {
            "status": "raised",
            "exception": exceptions.describe(error),
            "seconds": seconds,
            "leaves": [],
        }
        capture.save(record, path)

    def save_returned(self, result: Any, path: str, seconds: float) -> None:
        after = capture.state_of(self.roots)
        names = {**self.names, **storage_names(after)}
        record: dict[str, Any] = {
            "status": "returned",
            "seconds": seconds,
            "rng_used": capture.rng_mark() != self.rng,
            "leaves": [
                *capture.output_leaves(result, names),
                *capture.changed_leaves(self.before, after),
            ],
        }
        capture.save(record, path)

    def backward(self, result: Any, path: str) -> bool:
        """Run a backward with fixed cotangents and write its record. False where there is nothing to do."""
        if not torch.is_grad_enabled() or not capture.differentiable(result, self.before, self.versions):
            return False
        start = time.perf_counter()
        try:
            with compat.outside_autocast():  # as torch advises; a call is often made inside of it
                leaves = capture.gradients(result, self.before, self.versions, self.above)
            record: dict[str, Any] = {"status": "returned", "leaves": leaves}
        except Exception as error:
            record = {"status": "raised", "exception": exceptions.describe(error), "leaves": []}
        record["seconds"] = time.perf_counter() - start
        capture.save(record, path)
        return True

    def reference(self, flavour: str, path: str, watched: bool = False) -> None:
        """The call in eager mode, in this process, which must not go on afterwards.

        With `watched`, the operations of the eager flavour are written down beside its record.
        """
        torch.set_num_threads(1)
        intercept.set_dispatcher(intercept.Eager())
        with flavours.prepared(flavour, self.roots):
            if flavour not in ("eager", "again"):
                self.before = capture.state_of(self.roots)
                self.versions = capture.versions_of(self.before)
            function = self.region.function
            if watched and flavour == "eager":
                function = operations.watched(function, os.path.dirname(path))
            try:
                result = self.run(function, path)
            except BaseException:
                return
            self.backward(result, grad_path(path))


def record_end(path: str, region: Region, args: tuple[Any, ...], kwargs: dict[str, Any], calls: int) -> None:
    """Write down the tensors that the last call can reach, as the program leaves them. Never raises."""
    try:
        found = walk.leaves(roots_of(region, args, kwargs))
        tensors = [leaf for leaf in found if isinstance(leaf.value, torch.Tensor)]
        leaves = [capture.leaf_record(leaf.path, leaf.value, "state") for leaf in tensors]
        capture.save({"status": "returned", "calls": calls, "leaves": leaves}, path)
    except Exception:
        traceback.print_exc()


def grad_path(path: str) -> str:
    return path.removesuffix(".pt") + ".grad.pt"


def in_fork(work: Callable[[], Any], seconds: float) -> str:
    """Run `work` in a forked process. Empty when it ended well, else how it ended: a signal, `timeout`, `failed`."""
    drawn = random.getstate()
    child = os.fork()
    if child == 0:
        random.setstate(drawn)  # Python seeds `random` anew in every forked child
        status = 1
        try:
            keeper.die_with_parent()
            compat.trace_logger().handlers.clear()  # the trace is that of the trial, not of its references
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    deadline = time.monotonic() + seconds
    pause = 0.002
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return "" if status == 0 else keeper.signal_name(status) or "failed"
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "timeout"
