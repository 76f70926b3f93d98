"""The stage: a process that holds the user's program, runs it in eager mode, and forks trials at its calls.

At a call worth a trial it forks a *holder*, which waits for jobs and forks a *keeper* for each; the keeper forks
the trial, which goes on with the program from that very call.
"""

from __future__ import annotations

import contextlib
import inspect
import multiprocessing
import os
import random
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from torchtriage.probe import (
    compat,
    environment,
    exceptions,
    flavours,
    intercept,
    keeper,
    switches,
    walk,
    wire,
)
from torchtriage.probe.intercept import Region
from torchtriage.probe.perform import Call, record_end, roots_of
from torchtriage.probe.trial import Job, StopTrial, Trial, leave, make_references

EARLY = 3
"""The first calls get a holder each, also where their signature is not new."""


@dataclass
class Plan:
    """What the lab wants to know from the eager run."""

    max_calls: int = 64
    max_seconds: float = 60.0
    max_holders: int = 8
    end_file: str = ""
    """Where to record the state that the last call can reach, once the program has ended."""
    start: int | None = None
    """Rerun mode: become the trial `job` at this call instead of forking."""
    job: dict[str, Any] = field(default_factory=dict)


class Parked(BaseException):
    """The eager run has shown enough; the stage waits for its trials."""


