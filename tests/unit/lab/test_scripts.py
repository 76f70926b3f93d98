"""A finished script by plain python: it finds the program's files, and cannot change them."""

import sys
import tempfile
from pathlib import Path

import pytest

from torchtriage.lab.scripts import ScriptLab
from torchtriage.probe import landlock


@pytest.fixture
def lab(tmp_path: Path) -> ScriptLab:
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "data.txt").write_text("data")
    return ScriptLab(
        tmp_path / "scripts", tmp_path / "store", sys.executable, workdir=str(tmp_path / "program")
    )


def run(lab: ScriptLab, folder: Path, text: str) -> tuple[int, str]:
    script = folder / "repro.py"
    script.write_text(text)
    return lab.plain(script, 60.0)


def test_it_reads_the_programs_files_by_their_names(lab: ScriptLab, tmp_path: Path) -> None:
    status, output = run(
        lab, tmp_path, "print(open('data.txt').read())\nopen('mine.txt', 'w').close()\n1 / 0\n"
    )
    assert status == 1 and output.startswith("data\n")
    assert 'File "repro.py", line 3' in output and not (tmp_path / "program" / "mine.txt").exists()


@pytest.mark.skipif(landlock.version_of_kernel() < 2, reason="the kernel has no Landlock")
def test_it_does_not_change_them(lab: ScriptLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tempfile, "tempdir", str(tmp_path / "scripts")
    )  # the test's own files are in the usual one
    status, output = run(lab, tmp_path, "open('data.txt', 'w').close()\n")
    assert status == 1 and "PermissionError" in output
    assert (tmp_path / "program" / "data.txt").read_text() == "data"


def test_a_time_out_is_told(lab: ScriptLab, tmp_path: Path) -> None:
    script = tmp_path / "repro.py"
    script.write_text("import time\ntime.sleep(60)\n")
    assert lab.plain(script, 0.5)[0] == 124
