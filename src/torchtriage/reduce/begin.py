"""Where a search begins: the program as one script, or one captured graph of it, and how often the failure shows."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from torchtriage.lab.scripts import ScriptEnd, ScriptRequest
from torchtriage.model.diagnosis import Diagnosis
from torchtriage.reduce import files, frozen, graphs, prepare, rank
from torchtriage.reduce import tree as trees
from torchtriage.reduce.prepare import LEAST_SECONDS, PATIENCE, CannotReduce, Start
from torchtriage.reduce.signature import same_exception
from torchtriage.reduce.tester import Conditions, Runs, Tester

GRAPH_LINES = 45
"""A program with more lines, or with packages besides torch, is first tried as one captured graph of it."""
MOST_GRAPH_SCRIPTS = 24
GRAPH_SHARE = 0.25
"""Of the time that is left, what may go into looking for a graph that fails by itself."""
STEADY_RUNS, FLAKY_RUNS, ERROR = 3, 12, 0.05


class Remembers(Protocol):
    """The part of a journal that a search uses."""

    def get(self, kind: str, key: str) -> Any | None: ...

    def put(self, kind: str, key: str, question: Any, answer: Any) -> None: ...


@dataclass(frozen=True)
class Program:
    """The program as one text, and where its modules are."""

    text: str
    folders: tuple[str, ...] = ()


class Recalled:
    """A lab whose runs are kept in the journal: a preparation that was interrupted goes on from there."""

    def __init__(self, lab: Runs, journal: Remembers):
        self.lab, self.journal = lab, journal

    def run(self, request: ScriptRequest) -> ScriptEnd:
        key = hashlib.sha256(repr(request).encode()).hexdigest()[:24]
        known = self.journal.get("run", key)
        if known is not None:
            return end_from(known)
        end = self.lab.run(request)
        if request.mode in REPEATABLE:
            self.journal.put("run", key, "", dataclasses.asdict(end) | {"covered": sorted(end.covered)})
        return end


REPEATABLE = ("graphs", "sites", "observe", "eager")
"""What says the same each time; whether a script fails is asked anew, for the failure may come and go."""


def end_from(plain: dict[str, Any]) -> ScriptEnd:
    given = {k: v for k, v in plain.items() if k in ScriptEnd.__dataclass_fields__}
    for name in ("found", "sites", "graphs"):
        given[name] = tuple(given.get(name, ()))
    return ScriptEnd(**{**given, "covered": frozenset(given.get("covered", ()))})


@dataclass(frozen=True)
class Beginning:
    """The search for a script to begin with. `keep` is given the first that fails, before a better one is looked for."""

    lab: Runs
    program: Program
    diagnosis: Diagnosis
    given: Conditions
    deadline: float = math.inf
    """On the clock of time.monotonic."""
    note: Callable[[str], None] = lambda text: None
    keep: Callable[[Start], None] = lambda start: None

    def start(self) -> tuple[Start, str]:
        """The script, and the road that it came by. Raises CannotReduce where there is none."""
        read = files.reader(self.program.folders)
        texts = dict.fromkeys((files.with_modules(self.program.text, read), self.program.text))
        problem: CannotReduce | None = None
        for text in texts:
            text = prepare.inside_the_fence(self.lab, text, self.given)
            try:
                first = prepare.start(self.lab, text, self.diagnosis, self.given)
            except CannotReduce as error:
                problem = problem or error
                continue
            self.keep(first)
            large = trees.lines_of(text) > GRAPH_LINES or bool(files.installed_imports(text, read))
            if large and self.diagnosis.first_failing_layer != "dynamo":
                graph = self.of_graph(text, first)
                if graph is not None:
                    return graph, "graph"
            return first, "source"
        graph = self.of_graph(self.program.text, None)
        if graph is not None:
            return graph, "graph"
        raise problem or CannotReduce("the program does not fail when it is run as one script")

    def of_graph(self, text: str, first: Start | None) -> Start | None:
        """A script of one captured graph that fails in the same way, where one is found in time."""
        self.note("one captured graph by itself")
        now = time.monotonic()
        enough = now + GRAPH_SHARE * (self.deadline - now)
        captured = self.lab.run(self.given.request(text, mode="graphs", before=""))
        last_first = prepare.kind_of(self.diagnosis) == "raises"
        backward = "grad" in self.diagnosis.symptoms or "backward" in self.diagnosis.needs
        kept = frozen.setup(text, files.reader(self.program.folders))
        scripts = (
            "\n".join([*lines, script])
            for script in graphs.scripts(captured.graphs, backward, last_first)
            for lines in dict.fromkeys((tuple(kept), tuple(package_imports(text))))
        )
        for number, script in zip(range(MOST_GRAPH_SCRIPTS), scripts, strict=False):
            if time.monotonic() > enough:
                self.note("no graph fails by itself in the time for it: the program's own text is reduced")
                return None
            if number:
                self.note(f"one captured graph by itself: try {number + 1}")
            start = self.graph_start(script, first)
            if start is not None:
                return start
        return None

    def graph_start(self, script: str, first: Start | None) -> Start | None:
        try:
            start = prepare.start(self.lab, script, self.diagnosis, self.given, tries=1)
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


def steady(lab: Runs, first: Start, flaky: bool = False, jobs: int = 1) -> tuple[Start, str]:
    """How long scripts may take, and whether the failure shows every time; where not, how often.

    Scripts are then tried more than once. `flaky`: the verdict has seen it come and go.
    """
    tester = first.tester
    shown, took = timed(tester, first.text, STEADY_RUNS, jobs)
    if tester.failure.kind not in ("timeout", "slow"):
        tester = tester.within(max(LEAST_SECONDS, PATIENCE * took))
        first = dataclasses.replace(first, tester=tester)
    if all(shown) and not flaky:
        return first, ""
    more, _ = timed(tester, first.text, FLAKY_RUNS - STEADY_RUNS, jobs)
    if all(shown) and all(more):
        return first, ""
    rate = max((sum(shown) + sum(more)) / FLAKY_RUNS, 1 / FLAKY_RUNS)
    repeats = math.ceil(math.log(ERROR) / math.log(1 - rate)) if rate < 1 else 1
    again = Tester(lab, tester.failure, tester.conditions, repeats)
    again.slips = tester.slips
    return dataclasses.replace(first, tester=again), f"{sum(shown) + sum(more)} of {FLAKY_RUNS} runs"


def timed(tester: Tester, text: str, count: int, jobs: int) -> tuple[list[bool], float]:
    """Whether each of some runs showed the failure, and the seconds that the longest took."""

    def once(number: int) -> tuple[bool, float]:
        begin = time.monotonic()
        return tester(text), time.monotonic() - begin

    with ThreadPoolExecutor(jobs) as pool:
        runs = list(pool.map(once, range(count)))
    return [shown for shown, _ in runs], max(seconds for _, seconds in runs)
