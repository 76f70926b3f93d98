"""The library's front door: runs a diagnosis from a target to its report files.

`diagnose(model_or_function, *args)` works on live objects; `run` is what the command line calls.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchtriage import __version__
from torchtriage.investigate.diagnose import diagnose as investigate
from torchtriage.investigate.facts import Facts
from torchtriage.lab import runs
from torchtriage.lab.journal import Journal
from torchtriage.lab.local import Live, LocalLab, Options, Progress
from torchtriage.lab.request import Request
from torchtriage.lab.stage import StageError, Survey
from torchtriage.model.diagnosis import Diagnosis, Environment, Program, Region
from torchtriage.model.outcome import ExceptionInfo, Outcome, exception_from_json, one_line
from torchtriage.report.files import write_all

VARIABLES = (
    "TORCH",
    "PYTORCH",
    "TRITON",
    "CUDA",
    "OMP_",
    "MKL_",
    "KMP_",
    "NCCL",
    "CXX",
    "CC",
    "ROCM",
    "HIP",
    "CUBLAS",
)
TRACE_PAGE = "trace.html"
SECRET = ("TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL")


class UsageError(Exception):
    """Bad input: one line for the user, exit status 2."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a person can choose about a run. Times in seconds."""

    jobs: int = 0
    """0: as many as there are cores, at most 4."""
    trial_timeout: float = 180.0
    trial_memory: int = 0
    """Bytes; 0: a fair share of the machine's memory."""
    isolation: str = "auto"
    max_calls: int = 64
    runs: str = "runs"
    python: str = ""
    fresh: bool = False
    verdict_only: bool = False
    budget: float = 600.0
    """Seconds from the start after which searches for causes and workarounds stop."""


def run(
    target: Mapping[str, Any],
    settings: Settings = Settings(),
    progress: Progress | None = None,
    note: Callable[[str], None] = lambda text: None,
    command: str = "",
    live: Live | None = None,
    finishes: bool = True,
) -> Diagnosis:
    """Diagnose a target and write its report. Raises UsageError for what cannot be diagnosed at all.

    `finishes`: False where more is to come: the same command then goes on from this run, until `runs.finish` is called.
    """
    begin = time.monotonic()
    folder = run_folder(target, settings)
    journal = open_journal(folder)
    try:
        chosen = options(settings)
        if live is not None:
            chosen = dataclasses.replace(chosen, mode="fork", user_threads=1)
        with LocalLab(dict(target), folder, journal, chosen, progress, live) as lab:
            survey = survey_of(lab, note)
            facts, program = facts_of(lab, survey), program_of(lab, survey)
            diagnosis = investigate(
                lab, facts, program, note, settings.verdict_only,
                enough=lambda: time.monotonic() - begin > settings.budget,
            )  # fmt: skip
        diagnosis = dataclasses.replace(
            diagnosis,
            remarks=(*diagnosis.remarks, *remarks_of(survey)),
            environment=environment_of(survey, settings),
            command=command,
            run_folder=runs.shown(folder),
            trace_page=trace_page(folder),
            started=runs.started(journal),
            seconds=round(time.monotonic() - begin, 1),
            trials=journal.count("trial"),
            version=__version__,
        )
        write_all(diagnosis, folder)
        if finishes:
            runs.finish(folder)
        return diagnosis
    except StageError as error:
        raise UsageError(str(error)) from error
    finally:
        journal.close()


