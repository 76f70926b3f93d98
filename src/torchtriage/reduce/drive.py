"""One reduction from the program to the proven script: which road, the search, the last form, the conditions.

Everything is remembered as it comes: the best script is on disk after each step, and no script is run twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torchtriage.lab.scripts import ScriptEnd, ScriptRequest
from torchtriage.model.diagnosis import Diagnosis
from torchtriage.model.reduction import Reduction, SearchPoint
from torchtriage.reduce import begin, conditions, files, finish, frozen, prepare, rank, redact, source
from torchtriage.reduce import tree as trees
from torchtriage.reduce.begin import Program, Remembers
from torchtriage.reduce.engine import Interrupted, Search
from torchtriage.reduce.prepare import CannotReduce, Start
from torchtriage.reduce.tester import Tester

TIME_UP = "the time was up"
FIRST = "the program as one script"


class Lab(Protocol):
    """What a reduction needs of the lab."""

    def run(self, request: ScriptRequest) -> ScriptEnd: ...

    def plain(self, script: Path, seconds: float, compiled: bool = True) -> tuple[int, str]: ...


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
    since = time.monotonic()
    note(FIRST)
    given = prepare.conditions_of(diagnosis, wishes.threads, wishes.trial_seconds)
    beginning = begin.Beginning(
        begin.Recalled(lab, journal), program, diagnosis, given, wishes.deadline, note,
        keep=lambda start: Writer(start, folder, best).save(start.text),
    )  # fmt: skip
    first, road = beginning.start()
    first = dataclasses.replace(first, tester=first.tester.on(lab))
    start, rate = begin.steady(lab, first, "flaky" in diagnosis.needs, wishes.jobs)
    note(f"reducing: {start.tester.failure.words()}")
    whole = SearchPoint(0.0, 0, *trees.size_of(program.text)[:2], "the program")
    best(whole, program.text)
    writer = Writer(start, folder, best)
    search = Search(
        Remembered(start.tester, journal), start.text, wishes.jobs, wishes.deadline, writer,
        frozen=frozen.keeper(start.text, files.reader(program.folders)),
    )  # fmt: skip
    stopped, renamed = "", False
    try:
        try:
            source.reduce(search, start.tester, straight=road == "graph")
        except Interrupted:
            stopped = TIME_UP
        if wishes.redact:
            search.deadline = math.inf  # what is private goes, however late it is
            redact.rename(search)
            renamed = True
    except KeyboardInterrupt:
        stopped = "interrupted"
    except OSError as error:  # a full disk: what was written is whole
        stopped = f"nothing more can be written: {error.strerror}"
    finally:
        search.close()
    if wishes.redact and not renamed:
        stopped += ", before names were replaced"
    found = Reduction(
        failure=start.tester.failure.words(),
        script=writer.finished(search.best),
        road=road,
        lines_before=trees.lines_of(program.text),
        lines=trees.lines_of(search.best),
        rate=rate,
        history=(whole, *search.history),
        tests=search.tests,
        stopped=stopped,
        redacted=wishes.redact,
        diagnosis=diagnosis,
        defects=tuple(search.defects.items()),
        slips=tuple(sorted(start.tester.slips.items(), key=lambda item: -item[1])[:8]),
    )
    if not stopped or stopped == TIME_UP:
        found = proven(lab, program, search.best, start, found, folder, note)
    return dataclasses.replace(found, seconds=round(time.monotonic() - since, 1))


def proven(
    lab: Lab, program: Program, text: str, start: Start, found: Reduction, folder: Path, note: Note
) -> Reduction:
    """The script in its last form, run in fresh processes, with the conditions that it needs."""
    note("running the script in fresh processes")
    tester = start.tester
    end = finish.finish(lab, text, tester.failure, tester.conditions, folder)
    if 0 < end.failures < end.runs and not found.rate:
        found = dataclasses.replace(found, rate=f"{end.failures} of {end.runs} runs")
    note("what the failure needs")
    needed = conditions.find(text, tester)
    finish.save(folder / "repro.py", end.text)
    name, keeps_from = rank.rank(
        end.text, files.reader(program.folders), is_file=lambda text: is_file(text, program)
    )
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


def is_file(text: str, program: Program) -> bool:
    """Whether a text names a file, from here or from where the program lies."""
    try:
        paths = [Path(folder, text) for folder in ("", *program.folders)]
        return any(path.is_file() and path.suffix != ".py" for path in paths)
    except (OSError, ValueError):
        return False


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
        self.save(text)
        self.best(point, text)

    def save(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the disk is full: what is there stays
            finish.save(self.folder / "repro.py", self.finished(text))

    def finished(self, text: str) -> str:
        """The form that holds most widely; which others do is only known once they were run."""
        tester = self.start.tester
        made = list(finish.forms(text, tester.failure, tester.conditions))
        return next((m for m in made if "def run" in m), made[0] if made else text)


__all__ = ["CannotReduce", "Program", "Wishes", "reduce"]
