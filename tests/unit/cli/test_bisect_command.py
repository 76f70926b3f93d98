"""`torchtriage bisect`: what a target is, where options go, and how it leaves."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchtriage.bisect import run as room
from torchtriage.bisect.errors import BadInput, Stopped
from torchtriage.bisect.trial import Target
from torchtriage.cli.bisect import target_of
from torchtriage.cli.main import main
from torchtriage.model.bisection import Bisection


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "test_it.py"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "kind", "target"),
    [
        (["train.py", "--x"], "", Target("script", "train.py", ("--x",))),
        (["train.py:main"], "", Target("callable", "train.py:main")),
        (["package.net:Net.build"], "", Target("callable", "package.net:Net.build")),
        (["test_it.py::test_a[1]"], "", Target("pytest", "test_it.py::test_a[1]")),
        (["package.train", "a"], "module", Target("module", "package.train", ("a",))),
        (["sh", "-c", "true"], "command", Target("command", "sh", ("-c", "true"))),
    ],
)
def test_what_a_target_is(words: list[str], kind: str, target: Target) -> None:
    assert target_of(words, kind) == target


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        (["nope.py"], "", "no such file: nope.py"),
        (["nope.py:main"], "", "no such file: nope.py"),
        (["nope.py::test"], "", "no such file: nope.py::test"),
        (["."], "", "no such file: ."),
        (["no-such-command"], "command", "no such command: no-such-command"),
    ],
)
def test_what_is_no_target(words: list[str], kind: str, said: str) -> None:
    with pytest.raises(BadInput, match=f"^{said}$"):
        target_of(words, kind)


class Ran:
    """Stands in for the room: notes what it was asked, and ends as it is told to."""

    def __init__(self, ending: Bisection | BaseException):
        self.ending = ending
        self.target: Any = None
        self.settings: Any = None

    def __call__(self, target: Target, settings: room.Settings, note: Any, command: str) -> Bisection:
        self.target, self.settings = target, settings
        if isinstance(self.ending, BaseException):
            raise self.ending
        return self.ending


def leaves(monkeypatch: pytest.MonkeyPatch, ran: Ran, *args: str) -> int:
    """The exit status of the command."""
    monkeypatch.setattr(room, "run", ran)
    monkeypatch.setattr(sys, "argv", ["torchtriage", "bisect", "--good", "1", "--bad", "2", *args])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


FOUND = Bisection("torch", "train.py", "found", "torch: good up to 1, bad from 2", run_folder=".")


def test_options_go_to_the_run_and_what_follows_the_target_is_its_own(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    ran = Ran(FOUND)
    args = (
        "--regress",
        "any",
        "--with",
        "numpy",
        "--with",
        "rich",
        "-r",
        "r.txt",
        "--store-limit",
        "2",
        "--jobs",
        "3",
    )
    assert leaves(monkeypatch, ran, *args, "train.py", "--jobs", "7") == 0
    assert ran.target == Target("script", "train.py", ("--jobs", "7"))
    assert (ran.settings.regress, ran.settings.further, ran.settings.files) == (
        "any",
        ("numpy", "rich"),
        ("r.txt",),
    )
    assert (ran.settings.store_limit, ran.settings.jobs) == (2_000_000_000, 3)
    assert {"report.md", "report.json", "verdicts.svg", "bisect.log"} <= {p.name for p in folder.iterdir()}


def test_every_setting_of_the_run_can_be_given_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Ran(FOUND)
    leaves(monkeypatch, ran, "--command", "sh")
    assert ran.settings == room.Settings(good="1", bad="2", regress="command", store_limit=60 * 10**9)


def test_json_on_stdout_is_all_there_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leaves(monkeypatch, Ran(FOUND), "--json", "-", "train.py")
    out, err = capsys.readouterr()
    assert json.loads(out)["said"] == FOUND.said
    assert err == ""


@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [
        (BadInput("both ends are 1"), 2, "torchtriage: both ends are 1\n"),
        (
            Stopped("it is gone"),
            3,
            "torchtriage: it is gone. Nothing is lost: the same command goes on from here\n",
        ),
        (OSError(errno.ENOSPC, "No space left on device", "x"), 3, "the same command goes on from here\n"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 2, "torchtriage: Permission denied: x\n"),
        (KeyboardInterrupt(), 130, "torchtriage: interrupted; the same command goes on from here\n"),
        (room.PlanOnly(), 0, ""),
    ],
)
def test_each_way_to_end_is_a_status_and_a_line(
    ending: BaseException,
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert leaves(monkeypatch, Ran(ending), "train.py") == status
    err = capsys.readouterr().err
    assert err.endswith(said) and err.count("\n") <= 1


def test_help_imports_neither_torch_nor_the_room() -> None:
    code = (
        "import sys; from torchtriage.cli.app import app\n"
        "print(sorted(m for m in sys.modules if m == 'torch' or m.startswith(('torchtriage.bisect', 'packaging'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
