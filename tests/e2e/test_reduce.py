"""`reduce` on programs with planted faults: it keeps the failure that is asked for, and proves what it delivers."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from harness import PROGRAMS, left_after, start_command

from torchtriage.reduce.tree import lines_of

pytestmark = pytest.mark.e2e
FAULTY = PROGRAMS / "reduce"
SHORT = ("--no-bundle", "--time-limit", "40")
"""Enough for what these tests look at; how short a script becomes in the end is for the known cases, and how far a
search gets in this time depends on the machine."""


start = functools.partial(start_command, "reduce")


def reduced(work: Path, environment: dict[str, str], *args: str) -> tuple[int, dict[str, Any], Path]:
    """Exit status, reduction.json and the folder of a whole run."""
    done = start(work, environment, *args)
    output, errors = done.communicate(timeout=900)
    folders = list((work / "runs").glob("*-reduce"))
    assert folders, output + errors
    return done.returncode, json.loads((folders[0] / "reduction.json").read_text()), folders[0]


def calls(script: str) -> set[str]:
    """Names of what a script calls, without their modules: for a look at what stayed."""
    tree = ast.parse(script)
    return {ast.unparse(n.func).rpartition(".")[2] for n in ast.walk(tree) if isinstance(n, ast.Call)}


@pytest.mark.parametrize(
    ("which", "stays", "goes"),
    [("value", "exp", "log"), ("leaf", "exp", "tan")],
)
def test_the_failure_that_is_asked_for_is_kept(
    which: str, stays: str, goes: str, work: Path, environment: dict[str, str]
) -> None:
    status, found, _ = reduced(work, environment, *SHORT, str(FAULTY / "two_faults.py"), which)
    assert status == 0 and found["proven"], found
    assert "another value" in found["failure"] and stays in calls(found["script"]), found["script"]
    assert goes not in calls(found["script"]) or found["stopped"], found["script"]
    assert "import planted" in found["script"]  # what changes torch stays what it is
    assert found["lines"] <= (found["lines_before"] if found["stopped"] else 8)


def test_a_crash_does_not_become_another_one_and_names_can_be_taken_out(
    work: Path, environment: dict[str, str]
) -> None:
    status, found, _ = reduced(
        work,
        environment,
        "--no-bundle",
        "--time-limit",
        "90",
        "--redact",
        str(FAULTY / "two_faults.py"),
        "crash",
    )
    assert status == 0 and found["proven"], found
    assert "sin" in calls(found["script"]), found["script"]
    assert "cos" not in calls(found["script"]) or found["stopped"], found["script"]
    assert "crash" not in found["script"] or found["stopped"]


def test_a_training_program_becomes_a_few_lines(work: Path, environment: dict[str, str]) -> None:
    (work / "data.csv").write_text("\n".join(",".join(f"{i + j}.5" for j in range(8)) for i in range(8)))
    status, found, folder = reduced(
        work,
        environment,
        "--time-limit",
        "90",
        str(FAULTY / "training.py"),
        "--data",
        "data.csv",
        "--steps",
        "2",
    )
    assert status == 0 and found["proven"], found
    assert "sin" in found["script"], found["script"]
    if not found["stopped"]:
        assert found["lines"] <= 6 and "argparse" not in found["script"] and "data.csv" not in found["script"]
    assert found["rank"] == "needs files of yours" and "planted" in found["keeps_from"]
    issue = (folder / "issue.md").read_text()
    assert found["script"].strip() in issue and "| backend |" in issue and "ValueError" in issue
    with zipfile.ZipFile(folder / "bundle.zip") as bundle:
        names = bundle.namelist()
    assert {
        "repro.py",
        "issue.md",
        "environment.txt",
        "commands.txt",
        "output.txt",
        "log-output_code.txt",
    } <= set(names)
    assert not left_after(str(work))


def test_a_failure_that_comes_and_goes_says_how_often(work: Path, environment: dict[str, str]) -> None:
    running = start(work, environment, *SHORT, str(FAULTY / "sometimes.py"))
    _, errors = running.communicate(timeout=900)
    if "nothing is wrong" in errors:
        pytest.skip("the verdict's own runs did not show it")
    (folder,) = (work / "runs").glob("*-reduce")
    found = json.loads((folder / "reduction.json").read_text())
    assert re.fullmatch(r"[1-9]\d* of (12|5) runs", found["rate"]) or found["proven"], found
    assert "atan" in found["script"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_best_script_is_on_disk_when_it_is_stopped_and_it_goes_on(
    how: signal.Signals, work: Path, environment: dict[str, str]
) -> None:
    command = [*SHORT, str(FAULTY / "two_faults.py"), "crash"]
    running = start(work, environment, *command)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and running.poll() is None:
        if (found := list((work / "runs").glob("*-reduce/repro.py"))) and lines_of(found[0].read_text()) < 14:
            break
        time.sleep(0.02)
    running.send_signal(how)
    running.communicate(timeout=120)
    assert running.returncode in (130, -signal.SIGKILL)
    (script,) = (work / "runs").glob("*-reduce/repro.py")
    text = script.read_text()
    compile(text, "repro.py", "exec")
    assert not left_after(str(work))
    env = {**os.environ, "PYTHONPATH": str(FAULTY)}
    alone = subprocess.run(
        [sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert alone.returncode == 1 and "no loader for sin" in alone.stderr
    status, found, _ = reduced(work, environment, *command)
    assert status == 0 and found["proven"] and lines_of(found["script"]) <= lines_of(text)


def test_a_process_that_dies_becomes_a_script_that_exits_with_one(
    work: Path, environment: dict[str, str]
) -> None:
    status, found, _ = reduced(work, environment, *SHORT, str(PROGRAMS / "int_division.py"))
    assert status == 0 and found["proven"], found
    assert "SIGFPE" in found["failure"] and "exitcode == 0" in found["script"]


def test_reduced_scripts_change_no_files_of_the_users(work: Path, environment: dict[str, str]) -> None:
    program = work / "cleans.py"
    precious = work / "precious"
    precious.mkdir()
    (precious / "a.txt").write_text("a")
    program.write_text(
        "import os, shutil, sys\n"
        f"sys.path.insert(0, {str(FAULTY)!r})\n"
        "import planted, torch\n"
        "@torch.compile\ndef f(x):\n    return torch.sin(x)\n"
        f"root = {str(precious)!r}\n"
        "os.makedirs(os.path.join(root, 'cache'), exist_ok=True)\n"
        "shutil.rmtree(os.path.join(root, 'cache'))\n"
        "torch.save(torch.ones(3), os.path.join(root, 'model.pt'))\n"
        "with open('saved/log.txt', 'a') as log:\n    log.write('more')\n"
        "torch.save(torch.ones(3), 'saved/model.pt')\n"
        "f(torch.ones(3))\n"
    )
    (work / "saved").mkdir()
    (work / "saved" / "log.txt").write_text("log")
    status, found, _ = reduced(work, environment, "--no-bundle", "--time-limit", "60", str(program))
    assert status == 0 and found["proven"], found
    assert (precious / "a.txt").read_text() == "a"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import torch\nprint(torch.compile(torch.relu)(torch.ones(3)))\n", "nothing is wrong"),
        ("import torch\ndef f(:\n", "syntax error"),
    ],
)
def test_what_cannot_be_reduced_is_one_line_and_status_two(
    text: str, words: str, work: Path, environment: dict[str, str]
) -> None:
    program = work / "program.py"
    program.write_text(text)
    running = start(work, environment, "--quiet", str(program))
    output, errors = running.communicate(timeout=300)
    assert (
        running.returncode == 2 and words in errors and len(errors.strip().splitlines()) == 1 and not output
    )


def test_a_diagnosed_bug_goes_on_to_a_reproducer(work: Path, environment: dict[str, str]) -> None:
    running = start_command(
        "diagnose", work, environment, "--quiet", "--budget", "120", str(FAULTY / "two_faults.py"), "leaf"
    )
    output, errors = running.communicate(timeout=600)
    assert running.returncode == 1, errors
    verdict, reproducer = output.index("verdict"), output.index("In fresh processes it fails 5 times of 5")
    assert verdict < reproducer
    (script,) = (work / "runs").glob("*-reduce/repro.py")
    assert "exp" in calls(script.read_text())
