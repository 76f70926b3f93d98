"""What the runner finds out of an environment: which module a distribution is there for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torchtriage.bisect.inside import dump, watch


def install(folder: Path, name: str, files: list[str]) -> None:
    """A distribution in `folder`, as installers leave it."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    for path in files:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in [*files, f"{info.name}/RECORD"]))


@pytest.mark.parametrize(
    ("name", "files", "module"),
    [
        ("tt-plain", ["tt_plain/__init__.py", "tt_other/__init__.py", "tt_other/a.py"], "tt_plain"),
        ("TT.Case", ["TT_Case/__init__.py", "tt_other/__init__.py", "tt_other/a.py"], "TT_Case"),
        ("tt-yaml", ["_ttyaml/__init__.py", "_ttyaml/a.py", "_ttyaml/b.py", "ttyaml/__init__.py"], "ttyaml"),
        ("tt-cloud", ["ttgoogle/cloud/__init__.py", "ttgoogle/cloud/v1/__init__.py"], "ttgoogle.cloud"),
        ("tt-single", ["ttsix.py", "__pycache__/ttsix.cpython-311.pyc", "../../bin/ttsix.py"], "ttsix"),
        ("tt-binary", ["ttbin.cpython-311-x86_64-linux-gnu.so"], "ttbin"),
        ("tt-nothing", ["tt.pth"], ""),
    ],
)
def test_the_module_of_a_distribution_need_not_have_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, files: list[str], module: str
) -> None:
    install(tmp_path, name, files)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert dump.module_of(name) == module
    assert dump.packages()[dump.canonical(name)] == "1.0"


def test_a_distribution_that_is_not_there_has_no_module() -> None:
    assert dump.module_of("no.such-thing") == ""


def test_where_nothing_was_compiled_there_is_no_time_to_hold_against(monkeypatch: pytest.MonkeyPatch) -> None:
    """A baseline of 0 s would call every version worse that compiles at all."""
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    assert watch.counts(None) == {"graph_breaks": None, "recompiles": None, "compile_seconds": None}
    assert watch.counts(object()) == {"graph_breaks": 0, "recompiles": 0, "compile_seconds": None}
