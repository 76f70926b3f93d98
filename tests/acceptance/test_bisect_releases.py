"""Real releases: programs whose behaviour differs between torch 2.13.0 and 2.14.1 are bisected with real installations.

Takes gigabytes and many minutes, so it runs only as `make bisect-acceptance`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not os.environ.get("BISECT_ACCEPTANCE"), reason="make bisect-acceptance runs it"),
]
HERE = Path(__file__).parent
CASES: list[dict[str, Any]] = json.loads((HERE / "bisect_cases.json").read_text())


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("known", CASES, ids=[known["case"] for known in CASES])
def test_what_changed_between_two_real_releases_is_found(known: dict[str, Any], tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "torchtriage.cli.main", "bisect", "--good", known["good"], "--bad", known["bad"],
            "--find", known["find"], "--versions", f"{known['bad']},{known['good']}", "--installer", "pip",
            "--runs", str(tmp_path), "--repeat", "2", "--flips", os.environ.get("BISECT_FLIPS", "2"), "--json", "-",
            str(HERE / "cases" / known["case"] / "program.py"),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == known["exit"], done.stderr
    found = json.loads(done.stdout)
    assert known["signature"] in found["signature"]
    verdicts = {v["version"]: v for v in found["verdicts"]}
    assert verdicts[known["bad"]]["word"] == "bad"
    assert verdicts[known["bad"]]["failures"] == verdicts[known["bad"]]["runs"] == 2
    if known["exit"] == 0:
        assert verdicts[known["good"]]["word"] == "good"
        assert found["ending"] == "found"
        ends = {end["version"]: end for end in (found["good"], found["bad"])}
        assert set(ends) == {known["good"], known["bad"]}
        assert all(len(end["commit"]) == 40 for end in ends.values())
        assert all(end["packages"]["torch"].startswith(version) for version, end in ends.items())
        assert any(change["kind"] == "default" for change in found["changes"])
        changed = {f"{change['kind']} {change['name']}" for change in found["changes"]}
        assert changed >= set(known.get("changed", ()))
