"""The command as a person or a script meets it: what it prints, its exit status, what it says to bad input."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import PROGRAMS

from torchtriage.report import jsonout

pytestmark = pytest.mark.e2e


def schema_problems(report: dict[str, Any]) -> list[str]:
    path = Path(__file__).parent.parent / "unit" / "report" / "checker.py"
    spec = importlib.util.spec_from_file_location("schema_checker", path)
    assert spec and spec.loader
    checker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checker)
    found: list[str] = checker.problems(report, jsonout.schema(), jsonout.schema())
    return found


def test_json_on_stdout_is_all_there_is_and_status_0_says_that_nothing_was_found(
    diagnose: Callable[..., Any],
) -> None:
    done = diagnose("--json", "-", str(PROGRAMS / "endings.py"), "handled-in-region")
    assert done.status == 0, done.err
    assert done.err == ""
    report = done.report
    assert not schema_problems(report)
    assert report["kind"] == "none"
    assert report["exit_status"] == 0
    assert {word for row in report["matrix"].values() for word in row.values()} == {"same"}
    assert any("KeyError" in remark for remark in report["remarks"])


def test_a_compiled_call_that_is_killed_is_a_bug_with_status_1(diagnose: Callable[..., Any]) -> None:
    done = diagnose("--json", "-", str(PROGRAMS / "deaths.py"), "1", "segv")
    assert done.status == 1, done.err
    report = done.report
    assert not schema_problems(report)
    assert report["kind"] == "bug"
    assert report["own"]["word"] == "killed:SIGSEGV"
    assert report["symptom"]["region"] == "segv"
    assert {word for row in report["matrix"].values() for word in row.values()} == {"same"}
    assert report["workarounds"], "a debug backend passes"


BAD_INPUT: dict[str, tuple[list[str], list[str]]] = {
    "no such file": (["missing.py"], ["missing.py"]),
    "no such module": (["-m", "no_such_module_here"], ["no_such_module_here"]),
    "no such package": (["-m", "json.nothing"], ["json.nothing"]),
    "a folder": (["folder"], ["folder"]),
    "syntax error": (["syntax.py"], ["syntax.py:2", "never closed"]),
    "syntax error in an imported file": (["imports_syntax.py"], ["syntax.py, line 2", "imports_syntax.py:1"]),
    "no source": (["null.py"], ["null.py"]),
    "compiles nothing": (["plain.py"], ["nothing to torch.compile", "plain.py:"]),
    "no such callable": (["package.model:missing"], ["package.model", "missing"]),
    "no such module for a callable": (["no_such_module:main"], ["no_such_module"]),
    "not a callable": (["package.model:broken"], ["broken", "callable"]),
    "no such file for a callable": (["missing.py:main"], ["missing.py"]),
    "a callable that fails": (["fails.py:main"], ["ZeroDivisionError", "fails.py:2"]),
    "an import that fails": (["import_fails.py:main"], ["OSError", "no weights"]),
    "a module it needs is missing": (["needs.py"], ["no_such_dependency"]),
    "unknown isolation": (["--isolation", "magic", "plain.py"], ["--isolation"]),
    "no time": (["--trial-timeout", "0", "plain.py"], ["--trial-timeout"]),
    "no such interpreter": (["--python", "/no/such/python", "plain.py"], ["/no/such/python"]),
    "no place for runs": (["--runs", "/proc/runs", "plain.py"], ["/proc/runs"]),
}
FILES = {
    "syntax.py": "import torch\nx = (1,\n",
    "imports_syntax.py": "import syntax\n",
    "null.py": "x = 1\0\n",
    "plain.py": "import torch\n\ndef main():\n    return torch.ones(2) * 2\n\nmain()\n",
    "fails.py": "def main():\n    return 1 / 0\n",
    "import_fails.py": "raise OSError('no weights')\n",
    "needs.py": "import no_such_dependency\n",
}


@pytest.mark.parametrize("what", BAD_INPUT)
def test_bad_input_gets_one_line_and_status_2(diagnose: Callable[..., Any], work: Path, what: str) -> None:
    args, words = BAD_INPUT[what]
    for name, text in FILES.items():
        (work / name).write_text(text)
    (work / "folder").mkdir()
    done = diagnose(*args, env={"PYTHONPATH": f"{PROGRAMS}{os.pathsep}{PROGRAMS.parent.parent / 'src'}"})
    assert done.status == 2, (done.out, done.err)
    assert done.out == ""
    assert len(done.err.splitlines()) == 1, done.err
    for word in words:
        assert word in done.err


@pytest.mark.parametrize("target", ["plain.py:main", "package.model:plain"])
def test_a_callable_that_compiles_nothing_is_compiled_for_the_user(
    diagnose: Callable[..., Any], work: Path, target: str
) -> None:
    (work / "plain.py").write_text("import torch\n\ndef main():\n    return torch.ones(2) * 2\n")
    env = {"PYTHONPATH": f"{PROGRAMS}{os.pathsep}{PROGRAMS.parent.parent / 'src'}"}
    done = diagnose("--json", "-", target, env=env)
    assert done.status == 0, done.err
    assert [region["name"] for region in done.report["program"]["regions"]] == [target.partition(":")[2]]


def test_help_is_instant() -> None:
    """At most twice what the libraries of the command line take by themselves; torch alone takes ten times as long."""
    best = min(cpu_seconds("-m", "torchtriage.cli.main", "--help") for _ in range(5))
    libraries = min(cpu_seconds("-c", "import typer, typer.rich_utils, rich.traceback") for _ in range(5))
    assert best < 2 * libraries


def cpu_seconds(*command: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys; sys.argv = ['torchtriage', 'diagnose', '--help']\n"
        "from torchtriage.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "import json; print(json.dumps(sorted(m for m in ('torch', 'numpy', 'sqlite3') if m in sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []
