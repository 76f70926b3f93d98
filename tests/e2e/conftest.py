"""Fixtures of the end-to-end tests: a store of compiled kernels, a working folder, labs and the real command."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import SOURCE, Done, opened

from torchtriage.lab.local import LocalLab

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


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the working folder of the test."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def open_lab(tmp_path: Path, work: Path, store: Path) -> Iterator[Callable[..., LocalLab]]:
    """Start a lab for a program of tests/programs, in the working folder `work`."""
    with contextlib.ExitStack() as stack:

        def start(name: str, *args: str, **options: Any) -> LocalLab:
            folder = tmp_path / f"run-{len(list(tmp_path.glob('run-*')))}"
            return stack.enter_context(opened(folder, store, name, *args, **options))

        yield start


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
            [sys.executable, "-m", "torchtriage.cli.main", "diagnose", "--no-reduce", *args],
            cwd=work, env={**environment, **(env or {})}, capture_output=True, text=True, timeout=seconds,
            check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr, time.monotonic() - begin)

    return command
