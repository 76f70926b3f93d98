"""What investigations share: the lab they ask, the program's own settings, and the words for outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from torchtriage.model.outcome import (
    Differs,
    GraphBreak,
    Inconclusive,
    MissingException,
    Outcome,
    Raised,
    Same,
    aspects,
)

T = TypeVar("T")
RECOMPILES_ALLOWED = 2
"""Automatic dynamic shapes need one recompilation, sometimes two; from the third on it is a symptom."""


class Asks(Protocol):
    """The part of a lab that investigations use; tests give a fake one."""

    def run(self, requests: Sequence[Any]) -> list[Outcome]: ...

    def call_tree(self, call: int) -> list[dict[str, Any]]: ...

    def own_operators(self, call: int) -> list[dict[str, Any]]: ...


class OutOfTime(Exception):
    """The time for searches is used up."""


@dataclass
class Budget:
    """A lab for searches: it answers until their time is up."""

    lab: Asks
    enough: Callable[[], bool] = lambda: False
    exceeded: bool = False

    def run(self, requests: Sequence[Any]) -> list[Outcome]:
        """Raises OutOfTime when the time is up."""
        if self.enough():
            self.exceeded = True
            raise OutOfTime
        return self.lab.run(requests)

    def call_tree(self, call: int) -> list[dict[str, Any]]:
        return self.lab.call_tree(call)

    def own_operators(self, call: int) -> list[dict[str, Any]]:
        return self.lab.own_operators(call)

    def attempt(self, search: Callable[[], T], otherwise: T) -> T:
        """What `search` finds, or `otherwise` when its time is up."""
        try:
            return search()
        except OutOfTime:
            return otherwise


@dataclass(frozen=True)
class Facts:
    """The program as its eager run showed it."""

    regions: tuple[Mapping[str, Any], ...]
    calls: tuple[Mapping[str, Any], ...]
    holders: tuple[int, ...] = ()
    eager_exception: Mapping[str, Any] | None = None
    threads: int = 1
    cuda: bool = False
    rerun: bool = False
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Torch's default, as Python text, of each switch that the program changed."""
    jobs: int = 2

    @property
    def first_region(self) -> Mapping[str, Any]:
        called = {call["region"] for call in self.calls}
        for region in self.regions:
            if region["key"] in called:
                return region
        return self.regions[0] if self.regions else {}

    def region_of(self, call: int | None) -> Mapping[str, Any]:
        """The region that a call belongs to; the first one where it is not known."""
        for entry in self.calls:
            if entry["call"] == call:
                for region in self.regions:
                    if region["key"] == entry["region"]:
                        return region
        return self.first_region

    def site_of(self, call: int | None) -> tuple[str, int]:
        """File and line from which the program makes a call."""
        for entry in self.calls:
            if entry["call"] == call and entry.get("site"):
                file, line = entry["site"]
                return str(file), int(line)
        return "", 0

    def dynamic(self, call: int | None = None) -> bool | None:
        value = self.region_of(call).get("dynamic")
        return value if value in (True, False) else None

    def own_is_cell(self) -> bool:
        """Whether the program's own settings are one of the twelve cells."""
        return all(
            not (r.get("mode") or r.get("options")) and r.get("backend") in DEBUG for r in self.regions
        )


DEBUG = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")


@dataclass(frozen=True)
class Own:
    """Trials of the program with its own settings."""

    plain: Outcome
    observed: Outcome
    cached: Outcome | None = None
    threaded: Outcome | None = None
    cold: Outcome | None = None
    """With an empty store of kernels, where compile time is in question."""


def failing(outcome: Outcome) -> bool:
    """Whether an outcome is a symptom by itself (counts of recompiles and breaks are judged apart)."""
    return not isinstance(outcome, (Same, Inconclusive))


def healthy(outcome: Outcome) -> bool:
    return isinstance(outcome, Same)


def noisy(outcome: Outcome) -> bool:
    """Same, with differences that only noise explains."""
    return isinstance(outcome, Same) and any(d.noise for d in outcome.differences)


def words_of(outcome: Outcome) -> tuple[str, ...]:
    """The symptom words of one outcome, as in the matrix without their prefix."""
    match outcome:
        case Differs(differences=differences):
            return tuple(aspects(differences))
        case Same(differences=differences):
            return tuple(aspects(differences, noise=True))
        case Raised(exception=exception):
            broke = exception.type.endswith(".Unsupported")
            return ("exception", "graph-break") if broke else ("exception",)
        case MissingException():
            return ("missing-exception",)
        case Inconclusive():
            return ("inconclusive",)
    return (outcome.kind,)


def same_failure(a: Outcome, b: Outcome) -> bool:
    """Whether two outcomes are one fault: the same class of outcome, and for exceptions the same type."""
    if isinstance(a, Raised) and isinstance(b, Raised):
        return a.exception.type == b.exception.type
    return type(a) is type(b)


def call_of(outcome: Outcome) -> int | None:
    found = getattr(outcome, "differences", ())
    if found:
        return int(found[0].call)
    return getattr(outcome, "call", None)


def of_user(broken: GraphBreak) -> bool:
    """A break in the user's code. torch's optimizers break by design, and say so with a call of graph_break()."""
    inside = ("/torch/optim/", "/torch/_dynamo/", "/torch/nn/")
    return not any(part in f"{broken.file} {broken.explanation}" for part in inside)
