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
from torchtriage.cli import bisect as cli
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
        (
            ["./train.py"],
            "command",
            r"./train.py is not executable: `chmod \+x` it, or name its interpreter as .*",
        ),
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


def test_a_plan_is_told_on_stdout_and_touches_no_run_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    wheels = folder / "wheels"
    wheels.mkdir()
    for version in ("1", "1.5", "2"):
        (wheels / f"torch-{version}-py3-none-any.whl").write_bytes(b"x" * 1000)
    before = room.run_folder(
        Target("script", "train.py"),
        room.Settings("1", "2", folder="wheels", store="s", store_limit=6 * 10**10),
    )
    (before / "report.md").touch()
    (before / "finished").touch()
    ran = Ran(FOUND)
    args = ("--folder", "wheels", "--store", "s", "--plan")
    assert leaves(monkeypatch, ran, "-q", *args, "train.py") == 0
    assert capsys.readouterr().out.startswith(
        "3 versions from 1 to 2: at most 3 are looked at; about 3 kB to download"
    )
    assert leaves(monkeypatch, ran, *args, "--json", "-", "train.py") == 0
    assert json.loads(capsys.readouterr().out)["verdicts"] == 3
    assert ran.target is None and (before / "report.md").exists()
    assert {p.name for p in folder.iterdir()} == {"train.py", "test_it.py", "wheels", "runs"}


def test_what_could_not_be_written_is_written_by_the_same_command(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    (folder / "finished").touch()
    monkeypatch.setattr(cli, "write", lambda *args: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    assert leaves(monkeypatch, Ran(FOUND), "train.py") == 3
    assert not (folder / "finished").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--store-limit", "nan"), "--store-limit is a number of GB, 0 or more"),
        (("--store-limit", "inf"), "--store-limit is a number of GB, 0 or more"),
        (("--store-limit", "-1"), "--store-limit is a number of GB, 0 or more"),
        (("--log", "none/x"), "cannot write none/x"),
        (("--json", "."), "cannot write ."),
    ],
)
def test_options_that_cannot_be_are_one_line(
    args: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert leaves(monkeypatch, Ran(FOUND), *args, "train.py") == 2
    assert capsys.readouterr().err == f"torchtriage: {said}\n"


def test_environments_are_listed_and_a_limit_that_cannot_be_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    for args, said in (((), f"no environments in {folder / 's'}\n"), (("--limit", "nan"), "")):
        monkeypatch.setattr(sys, "argv", ["torchtriage", "environments", "--store", "s", *args])
        with pytest.raises(SystemExit):
            main()
        out, err = capsys.readouterr()
        assert (out, err == "") == (said, bool(said))
    assert not (folder / "s").exists()


def test_help_imports_neither_torch_nor_the_room() -> None:
    code = (
        "import sys; from torchtriage.cli.app import app\n"
        "print(sorted(m for m in sys.modules if m == 'torch' or m.startswith(('torchtriage.bisect', 'packaging'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
