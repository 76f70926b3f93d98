"""`torchtriage diagnose`: what a target is, and one line on stderr for each bad input."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from torchtriage import __version__, api
from torchtriage.api import UsageError
from torchtriage.cli import diagnose as room
from torchtriage.cli.main import main
from torchtriage.model.diagnosis import Diagnosis, Program
from torchtriage.model.outcome import ExceptionInfo


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with one script in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    return tmp_path


class Ran:
    """Stands in for the API: notes what it was asked, and finds what it is told to."""

    def __init__(self, found: Diagnosis):
        self.found = found
        self.target: Any = None
        self.settings: Any = None
        self.command = ""
        self.reduced: list[Any] = []

    def __call__(self, target: Any, settings: Any, **more: Any) -> Diagnosis:
        self.target, self.settings, self.command = target, settings, more["command"]
        return self.found


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    fake = Ran(Diagnosis("none", ("none",), Program("train.py")))
    monkeypatch.setattr(room, "run", fake)
    monkeypatch.setattr(room, "reduce_after", lambda found, *more: fake.reduced.append(more))
    return fake


def status(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    """The exit status of the command."""
    monkeypatch.setattr(sys, "argv", ["torchtriage", *args])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


# --- targets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "module", "kind"),
    [
        ("train.py", False, "script"),
        (".", False, "script"),
        ("package.train", True, "module"),
        ("nope.py", True, "module"),
        ("package.net:build", False, "callable"),
        ("net.py:Net.build", False, "callable"),
    ],
)
def test_what_a_target_is(target: str, module: bool, kind: str) -> None:
    assert room.parse_target(target, ["--x"], module) == {"kind": kind, "name": target, "args": ["--x"]}


def test_a_file_that_is_there_is_a_script_whatever_its_name(folder: Path) -> None:
    (folder / "odd:name").touch()
    assert room.parse_target("odd:name", [], False)["kind"] == "script"


@pytest.mark.parametrize("target", ["nope.py", "net:", "net:1x", "net:a b", "https://example.org/x"])
def test_what_is_neither_a_file_nor_a_callable_is_no_target(target: str) -> None:
    with pytest.raises(UsageError, match=f"^no such file: {target}$"):
        room.parse_target(target, [], False)


# --- options --------------------------------------------------------------------------------------


def test_what_follows_the_target_is_the_program_s(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    assert status(monkeypatch, "diagnose", "--jobs", "3", "train.py", "--jobs", "7", "-m", "x y") == 0
    assert ran.target == {"kind": "script", "name": "train.py", "args": ["--jobs", "7", "-m", "x y"]}
    assert ran.settings.jobs == 3
    assert ran.command == "torchtriage diagnose --jobs 3 train.py --jobs 7 -m 'x y'"


def test_options_go_to_the_run(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    options = [
        "--trial-timeout",
        "9",
        "--trial-memory",
        "0.5",
        "--isolation",
        "rerun",
        "--max-calls",
        "5",
        "--runs",
        "r",
        "--fresh",
    ]
    status(monkeypatch, "diagnose", *options, "-m", "package.train")
    chosen = ran.settings
    assert (chosen.trial_timeout, chosen.trial_memory, chosen.isolation) == (9.0, 512 << 20, "rerun")
    assert (chosen.max_calls, chosen.runs, chosen.fresh) == (5, "r", True)
    assert ran.target["kind"] == "module"


@pytest.mark.parametrize(
    ("kind", "eager", "expected"),
    [
        ("none", None, 0),
        ("noise", None, 0),
        ("bug", None, 1),
        ("by-design", None, 1),
        ("none", ExceptionInfo("E", ""), 2),
        ("inconclusive", None, 3),
    ],
)
def test_the_exit_status_is_that_of_the_diagnosis(
    kind: Any, eager: Any, expected: int, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran.found = Diagnosis(kind, ("value",), Program("train.py", eager_exception=eager))
    assert status(monkeypatch, "diagnose", "train.py") == expected


@pytest.mark.parametrize(
    ("kind", "options", "spent", "reduces"),
    [
        ("bug", [], 60.0, True),
        ("bug", ["--no-reduce"], 60.0, False),
        ("bug", ["--verdict-only"], 60.0, False),
        ("bug", [], 590.0, False),
        ("bug", ["--reduce"], 590.0, True),
        ("by-design", [], 60.0, False),
        ("by-design", ["--reduce"], 60.0, True),
        ("none", ["--reduce"], 60.0, False),
        ("inconclusive", ["--reduce"], 60.0, False),
    ],
)
def test_bugs_are_reduced_within_the_budget_and_other_failures_on_request(
    kind: Any, options: list[str], spent: float, reduces: bool, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran.found = Diagnosis(kind, ("value",), Program("train.py"), seconds=spent)
    status(monkeypatch, "diagnose", *options, "train.py")
    assert bool(ran.reduced) == reduces


def test_json_on_stdout_is_all_there_is(
    ran: Ran, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran.found = Diagnosis("bug", ("value",), Program("train.py"))
    status(monkeypatch, "diagnose", "--json", "-", "train.py")
    assert json.loads(capsys.readouterr().out)["kind"] == "bug"
    assert ran.reduced[0][-1] is sys.stderr


def test_json_in_a_file_comes_beside_the_report(
    folder: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status(monkeypatch, "diagnose", "--json", "found.json", "train.py")
    assert json.loads((folder / "found.json").read_text())["kind"] == "none"
    assert "train.py" in capsys.readouterr().out


def test_the_version_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"torchtriage {__version__}\n"


# --- bad input ------------------------------------------------------------------------------------

POSITIVE = "--jobs, --trial-timeout and --max-calls must be positive"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nope.py"], "no such file: nope.py"),
        (["--isolation", "none", "train.py"], "--isolation is one of auto, fork, rerun"),
        (["--jobs", "-1", "train.py"], POSITIVE),
        (["--trial-timeout", "0", "train.py"], POSITIVE),
        (["--max-calls", "0", "train.py"], POSITIVE),
        (["--python", "/no/such/python", "train.py"], "no such interpreter: /no/such/python"),
        (["--runs", "train.py", "train.py"], "cannot make the run folder train.py: File exists"),
        (["--bogus", "train.py"], "no such file: --bogus"),
    ],
)
def test_a_bad_input_is_one_line_and_status_2(
    args: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(monkeypatch, "diagnose", *args) == 2
    assert capsys.readouterr() == ("", f"torchtriage: {said}\n")


@pytest.mark.parametrize("args", [["diagnose"], ["diagnose", "--jobs", "two", "train.py"], ["bogus"]])
def test_a_bad_command_line_is_one_line_too(
    args: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(monkeypatch, *args) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_negative_memory_is_refused(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    assert status(monkeypatch, "diagnose", "--trial-memory", "-1", "train.py") == 2


def test_an_interpreter_that_is_a_folder_is_refused(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    assert status(monkeypatch, "diagnose", "--python", "/tmp", "train.py") == 2


def test_a_json_file_that_cannot_be_written_is_one_line(
    ran: Ran, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(monkeypatch, "diagnose", "--json", "no/such/folder/x.json", "train.py") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_torn_journal_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = {"kind": "script", "name": "train.py", "args": []}
    (api.run_folder(target, api.Settings()) / "journal.sqlite").write_bytes(b"torn" * 1000)
    assert status(monkeypatch, "diagnose", "train.py") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_interruption_is_one_line_and_status_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*args: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(room, "run", interrupted)
    assert status(monkeypatch, "diagnose", "train.py") == 130
    assert capsys.readouterr().err == "torchtriage: interrupted; the same command goes on from here\n"
