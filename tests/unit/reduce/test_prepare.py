"""What is done to a program before the search begins."""

from typing import Any

import pytest

from torchtriage.lab.scripts import ScriptEnd, ScriptRequest
from torchtriage.model.diagnosis import Diagnosis, Program
from torchtriage.reduce import prepare
from torchtriage.reduce.passes import statements
from torchtriage.reduce.tester import Conditions

SAVES = "from pathlib import Path\nx = 1\ndef save():\n    y = 2\n    Path('/out').write_text('a')\n    print(y)\nsave()\n"


class Fenced:
    """Refuses the first line that has `/out` in it."""

    def __init__(self, message: str):
        self.message = message
        self.modes: list[str] = []

    def run(self, request: ScriptRequest) -> ScriptEnd:
        self.modes.append(request.mode)
        rows = request.text.splitlines()
        line = next((n for n, row in enumerate(rows, 1) if "/out" in row), 0)
        error: dict[str, Any] = {
            "type": "builtins.PermissionError",
            "message": self.message,
            "script_line": line,
        }
        return ScriptEnd(exception=error if line else None)


@pytest.mark.parametrize(
    "message",
    [
        "torchtriage keeps reduced scripts from changing /out",
        "torchtriage runs no shell commands of reduced scripts",
        "[Errno 13] Permission denied: '/out'",
    ],
)
def test_what_writes_outside_goes_and_the_rest_stays(message: str) -> None:
    lab = Fenced(message)
    made = prepare.inside_the_fence(lab, SAVES + "open('/out/log', 'w')\n", Conditions(backend="inductor"))
    assert made == "x = 1\n\ndef save():\n    y = 2\n    print(y)\nsave()\n"
    assert set(lab.modes) == {"eager"}


def test_another_error_is_the_programs_own() -> None:
    assert prepare.inside_the_fence(Fenced("no such thing"), SAVES, Conditions()) == SAVES


@pytest.mark.parametrize(
    ("line", "left"),
    [
        (1, "for i in range(2):\n    with open('a') as f:\n        f.write('b')\n"),
        (2, "x = 1\n"),
        (3, "x = 1\nfor i in range(2):\n    pass\n"),
        (4, "x = 1\nfor i in range(2):\n    with open('a') as f:\n        pass\n"),
        (9, None),
    ],
)
def test_the_innermost_statement_of_a_line_goes(line: int, left: str | None) -> None:
    text = "x = 1\nfor i in range(2):\n    with open('a') as f:\n        f.write('b')\n"
    assert statements.without_line(text, line) == left


class SecondFault:
    """The results differ at the first call; the second raises, compiled only. Counts what is asked."""

    def __init__(self, eager_fails: bool = False):
        self.eager_fails = eager_fails
        self.observed: list[str] = []

    def run(self, request: ScriptRequest) -> ScriptEnd:
        rows = request.text.splitlines()
        if request.mode == "observe":
            self.observed.append(request.text)
            line = next((n for n, row in enumerate(rows, 1) if "second" in row), 0)
            raised = self.eager_fails or "except Exception" not in request.text
            if line and raised:
                kind = "torchtriage.probe.script.EagerFails" if self.eager_fails else "builtins.ValueError"
                return ScriptEnd(exception={"type": kind, "message": "boom", "run_line": line})
        row = {"path": "{}['a']", "aspect": "value", "gross": True}
        return ScriptEnd(found=(row,) if request.mode in ("observe", "compare") else ())


PROGRAM = "a = first(1)\nb = second(2)\nc = third(b)\n"


def verdict() -> Diagnosis:
    return Diagnosis("bug", ("value",), Program("p.py"), first_failing_layer="inductor")


def test_a_fault_that_comes_later_does_not_hide_the_one_that_is_looked_for() -> None:
    start = prepare.start(SecondFault(), PROGRAM, verdict(), Conditions())
    assert start.tester.failure.aspect == "value" and "third" not in start.text and "return a" in start.text


def test_what_cannot_run_at_all_is_not_tried_again_and_again() -> None:
    lab = SecondFault(eager_fails=True)
    with pytest.raises(prepare.CannotReduce, match="cannot be run as one script"):
        prepare.start(lab, PROGRAM, verdict(), Conditions())
    assert len(lab.observed) == len(set(lab.observed))
