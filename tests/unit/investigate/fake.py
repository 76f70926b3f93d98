"""A lab that answers from a Python function of the request, and facts about a program that does not exist."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from torchtriage.investigate import ablation
from torchtriage.investigate.facts import Facts, Own
from torchtriage.investigate.symptom import Seen, Suspect, counted_in
from torchtriage.lab.request import Request
from torchtriage.model.diagnosis import Program
from torchtriage.model.outcome import (
    Difference,
    Differs,
    ExceptionInfo,
    GraphBreak,
    Measures,
    Outcome,
    Raised,
    Same,
)
from torchtriage.model.variant import OWN, Variant

REGION = {
    "key": "f@a.py:1", "name": "f", "file": "a.py", "line": 1, "settings": "", "dynamic": None,
    "backend": "inductor", "fullgraph": False, "mode": None, "options": False,
}  # fmt: skip
PROGRAM = Program("a.py")
SAME, WRONG = Same(), Differs(differences=(Difference(0, "output", "value", "differs from eager by 1", 1.0),))


class FakeLab:
    """Answers every request with `answer(request)`; keeps what it was asked, a list of requests a question."""

    def __init__(
        self,
        answer: Callable[[Request], Outcome],
        tree: Sequence[dict[str, Any]] = (),
        operators: Sequence[dict[str, Any]] = (),
    ):
        self.answer, self.tree, self.operators = answer, list(tree), list(operators)
        self.asked: list[list[Request]] = []

    def run(self, requests: Sequence[Request]) -> list[Outcome]:
        if requests:
            self.asked.append(list(requests))
        return [self.answer(request) for request in requests]

    def call_tree(self, call: int) -> list[dict[str, Any]]:
        return self.tree

    def own_operators(self, call: int) -> list[dict[str, Any]]:
        return self.operators

    @property
    def requests(self) -> list[Request]:
        return [request for question in self.asked for request in question]


def facts(calls: int = 1, **region: Any) -> Facts:
    """A program with one region, called so often. `jobs` and the like go to the facts, the rest to the region."""
    more = {name: region.pop(name) for name in list(region) if name in Facts.__dataclass_fields__}
    mine = {**REGION, **region}
    numbered = tuple({"call": n, "region": mine["key"], "signature": "", "new": True} for n in range(calls))
    return Facts(regions=(mine,), calls=numbered, **more)


def backend_of(request: Request, own: str = "inductor") -> str:
    backend = request.variant.backend
    return own if backend == OWN else backend


def dynamic_of(request: Request, own: bool | None = None) -> bool | None:
    dynamic = request.variant.dynamic
    return own if dynamic == OWN else dynamic  # type: ignore[return-value]


def switched(request: Request, name: str) -> Any:
    """The value of a switch by the end of its name, None where it is not set."""
    return next((value for full, value in request.variant.switches if full.endswith(name)), None)


def wrong(*names: str, call: int = 0, noise: bool = False, measures: Measures | None = None) -> Outcome:
    """Differs in the aspects `names`; with noise it is the same after all."""
    found = tuple(
        Difference(call, "output", name, "differs from eager by 1", noise=noise, why_noise="it is" * noise)  # type: ignore[arg-type]
        for name in names or ("value",)
    )
    return (Same if noise else Differs)(measures or Measures(), differences=found)


def raised(
    name: str = "torch._inductor.exc.InductorError", message: str = "no", phase: Any = "forward", **more: Any
) -> Raised:
    given = ("Exception", name.rpartition(".")[2], *more.pop("bases", ()))
    return Raised(exception=ExceptionInfo(name, message, bases=given, **more), call=0, phase=phase)


def counted(recompiles: int = 0, captured: int = 3, breaks: Sequence[GraphBreak] = (), **more: Any) -> Same:
    """The same as eager, with counts."""
    given = {"breaks": len(breaks), "graphs": recompiles + 1, **more}
    return Same(
        Measures(recompiles=recompiles, captured=captured, graph_breaks=tuple(breaks), **given)  # type: ignore[arg-type]
    )


BREAK = GraphBreak(
    "Failed to trace builtin operator", "/home/me/a.py", 3, "print(x)", ("Avoid calling print",), "gb0059"
)
OPTIMIZER_BREAK = GraphBreak(
    "Call to `torch._dynamo.graph_break()`", "/venv/site-packages/torch/optim/optimizer.py", 100
)


def seen(answer: Callable[[Request], Outcome], threads: int = 1, cold: Outcome | None = None) -> Seen:
    """What the own trials and the matrix show, as `diagnose` puts it together."""
    lab = FakeLab(answer)
    own = Own(
        answer(Request()),
        answer(Request(observe=True)),
        answer(Request(Variant(caches=True))),
        answer(Request(Variant(threads=threads))) if threads > 1 else None,
        cold,
    )
    table = ablation.matrix(lab)
    counts = counted_in(own, table)
    words = {b: {d: ablation.word(o, counts) for d, o in row.items()} for b, row in table.items()}
    return Seen(own, table, words, counts)


def suspect(outcome: Outcome = WRONG, **changes: Any) -> Suspect:
    """The program fails as it is, from `inductor` on, unless changes say otherwise."""
    base = Suspect(("value",), outcome, True, "None", "inductor", Request())
    return dataclasses.replace(base, **changes)