def diagnose(target: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Diagnosis:
    """Diagnose a module or function on the given inputs, in forks of this process.

    `target` may be compiled already; else it is compiled as torch.compile(target). The inputs are used as they
    are and not changed. Writes a run folder below ./runs. Raises UsageError for what cannot be diagnosed.
    """
    from torchtriage.lab import live

    name = getattr(target, "__qualname__", type(target).__qualname__).replace("<locals>.", "")
    described: dict[str, Any] = {"kind": "live", "name": name, "args": []}
    try:
        launch = live.launcher(target, args, kwargs)
    except live.CannotFork as error:
        raise UsageError(str(error)) from error
    return run(described, Settings(fresh=True), command=f"torchtriage.diagnose({name}, ...)", live=launch)


def open_journal(folder: Path) -> Journal:
    """The journal of a run folder. Raises UsageError for one that cannot be used."""
    try:
        return runs.open_journal(folder)
    except runs.RunFolderError as error:
        raise UsageError(str(error)) from error


def survey_of(lab: LocalLab, note: Callable[[str], None]) -> Survey:
    """The eager run; raises UsageError where there is nothing to diagnose."""
    note("the program in eager mode")
    survey = lab.survey()
    if survey.unfit:
        raise UsageError(survey.unfit)
    if survey.bad_target:
        raise UsageError(survey.bad_target)
    if survey.killed:
        raise UsageError(f"the program fails in eager mode already: it is killed by {survey.killed}")
    if survey.calls:
        return survey
    if survey.exception is not None:
        raise UsageError(f"the program fails in eager mode already: {one_line(survey.exception)}")
    if survey.exit is not None:
        raise UsageError(
            f"the program ends with exit status {survey.exit} before it calls anything that is compiled"
        )
    if survey.regions:
        names = ", ".join(region["name"] for region in survey.regions[:3])
        raise UsageError(f"the program compiles {names} but never calls it, so there is nothing to compare")
    raise UsageError(nothing_compiled(lab.target))


def trace_page(folder: Path) -> str:
    """Explain the torch trace of the observed trial in a page of its own. The file's name; empty without a trace."""
    if not (folder / "trace").is_dir():
        return ""
    from torchtriage.report.trace_html import write_html
    from torchtriage.trace import NotATrace, read_trace
    from torchtriage.trace.bundle import make_bundle
    from torchtriage.trace.page import make_page

    try:
        found = read_trace([str(folder / "trace")])
        write_html(make_bundle(found, make_page(found, __version__)), folder / TRACE_PAGE)
    except NotATrace:  # the trial ended before it compiled anything
        return ""
    except Exception as error:  # a page less must not cost the report
        sys.stderr.write(f"torchtriage: the trace cannot be shown: {type(error).__name__}: {error}\n")
        return ""
    return TRACE_PAGE


def remarks_of(survey: Survey) -> tuple[str, ...]:
    """What of the program was not looked at."""
    if not survey.elsewhere:
        return ()
    return (f"{survey.elsewhere} calls were made in further threads: they ran, but were not compared",)


def nothing_compiled(target: Mapping[str, Any]) -> str:
    name = target["name"]
    where = f"{name}:FUNCTION" if target["kind"] == "script" else "module:FUNCTION"
    return (
        f"{name} hands nothing to torch.compile, so there is nothing to look at. "
        f"To have a function of it compiled, name it: {where} (it is called without arguments)"
    )


def facts_of(lab: LocalLab, survey: Survey) -> Facts:
    return Facts(
        regions=tuple(survey.regions),
        calls=tuple(survey.calls),
        holders=tuple(survey.holders),
        eager_exception=survey.exception,
        threads=lab.options.user_threads,
        cuda=survey.cuda,
        rerun=lab.rerun,
        defaults=survey.defaults,
        jobs=lab.options.jobs,
    )


def program_of(lab: LocalLab, survey: Survey) -> Program:
    regions = []
    for region in survey.regions:
        calls = [c for c in survey.calls if c["region"] == region["key"]]
        if calls:
            signatures = len({c["signature"] for c in calls})
            regions.append(
                Region(
                    region["name"], region["file"], region["line"], region["settings"], len(calls), signatures
                )
            )
    return Program(
        target=target_text(lab.target),
        regions=tuple(regions),
        calls=len(survey.calls),
        signatures=len({(c["region"], c["signature"]) for c in survey.calls}),
        truncated=survey.truncated,
        eager_exception=eager_exception(survey),
        seconds=round(survey.seconds, 2),
        mode="rerun" if lab.rerun else "fork",
    )


def eager_exception(survey: Survey) -> ExceptionInfo | None:
    if survey.exception is None or survey.exception["type"].endswith("SystemExit"):
        return None
    return exception_from_json(survey.exception)


def environment_of(survey: Survey, settings: Settings) -> Environment:
    known = {k: v for k, v in survey.environment.items() if k in Environment.__dataclass_fields__}
    known["threads"] = user_threads()
    variables = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(VARIABLES) and not any(word in name for word in SECRET)
    }
    return Environment(**known, variables=variables, configs=survey.configs)


def options(settings: Settings) -> Options:
    jobs = settings.jobs or max(1, min(4, cores()))
    return Options(
        jobs=jobs,
        trial_seconds=settings.trial_timeout,
        trial_bytes=settings.trial_memory or max(1 << 30, int(memory() * 0.8 / jobs)),
        mode=settings.isolation,
        max_calls=settings.max_calls,
        python=settings.python or sys.executable,
        store=kernel_store(),
        user_threads=user_threads(),
    )


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def user_threads() -> int:
    """Threads that torch would use for the program by itself."""
    text = os.environ.get("OMP_NUM_THREADS", "")
    return int(text) if text.isdigit() and int(text) > 0 else cores()


def memory() -> int:
    """Bytes that are free for trials."""
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    return 8 << 30


def kernel_store() -> Path:
    """The store of compiled kernels: ours, never the user's Inductor cache."""
    home = os.environ.get("TORCHTRIAGE_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "torchtriage"
    )
    store = Path(home).absolute() / "kernels"
    store.mkdir(parents=True, exist_ok=True)
    return store


def target_text(target: Mapping[str, Any]) -> str:
    shown = f"-m {target['name']}" if target["kind"] == "module" else str(target["name"])
    return " ".join((shown, *target.get("args", ())))


def run_folder(target: Mapping[str, Any], settings: Settings, suffix: str = "") -> Path:
    """The folder of this run: that of an unfinished run of the same program, else a new one. `suffix`: of its name."""
    name = str(target["name"])
    question = [runs.identity(dict(target), name.partition(":")[0]), dataclasses.asdict(settings)]
    try:
        return runs.run_folder(settings.runs, Path(name).stem, question, settings.fresh, suffix)
    except runs.RunFolderError as error:
        raise UsageError(str(error)) from error


def describe_request(request: Request) -> str:
    """A few words for the progress display."""
    changes = request.variant.changes()
    return ", ".join(changes) if changes else "as it is"


__all__ = ["Outcome", "Settings", "UsageError", "diagnose", "run"]
