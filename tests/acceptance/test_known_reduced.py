"""Known programs, reduced: the script alone, in a fresh process, fails every time, and is short."""

from __future__ import annotations

import ast
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchtriage.reduce.rank import packages_of
from torchtriage.reduce.tree import lines_of

pytestmark = [pytest.mark.e2e]
CASES = Path(__file__).parent / "cases"
KNOWN = {p.name: json.loads((p / "expected.json").read_text()) for p in sorted(CASES.iterdir()) if p.is_dir()}
FAILING = [name for name, known in KNOWN.items() if known["kind"] != "control"]
#: A few kinds of failure in every run; all of them by `make reduce-acceptance`.
NAMES = (
    FAILING
    if os.environ.get("REDUCE_CASES") == "all"
    else ["bce_target_range", "ldexp_dtype", "str_arg_recompile"]
)
LONGEST = 20
#: what a failure truly needs besides torch
NEEDED = {"np_cos_tuple": {"numpy"}, "np_int8_rules": {"numpy"}, "numpy_roundtrip_break": {"numpy"}}
found_lines: dict[str, int] = {}


def reduced(name: str, folder: Path) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "torchtriage.cli.main",
        "reduce",
        "-q",
        "--no-bundle",
        "--runs",
        str(folder),
    ]
    done = subprocess.run(
        [*command, str(CASES / name / "program.py")],
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    reports = list(folder.glob("*-reduce/reduction.json"))
    assert reports, done.stdout + done.stderr
    return json.loads(reports[0].read_text())  # type: ignore[no-any-return]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMES)
def test_a_known_program_becomes_a_script_that_fails_every_time(name: str, tmp_path: Path) -> None:
    found = reduced(name, tmp_path / "runs")
    assert found["proven"] and (found["shown"], found["runs"]) == (5, 5), found["script"] + found["output"]
    assert lines_of(found["script"]) <= LONGEST
    assert set(packages_of(found["script"])) <= {"torch"} | NEEDED.get(name, set())
    assert "torchtriage" not in found["script"]
    (tmp_path / "alone").mkdir()
    script = tmp_path / "alone" / "repro.py"
    script.write_text(found["script"])
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    alone = subprocess.run(
        [sys.executable, "-I", str(script)], env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert alone.returncode == 1, alone.stderr
    assert same_symptom(KNOWN[name], alone.stderr, found)
    found_lines[name] = lines_of(found["script"])


def same_symptom(known: dict[str, Any], errors: str, found: dict[str, Any]) -> bool:
    """Whether what the script prints is what is known of the program."""
    ran = known["plain_run"].removeprefix("raises:")
    if "exception" in known["symptom"]:
        return ran in errors or ran == "ok"
    if "missing-exception" in known["symptom"]:
        return "does not" in found["failure"] and "Error" in errors
    return "AssertionError" in errors


@pytest.mark.skipif(os.environ.get("REDUCE_CASES") != "all", reason="needs all cases: make reduce-acceptance")
def test_half_of_the_scripts_have_at_most_ten_lines() -> None:
    if len(found_lines) == len(FAILING):
        assert statistics.median(found_lines.values()) <= 10, found_lines


def test_the_cases_that_are_reduced_in_every_run_exist() -> None:
    assert set(NAMES) <= set(FAILING)
    assert all(ast.parse((CASES / name / "program.py").read_text()) for name in NAMES)
