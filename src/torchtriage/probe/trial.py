"""A trial: from here on the program runs under a variant, and its calls are recorded beside eager references."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from torchtriage.model.variant import GRAPH_NODES, OWN, Limit, Variant
from torchtriage.probe import compat, exceptions, guards, intercept, operations, steps, switches, wire
from torchtriage.probe.intercept import Region
from torchtriage.probe.nodes import Nodes
from torchtriage.probe.observe import Observer
from torchtriage.probe.perform import Call, grad_path, in_fork, record_end

REFERENCE_SECONDS = 60.0
CHEAP_SECONDS, MOST_COMPARED = 10.0, 64
"""Calls beyond those that a trial has to compare are compared until their references have taken this long."""


@dataclass
class Job:
    """What the lab asks of one trial. Call numbers count the calls of all regions from the program's start."""

    folder: str
    variant: Variant = field(default_factory=Variant)
    stop: int | None = None
    """The last call to make; None: go on to the end of the program."""
    compare: int = 8
    """Calls before this number are recorded and compared, and those in `truths`."""
    flavours: tuple[str, ...] = ("eager",)
    """Eager references to make at `stop`."""
    truths: dict[str, str] = field(default_factory=dict)
    """call number -> folder with references that were made from the program's eager state."""
    store: str = ""
    """Folder of compiled kernels, where it is not the shared one."""
    observe: bool = False
    trace: str = ""
    time_step: bool = False
    only: str = ""
    """Key of the region to compile; the others stay eager. Empty: all."""
    backward: bool = True
    forks: bool = True
    operations: bool = False
    """Write down the operations of the last call, and those of its eager reference."""

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Job:
        given = {k: v for k, v in plain.items() if k in cls.__dataclass_fields__}
        given["variant"] = Variant.from_json(plain.get("variant") or {})
        given["flavours"] = tuple(plain.get("flavours") or ("eager",))
        return cls(**given)


class StopTrial(BaseException):
    """Ends the trial at its last call. Not an Exception, so that programs do not catch it."""


