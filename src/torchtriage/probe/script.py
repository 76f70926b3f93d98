"""Runs one script of a reducer in this process, and writes down how it ended.

A script is run as a user runs it: as `__main__`, with torch as it is. What is forced from outside (a backend, eager
mode, switches) is the layer at which the search goes on. Nothing in here judges: the reducer does.
"""

from __future__ import annotations

import builtins
import functools
import json
import linecache
import os
import sys
import time
import traceback
import types
from dataclasses import dataclass, field
from typing import Any

import torch

from torchtriage.probe import compat, exceptions, fence, graphs, notes, observations, sites, switches
from torchtriage.probe.trial import leave

RESULT = "result.json"
RUN = "run"
"""The function whose result is compared, in the modes that compare."""

MOST_SITES = 2000
DRAWS = 4
"""Further eager runs of a script that draws random numbers, and does not seed them."""


class PastStage(BaseException):
    """The script has come further than the failure that is looked for: what follows is of no interest."""


@dataclass
class ScriptJob:
    """One run of a script."""

    file: str
    folder: str
    mode: str = "compiled"
    """`compiled`, `eager`, or `compare`: call `run()` of the script in both ways, and compare what it returns.

    `observe` compares the variables of `run` instead, each by itself. `notes` runs an instrumented script in eager mode,
    `sites` notes where regions are called from. `graphs` writes the graphs down that are captured.
    """
    path: tuple[str, ...] = ()
    """Folders of modules that the script imports."""
    name: str = "repro.py"
    backend: str = ""
    """Compile with this backend, whatever the script says."""
    threads: int = 1
    switches: dict[str, Any] = field(default_factory=dict)
    before: str = ""
    """Where the script has come too far: `build`, when it calls a kernel (none is built); `codegen`, once Inductor has
    lowered a graph. Empty: nowhere.
    """
    caches: bool = False
    store: str = ""
    covered: bool = False
    """Note which lines are run."""
    aspects: tuple[str, ...] = ()
    """What is compared beyond values, dtypes and shapes: `stride`, `requires_grad`."""

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> ScriptJob:
        given = {k: v for k, v in plain.items() if k in cls.__dataclass_fields__}
        for name in ("path", "aspects"):
            given[name] = tuple(given.get(name, ()))
        return cls(**given)


def run(message: dict[str, Any]) -> None:
    """Run the script of a job file, write the result beside it, and leave."""
    with open(message["file"]) as file:
        job = ScriptJob.from_json(json.load(file))
    result: dict[str, Any] = {}
    begin = time.perf_counter()
    try:
        prepare(job)
        result = perform(job)
    except PastStage:
        result = {"past": True}
    result["seconds"] = time.perf_counter() - begin
    path = os.path.join(job.folder, RESULT)
    with open(path + ".part", "w") as file:
        json.dump(result, file, default=str)
    os.replace(path + ".part", path)
    leave()


def prepare(job: ScriptJob) -> None:
    """Apply what is forced from outside to this process."""
    os.chdir(job.folder)
    sys.argv = [job.name]
    sys.path[:0] = job.path
    torch.set_num_threads(job.threads)
    torch.seed()  # as in a fresh process: what needs a seed has to set it
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    store = job.store or os.environ.get("TORCHINDUCTOR_CACHE_DIR", job.folder)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = store
    os.makedirs(store, exist_ok=True)  # the fence lets through only what is there
    compat.keep_headers_in(store)
    if job.caches:
        switches.turn_caches_on(os.path.join(job.folder, "cache"))
    for name, value in job.switches.items():
        switches.set_switch(name, value)
    if job.before == "codegen":
        compat.generate_no_code(PastStage)
    elif job.before == "build":
        compat.build_no_kernels(PastStage)
    compat.clear_counters()
    fence.put_up(job.folder, store)


