"""What may not import torch does not, so that --help is instant and a report opens anywhere."""

from __future__ import annotations

import subprocess
import sys

import pytest

IMPORT_ALL = """
import importlib, pkgutil, sys
room = importlib.import_module(sys.argv[1])
names = [room.__name__]
names += [found.name for found in pkgutil.walk_packages(getattr(room, "__path__", []), room.__name__ + ".")]
for name in names:
    importlib.import_module(name)
print(len(names), sorted({n.partition(".")[0] for n in sys.modules} & {"torch", "numpy", "sympy"}))
"""
HELP = """
import sys
sys.argv = ["torchtriage", *sys.argv[1:]]
try:
    from torchtriage.cli.main import main
    main()
finally:
    print("heavy:", sorted(n for n in ("torch", "numpy", "jinja2", "sqlite3") if n in sys.modules))
"""


def python(code: str, *args: str) -> str:
    argv = [sys.executable, "-c", code, *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize("room", ["model", "report", "lab", "investigate", "cli", "api"])
def test_no_file_of_the_room_imports_torch(room: str) -> None:
    count, _, heavy = python(IMPORT_ALL, f"torchtriage.{room}").strip().partition(" ")
    assert heavy == "[]"
    assert int(count) > 1 or room == "api"


def test_the_package_itself_imports_nothing_heavy() -> None:
    assert python(IMPORT_ALL.replace("names += ", "_ = "), "torchtriage").strip() == "1 []"


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["diagnose", "--help"]])
def test_help_imports_neither_torch_nor_what_a_run_needs(args: list[str]) -> None:
    assert python(HELP, *args).splitlines()[-1] == "heavy: []"
