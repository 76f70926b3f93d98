"""Versions from indexes of both forms, folders and lists, and what is left out of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.tags import Tag

from torchtriage.bisect.errors import BadInput
from torchtriage.bisect.provide import is_prerelease
from torchtriage.bisect.versions import (
    Interpreter,
    between,
    choose,
    listed,
    parse_html,
    parse_json,
    position,
    read_folder,
    same_version,
)

PAGE = "https://example.org/simple/torch/"
PYTHON = Interpreter("3.11.7", (Tag("cp311", "cp311", "manylinux_2_28_x86_64"), Tag("py3", "none", "any")))


def name(version: str, tags: str = "cp311-cp311-manylinux_2_28_x86_64") -> str:
    return f"torch-{version}-{tags}.whl"


HTML = f"""<!DOCTYPE html><html><body>
<a href="../../files/{name("2.9.0")}#sha256=ab" data-requires-python="&gt;=3.10">x</a>
<a href="/files/{name("2.9.1")}" data-yanked="broken">x</a>
<a href="/files/{name("2.10.0.dev20260110%2Bcu128")}" data-core-metadata="sha256=ab">x</a>
<a href="/files/{name("2.8.0", "cp312-cp312-manylinux_2_28_x86_64")}">x</a>
<a href="/files/torch-2.7.0.tar.gz">x</a> <a name="no link">x</a>
</body></html>"""


def test_html_gives_addresses_yanked_and_dates_of_nightlies() -> None:
    found = {str(w.version): w for w in parse_html(HTML, PAGE)}
    assert found["2.9.0"].url == f"https://example.org/files/{name('2.9.0')}"
    assert found["2.9.0"].requires_python == ">=3.10"
    assert found["2.9.1"].yanked == "broken"
    nightly = found["2.10.0.dev20260110+cu128"]
    assert (nightly.date, nightly.metadata) == ("2026-01-10", True)
    assert "2.7.0" not in found


def test_json_gives_sizes_and_dates_too() -> None:
    files = [
        {
            "filename": name("2.9.0"),
            "url": f"/f/{name('2.9.0')}",
            "size": 7,
            "upload-time": "2025-10-15T01:00:00Z",
        },
        {"filename": name("2.9.1"), "url": "x", "yanked": True, "requires-python": None},
    ]
    found = parse_json(json.dumps({"files": files}), PAGE)
    assert (found[0].url, found[0].size, found[0].date) == (
        f"https://example.org/f/{name('2.9.0')}",
        7,
        "2025-10-15",
    )
    assert found[1].yanked == "no reason given"


def test_what_does_not_fit_is_left_out_with_its_reason() -> None:
    listing = choose(parse_html(HTML, PAGE), PYTHON)
    assert [c.version for c in listing.candidates] == ["2.9.0"]
    assert listing.left_out == {
        "yanked": ("2.9.1",),
        "pre-release, which --pre takes": ("2.10.0.dev20260110+cu128",),
        "no wheel for Python 3.11.7 on this platform": ("2.8.0",),
    }


def test_nightlies_are_candidates_where_they_are_asked_for() -> None:
    found = choose(parse_html(HTML, PAGE), PYTHON, nightlies=True)
    assert [c.date for c in found.candidates] == ["", "2026-01-10"]


def test_requires_python_is_kept_to() -> None:
    page = f'<a href="/f/{name("2.9.0")}" data-requires-python="&gt;=3.12">x</a>'
    assert choose(parse_html(page, PAGE), PYTHON).left_out == {"not for Python 3.11.7": ("2.9.0",)}


def test_of_several_files_the_best_fit_and_the_newest_build_is_taken() -> None:
    names = [name("2.9.0", "py3-none-any"), name("2.9.0"), name("2.9.0-2"), name("2.9.0-10")]
    page = "".join(f'<a href="/f/{n}">x</a>' for n in names)
    (only,) = choose(parse_html(page, PAGE), PYTHON).candidates
    assert only.url.endswith(name("2.9.0-10"))


def test_versions_are_in_their_own_order_and_local_parts_are_no_other_version() -> None:
    page = "".join(f'<a href="/f/{name(v)}">x</a>' for v in ("2.10.0", "2.9.0", "2.9.0%2Bcpu"))
    assert [c.version for c in choose(parse_html(page, PAGE), PYTHON).candidates] == ["2.9.0+cpu", "2.10.0"]


def test_a_folder_has_only_its_wheels_of_that_package(tmp_path: Path) -> None:
    for file in ("torch-2.9.0-py3-none-any.whl", "torchvision-0.24.0-py3-none-any.whl", "torch-2.8.0.tar.gz"):
        (tmp_path / file).write_bytes(b"1234")
    (only,) = read_folder(tmp_path, "torch")
    assert (str(only.version), only.size, only.url) == ("2.9.0", 4, (tmp_path / only.filename).as_uri())


def test_a_list_keeps_its_order() -> None:
    assert [c.version for c in listed("2.9.0, 2.10.0\n2.11.0 # newest\n").candidates] == [
        "2.9.0",
        "2.10.0",
        "2.11.0",
    ]


@pytest.mark.parametrize(("text", "said"), [("2.9 2.9", "twice"), ("2.9 new", "'new' is not a version")])
def test_a_list_that_makes_no_sense_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        listed(text)


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ("2.9.0", 0),
        ("2.9.0+cpu", 0),
        ("2026-01-10", 1),
        ("20260110", 1),
        ("2.10.0.dev20260110", 1),
        ("2.9", 0),
        ("v2.9.0", 0),
        ("2.9.0+cu128", None),
        ("2.11.0", None),
    ],
)
def test_how_a_version_can_be_named(wanted: str, place: int | None) -> None:
    assert position(["2.9.0+cpu", "2.10.0.dev20260110+cu128"], wanted) == place


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ("2.9.0", "2.9.0", "both ends are 2.9.0"),
        ("2.11.0", "2.9.0", "2.11.0 is newer than 2.9.0"),
        ("2.5.0", "2.9.0", "2.5.0 is out of reach: there are 3 versions here, from 2.9.0 to 2.11.0"),
    ],
)
def test_ends_that_cannot_be_are_refused(first: str, last: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        between(listed("2.9.0 2.10.0 2.11.0"), first, last)


@pytest.mark.parametrize(
    ("has", "wanted", "same"),
    [
        ("2.9.0", "2.9", True),
        ("2.9.0+cpu", "2.9.0", True),
        ("2.9.0+cpu", "2.9.0+cu128", False),
        ("2.9.0rc1", "2.9.0-rc.1", True),
        ("2.9.0rc1", "2.9.0", False),
        ("2.9.0.post1", "2.9.0", False),
        ("c0ffee", "c0ffee", True),
    ],
)
def test_two_spellings_are_one_version(has: str, wanted: str, same: bool) -> None:
    assert same_version(has, wanted) == same_version(wanted, has) == same


@pytest.mark.parametrize("word", ["2026-01-10", "20260110", "2.10.0.dev20260110", "2.10.0rc1"])
def test_who_names_a_nightly_or_its_date_wants_pre_releases(word: str) -> None:
    assert is_prerelease(word) and not is_prerelease("2.10.0") and not is_prerelease("main")


def test_an_end_that_was_left_out_is_told_with_its_reason() -> None:
    with pytest.raises(BadInput, match=r"2\.9\.1 is out of reach: yanked\. There are 1 others"):
        between(choose(parse_html(HTML, PAGE), PYTHON), "2.9.0", "2.9.1")
