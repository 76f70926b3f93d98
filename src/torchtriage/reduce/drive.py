"""One reduction from the program to the proven script: which road, the search, the last form, the conditions.

Everything is remembered as it comes: the best script is on disk after each step, and no script is run twice.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import hashlib
import math
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torchtriage.lab.scripts import ScriptEnd, ScriptRequest
from torchtriage.model.diagnosis import Diagnosis
from torchtriage.model.reduction import Reduction, SearchPoint
from torchtriage.reduce import conditions, files, finish, graphs, prepare, rank, redact, source
from torchtriage.reduce import tree as trees
from torchtriage.reduce.engine import Interrupted, Search
from torchtriage.reduce.prepare import LEAST_SECONDS, PATIENCE, CannotReduce, Start
from torchtriage.reduce.signature import same_exception
from torchtriage.reduce.tester import Conditions, Tester

GRAPH_LINES = 45
"""A program with more lines, or with packages besides torch, is first tried as one captured graph of it."""
STEADY_RUNS, FLAKY_RUNS, ERROR = 3, 12, 0.05
MOST_GRAPH_SCRIPTS = 24
TIME_UP = "the time was up"


class Lab(Protocol):
    """What a reduction needs of the lab."""

    def run(self, request: ScriptRequest) -> ScriptEnd: ...

    def plain(self, script: Path, seconds: float, compiled: bool = True) -> tuple[int, str]: ...


class Remembers(Protocol):
    """The part of a journal that a search uses."""

    def get(self, kind: str, key: str) -> Any | None: ...

    def put(self, kind: str, key: str, question: Any, answer: Any) -> None: ...


@dataclass(frozen=True)
class Program:
    """The program as one text, and where its modules are."""

    text: str
    folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wishes:
    """What the person wants of a reduction. Times in seconds."""

    jobs: int = 2
    threads: int = 1
    trial_seconds: float = 60.0
    deadline: float = math.inf
    """On the clock of time.monotonic."""
    redact: bool = False


Note = Callable[[str], None]
Best = Callable[[SearchPoint, str], None]


def reduce(
    lab: Lab,
    program: Program,
    diagnosis: Diagnosis,
    wishes: Wishes,
    journal: Remembers,
    folder: Path,
    note: Note = lambda text: None,
    best: Best = lambda point, text: None,
) -> Reduction:
    """Make the script. Raises prepare.CannotReduce where the failure cannot be shown by one script at all."""
    begin = time.monotonic()
    note("the program as one script")
    given = prepare.conditions_of(diagnosis, wishes.threads, wishes.trial_seconds)
    first, road = begin_of(lab, program, diagnosis, given, note)
    start, rate = steady(lab, first)
    note(f"reducing: {start.tester.failure.words()}")
    writer = Writer(start, folder, best)
    search = Search(
        Remembered(start.tester, journal), start.text, wishes.jobs, wishes.deadline, writer,
        frozen=frozen_statements,
    )  # fmt: skip
    stopped = ""
    try:
        source.reduce(search, start.tester, straight=road == "graph")
        if wishes.redact:
            redact.rename(search)
    except Interrupted:
        stopped = TIME_UP
    except KeyboardInterrupt:
        stopped = "interrupted"
    except OSError as error:  # a full disk: what was written is whole
        stopped = f"nothing more can be written: {error.strerror}"
    finally:
        search.close()
    found = Reduction(
        failure=start.tester.failure.words(),
        script=writer.finished(search.best),
        road=road,
        lines_before=trees.lines_of(program.text),
        lines=trees.lines_of(search.best),
        rate=rate,
        history=tuple(search.history),
        tests=search.tests,
        stopped=stopped,
        redacted=wishes.redact,
        diagnosis=diagnosis,
        defects=tuple(search.defects.items()),
        slips=tuple(sorted(start.tester.slips.items(), key=lambda item: -item[1])[:8]),
    )
    if not stopped or stopped == TIME_UP:
        found = proven(lab, program, search.best, start, found, folder, note)
    return dataclasses.replace(found, seconds=round(time.monotonic() - begin, 1))


def proven(
    lab: Lab, program: Program, text: str, start: Start, found: Reduction, folder: Path, note: Note
) -> Reduction:
    """The script in its last form, run in fresh processes, with the conditions that it needs."""
    note("running the script in fresh processes")
    tester = start.tester
    end = finish.finish(lab, text, tester.failure, tester.conditions, folder)
    note("what the failure needs")
    needed = conditions.find(text, tester)
    finish.save(folder / "repro.py", end.text)
    name, keeps_from = rank.rank(end.text, files.reader(program.folders))
    return dataclasses.replace(
        found,
        script=end.text,
        lines=trees.lines_of(end.text),
        shown=end.failures,
        runs=end.runs,
        fine_disabled=end.fine_disabled,
        output=end.output,
        conditions=tuple(needed),
        rank=name,
        keeps_from=keeps_from,
    )


# --- where to begin -------------------------------------------------------------------------------------


def begin_of(
    lab: Lab, program: Program, diagnosis: Diagnosis, given: Conditions, note: Note
) -> tuple[Start, str]:
    """The script that the search begins with, and the road that it came by."""
    read = files.reader(program.folders)
    texts = dict.fromkeys((files.with_modules(program.text, read), program.text))
    problem: CannotReduce | None = None
    for text in texts:
        text = prepare.inside_the_fence(lab, text, given)
        try:
            first = prepare.start(lab, text, diagnosis, given)
        except CannotReduce as error:
            problem = problem or error
            continue
        large = trees.lines_of(text) > GRAPH_LINES or bool(files.installed_imports(text, read))
        if large and diagnosis.first_failing_layer != "dynamo":
            note("one captured graph by itself")
            graph = of_graph(lab, program, text, first, diagnosis, given)
            if graph is not None:
                return graph, "graph"
        return first, "source"
    graph = of_graph(lab, program, program.text, None, diagnosis, given)
    if graph is not None:
        return graph, "graph"
    raise problem or CannotReduce("the program does not fail when it is run as one script")


def of_graph(
    lab: Lab,
    program: Program,
    text: str,
    first: Start | None,
    diagnosis: Diagnosis,
    given: Conditions,
) -> Start | None:
    """A script of one captured graph that fails in the same way, where there is one."""
    captured = lab.run(given.request(text, mode="graphs", before=""))
    kind = prepare.kind_of(diagnosis)
    backward = "grad" in diagnosis.symptoms or "backward" in diagnosis.needs
    read = files.reader(program.folders)
    kept = files.registering(text, read)
    tried = 0
    for script in graphs.scripts(captured.graphs, backward, last_first=kind == "raises"):
        for lines in dict.fromkeys((tuple(kept), tuple(package_imports(text)))):
            tried += 1
            if tried > MOST_GRAPH_SCRIPTS:
                return None
            start = graph_start(lab, "\n".join([*lines, script]), first, diagnosis, given)
            if start is not None:
                return start
    return None


def graph_start(
    lab: Lab, script: str, first: Start | None, diagnosis: Diagnosis, given: Conditions
) -> Start | None:
    try:
        start = prepare.start(lab, script, diagnosis, given, tries=1)
    except CannotReduce:
        return None
    if first is None:
        return start
    ours, theirs = first.tester.failure, start.tester.failure
    if ours.kind != theirs.kind or ours.aspect != theirs.aspect or ours.gross > theirs.gross:
        return None
    if first.exception is not None and not same_exception(ours, start.exception):
        return None
    return start


def package_imports(text: str) -> Iterator[str]:
    """Imports of what is neither torch nor Python's own: importing it may register what a graph calls."""
    for name in rank.packages_of(text):
        if name not in ("torch", "numpy"):
            yield f"import {name}"


