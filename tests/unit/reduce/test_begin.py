"""Where a search begins: what is remembered, what is on disk at once, and how long a graph is looked for."""

import time
from pathlib import Path
from typing import Any

import pytest

from torchtriage.lab.journal import Journal
from torchtriage.lab.scripts import ScriptEnd, ScriptRequest
from torchtriage.model.diagnosis import Diagnosis, Program
from torchtriage.model.outcome import ExceptionInfo
from torchtriage.reduce import begin, prepare
from torchtriage.reducing import why_not

RAISED: dict[str, Any] = {
    "type": "torch._inductor.exc.InductorError", "message": "boom", "cause_message": "boom",
    "torch_frames": ["torch/_inductor/ir.py:make_loader"],
}  # fmt: skip
LONG = "def boom(*a): ...\n" + "".join(f"a{n} = {n}\n" for n in range(60)) + "boom(a3)\n"
GRAPH = {"text": "def f(x):\n    return (x,)\n", "imports": ["torch"], "nodes": 1, "inputs": []}


class GraphLab:
    """The program fails; of its graphs, none does. Each run takes a moment."""

    def __init__(self, seconds: float = 0.0):
        self.seconds = seconds
        self.modes: list[str] = []

    def run(self, request: ScriptRequest) -> ScriptEnd:
        self.modes.append(request.mode)
        time.sleep(self.seconds)
        if request.mode == "graphs":
            return ScriptEnd(
                graphs=tuple({**GRAPH, "text": f"def f(x):\n    return (x, {n})\n"} for n in range(20))
            )
        fails = "boom(" in request.text and request.mode == "compiled"
        return ScriptEnd(exception=RAISED if fails else None)


def verdict() -> Diagnosis:
    return Diagnosis("bug", ("exception",), Program("p.py"), first_failing_layer="inductor")


def beginning(lab: Any, **more: Any) -> begin.Beginning:
    given = prepare.conditions_of(verdict(), 1, 60.0)
    return begin.Beginning(lab, begin.Program(LONG), verdict(), given, **more)


def test_where_no_graph_fails_in_time_the_programs_own_text_is_reduced() -> None:
    notes: list[str] = []
    kept: list[prepare.Start] = []
    begun = time.monotonic()
    found = beginning(GraphLab(0.01), deadline=begun + 2.0, note=notes.append, keep=kept.append)
    first, road = found.start()
    assert road == "source" and [s.text for s in kept] == [first.text]
    assert "the program's own text is reduced" in notes[-1]
    assert time.monotonic() - begun < 2.0


def test_without_a_limit_a_number_of_graphs_is_tried() -> None:
    lab = GraphLab()
    assert beginning(lab).start()[1] == "source"
    assert lab.modes.count("compiled") >= begin.MOST_GRAPH_SCRIPTS


def test_a_preparation_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    request = ScriptRequest("x = 1\n", mode="graphs")
    lab = GraphLab()
    first = begin.Recalled(lab, journal).run(request)
    again = begin.Recalled(lab, journal).run(request)
    assert again == first and lab.modes == ["graphs"]
    begin.Recalled(lab, journal).run(request.with_(mode="compiled"))
    begin.Recalled(lab, journal).run(request.with_(mode="compiled"))
    assert lab.modes[1:] == ["compiled"] * 2, "whether it fails is asked anew"
    journal.close()


@pytest.mark.parametrize(
    ("diagnosis", "words"),
    [
        (Diagnosis("none", ("none",), Program("p.py")), "nothing is wrong that could be reduced"),
        (
            Diagnosis(
                "none",
                ("none",),
                Program("p.py", eager_exception=ExceptionInfo("builtins.EOFError", "EOF\nx")),
            ),
            "the program fails in eager mode already: EOFError: EOF",
        ),
        (
            Diagnosis("inconclusive", (), Program("p.py"), inconclusive_reason="it ended early"),
            "No verdict: it ended early.",
        ),
    ],
)
def test_why_there_is_nothing_to_reduce(diagnosis: Diagnosis, words: str) -> None:
    assert why_not(diagnosis) == words
