"""Run folders: a question has one, which is taken up again where the run before it did not end."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

from torchtriage import __version__
from torchtriage.lab.journal import Journal


class RunFolderError(Exception):
    """One line for the user. `passing`: what is in the way is no fault of the folder, and nothing in it is lost."""

    def __init__(self, said: str, passing: bool = False):
        super().__init__(said)
        self.passing = passing


def run_folder(runs: str, stem: str, question: Any, fresh: bool, suffix: str = "") -> Path:
    """The folder of this question: that of an unfinished run, else a new one. Raises RunFolderError."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", stem)[:40] or "run"
    mark = hashlib.sha256(json.dumps(question, default=str).encode()).hexdigest()
    parent = Path(runs).absolute()  # the program may change its working folder
    folder = parent / f"{name}-{mark[:10]}{suffix}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        if folder.exists() and ((folder / "finished").exists() or fresh):
            os.close(claimed(folder))
            shutil.rmtree(folder)
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"cannot make the run folder {runs}: {error.strerror}") from error
    return folder


def claimed(folder: Path) -> int:
    """A lock on the folder, as a file descriptor. Raises RunFolderError where another process has it."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise RunFolderError(
            f"another run of the same question is at work in {shown(folder)}: wait for it, or name another folder with --runs"
        ) from error
    return lock


def beside(name: str) -> list[tuple[str, int, int]]:
    """The Python files beside a program, or in the working folder: with those changed, a journal is no longer true."""
    path = Path(name)
    base = path.parent if path.suffix == ".py" else Path.cwd()
    return [stamp for file in sorted(base.glob("*.py"))[:500] for stamp in stamps(str(file))]


def stamps(name: str) -> list[tuple[str, int, int]]:
    """(name, size, time) of a file; nothing where there is none."""
    try:
        found = os.stat(name)
    except (OSError, ValueError):
        return []
    return [(name, found.st_size, found.st_mtime_ns)] if os.path.isfile(name) else []


def identity(target: Any, name: str) -> list[Any]:
    """What must not have changed for a journal to be still true: the target, working folder, sources, and torchtriage."""
    return [target, os.getcwd(), beside(name), __version__]


def open_journal(folder: Path) -> Journal:
    """The journal of a run folder. Raises RunFolderError for one that cannot be used."""
    try:
        journal = Journal(folder / "journal.sqlite")
        journal.count("about")
        return journal
    except sqlite3.OperationalError as error:
        raise RunFolderError(f"the journal in {shown(folder)} cannot be written: {error}", True) from error
    except sqlite3.DatabaseError as error:
        raise RunFolderError(
            f"the journal of the unfinished run cannot be used ({error}): begin anew with --fresh"
        ) from error


def started(journal: Journal) -> str:
    """When the first run of this question began."""
    known = journal.get("about", "started")
    if known is None:
        known = time.strftime("%Y-%m-%d %H:%M:%S")
        journal.put("about", "started", "", known)
    return str(known)


def finish(folder: Path) -> None:
    """The same question begins anew after this."""
    (folder / "finished").write_text(time.strftime("%Y-%m-%dT%H:%M:%S\n"))


def shown(folder: Path) -> str:
    """Relative to the working folder where it lies below it."""
    return str(folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder)
