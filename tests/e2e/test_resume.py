"""A run that is killed leaves nothing running, and goes on where it stopped."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from harness import PROGRAMS, left_after, processes_with, start_command

pytestmark = pytest.mark.e2e


def start(work: Path, environment: dict[str, str], *args: str) -> subprocess.Popen[str]:
    return start_command("diagnose", work, environment, "--no-reduce", *args)


def trials(runs: Path) -> dict[str, tuple[str, float]]:
    """key -> (answer, when) of every trial in the only journal below `runs`."""
    found = list(runs.glob("*/journal.sqlite"))
    if not found:
        return {}
    try:
        with sqlite3.connect(f"file:{found[0]}?mode=ro", uri=True) as base:
            rows = base.execute("SELECT key, answer, at FROM entries WHERE kind='trial'").fetchall()
    except sqlite3.OperationalError:
        return {}
    return {key: (answer, at) for key, answer, at in rows}


def without_times(report: dict[str, Any]) -> Any:
    """The report without what may differ from run to run: times, and the folder of the run."""
    names = {
        "seconds",
        "started",
        "run_folder",
        "command",
        "step_time_ratio",
        "ratio_against",
        "peak_bytes",
        "cells",
    }

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items() if k not in names and not k.endswith("_seconds")}
        return [strip(v) for v in value] if isinstance(value, list) else value

    return strip(report)


def test_a_killed_run_goes_on_where_it_stopped(work: Path, environment: dict[str, str]) -> None:
    command = ["--json", "-", str(PROGRAMS / "small_bug.py"), "--width", "4"]
    running = start(work, environment, *command)
    deadline = time.monotonic() + 300
    while len(trials(work / "runs")) < 6 and time.monotonic() < deadline and running.poll() is None:
        time.sleep(0.05)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    assert running.returncode == -signal.SIGKILL, "it ended before it could be killed"
    assert not left_after(str(work))
    finished = trials(work / "runs")
    assert len(finished) >= 6

    out, err = start(work, environment, *command).communicate()
    report = json.loads(out)
    after = trials(work / "runs")
    assert {key: after[key] for key in finished} == finished, "a finished trial was run again"
    assert report["trials"] == len(after) > len(finished)
    assert len(list((work / "runs").iterdir())) == 1
    assert err == ""

    uninterrupted = json.loads(start(work, environment, *command).communicate()[0])
    assert without_times(report) == without_times(uninterrupted)
    words = {backend: {d: c["word"] for d, c in row.items()} for backend, row in report["cells"].items()}
    assert words == {b: {d: c["word"] for d, c in row.items()} for b, row in uninterrupted["cells"].items()}


@pytest.mark.parametrize(
    ("how", "status"),
    [
        (signal.SIGKILL, -signal.SIGKILL),
        (signal.SIGTERM, 143),
        (signal.SIGINT, 130),
    ],
)
def test_what_a_trial_had_started_ends_with_the_run(
    work: Path, environment: dict[str, str], how: signal.Signals, status: int
) -> None:
    mark = f"{os.getpid()}.{how.value}{time.monotonic_ns()}"
    running = start(work, environment, str(PROGRAMS / "deaths.py"), mark, "compile:wait")
    deadline = time.monotonic() + 120
    while not processes_with(f"sleep {mark}") and time.monotonic() < deadline and running.poll() is None:
        time.sleep(0.05)
    assert processes_with(f"sleep {mark}")
    running.send_signal(how)
    _, err = running.communicate(timeout=60)
    left = left_after(mark, 10.0)
    for line in left:
        os.kill(int(line.partition(":")[0]), signal.SIGKILL)
    assert running.returncode == status, err
    assert not left


@pytest.mark.parametrize(("how", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_says_how_to_go_on(
    work: Path, environment: dict[str, str], how: signal.Signals, status: int
) -> None:
    running = start(work, environment, "--quiet", str(PROGRAMS / "deaths.py"), "1", "hang")
    deadline = time.monotonic() + 120
    while not list((work / "runs").glob("*/scratch/trial-*/events.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    running.send_signal(how)
    out, err = running.communicate(timeout=60)
    assert running.returncode == status
    assert out == ""
    assert len(err.splitlines()) == 1 and "goes on from here" in err
    assert not left_after(str(work))
