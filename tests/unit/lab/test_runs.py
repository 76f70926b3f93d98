"""Run folders: taken up again, begun anew, and never used by two at once."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from torchtriage.lab import runs
from torchtriage.lab.runs import RunFolderError


def folder_of(tmp_path: Path, question: str = "a", fresh: bool = False) -> Path:
    return runs.run_folder(str(tmp_path / "runs"), "my prog", question, fresh)


def test_a_question_has_one_folder_until_it_is_finished(tmp_path: Path) -> None:
    first = folder_of(tmp_path)
    (first / "kept").touch()
    assert first.name.startswith("my-prog-")
    assert folder_of(tmp_path) == first and (first / "kept").exists()
    assert folder_of(tmp_path, "b") != first
    runs.finish(first)
    assert folder_of(tmp_path) == first and not (first / "kept").exists()


def test_a_folder_in_which_another_run_is_at_work_is_neither_used_nor_removed(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    lock = runs.claimed(folder)
    with pytest.raises(RunFolderError, match="another run of the same question is at work"):
        runs.claimed(folder)
    with pytest.raises(RunFolderError, match="another run"):
        folder_of(tmp_path, fresh=True)
    assert folder.exists()
    os.close(lock)
    os.close(runs.claimed(folder))


@pytest.mark.parametrize(
    ("error", "passing", "said"),
    [
        (
            sqlite3.OperationalError("database or disk is full"),
            True,
            "cannot be written: database or disk is full",
        ),
        (sqlite3.DatabaseError("file is not a database"), False, "begin anew with --fresh"),
    ],
)
def test_a_full_disk_is_not_taken_for_a_damaged_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, passing: bool, said: str
) -> None:
    """To begin anew would throw away what is only waiting for room."""

    def fails(path: Path) -> None:
        raise error

    monkeypatch.setattr(runs, "Journal", fails)
    with pytest.raises(RunFolderError, match=said) as raised:
        runs.open_journal(folder_of(tmp_path))
    assert raised.value.passing == passing