def steady(lab: Lab, first: Start) -> tuple[Start, str]:
    """How long scripts may take, and whether the failure shows every time; where not, how often.

    Scripts are then tried more than once.
    """
    begin = time.monotonic()
    shown = [first.tester(first.text) for _ in range(STEADY_RUNS)]
    took = (time.monotonic() - begin) / STEADY_RUNS
    tester = first.tester
    if tester.failure.kind not in ("timeout", "slow"):
        tester = tester.within(max(LEAST_SECONDS, PATIENCE * took))
        first = dataclasses.replace(first, tester=tester)
    if all(shown):
        return first, ""
    more = [tester(first.text) for _ in range(FLAKY_RUNS - STEADY_RUNS)]
    rate = max((sum(shown) + sum(more)) / FLAKY_RUNS, 1 / FLAKY_RUNS)
    repeats = math.ceil(math.log(ERROR) / math.log(1 - rate)) if rate < 1 else 1
    again = Tester(lab, tester.failure, tester.conditions, repeats)
    again.slips = tester.slips
    return dataclasses.replace(first, tester=again), f"{sum(shown) + sum(more)} of {FLAKY_RUNS} runs"


FROZEN = (
    "torch.library",
    "register_lowering",
    "lowerings[",
    "decompositions[",
    "register_backend",
    "register_fake",
)


def frozen_statements(tree: ast.Module) -> list[str]:
    """What the program itself registers with torch stays: the fault may lie in it, and is not to be made another."""
    found: list[str] = []
    for statement in tree.body:
        shown = ast.unparse(statement)
        heads = [ast.unparse(d) for d in getattr(statement, "decorator_list", ())]
        text = "\n".join(heads) if isinstance(statement, trees.SCOPES) else shown
        if any(word in text for word in FROZEN):
            found.append(shown)
    return found


# --- what is kept on the way -------------------------------------------------------------------------------


class Remembered:
    """A tester whose answers are kept in the journal, by the text and what it is tested for."""

    def __init__(self, tester: Tester, journal: Remembers):
        self.tester, self.journal = tester, journal
        self.mark = repr((tester.failure, tester.conditions, tester.repeats))

    def __call__(self, text: str) -> bool:
        key = hashlib.sha256((self.mark + text).encode()).hexdigest()[:24]
        known = self.journal.get("script", key)
        if known is None:
            known = self.tester(text)
            with contextlib.suppress(sqlite3.Error):  # a full disk: it is asked again next time
                self.journal.put("script", key, "", known)
        return bool(known)


class Writer:
    """Writes the best script of a search to disk at each step, whole, in the form that a person can run."""

    def __init__(self, start: Start, folder: Path, best: Best):
        self.start, self.folder, self.best = start, folder, best

    def __call__(self, point: SearchPoint, text: str) -> None:
        with contextlib.suppress(OSError):  # the disk is full: what is there stays
            finish.save(self.folder / "repro.py", self.finished(text))
        self.best(point, text)

    def finished(self, text: str) -> str:
        """The form that holds most widely; which others do is only known once they were run."""
        tester = self.start.tester
        made = list(finish.forms(text, tester.failure, tester.conditions))
        return next((m for m in made if "def run" in m), made[0] if made else text)


__all__ = ["CannotReduce", "Program", "Wishes", "reduce"]