class Stage:
    """The dispatcher of the stage: eager calls, and holders at the calls that matter."""

    def __init__(self, control: socket.socket | None, plan: Plan):
        self.control, self.plan = control, plan
        self.count = 0
        self.begin = 0.0
        self.inside = threading.local()
        self.main = threading.get_ident()
        self.caller: int | None = None
        """The thread whose calls are watched: the first that makes one."""
        self.elsewhere = 0
        """Calls that other threads made, and that were not looked at."""
        self.rest: Callable[[], None] = leave
        """What ends the eager run from a thread that has no way back to the program's end."""
        self.pid = os.getpid()
        self.holders: int = 0
        self.signatures: set[tuple[str, str]] = set()
        self.trial: Trial | None = None
        self.last: tuple[Region, tuple[Any, ...], dict[str, Any]] | None = None
        self.trajectory = False

    def send(self, message: dict[str, Any], *descriptors: int) -> None:
        if self.control is not None and os.getpid() == self.pid:
            wire.send(self.control, message, *descriptors)

    def call(self, region: Region, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if os.getpid() != self.pid or getattr(self.inside, "value", False):
            return region.function(*args, **kwargs)
        if self.caller is None:
            self.caller = threading.get_ident()
        if threading.get_ident() != self.caller:
            self.elsewhere += 1
            return region.function(*args, **kwargs)
        number, self.count = self.count, self.count + 1
        if number == 0:
            self.begin = time.monotonic()
        self.inside.value = True
        try:
            return self.watched(number, region, args, kwargs)
        finally:
            self.inside.value = False

    def watched(self, number: int, region: Region, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.plan.start is not None and number == self.plan.start:
            return self.become(number, self.plan.job, region, args, kwargs)
        if number >= self.plan.max_calls or time.monotonic() - self.begin > self.plan.max_seconds:
            self.send({"event": "enough", "call": number})
            if threading.get_ident() != self.main:
                send_end(self, None, None)
                self.rest()
            raise Parked
        signature = signature_of(args, kwargs)
        fresh = (region.key, signature) not in self.signatures
        self.signatures.add((region.key, signature))
        wanted = fresh or number < EARLY
        if self.control is not None and wanted and self.holders < self.plan.max_holders:
            job = self.hold(number)
            if job is not None:
                return self.become(number, job, region, args, kwargs)
        self.last = (region, args, kwargs)
        start = time.perf_counter()
        raised: BaseException | None = None
        try:
            return region.function(*args, **kwargs)
        except BaseException as error:
            raised = error
            raise
        finally:
            self.send(
                {
                    "event": "call",
                    "call": number,
                    "region": region.key,
                    "signature": signature,
                    "new": fresh,
                    "seconds": time.perf_counter() - start,
                    "grad": torch.is_grad_enabled(),
                    "site": intercept.site()[:2],
                    "exception": exceptions.describe(raised) if raised is not None else None,
                }
            )

    # --- forks ---------------------------------------------------------------------------------------

    def hold(self, number: int) -> dict[str, Any] | None:
        """Fork a holder of this call. Returns None in the stage and a job in a trial."""
        if torch.cuda.is_initialized():
            self.send({"event": "cuda", "call": number})
            return None
        reason = unforkable()
        if reason:
            self.plan.max_holders = 0
            self.send({"event": "unforkable", "reason": reason})
            return None
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        ours, theirs = wire.pair()
        drawn = random.getstate()
        child = os.fork()
        if child:
            theirs_fd = theirs.fileno()
            ours.close()
            self.holders += 1
            self.send({"event": "holder", "call": number, "pid": child}, theirs_fd)
            theirs.close()
            return None
        theirs.close()
        keeper.die_with_parent()
        if self.control is not None:
            self.control.close()
            self.control = None
        job = hold_call(ours, compat.warm_up)
        random.setstate(drawn)  # Python seeds `random` anew in every forked child
        return job

    def become(
        self,
        number: int,
        plain: dict[str, Any],
        region: Region,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """From here on this process is a trial (or makes the references of one call)."""
        self.pid = os.getpid()
        if plain.get("kind") == "truth":
            folder = plain["folder"]
            make_references(
                Call(region, args, kwargs), tuple(plain["flavours"]), folder, plain.get("forks", True)
            )
            wire.append(
                os.path.join(folder, "events.jsonl"), {"event": "end", "stopped": True, "measures": {}}
            )
            leave()
        if plain.get("kind") == "trajectory":
            return self.follow(plain, region, args, kwargs)
        if plain.get("kind") in ("tree", "operators"):
            from torchtriage.probe import own_operators, tree

            look = tree.write if plain["kind"] == "tree" else own_operators.write
            look(region, plain["folder"], args, kwargs)
            leave()
        self.trial = Trial(Job.from_json(plain), number)
        try:
            self.trial.prepare()
        except Exception as error:
            self.trial.event("unfit", exception=exceptions.describe(error))
            leave()
        intercept.set_dispatcher(self.trial)
        return self.trial.call(region, args, kwargs)

    def follow(
        self, plain: dict[str, Any], region: Region, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Go on in eager mode to the program's end, from a state that was moved by one unit in the last place."""
        self.trajectory, self.plan.max_holders = True, 0
        self.plan.end_file = os.path.join(plain["folder"], "end.pt")
        if plain["flavour"].startswith("ulp"):
            flavours.nudge(flavours.tensors(roots_of(region, args, kwargs)), int(plain["flavour"][3:]))
        self.last = (region, args, kwargs)
        return region.function(*args, **kwargs)


def unforkable() -> str:
    """Why the program cannot go on in a fork: processes and threads that it works with stay behind."""
    if multiprocessing.active_children():
        return "it has worker processes"
    others = [t for t in threading.enumerate() if t is not threading.current_thread()]
    mine = [t.name for t in others if type(t).__name__ not in HARMLESS]
    return f"it has other threads ({', '.join(mine[:3])})" if mine else ""


HARMLESS = ("TMonitor",)
"""Threads that nothing waits for: tqdm's monitor."""


def hold_call(lab: socket.socket, warm_up: Callable[[], None]) -> dict[str, Any]:
    """Wait for jobs. Returns only in a trial; the holder itself leaves when the lab does.

    `warm_up` is run before the first job that may compile.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    warm = False
    while True:
        message = wire.receive(lab)
        if message is None:
            leave()
        job, descriptors = message  # type: ignore[misc]
        if not warm and job.get("kind") != "truth":
            warm_up()
            warm = True
        connection = wire.from_descriptor(descriptors[0])
        if os.fork() == 0:
            lab.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            taken = keep_one(connection, job)
            if taken is not None:
                return taken
        connection.close()


def keep_one(connection: socket.socket, job: dict[str, Any]) -> dict[str, Any] | None:
    """Be the keeper of one trial. Returns the job in the trial process itself.

    It outlives its parents by a moment, to end what the trial has started: it sees by its connection that the lab is gone.
    """
    os.setsid()
    limits = keeper.Limits(job.get("seconds", 120.0), job.get("bytes", 8 << 30))
    result = keeper.keep(None, limits, connection)
    if result is None:
        connection.close()
        return job
    with contextlib.suppress(OSError):  # the lab is gone
        wire.send(connection, result)
    connection.close()
    leave()
    return None


def signature_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What guards look at, as text: shapes, strides, dtypes, devices, grad mode, Python scalars."""
    shown = []
    for leaf in walk.leaves({"args": args, "kwargs": kwargs})[:400]:
        value = leaf.value
        if isinstance(value, torch.Tensor):
            try:
                stride: Any = value.stride()
            except RuntimeError:
                stride = ""
            shown.append(f"{value.dtype}{tuple(value.shape)}{stride}{value.device}{int(value.requires_grad)}")
        elif isinstance(value, (bool, int, str, type(None))):
            shown.append(repr(value)[:80])
        else:
            shown.append(type(value).__name__)
    return f"{';'.join(shown)}|grad={torch.is_grad_enabled()}"[:8000]


def run_program(stage: Stage, run: Any) -> None:
    """Run the loaded program to its end, in whatever role this process ends up in."""
    error: BaseException | None = None
    try:
        run()
    except (Parked, StopTrial) as stop:
        error = stop
    except SystemExit as stop:
        error = stop if stop.code not in (None, 0) else None
    except BaseException as raised:
        error = raised
        if stage.trial is not None:
            with contextlib.suppress(Exception):  # the program may have closed its streams
                traceback.print_exc()
    if stage.trial is not None:
        stage.trial.finish(error)
        leave()
    if stage.plan.end_file and stage.last is not None and error is None:
        record_end(stage.plan.end_file, *stage.last, stage.count)
    if stage.trajectory:
        leave()
    if os.getpid() != stage.pid:  # a process that the program forked itself
        os._exit(1 if error else 0)
    described = None
    if error is not None and not isinstance(error, Parked):
        described = exceptions.describe(error)
    send_end(stage, described, getattr(error, "code", None) if isinstance(error, SystemExit) else None)


def send_end(stage: Stage, exception: dict[str, Any] | None, status: Any) -> None:
    """Tell the lab how the eager run ended, and what it compiled."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    event = {"event": "end", "exception": exception, "calls": stage.count, "exit": status}
    configs = switches.changed_configs()
    more = {"configs": configs, "defaults": switches.defaults_of_changed(configs)}
    more["packages"] = environment.packages()
    stage.send({**event, "regions": region_list(), "elsewhere": stage.elsewhere, **more})


def region_list() -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for region in intercept.regions:
        backend = region.settings.backend
        found.setdefault(
            region.key,
            {
                "key": region.key,
                "name": region.name,
                "file": region.file,
                "line": region.line,
                "function": inspect.isfunction(compat.original_function(region.function)),
                "settings": region.settings.text(),
                "dynamic": region.settings.dynamic,
                "backend": backend
                if isinstance(backend, str)
                else f"<{getattr(backend, '__name__', 'callable')}>",
                "fullgraph": bool(
                    region.settings.arguments.get("fullgraph") or region.settings.arguments.get("nopython")
                ),
                "mode": region.settings.arguments.get("mode"),
                "options": bool(region.settings.arguments.get("options")),
            },
        )
    return list(found.values())