class Trial:
    """The dispatcher of a trial process."""

    def __init__(self, job: Job, first: int):
        self.job, self.number = job, first
        self.depth = threading.local()
        self.log = os.path.join(job.folder, "events.jsonl")
        self.compiling = 0
        self.compile_start = self.compile_seconds = self.call_seconds = 0.0
        self.step_seconds: float | None = None
        self.eager_step_seconds: float | None = None
        self.compared = 0
        self.limits: list[steps.StepLog | Nodes] = []
        self.recording = operations.Recording() if job.operations else None
        self.main = threading.get_ident()
        self.pid = os.getpid()
        self.last: tuple[Region, tuple[Any, ...], dict[str, Any]] | None = None
        self.reference_seconds = 0.0
        self.finished = False
        self.disabled_regions: set[str] = set()
        self.observer: Observer | None = None

    # --- before the first call -------------------------------------------------------------------

    def prepare(self) -> None:
        """Apply the variant to this process. Raises what a wrong switch or name raises."""
        variant = self.job.variant
        if variant.backend not in ("eager", "aot_eager"):
            compat.warm_up()
        compat.keep_headers_in(os.environ.get("TORCHINDUCTOR_CACHE_DIR", self.job.folder))
        compat.reset()
        compat.clear_counters()
        torch.set_num_threads(variant.threads)
        if self.job.store:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = self.job.store
        if variant.caches:
            switches.turn_caches_on(os.path.join(self.job.folder, "cache"))
        for name, value in variant.switches:
            switches.set_switch(name, value)
        for operator in variant.eager_operators:
            switches.send_to_eager(operator)
        for name in variant.disabled:
            disable(name)
        parts = [name.partition(":")[2].partition("|") for name in variant.disabled]
        self.disabled_regions = {name for name, _, kind in parts if kind == "region"}
        if variant.limit is not None:
            self.limits.append(limited_by(variant.limit))
        compat.watch_compiles(self.compile_began, self.compile_ended)
        logger = compat.trace_logger()
        if self.job.trace and (handler := compat.trace_file_handler(self.job.trace)):
            logger.addHandler(handler)
        if self.job.observe:
            self.observer = Observer()
            logger.addHandler(self.observer)
            guards.watch(self.observer.failed)
        self.event("begin", call=self.number)

    def event(self, name: str, **more: Any) -> None:
        if os.getpid() == self.pid:
            wire.append(self.log, {"event": name, "at": time.monotonic(), **more})

    def compile_began(self) -> None:
        if self.compiling == 0:
            self.compile_start = time.perf_counter()
            self.event("compile")
        self.compiling += 1

    def compile_ended(self) -> None:
        self.compiling -= 1
        if self.compiling == 0:
            self.compile_seconds += time.perf_counter() - self.compile_start
            self.event("compiled")

    # --- calls -------------------------------------------------------------------------------------

    def call(self, region: Region, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        function = self.implementation(region)
        inside = getattr(self.depth, "value", 0)
        if inside or threading.get_ident() != self.main or os.getpid() != self.pid:
            return function(*args, **kwargs)
        number, self.number = self.number, self.number + 1
        stop = self.job.stop
        if stop is not None and number > stop:
            self.end()
        self.last = (region, args, kwargs)
        self.depth.value = 1
        try:
            if number != stop and not self.compares(number):
                return self.unrecorded(number, function, args, kwargs)
            return self.recorded(number, Call(region, args, kwargs), function)
        finally:
            self.depth.value = 0

    def compares(self, number: int) -> bool:
        """The first calls, those with a new signature, and as many more as cost little."""
        cheap = self.reference_seconds < CHEAP_SECONDS and number < MOST_COMPARED and self.job.forks
        return number < self.job.compare or str(number) in self.job.truths or cheap

    def unrecorded(
        self, number: int, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call that is not compared: only that it is under way is noted, for where the trial ends."""
        self.event("call", call=number, reference="")
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            self.event("raised", call=number, exception=exceptions.describe(error))
            raise
        self.event("returned", call=number)
        return result

    def implementation(self, region: Region) -> Callable[..., Any]:
        """The region compiled under the variant."""
        variant = self.job.variant
        if (self.job.only and region.key != self.job.only) or region.name in self.disabled_regions:
            return region.function
        changes: dict[str, Any] = {}
        for name in ("backend", "dynamic", "mode", "fullgraph"):
            value = getattr(variant, name)
            if value != OWN:
                changes[name] = value
        if self.recording is not None:
            changes["backend"] = self.recording
        elif self.limits and isinstance(self.limits[0], Nodes):
            changes["backend"] = self.limits[0]
        if not changes:
            return region.own
        key = tuple(sorted(changes.items(), key=lambda item: item[0]))
        if key not in region.compiled:
            region.compiled[key] = intercept.compile_again(region, changes)
        return region.compiled[key]

    def recorded(self, number: int, call: Call, function: Callable[..., Any]) -> Any:
        last = number == self.job.stop
        path = os.path.join(self.job.folder, f"{number}.pt")
        reference = self.reference(number, call, last)
        self.event("call", call=number, region=call.region.key, reference=reference)
        self.compared += 1
        begin = time.perf_counter()
        if self.recording is not None:
            self.recording.rows.clear()
        try:
            result = call.run(function, path)
        except BaseException as error:
            self.event("raised", call=number, exception=exceptions.describe(error))
            if last:
                self.end()
            raise
        finally:
            self.call_seconds += time.perf_counter() - begin
            if self.recording is not None and last:
                operations.write(self.recording.rows, self.job.folder)
        self.event("returned", call=number)
        if self.job.backward and reference and (last or str(number) in self.job.truths):
            self.backward(number, call, result, path, last)
        if last:
            if self.job.time_step:
                self.step_seconds = step_time(function, call)
                intercept.set_dispatcher(intercept.Eager())
                self.eager_step_seconds = step_time(call.region.function, call)
            self.end()
        return result

    def end(self) -> None:
        """End the trial here: by way of the program's end, or at once from a thread that does not lead there."""
        if threading.current_thread() is threading.main_thread():
            raise StopTrial from None
        self.finish(StopTrial())
        leave()

    def reference(self, number: int, call: Call, last: bool) -> str:
        """Folder of the eager references of a call, made here unless the eager run's own will do."""
        wanted = self.job.flavours if last else ("eager",)
        watched = self.recording is not None and last
        shared = "" if watched else self.job.truths.get(str(number), "")
        if shared and read_digest(shared) == call.digest:
            return shared
        if not self.job.forks:
            return shared or ""
        begin = time.perf_counter()
        folder = os.path.join(self.job.folder, f"reference-{number}")
        os.makedirs(folder, exist_ok=True)
        fine = make_references(call, wanted, folder, watched=watched)
        self.reference_seconds += time.perf_counter() - begin
        return folder if fine else ""

    def backward(self, number: int, call: Call, result: Any, path: str, last: bool) -> None:
        """A backward of our own: in this process at the last call, else in a fork, so that the program's works."""
        if last:
            self.event("backward", call=number)
            call.backward(result, grad_path(path))
            self.event("backwarded", call=number)
        elif self.job.variant.threads == 1 and self.job.forks:
            self.event("backward", call=number)
            died = in_fork(lambda: call.backward(result, grad_path(path)), 600.0)
            if died:
                self.event("backward-died", call=number, signal=died)
            else:
                self.event("backwarded", call=number)

    # --- the end -------------------------------------------------------------------------------------

    def finish(self, error: BaseException | None, left: int | None = None) -> None:
        """Write what was counted. `error` is what the program ended with, `left` the status that it gave os._exit."""
        self.finished = True
        if error is None and self.last is not None:
            record_end(os.path.join(self.job.folder, "end.pt"), *self.last, self.number)
        ended: dict[str, Any] = {"stopped": isinstance(error, StopTrial), "left": left}
        if error is not None and not isinstance(error, StopTrial):
            ended["exception"] = exceptions.describe(error)
        if isinstance(error, SystemExit):
            ended["exit"] = error.code if isinstance(error.code, int) else int(error.code is not None)
        self.event(
            "end", **ended, measures=self.measures(), notes=self.observer.notes if self.observer else []
        )

    def measures(self) -> dict[str, Any]:
        table = compat.counters()
        stats = table.get("stats", {})
        return {
            "graphs": stats.get("unique_graphs", 0),
            "captured": stats.get("calls_captured", 0),
            "breaks": sum(table.get("graph_break", {}).values()),
            "recompiles": max(compat.frame_compiles() - 1, 0),
            "compile_seconds": self.compile_seconds,
            "call_seconds": self.call_seconds,
            "step_seconds": self.step_seconds,
            "eager_step_seconds": self.eager_step_seconds,
            "calls_seen": self.number,
            "calls_compared": self.compared,
            "steps": [step for log in self.limits for step in log.steps],
            "step_count": sum(log.count for log in self.limits),
            "unimplemented": table.get("unimplemented", {}),
            "repeated": self.observer.unrolled() if self.observer else None,
            "inductor": table.get("inductor", {}),
        }


def leave() -> None:
    """End this process at once: no exit handlers of the program run in our forks."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:  # closed by the program
        pass
    finally:
        os._exit(0)


def limited_by(limit: Limit) -> steps.StepLog | Nodes:
    """What counts the steps of a subsystem and switches off those past the limit."""
    if limit.subsystem == GRAPH_NODES:
        return Nodes(limit.backend, limit.start, limit.maximum)
    log = steps.StepLog(limit.backend, limit.subsystem, limit.maximum)
    steps.limit_steps(log)
    return log


def make_references(
    call: Call, flavours: tuple[str, ...], folder: str, forks: bool = True, watched: bool = False
) -> bool:
    """Run the eager references of a call, each in a process of its own. False when eager itself could not.

    Without forks, only the first flavour is run, and this process must not go on. With `watched`, the operations
    of the eager run are written down as well.
    """
    with open(os.path.join(folder, "digest"), "w") as file:
        file.write(call.digest)
    if not forks:
        call.reference(flavours[0], os.path.join(folder, f"{flavours[0]}.pt"))
        return True
    fine = True
    for flavour in flavours:
        path = os.path.join(folder, f"{flavour}.pt")
        died = in_fork(functools.partial(call.reference, flavour, path, watched), REFERENCE_SECONDS)
        fine = fine and (not died or flavour != "eager")
    return fine


def read_digest(folder: str) -> str:
    try:
        with open(os.path.join(folder, "digest")) as file:
            return file.read()
    except OSError:
        return ""


def step_time(function: Callable[..., Any], call: Call, seconds: float = 0.4) -> float | None:
    """The shortest of a few warm calls; None when the call cannot be repeated."""
    best: float | None = None
    begin = time.perf_counter()
    try:
        while best is None or time.perf_counter() - begin < seconds:
            compat.synchronize()
            start = time.perf_counter()
            function(*call.args, **call.kwargs)
            compat.synchronize()
            spent = time.perf_counter() - start
            best = spent if best is None else min(best, spent)
    except Exception:
        return best
    return best


def disable(name: str) -> None:
    """Wrap `module:qualified.name` in torch.compiler.disable, just as the line that is printed for it does.

    A region is not wrapped: it is not compiled.
    """
    module_name, _, rest = name.partition(":")
    qualified, _, kind = rest.partition("|")
    if kind == "region":
        return
    owner: Any = sys.modules[module_name]
    *parents, last = qualified.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    function = getattr(owner, last)
    if kind == "staticmethod":
        setattr(owner, last, staticmethod(torch.compiler.disable(function)))
    elif kind == "classmethod":
        setattr(owner, last, classmethod(torch.compiler.disable(function.__func__)))
    else:
        setattr(owner, last, torch.compiler.disable(function))
