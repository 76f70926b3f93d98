"""A trace and its analyses as one plain value, from which the terminal, JSON and HTML are rendered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchtriage.trace.analyses.caches import CacheUse, Starts, cache_use, starts
from torchtriage.trace.analyses.collectives import Runtime, Schedule, runtimes, schedules
from torchtriage.trace.analyses.compile_time import TimeUse, Twins, time_use, twins
from torchtriage.trace.analyses.eager import EagerFrame, eager_frames
from torchtriage.trace.analyses.failures import Stop, stops
from torchtriage.trace.analyses.graph_breaks import BreakSite, break_sites
from torchtriage.trace.analyses.operators import operator_report
from torchtriage.trace.analyses.ranks import RankReport, rank_report
from torchtriage.trace.analyses.recompiles import RecompileCause, guard_changes, recompile_causes
from torchtriage.trace.analyses.specialised import Specialised, specialised_sizes
from torchtriage.trace.analyses.verdicts import Verdict, verdicts
from torchtriage.trace.load import Trace
from torchtriage.trace.model import CompileId, Totals

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class LogRow:
    """One log, for the list of them."""

    name: str
    title: str
    rank: int | None
    size: int
    records: int
    compiles: int
    artifacts: int
    seconds: float
    torch_version: str
    started: str
    problems: int
    kinds: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that is shown before one opens an artefact."""

    name: str
    totals: Totals
    verdicts: tuple[Verdict, ...]
    recompiles: tuple[RecompileCause, ...]
    breaks: tuple[BreakSite, ...]
    time: TimeUse
    caches: tuple[CacheUse, ...]
    starts: Starts
    twins: tuple[Twins, ...]
    specialised: tuple[Specialised, ...]
    eager: tuple[EagerFrame, ...]
    stops: tuple[Stop, ...]
    ranks: RankReport
    schedules: tuple[Schedule, ...]
    runtimes: tuple[Runtime, ...]
    logs: tuple[LogRow, ...]
    passed_over: tuple[str, ...]
    version: str = ""

    @property
    def problems(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if v.level == "problem")


def make_page(trace: Trace, version: str = "") -> Page:
    """Runs every analysis once."""
    logs = tuple(
        LogRow(
            log.name, log.title, log.rank, log.size, log.records, len(log.compiles), len(log.artifacts), log.seconds,
            log.torch_version, log.started, log.problem_count, tuple(sorted(log.kinds.items(), key=lambda k: -k[1])),
        )
        for log in trace.logs
    )  # fmt: skip
    return Page(
        name=trace.name, totals=trace.totals, verdicts=verdicts(trace), recompiles=recompile_causes(trace),
        breaks=break_sites(trace), time=time_use(trace), caches=cache_use(trace), starts=starts(trace),
        twins=twins(trace), specialised=specialised_sizes(trace), eager=eager_frames(trace), stops=stops(trace), ranks=rank_report(trace),
        schedules=schedules(trace), runtimes=runtimes(trace),
        logs=logs, passed_over=trace.passed_over, version=version,
    )  # fmt: skip


def to_json(trace: Trace, page: Page) -> dict[str, Any]:
    """The published form: analyses, then the model of every log. Dataclasses are left for the JSON writer."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": page.name,
        "totals": page.totals,
        "verdicts": page.verdicts,
        "recompiles": page.recompiles,
        "guard_changes": [
            {"log": log, "compile": compile, "changes": found} for (log, compile), found in guard_changes(trace).items()
        ],
        "graph_breaks": page.breaks,
        "time": page.time,
        "caches": page.caches,
        "starts": page.starts,
        "same_graphs": page.twins,
        "specialised_sizes": page.specialised,
        "eager_frames": page.eager,
        "failures_and_restarts": page.stops,
        "operators": operator_report(trace),
        "ranks": page.ranks,
        "collective_schedules": page.schedules,
        "runtime_estimates": page.runtimes,
        "passed_over": page.passed_over,
        "logs": [
            {
                "name": log.name, "rank": log.rank, "size": log.size, "records": log.records, "kinds": log.kinds,
                "torch_version": log.torch_version, "started": log.started, "epoch": log.epoch,
                "problems": [p._asdict() for p in log.problems], "problem_count": log.problem_count,
                "compiles": log.compiles, "artifacts": log.artifacts, "configs": log.configs, "steps": log.steps,
            }
            for log in trace.logs
        ],
    }  # fmt: skip


def plain(value: Any) -> Any:
    """For the JSON writer: the few types that are no JSON."""
    if isinstance(value, CompileId):
        return str(value)
    if isinstance(value, tuple):
        return value._asdict() if hasattr(value, "_asdict") else list(value)
    raise TypeError(type(value).__name__)
