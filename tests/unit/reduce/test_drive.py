"""A whole reduction with a lab that plays torch: roads, resuming, stopping, what is on disk."""

import dataclasses
import errno
import re
from pathlib import Path
from typing import Any

import pytest

from torchtriage.lab.journal import Journal
from torchtriage.lab.scripts import ScriptEnd, ScriptRequest
from torchtriage.model.diagnosis import Diagnosis, Program
from torchtriage.reduce import drive
from torchtriage.reduce.prepare import CannotReduce, kind_of
from torchtriage.report import reduction as reports

RAISED: dict[str, Any] = {
    "type": "torch._inductor.exc.InductorError", "message": "boom", "cause_message": "boom",
    "torch_frames": ["torch/_inductor/ir.py:make_loader"],
}  # fmt: skip
PROGRAM = "".join(f"a{n} = {n}\n" for n in range(30)) + "def main():\n    x = 5\n    boom(x, a3)\nmain()\n"


class FakeLab:
    """Compiled, a script raises once it says `boom`; a word in `stops` makes running it fail with that error."""

    def __init__(self, stops: BaseException | None = None, after: int = 10**9, seldom: int = 1):
        self.stops, self.after, self.seldom = stops, after, seldom
        self.texts: list[str] = []

    def run(self, request: ScriptRequest) -> ScriptEnd:
        self.texts.append(request.text)
        if self.stops is not None and len(self.texts) > self.after:
            raise self.stops
        shows = "boom(" in request.text and request.mode == "compiled" and len(self.texts) % self.seldom == 0
        return ScriptEnd(exception=RAISED if shows else None)

    def plain(self, script: Path, seconds: float, compiled: bool = True) -> tuple[int, str]:
        return (1, "InductorError: boom") if compiled and "boom(" in script.read_text() else (0, "")


def verdict(**changes: Any) -> Diagnosis:
    given = {
        "kind": "bug",
        "symptoms": ("exception",),
        "program": Program("p.py"),
        "first_failing_layer": "dynamo",
    }
    return Diagnosis(**{**given, **changes})


def reduced(lab: FakeLab, folder: Path, text: str = "def boom(*a): ...\n" + PROGRAM, **wishes: Any):
    folder.mkdir(exist_ok=True)
    journal = Journal(folder / "journal.sqlite")
    try:
        return drive.reduce(
            lab, drive.Program(text), verdict(), drive.Wishes(jobs=1, **wishes), journal, folder
        )
    finally:
        journal.close()


def test_a_program_becomes_the_line_that_fails(tmp_path: Path) -> None:
    found = reduced(FakeLab(), tmp_path)
    assert found.script.splitlines()[-2:] == ["boom()", "# torch.compile raises InductorError: boom"]
    assert found.lines <= 3
    assert found.proven and (found.shown, found.runs) == (5, 5)
    assert found.lines_before > 30 and found.history[0].lines > found.history[-1].lines
    assert (tmp_path / "repro.py").read_text() == found.script
    assert (
        "boom()" in reports.issue(found)
        and "<svg" in reports.page(found)
        and "5 of 5" in reports.issue(found)
    )
    assert re.search(r"<td>statements</td><td>\d+ times?</td><td>\d+ lines?</td>", reports.page(found))


def test_a_redacted_issue_names_no_path_and_no_code_of_the_program(tmp_path: Path) -> None:
    found = reduced(FakeLab(), tmp_path, redact=True)
    found = dataclasses.replace(
        found, output='  File "/home/me/secret/repro.py", line 1\nInductorError: boom'
    )
    issue = reports.issue(found)
    assert "secret" not in issue and "repro.py" in issue and "InductorError" in issue


def test_what_is_private_goes_also_when_the_time_is_up(tmp_path: Path) -> None:
    text = "def boom(*a): ...\nclass SecretTower:\n    pass\nsecret = SecretTower()\nboom(secret)\n"
    found = reduced(FakeLab(), tmp_path, text, redact=True, deadline=0.0)
    assert found.stopped == drive.TIME_UP and found.redacted
    assert "ecret" not in found.script and "boom" in found.script


def test_an_interrupted_redaction_says_so(tmp_path: Path) -> None:
    found = reduced(FakeLab(KeyboardInterrupt(), after=25), tmp_path, redact=True)
    assert found.stopped == "interrupted, before names were replaced"


def test_it_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    whole = FakeLab()
    reduced(whole, tmp_path / "whole")
    first = FakeLab(KeyboardInterrupt(), after=25)
    stopped = reduced(first, tmp_path / "parts")
    assert stopped.stopped == "interrupted"
    text = (tmp_path / "parts" / "repro.py").read_text()
    assert "boom" in text and compile(text, "repro.py", "exec")
    second = FakeLab()
    found = reduced(second, tmp_path / "parts")
    assert found.proven and found.lines <= 3
    assert len(second.texts) < len(whole.texts)


def test_a_full_disk_ends_the_search_and_loses_nothing(tmp_path: Path) -> None:
    found = reduced(FakeLab(OSError(errno.ENOSPC, "No space left on device"), after=25), tmp_path)
    assert "No space left on device" in found.stopped and not found.proven
    assert "boom" in (tmp_path / "repro.py").read_text()


def test_the_time_limit_still_leaves_a_proven_script(tmp_path: Path) -> None:
    found = reduced(FakeLab(), tmp_path, deadline=0.0)
    assert found.stopped == drive.TIME_UP and found.proven and "boom" in found.script


def test_a_failure_that_comes_and_goes_says_its_rate(tmp_path: Path) -> None:
    found = reduced(FakeLab(seldom=3), tmp_path)
    assert "of 12 runs" in found.rate and "boom" in found.script


def test_a_program_that_does_not_fail_as_one_script_cannot_be_reduced(tmp_path: Path) -> None:
    with pytest.raises(CannotReduce, match="raises nothing"):
        reduced(FakeLab(), tmp_path, text="x = 1\n")


@pytest.mark.parametrize(
    ("symptoms", "kind"),
    [
        (("exception",), "raises"), (("missing-exception",), "no-exception"), (("dtype", "value"), "differs"),
        (("grad",), "differs"), (("recompiles",), "recompiles"), (("graph-break",), "graph-break"),
        (("exception", "graph-break"), "raises"), (("killed",), "killed"),
    ],
)  # fmt: skip
def test_symptoms_name_the_kind_of_failure(symptoms: tuple[str, ...], kind: str) -> None:
    assert kind_of(verdict(symptoms=symptoms)) == kind


def test_nothing_wrong_is_nothing_to_reduce() -> None:
    with pytest.raises(CannotReduce, match="nothing is wrong"):
        kind_of(verdict(kind="none", symptoms=("none",)))


def test_frames_of_the_compiler_are_left_out_of_the_log() -> None:
    rows = ["Traceback (most recent call last):", '  File "repro.py", line 3, in <module>', "    f()"]
    for number in range(8):
        rows += [f'  File "/x/torch/_dynamo/a{number}.py", line 1, in g', "    h()"]
    rows += ['  File "<string>", line 6, in cached', '  File "/x/lib/site-packages/torch/b.py", line 1, in h']
    rows += ["ValueError: no"]
    shown = reports.without_compiler_frames("\n".join(rows))
    assert "repro.py" in shown and "a7.py" in shown and "a0.py" not in shown
    assert 'File "torch/b.py"' in shown and shown.endswith("ValueError: no")
