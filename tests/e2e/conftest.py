"""What the end-to-end tests share: a store of compiled kernels, labs, the real command, and a look at what is left."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from torchtriage.lab.journal import Journal
from torchtriage.lab.local import LocalLab, Options

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"
SOURCE = Path(__file__).resolve().parent.parent.parent / "src"


#: What a developer may have set, and what would hide what these tests look for.
for _name in ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):
    os.environ.pop(_name, None)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Value of TORCHTRIAGE_CACHE: one folder for the whole session, shared by the workers of xdist."""
    given = os.environ.get("TORCHTRIAGE_CACHE")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    return Path(given) if given else shared / "torchtriage-cache"


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


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the working folder of the test."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


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


@pytest.fixture
def open_lab(tmp_path: Path, work: Path, store: Path) -> Iterator[Callable[..., LocalLab]]:
    """Start a lab for a program of tests/programs, in the working folder `work`."""
    with contextlib.ExitStack() as stack:

        def start(name: str, *args: str, **options: Any) -> LocalLab:
            folder = tmp_path / f"run-{len(list(tmp_path.glob('run-*')))}"
            return stack.enter_context(opened(folder, store, name, *args, **options))

        yield start


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


@pytest.fixture
def environment(store: Path) -> dict[str, str]:
    """The environment of a user who has torchtriage in it."""
    return {**os.environ, "TORCHTRIAGE_CACHE": str(store), "PYTHONPATH": str(SOURCE)}


@pytest.fixture
def diagnose(work: Path, environment: dict[str, str]) -> Callable[..., Done]:
    """Run `torchtriage diagnose ARGS` in the working folder. `env` adds to the environment."""

    def command(*args: str, env: dict[str, str] | None = None, seconds: float = 600.0) -> Done:
        begin = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "torchtriage.cli.main", "diagnose", *args],
            cwd=work, env={**environment, **(env or {})}, capture_output=True, text=True, timeout=seconds,
            check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr, time.monotonic() - begin)

    return command


def line_of(file: str, text: str) -> int:
    """Number of the only line of a program that holds `text`."""
    rows = (PROGRAMS / file).read_text().splitlines()
    (found,) = (n for n, row in enumerate(rows, 1) if text in row)
    return found