def perform(job: ScriptJob) -> dict[str, Any]:
    """Run the script from its first line. Returns what is to be said of it, as plain data."""
    with open(job.file) as file:
        text = file.read()
    linecache.cache[job.name] = (len(text), None, text.splitlines(keepends=True), job.name)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=job.name, __builtins__=builtins)
    sys.modules["__main__"] = main
    lines = watch_lines(job.name) if job.covered else set()
    noted = notes.install() if job.mode == "notes" else {}
    watched = sites.watch(job.name) if job.mode == "sites" else None
    captured = graphs.Captured(job.backend or "inductor")
    if job.mode == "graphs":
        force_backend(captured)
    elif job.backend and job.mode not in ("eager", "sites", "notes"):
        force_backend(job.backend)
    result: dict[str, Any] = {"exception": None, "exit": None, "found": []}
    try:
        code = compile(text, job.name, "exec", dont_inherit=True)
        if job.mode in ("compare", "observe"):
            exec(code, main.__dict__)
            result["found"] = both(main.__dict__, job, seeded="seed(" in text)
        elif job.mode == "notes":
            with torch.compiler.set_stance("force_eager"):
                exec(code, main.__dict__)
                if callable(main.__dict__.get(RUN)):
                    main.__dict__[RUN]()
        else:
            with stance(job):
                exec(code, main.__dict__)
    except SystemExit as stop:
        result["exit"] = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except PastStage:
        raise
    except BaseException as error:
        if any(isinstance(link, PastStage) for link in exceptions.chain(error)):
            raise PastStage from None
        result["exception"] = exceptions.describe(error) | lines_in(job.name, error)
    finally:
        sys.settrace(None)
    result["covered"] = sorted(lines)
    result["notes"] = noted
    result["graphs"] = captured.graphs
    result["sites"] = watched.found[:MOST_SITES] if watched else []
    result["counts"] = counts()
    return result


def lines_in(name: str, error: BaseException) -> dict[str, int]:
    """Lines of the script that an exception came through, 0 where there is none: the innermost, and the one in `run`."""
    while error.__context__ is not None and isinstance(error, EagerFails):
        error = error.__context__
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == name]
    in_run = next((f.lineno or 0 for f in frames if f.name == RUN), 0)
    return {"script_line": (frames[-1].lineno or 0) if frames else 0, "run_line": in_run}


def stance(job: ScriptJob) -> Any:
    """Eager mode, where that is asked for."""
    return torch.compiler.set_stance("force_eager" if job.mode == "eager" else "default")


def force_backend(backend: Any) -> None:
    """torch.compile uses this backend, whatever it is told; all else (fullgraph, dynamic) stays."""
    real = torch.compile

    @functools.wraps(real)
    def compile_with(model: Any = None, **arguments: Any) -> Any:
        for name in ("mode", "options"):
            arguments.pop(name, None)
        return real(model, **{**arguments, "backend": backend})

    torch.compile = compile_with  # type: ignore[assignment]


def both(names: dict[str, Any], job: ScriptJob, seeded: bool) -> list[dict[str, Any]]:
    """What `run()` returns in eager mode and compiled, compared. An exception in eager mode is `EagerFails`."""
    observe = job.mode == "observe"
    draws = 1 if seeded else DRAWS
    try:
        with torch.compiler.set_stance("force_eager"):
            state = torch.get_rng_state()
            again = [observations.take(names[RUN](), observe)]
            if not torch.equal(state, torch.get_rng_state()):  # it draws: is the result the same every time?
                again += [observations.take(names[RUN](), observe) for _ in range(draws)]
            expected = names[RUN]()
    except Exception as error:
        raise EagerFails(f"{type(error).__name__}: {error}") from None
    if observe:
        expected = observations.take(expected, True)
    with stance(job):
        actual = observations.take(names[RUN](), observe)
    if not observe:  # taken late on purpose: the script's own assertion sees what later runs do to it, too
        expected = observations.take(expected)
    unsteady = {row["path"] for other in again for row in observations.compare(other, expected, job.aspects)}
    return [row for row in observations.compare(expected, actual, job.aspects) if row["path"] not in unsteady]


class EagerFails(Exception):
    """The script raises in eager mode."""


def counts() -> dict[str, Any]:
    """What Dynamo counted."""
    table = compat.counters()
    return {
        "graphs": table.get("stats", {}).get("unique_graphs", 0),
        "recompiles": max(compat.frame_compiles() - 1, 0),
        "breaks": {**table.get("graph_break", {}), **table.get("unimplemented", {})},
        "compile_seconds": compat.compile_seconds(),
    }


def watch_lines(name: str) -> set[int]:
    """The numbers of the script's lines that are run from now on; filled as it goes."""
    lines: set[int] = set()

    def inside(frame: Any, event: str, arg: Any) -> Any:
        if event == "line":
            lines.add(frame.f_lineno)
        return inside

    def enter(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename != name:
            return None
        lines.add(frame.f_lineno)
        return inside

    sys.settrace(enter)
    return lines
