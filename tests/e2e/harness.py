"""Helpers of the end-to-end tests: where the programs are, labs, what the command gave, which processes are left."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchtriage.lab.journal import Journal
from torchtriage.lab.local import LocalLab, Options

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"
SOURCE = Path(__file__).resolve().parent.parent.parent / "src"


def heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start_command(command: str, work: Path, environment: dict[str, str], *args: str) -> subprocess.Popen[str]:
    """The command with SIGINT as a terminal gives it: a shell ignores it in what it starts in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "torchtriage.cli.main", command, *args],
        cwd=work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=heed_interrupts,
    )  # fmt: skip


def line_of(file: str, text: str) -> int:
    """Number of the only line of a program that holds `text`."""
    rows = (PROGRAMS / file).read_text().splitlines()
    (found,) = (n for n, row in enumerate(rows, 1) if text in row)
    return found


def processes_with(mark: str) -> list[str]:
    """Command lines of the living processes that have `mark` in theirs, this one left out."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if mark in text:
                found.append(f"{entry}: {text[:300]}")
    return found


def left_after(mark: str, seconds: float = 5.0) -> list[str]:
    """The same, once they have had some time to go."""
    deadline = time.monotonic() + seconds
    while (found := processes_with(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


@contextlib.contextmanager
def opened(
    folder: Path, store: Path, name: str, *args: str, kind: str = "script", **options: Any
) -> Iterator[LocalLab]:
    """A lab for a program of tests/programs. Afterwards none of its processes may be left."""
    kernels = store / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    folder.mkdir()
    target = {"kind": kind, "name": str(PROGRAMS / name) if kind == "script" else name, "args": list(args)}
    chosen = Options(
        jobs=2, trial_seconds=120.0, trial_bytes=4 << 30, store=kernels, python=sys.executable, user_threads=1
    )
    journal = Journal(folder / "journal.sqlite")
    try:
        with LocalLab(target, folder, journal, dataclasses.replace(chosen, **options)) as lab:
            yield lab
    finally:
        journal.close()
    assert not left_after(str(folder)), "the lab left processes behind"


@dataclasses.dataclass(frozen=True)
class Done:
    """How one run of the command ended."""

    status: int
    out: str
    err: str
    seconds: float

    @property
    def report(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.out)
        return loaded
