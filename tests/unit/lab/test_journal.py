"""The journal keeps each outcome at once, and never takes a torn file for an empty one."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from torchtriage.lab.journal import Journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    with closing(Journal(path)) as opened:
        yield opened


def test_what_was_put_is_got(journal: Journal) -> None:
    journal.put("trial", "a", {"backend": "eager"}, {"kind": "same", "differences": ()})
    assert journal.get("trial", "a") == {"kind": "same", "differences": []}
    assert journal.get("trial", "b") is None
    assert journal.get("survey", "a") is None


def test_the_last_answer_counts(journal: Journal) -> None:
    for answer in ("first", "second"):
        journal.put("trial", "a", None, answer)
    assert (journal.get("trial", "a"), journal.count("trial")) == ("second", 1)


def test_entries_come_in_the_order_in_which_they_arrived(journal: Journal) -> None:
    for key in ("b", "a", "c"):
        journal.put("trial", key, key, key.upper())
    assert journal.all("trial") == [("b", "B"), ("a", "A"), ("c", "C")]


def test_infinity_survives(journal: Journal) -> None:
    journal.put("trial", "a", None, float("inf"))
    assert journal.get("trial", "a") == float("inf")


def test_a_reopened_journal_knows_everything(path: Path) -> None:
    with closing(Journal(path)) as first:
        first.put("trial", "a", 1, "one")
    with closing(Journal(path)) as second:
        assert second.all("trial") == [(1, "one")]


def test_what_was_put_is_there_after_the_process_was_killed(path: Path) -> None:
    code = (
        "import os, sys, pathlib\nfrom torchtriage.lab.journal import Journal\n"
        "Journal(pathlib.Path(sys.argv[1])).put('trial', 'a', 1, 'one')\nos.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9
    with closing(Journal(path)) as reopened:
        assert reopened.get("trial", "a") == "one"


def test_threads_may_write_at_the_same_time(journal: Journal) -> None:
    def write(thread: int) -> None:
        for n in range(25):
            journal.put("trial", f"{thread}-{n}", n, {"thread": thread, "text": "x" * 100})
            assert journal.get("trial", f"{thread}-{n}") == {"thread": thread, "text": "x" * 100}

    failed: list[object] = []
    threads = [threading.Thread(target=write, args=(t,)) for t in range(4)]
    hook, threading.excepthook = threading.excepthook, failed.append
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        threading.excepthook = hook
    assert not failed
    assert journal.count("trial") == 100


def fill(path: Path) -> bytes:
    with closing(Journal(path)) as journal:
        for n in range(100):
            journal.put("trial", str(n), n, "x" * 500)
    return path.read_bytes()


@pytest.mark.parametrize(
    "torn",
    [
        pytest.param(lambda data: data[: len(data) // 2], id="cut in the middle"),
        pytest.param(lambda data: data[:8192] + b"\xff" * (len(data) - 8192), id="overwritten"),
        pytest.param(lambda data: data[:100] + b"\0" * (len(data) - 100), id="zeroed by the disk"),
        pytest.param(lambda data: b"not a database " * 1000, id="another file"),
    ],
)
def test_a_torn_file_is_an_error_and_never_an_empty_journal(path: Path, torn: object) -> None:
    path.write_bytes(torn(fill(path)))  # type: ignore[operator]
    with pytest.raises(sqlite3.DatabaseError, match=r"malformed|not a database"), closing(Journal(path)) as j:
        j.all("trial")


def test_an_empty_file_is_an_empty_journal(path: Path) -> None:
    path.touch()
    with closing(Journal(path)) as journal:
        assert journal.count("trial") == 0
