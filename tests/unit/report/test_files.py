"""Writing reports: whole files under their names, and nothing beside them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from torchtriage.report import files, view

from . import samples


def test_three_reports_are_written_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "new"
    written = files.write_all(samples.wrong_value(), folder)
    assert written == {
        "html": folder / "report.html",
        "md": folder / "report.md",
        "json": folder / "report.json",
    }
    assert sorted(p.name for p in folder.iterdir()) == ["report.html", "report.json", "report.md"]
    assert json.loads(written["json"].read_text("utf-8"))["kind"] == "bug"


def test_hostile_strings_can_be_written(tmp_path: Path) -> None:
    for path in files.write_all(samples.hostile(), tmp_path).values():
        path.read_text("utf-8")


def test_an_older_report_is_replaced(tmp_path: Path) -> None:
    files.write_all(samples.wrong_value(), tmp_path)
    files.write_all(samples.nothing(), tmp_path)
    assert "No difference" in (tmp_path / "report.md").read_text("utf-8")


def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError("no space left on device")

    path = tmp_path / "report.md"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        files.write(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["report.md"]


def test_a_report_can_be_read_by_those_whom_the_umask_lets(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        path = files.write_all(samples.nothing(), tmp_path)["html"]
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o644


def test_the_names_shown_in_the_terminal_are_the_names_written() -> None:
    shown = [name.rpartition("/")[2] for name in view.report_files(samples.nothing())]
    assert shown == [name for name, _ in files.REPORTS.values()]
