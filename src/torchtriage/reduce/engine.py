"""The search that all passes share: proposes smaller scripts, tries several at a time, keeps what still fails.

A pass lists the changes that it can make to a script; it knows nothing of chunks, processes or time. The search tries
many of them at once, then fewer, and starts again as long as something helps.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

from torchtriage.model.reduction import SearchPoint
from torchtriage.reduce import tree as trees

Change = Callable[[], None]
Pass = Callable[[ast.Module], list[Change]]
DEFECTS = (
    LookupError,
    TypeError,
    AttributeError,
    ValueError,
    ArithmeticError,
    AssertionError,
    RecursionError,
)


@dataclass(frozen=True)
class Row:
    """A pass as the search wants it."""

    name: str
    changes: Pass
    how: Literal["together", "singly", "first"] = "together"
    """Many of its changes can be made at once; or they are alternatives, tried one by one; or each takes away more than
    the next, so that the first that still fails is found by halving."""
    smaller: Callable[[str, str], bool] = trees.is_smaller
    """Whether a candidate (the first) is better than the best script, if it fails."""


class Interrupted(Exception):
    """The time is up, or the person wants to have what there is."""


@dataclass
class Search:
    """The best script so far, and how it is made smaller.

    `test` says whether a script fails in the same way; it is called from several threads. `known` remembers its
    answers. `note` is told about each improvement.
    """

    test: Callable[[str], bool]
    best: str
    jobs: int = 2
    deadline: float = float("inf")
    """On the clock of time.monotonic."""
    note: Callable[[SearchPoint, str], None] = lambda point, text: None
    frozen: Callable[[ast.Module], list[str]] = lambda tree: []
    """What must stay as it is, as text."""
    known: dict[str, bool] = field(default_factory=dict)
    defects: dict[str, str] = field(default_factory=dict)
    """Passes that failed themselves, and how."""
    tests: int = 0
    history: list[SearchPoint] = field(default_factory=list)
    begin: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.pool = ThreadPoolExecutor(self.jobs)
        self.size = trees.size_of(self.best)
        self.kept = self.frozen(ast.parse(self.best))
        self.record("start")

    def record(self, by: str) -> None:
        point = SearchPoint(time.monotonic() - self.begin, self.tests, self.size[0], self.size[1], by)
        self.history.append(point)
        self.note(point, self.best)

    def close(self) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)

    # --- trying ----------------------------------------------------------------------------------------

    def fails(self, texts: Sequence[str]) -> list[bool]:
        """Whether each of a few scripts shows the failure; those that are not known are run at the same time."""
        if time.monotonic() > self.deadline:
            raise Interrupted
        new = [t for t in dict.fromkeys(texts) if t not in self.known]
        for text, answer in zip(new, self.pool.map(self.test, new), strict=True):
            self.known[text] = answer
            self.tests += 1
        return [self.known[text] for text in texts]

    def accept(self, text: str, by: str) -> None:
        self.best, self.size = text, trees.size_of(text)
        self.record(by)

    def offer(self, text: str, by: str) -> bool:
        """Take a script that was made elsewhere, if it fails in the same way. It may be larger."""
        if text == self.best:
            return True
        if not self.fails([text])[0]:
            return False
        self.accept(text, by)
        return True

    # --- candidates --------------------------------------------------------------------------------------

    def candidate(self, row: Row, chosen: Iterable[int], base: str | None = None) -> str | None:
        """`base` (the best script) with some changes of a pass; None where that is no script, or not worth a test."""
        base = base or self.best
        tree = ast.parse(base)
        before = trees.loaded(tree)
        changes = row.changes(tree)
        try:
            for number in chosen:
                changes[number]()
            trees.tidy(tree, before)
            text = trees.text_of(tree)
        except (ValueError, IndexError, AttributeError, TypeError):
            return None
        if text == base or trees.undefined_in(text) - trees.undefined_in(base):
            return None
        if not row.smaller(text, self.best):
            return None
        return text if self.keeps(text) else None

    def keeps(self, text: str) -> bool:
        return not self.kept or self.frozen(ast.parse(text)) == self.kept

    def run_pass(self, row: Row) -> bool:
        """Make all changes of one pass that can be made. Whether anything was."""
        start = self.best
        try:
            {"together": self.in_chunks, "singly": self.one_by_one, "first": self.halving}[row.how](row)
        except (
            DEFECTS
        ) as error:  # of the pass itself; the others go on, and so does what comes after the search
            self.defects[row.name] = f"{type(error).__name__}: {error}"
        return self.best != start

    def in_chunks(self, row: Row) -> None:
        """From the back, in chunks that are halved: what is not needed goes in large pieces first."""
        total = len(row.changes(ast.parse(self.best)))
        size = total
        while size >= 1:
            end = total
            while end > 0:
                spans = list(self.spans(end, size))
                offered = [(span, self.candidate(row, range(*span))) for span in spans]
                tried = [(span, text) for span, text in offered if text is not None]
                answers = self.fails([text for _, text in tried])
                good = [span for (span, _), answer in zip(tried, answers, strict=True) if answer]
                if good:
                    self.take_all(row, good)
                    total = len(row.changes(ast.parse(self.best)))
                end = min(spans[-1][0], total)
            size = min(size // 2, total)

    def spans(self, end: int, size: int) -> Iterator[tuple[int, int]]:
        """The next few chunks before `end`."""
        for _ in range(self.jobs):
            if end <= 0:
                return
            yield max(end - size, 0), end
            end -= size

    def take_all(self, row: Row, good: list[tuple[int, int]]) -> None:
        """Merge chunks that each could go: all of them together, else the first."""
        merged = self.candidate(row, [i for span in good for i in range(*span)]) if len(good) > 1 else None
        if merged is not None and self.fails([merged])[0]:
            self.accept(merged, row.name)
            return
        text = self.candidate(row, range(*good[0]))
        if text is not None:
            self.accept(text, row.name)

    def halving(self, row: Row) -> None:
        """The first change of an ordered pass that works. One that does not rules out those before it."""
        low, high = 0, len(row.changes(ast.parse(self.best)))
        whole = self.best
        while low < high:
            places = [low + (high - low) * (i + 1) // (self.jobs + 1) for i in range(self.jobs)]
            offered = [(place, self.candidate(row, [place], whole)) for place in dict.fromkeys(places)]
            tried = [(place, text) for place, text in offered if text is not None]
            answers = self.fails([text for _, text in tried])
            for (place, text), answer in zip(tried, answers, strict=True):
                if answer:
                    self.accept(text, row.name)
                    high = place
                    break
                low = place + 1
            low = low if tried else offered[-1][0] + 1

    def one_by_one(self, row: Row) -> None:
        """Each change by itself, from the first; after one that helps, the list is made anew and gone on with."""
        position = 0
        rounds = 0
        while rounds < 400:
            total = len(row.changes(ast.parse(self.best)))
            batch: list[tuple[int, str]] = []
            while position < total and len(batch) < self.jobs:
                text = self.candidate(row, [position])
                if text is not None:
                    batch.append((position, text))
                position += 1
            if not batch:
                return
            answers = self.fails([text for _, text in batch])
            for (number, text), answer in zip(batch, answers, strict=True):
                if answer:
                    self.accept(text, row.name)
                    position = number
                    rounds += 1
                    break


def run(search: Search, rows: Sequence[Row], again: int = 8) -> None:
    """All passes in their order, until none of them helps. Raises Interrupted when the time is up."""
    for _ in range(again):
        start = search.best
        for row in rows:
            search.run_pass(row)
        if search.best == start:
            return
