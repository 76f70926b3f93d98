"""Environments: what a failure of an installer means, and what counts as whole."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from torchtriage.bisect import environments
from torchtriage.bisect.environments import MARK, Store, Wanted, taken
from torchtriage.bisect.errors import CannotInstall, Stopped, Unreachable
from torchtriage.bisect.installers import Failure, Installer, meaning, reason
from torchtriage.bisect.sources import Sources, read_configuration, sources

WANTED = Wanted(("torch==1.0",), python=sys.executable)


class Scripted(Installer):
    """An installer of shell lines; `{folder}` is the environment."""

    def __init__(self, name: str, line: str):
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "program", line)

    def create(self, python: str, folder: Path) -> list[str]:
        return ["sh", "-c", f"mkdir -p {folder}/bin && touch {folder}/bin/python"]

    def install(self, python, folder, wanted, files, where):  # type: ignore[no-untyped-def]
        return ["sh", "-c", self.program.format(folder=folder)]


FINE = Scripted("fine", "echo x > {folder}/package")


def open_store(tmp_path: Path, *choice: Installer, limit: int = 0) -> Store:
    return Store(tmp_path / "store", Sources(), choice or (FINE,), limit)


def test_an_environment_is_made_once_and_used_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert store.get(WANTED).made
    again = open_store(tmp_path, Scripted("never", "exit 1")).get(WANTED)
    assert not again.made and (again.folder / "package").exists()


def test_half_an_environment_does_not_count_and_is_begun_anew(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    folder = store.get(WANTED).folder
    (folder / MARK).rename(folder / (MARK + ".part"))
    (folder / "left-over").touch()
    assert not store.has(WANTED)
    assert store.get(WANTED).made
    assert not (folder / "left-over").exists()


def test_a_mark_that_was_cut_off_is_no_mark(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    mark = store.get(WANTED).folder / MARK
    whole = mark.read_text()
    for text in (whole[:20], "{}", "[]", '{"bytes": null, "installer": "uv"}'):
        mark.write_text(text)
        assert not store.has(WANTED)
        assert store.all() == []


@pytest.mark.parametrize(
    ("said", "error", "shown"),
    [
        (
            "ERROR: No matching distribution found for torch==1.0",
            CannotInstall,
            "No matching distribution found",
        ),
        ("ERROR: [Errno 28] No space left on device", Stopped, "the disk is full"),
        ("error sending request for url (x): dns error", Unreachable, "dns error"),
    ],
)
def test_what_an_installer_says_decides_what_it_means(
    tmp_path: Path, said: str, error: type[Exception], shown: str
) -> None:
    store = open_store(tmp_path, Scripted("bad", f"echo '{said}' >&2; exit 1"))
    with pytest.raises(error, match=shown) as raised:
        store.get(WANTED)
    assert type(raised.value) is error
    assert list((tmp_path / "store").glob("*/")) == []


def test_what_looks_like_a_missing_version_is_an_index_that_does_not_answer(tmp_path: Path) -> None:
    def gone() -> None:
        raise Unreachable("the index cannot be reached")

    missing = Scripted("pip", "echo 'ERROR: No matching distribution found' >&2; exit 1")
    with pytest.raises(Unreachable, match="the index cannot be reached"):
        Store(tmp_path / "store", Sources(), (missing,), reach=gone).get(WANTED)


def test_pip_goes_on_where_uv_cannot_reach_the_index_and_from_then_on(tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    store = open_store(
        tmp_path, Scripted("uv", f"echo x >> {tried}; echo 'connection refused' >&2; exit 1"), FINE
    )
    assert store.get(WANTED).installer == "fine"
    assert store.get(Wanted(("torch==2.0",), python=sys.executable)).installer == "fine"
    assert tried.read_text() == "x\n"


def test_a_version_that_uv_refuses_is_not_tried_with_pip(tmp_path: Path) -> None:
    store = open_store(tmp_path, Scripted("uv", "echo 'no solution' >&2; exit 1"), FINE)
    with pytest.raises(CannotInstall):
        store.get(WANTED)


def test_a_full_disk_is_told_before_anything_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    store = open_store(tmp_path)
    monkeypatch.setattr(environments.shutil, "disk_usage", lambda path: usage(10, 10, 1 << 20))
    with pytest.raises(Stopped, match=r"the disk is too full: 0\.0 GB are free"):
        store.get(WANTED)


def test_the_limit_removes_the_longest_unused_but_not_what_this_run_needs(tmp_path: Path) -> None:
    names = [Wanted((f"torch=={n}.0",), python=sys.executable) for n in range(3)]
    first = open_store(tmp_path)
    for age, wanted in enumerate(names[:2]):
        os.utime(first.get(wanted).folder / MARK, (age, age))
    first.close()
    said: list[str] = []
    store = Store(tmp_path / "store", Sources(), (FINE,), 1, said.append)
    store.get(names[1])
    store.get(names[2])
    assert [store.has(wanted) for wanted in names] == [False, True, True]
    assert sum("take more than --store-limit" in line for line in said) == 1


def test_clean_up_takes_halves_and_everything_above_the_limit(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.get(WANTED)
    store.close()
    (tmp_path / "store" / ("0" * 16) / "bin").mkdir(parents=True)
    assert store.clean(1 << 40)[0] == 1
    assert store.has(WANTED)
    assert store.clean(0)[0] == 1
    assert not store.has(WANTED)


def test_what_else_lies_in_the_folder_of_the_store_is_left_alone(tmp_path: Path) -> None:
    """--store may name a folder that a person uses for other things."""
    for name in ("photos", "src", "0123456789abcdef0", ".git"):
        (tmp_path / "store" / name).mkdir(parents=True)
        (tmp_path / "store" / name / "precious").write_text("x")
    store = open_store(tmp_path, limit=1)
    store.get(WANTED)
    store.close()
    assert store.clean(0)[0] == 1
    assert len(list((tmp_path / "store").glob("*/precious"))) == 4


def test_an_environment_in_use_is_not_removed_by_others_until_the_run_has_ended(tmp_path: Path) -> None:
    one, two = open_store(tmp_path), open_store(tmp_path)
    one.get(WANTED)
    assert not two.get(WANTED).made
    one.close()
    assert open_store(tmp_path).clean(0) == (0, 0)
    two.close()
    assert open_store(tmp_path).clean(0)[0] == 1


def test_a_store_that_nobody_used_is_empty_and_is_not_made_by_looking(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert (store.all(), store.clean(0)) == ([], (0, 0))
    assert not store.folder.exists()


def test_other_requirements_are_another_environment(tmp_path: Path) -> None:
    file = tmp_path / "r.txt"
    file.write_text("numpy\n")
    a = Wanted(("torch==1.0",), (str(file),), sys.executable)
    before = a.key(Sources())
    file.write_text("numpy<2\n")
    assert len({before, a.key(Sources()), WANTED.key(Sources()), WANTED.key(Sources(index="x"))}) == 4


def test_a_wheel_that_was_built_anew_is_another_environment(tmp_path: Path) -> None:
    file = tmp_path / "torch-1.0-py3-none-any.whl"
    file.write_text("one")
    wanted = Wanted((f"torch @ {file.as_uri()}",), python=sys.executable)
    before = wanted.key(Sources())
    file.write_text("another")
    assert wanted.key(Sources()) != before


def test_an_installer_that_outlives_its_run_is_waited_for(tmp_path: Path) -> None:
    """The run is killed, its installer is not: it still holds the lock, so nobody else begins the environment."""
    lock = tmp_path / "lock"
    with open(lock, "w") as file:
        assert taken(file, fcntl.LOCK_EX)
        outlives = subprocess.Popen(["sleep", "60"], pass_fds=(file.fileno(),))
    try:
        with open(lock, "w") as file:
            assert not taken(file, fcntl.LOCK_SH)
    finally:
        outlives.kill()
        outlives.wait()
    with open(lock, "w") as file:
        assert taken(file, fcntl.LOCK_SH)


def test_the_reason_is_the_line_that_tells_most() -> None:
    said = "WARNING: old\nLooking in indexes\nERROR: Could not find a version\nERROR: No matching distribution found for x==1"
    assert reason(said) == "No matching distribution found for x==1"
    assert reason("  × No solution found\n  ╰─▶ Because x==1 has no wheels we can conclude") == (
        "Because x==1 has no wheels we can conclude"
    )
    assert meaning("a plain failure to build") == "version"


#: uv's messages: a line that says little, then what caused it.
CAUSES = "Using Python 3.11.7 environment at: /e\nerror: {}\n  cause: {}\n  cause: {}\n"


@pytest.mark.parametrize(
    ("said", "failure", "shown"),
    [
        (
            CAUSES.format(
                "No solution found when resolving dependencies",
                "Because x was not found, it fails",
                "And because",
            ),
            "version",
            "Because x was not found, it fails",
        ),
        (
            CAUSES.format(
                "Failed to read `x @ file:///x.whl`", "Failed to read from zip file", "no central directory"
            ),
            "version",
            "Failed to read `x @ file:///x.whl` (no central directory)",
        ),
        (
            CAUSES.format(
                "Request failed after 3 retries", "error sending request for url (u)", "Connection refused"
            ),
            "network",
            "error sending request for url (u)",
        ),
        (
            "WARNING: Retrying after connection broken by 'NewConnectionError': /simple/x/\nERROR: No matching distribution found for x",
            "network",
            "Retrying after connection broken by 'NewConnectionError': /simple/x/",
        ),
    ],
)
def test_the_reason_is_that_of_the_failure(said: str, failure: Failure, shown: str) -> None:
    assert (meaning(said), reason(said, failure)) == (failure, shown)


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
def test_the_mark_says_what_is_inside(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    mark = json.loads((store.get(WANTED).folder / MARK).read_text())
    assert mark["wanted"]["requirements"] == ["torch==1.0"]
    assert [holds for _, holds, _ in store.all()] == [["torch==1.0"]]


# --- where packages come from ---------------------------------------------------------------------


def test_pip_s_own_configuration_is_used() -> None:
    text = "global.index-url='https://a.example/simple'\n:env:.index-url='https://b.example/simple'\nglobal.timeout='60'\nglobal.find-links='/a /b'\n"
    found = sources(read_configuration(text))
    assert (found.index, found.links, found.given) == ("https://b.example/simple", ("/a", "/b"), False)


def test_an_index_that_is_named_stands_alone() -> None:
    found = sources({"find-links": "/a", "extra-index-url": "x"}, index="https://c.example/simple")
    assert (found.index, found.links, found.extra) == ("https://c.example/simple", (), ())


def test_a_folder_of_wheels_is_an_address_whatever_its_name(tmp_path: Path) -> None:
    """uv takes a space in a path for its end."""
    folder = tmp_path / "my wheels #1"
    folder.mkdir()
    where = sources({}, links=(str(folder), "https://d.example/links"))
    assert where.options()[2:] == ["--find-links", folder.as_uri(), "--find-links", "https://d.example/links"]


def test_a_flavour_names_pytorch_s_index_and_keeps_one_s_own_for_the_rest() -> None:
    found = sources({"index-url": "https://a.example/simple"}, cuda="cu128", nightly=True)
    assert found.index.endswith("/nightly/cu128")
    assert found.extra == ("https://a.example/simple",)
    assert found.nightlies
