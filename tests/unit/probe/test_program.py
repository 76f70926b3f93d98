"""A target runs as it would run by itself."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchtriage.probe import intercept, start
from torchtriage.probe.program import BadTarget, Loaded, Target, load


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder; what loading a target changes is put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["probe"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


SHOW = """
import sys
seen = dict(name=__name__, file=__file__, package=__package__, argv=list(sys.argv), first=sys.path[0])
"""


def target(name: str, kind: str = "script", *args: str) -> Loaded:
    return load(Target(kind, name, args))


def seen(loaded: Loaded) -> dict[str, Any]:
    loaded.run()
    return sys.modules["__main__"].seen  # type: ignore[attr-defined,no-any-return]


# --- scripts --------------------------------------------------------------------------------------


def test_a_script_is_main_with_its_own_arguments_and_folder(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "train.py").write_text(SHOW)
    assert seen(target("sub/train.py", "script", "--steps", "3")) == {
        "name": "__main__", "file": "sub/train.py", "package": None, "argv": ["sub/train.py", "--steps", "3"],
        "first": str(folder / "sub"),
    }  # fmt: skip


def test_a_script_is_not_run_while_it_is_loaded(folder: Path) -> None:
    (folder / "train.py").write_text("raise SystemExit(3)")
    loaded = target("train.py")
    with pytest.raises(SystemExit):
        loaded.run()


def test_a_script_behind_a_link_finds_its_neighbours(folder: Path) -> None:
    (folder / "real").mkdir()
    (folder / "real" / "train.py").write_text("import neighbour\nseen = neighbour.value")
    (folder / "real" / "neighbour.py").write_text("value = 7")
    (folder / "link.py").symlink_to(folder / "real" / "train.py")
    assert seen(target("link.py")) == 7


def test_a_folder_with_a_main_is_run_as_a_script(folder: Path) -> None:
    (folder / "app").mkdir()
    (folder / "app" / "__main__.py").write_text(SHOW)
    found = seen(target("app"))
    assert (found["name"], found["argv"], found["first"]) == ("__main__", ["app"], str(folder / "app"))


def test_classes_of_a_script_belong_to_main(folder: Path) -> None:
    (folder / "train.py").write_text(
        "class Net: pass\nimport sys\nseen = getattr(sys.modules[Net.__module__], 'Net') is Net"
    )
    assert seen(target("train.py")) is True


def test_a_traceback_names_the_file_of_the_script(folder: Path) -> None:
    (folder / "train.py").write_text("x = 1\nx / 0\n")
    with pytest.raises(ZeroDivisionError) as caught:
        target("train.py").run()
    assert [(entry.path.name, entry.lineno) for entry in caught.traceback[-1:]] == [("train.py", 1)]


def test_a_script_does_not_inherit_our_future_imports(folder: Path) -> None:
    (folder / "train.py").write_text("def f(x: int): pass\nseen = f.__annotations__['x']")
    assert seen(target("train.py")) is int


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"x = 1\ndef f(:\n", "syntax error in train.py:2:7: invalid syntax"),
        (b"  x = 1\n", "syntax error in train.py:1:2: unexpected indent"),
        (b"x = '\xff'\n", "syntax error in train.py:"),
        (b"x = 1\0\n", "cannot read train.py: "),
    ],
)
def test_a_script_that_does_not_compile_names_the_place(folder: Path, source: bytes, message: str) -> None:
    (folder / "train.py").write_bytes(source)
    with pytest.raises(BadTarget) as caught:
        target("train.py")
    text = str(caught.value)
    assert "train.py" in text if b"\0" in source else text.startswith(message)
    assert "\n" not in text


@pytest.mark.parametrize("name", ["nope.py", "empty"])
def test_a_script_that_is_not_there_is_named(folder: Path, name: str) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(BadTarget, match=f"^no such file: {name}$"):
        target(name)


# --- modules --------------------------------------------------------------------------------------


def package(folder: Path) -> None:
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").write_text("")
    for name in ("__main__", "part"):
        (folder / "pkg" / f"{name}.py").write_text(SHOW)


@pytest.mark.parametrize(("name", "file"), [("pkg", "pkg/__main__.py"), ("pkg.part", "pkg/part.py")])
def test_a_module_is_main_with_its_package(folder: Path, name: str, file: str) -> None:
    package(folder)
    assert seen(target(name, "module", "-x")) == {
        "name": "__main__", "file": str(folder / file), "package": "pkg", "argv": [str(folder / file), "-x"],
        "first": str(folder),
    }  # fmt: skip


def test_a_module_may_import_its_neighbours(folder: Path) -> None:
    package(folder)
    (folder / "pkg" / "part.py").write_text("from . import other\nseen = other.value")
    (folder / "pkg" / "other.py").write_text("value = 7")
    assert seen(target("pkg.part", "module")) == 7


@pytest.mark.parametrize("name", ["nope", "pkg.nope", "nope.part", "math"])
def test_a_module_that_cannot_be_run_is_named(folder: Path, name: str) -> None:
    package(folder)
    with pytest.raises(BadTarget, match=f"^no module named {name}"):
        target(name, "module")


# --- callables ------------------------------------------------------------------------------------

NET = "import sys\nclass Net:\n    @staticmethod\n    def step(): return (__name__, list(sys.argv))\nnumber = 3\n"


@pytest.mark.parametrize("name", ["net:Net.step", "net.py:Net.step"])
def test_a_callable_is_found_in_its_module_or_file(folder: Path, name: str) -> None:
    (folder / "net.py").write_text(NET)
    assert target(name, "callable", "--big").run() == ("net", [name, "--big"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("net:nope", "net has no 'nope'"),
        ("net:Net.nope", "net has no 'Net.nope'"),
        ("net:number", "net:number is a int, not a callable"),
        ("nope:f", "no module named nope"),
        ("nope.py:f", "no such file: nope.py"),
    ],
)
def test_a_callable_that_is_not_there_is_named(folder: Path, name: str, message: str) -> None:
    (folder / "net.py").write_text(NET)
    with pytest.raises(BadTarget) as caught:
        target(name, "callable")
    assert str(caught.value) == message


def test_a_file_that_does_not_compile_names_the_place_for_a_callable_too(folder: Path) -> None:
    (folder / "net.py").write_text("def f(:\n")
    with pytest.raises(BadTarget, match=r"^syntax error in net\.py:1:7: "):
        target("net.py:f", "callable")


def test_a_module_that_lacks_something_else_says_what_it_lacks(folder: Path) -> None:
    (folder / "net.py").write_text("import not_installed")
    with pytest.raises(ModuleNotFoundError, match="not_installed"):
        target("net:f", "callable")


def test_a_module_that_lacks_one_with_the_beginning_of_its_name_says_so_too(folder: Path) -> None:
    (folder / "foobar.py").write_text("import foo")
    with pytest.raises(ModuleNotFoundError, match="'foo'"):
        target("foobar:f", "callable")


def test_a_file_that_is_called_like_a_module_in_use_is_the_file(folder: Path) -> None:
    (folder / "queue.py").write_text("def main(): return 7")
    assert isinstance(sys.modules["queue"], types.ModuleType)
    assert target("queue.py:main", "callable").run() == 7


def test_a_module_that_fails_while_it_is_imported_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "net.py").write_text("1 / 0")
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(start, "Stage", lambda control, plan: types.SimpleNamespace(send=said.append))
    monkeypatch.setattr(start, "rest", lambda stage: None)
    monkeypatch.setattr(intercept, "_dispatcher", intercept.Passive())
    start.run({"target": {"kind": "callable", "name": "net:f"}}, None)
    (event,) = said
    assert event["event"] == "bad-target"
    assert "ZeroDivisionError: division by zero" in event["text"]
    assert len(event["text"]) < 200


def test_a_target_survives_json() -> None:
    one = Target("module", "pkg.part", ("-x", "1"))
    assert Target.from_json(one.to_json()) == one
    assert one.text() == "-m pkg.part -x 1"
