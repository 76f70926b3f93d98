"""A run leaves its run folder, and nothing else: not beside the program, not in the user's caches, not in /tmp."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import PROGRAMS, left_after

from torchtriage.lab.local import LocalLab
from torchtriage.lab.request import Request
from torchtriage.model.outcome import label
from torchtriage.model.variant import Variant

pytestmark = pytest.mark.e2e


def listing(folder: Path, but: str = "") -> dict[str, tuple[int, int]]:
    """path -> (size, time of the last change) of everything below a folder, without paths that have `but` in them."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if (not path.is_dir() or not any(path.iterdir())) and not (but and but in str(path))
    }


@pytest.fixture
def homes(tmp_path: Path) -> dict[str, str]:
    """A home, a folder for temporary files and an Inductor cache of the user's, each with something in it."""
    places = {
        "HOME": tmp_path / "home",
        "TMPDIR": tmp_path / "tmp",
        "TORCHINDUCTOR_CACHE_DIR": tmp_path / "inductor",
    }
    for folder in places.values():
        folder.mkdir()
        (folder / "mine").write_text("mine")
    (tmp_path / "inductor" / "fxgraph").mkdir()
    (tmp_path / "inductor" / "fxgraph" / "entry").write_text("an entry")
    return {name: str(folder) for name, folder in places.items()}


def test_a_run_leaves_nothing_but_its_folder(
    diagnose: Callable[..., Any], work: Path, homes: dict[str, str]
) -> None:
    for name in ("small_bug.py", "small_bug_helper.py"):
        shutil.copy(PROGRAMS / name, work)
    before = listing(work)
    elsewhere = {name: listing(Path(folder)) for name, folder in homes.items()}
    done = diagnose("--json", "report.json", "small_bug.py", "--width", "6", env=homes)
    assert done.status == 1, done.err
    after = listing(work)
    new = {path for path in after if path not in before and not path.startswith("runs/")}
    assert new == {"report.json"}
    assert {path: after[path] for path in before} == before
    # the headers have a test of their own, below
    now = {name: listing(Path(folder), but="/precompiled_headers") for name, folder in homes.items()}
    assert now == elsewhere
    (run,) = (work / "runs").iterdir()
    assert not (run / "scratch").exists()
    assert {"report.html", "report.md", "report.json"} <= {path.name for path in run.iterdir()}
    assert json.loads((run / "report.json").read_text()) == json.loads((work / "report.json").read_text())
    assert not left_after(str(work))


def test_the_default_cache_of_the_user_is_not_made(
    open_lab: Callable[..., LocalLab], homes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    homes.pop("TORCHINDUCTOR_CACHE_DIR")
    for name, value in homes.items():
        monkeypatch.setenv(name, value)
    before = {name: listing(Path(folder)) for name, folder in homes.items()}
    lab = open_lab("small_bug.py")
    inductor = Variant(backend="inductor")
    outcomes = lab.run(
        [
            Request(inductor),
            Request(Variant(backend="inductor", caches=True)),
            Request(inductor, observe=True),
        ]
    )
    assert [label(outcome) for outcome in outcomes] == ["differs:value"] * 3
    assert {name: listing(Path(folder)) for name, folder in homes.items()} == before
