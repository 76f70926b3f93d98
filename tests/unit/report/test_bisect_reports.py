"""A bisection in the terminal, as Markdown, as a picture and as JSON."""

from __future__ import annotations

import dataclasses
import io
import json
import xml.etree.ElementTree as ElementTree

import pytest
from rich.console import Console

from torchtriage.model.bisection import Bisection, Change, End, Verdict, bisection_from_json
from torchtriage.report import bisect_markdown, bisect_svg, bisect_terminal
from torchtriage.report.bisect_files import as_json

FOUND = Bisection(
    package="torch",
    target="train.py --steps 3",
    ending="found",
    said="torch: good up to 2.9.1, bad from 2.10.0",
    good=End(
        "2.9.1", "a" * 40, "", "3.11.7", "Linux", {"torch": "2.9.1", "triton": "3.5"}, ("python3 -m venv a",)
    ),
    bad=End("2.10.0", "b" * 40, "", "3.11.7", "Linux", {"torch": "2.10.0"}, ("python3 -m venv b",)),
    signature="RuntimeError: boom | <b>",
    rate=0.3,
    confidence=0.97,
    verdicts=(
        Verdict("2.9.1", "good", 14, 0, "ends well", 3.0, "2025-11-12"),
        Verdict("2.9.2", "skip", reason="pip: no `such` | wheel"),
        Verdict("2.10.0", "bad", 5, 2, "RuntimeError: boom"),
    ),
    changes=(
        Change(
            "default", "torch._dynamo.config.x", "True", "False", "good", ("torch._dynamo.config.x = True",)
        ),
        Change("default", "torch._dynamo.config.y", "1", "2", "bad"),
        Change("dependency", "triton", "3.5", "3.6"),
    ),
    remarks=("not tried, yanked: 2.9.3",),
    versions=9,
    runs=19,
    installs=3,
    seconds=70.0,
    commits="a" * 40 + ".." + "b" * 40,
    command="torchtriage bisect train.py",
    run_folder="runs/x",
    tool="0.1",
)


def shown(found: Bisection) -> str:
    out = io.StringIO()
    bisect_terminal.render(found, Console(file=out, width=200))
    return out.getvalue()


def test_the_terminal_has_the_answer_first_and_what_helps() -> None:
    text = shown(FOUND)
    assert text.splitlines()[0].split(maxsplit=1) == ["answer", FOUND.said]
    assert "torch._dynamo.config.x = True (there False): tried on 2.10.0, good" in text
    assert "2 of 5 runs failed" in text
    assert "3 of 9 versions, 3 installations, 19 runs, 70 s" in text


def test_the_paragraph_rests_on_what_was_run() -> None:
    text = bisect_markdown.paragraph(FOUND)
    assert text.startswith("**torch: good up to 2.9.1, bad from 2.10.0.**")
    assert "2.9.1 (good): failed in 0 of 14 runs." in text
    assert "It fails in 30% of the runs at bad versions; confidence 97.0%." in text
    assert f"compare/{'a' * 40}...{'b' * 40}" in text


def test_what_was_not_tried_is_not_called_tried() -> None:
    text = bisect_markdown.render(dataclasses.replace(FOUND, changes=(Change("default", "x", "1", "2"),)))
    assert "| not tried |" in text and "was run" not in text


def test_markdown_is_not_broken_by_what_a_program_says() -> None:
    text = bisect_markdown.render(FOUND)
    row = next(line for line in text.splitlines() if line.startswith("| 2.9.2"))
    assert row.count("|") - row.count("\\|") == 6
    assert "no \\`such\\` \\| wheel" in row


def test_the_picture_is_one_well_formed_file_with_a_mark_for_each_version() -> None:
    root = ElementTree.fromstring(bisect_svg.render(FOUND))
    marks = [e for e in root.iter() if e.tag.endswith("circle")]
    assert len(marks) == 3
    assert [m.get("fill") for m in marks] == ["#1a7f37", "#fff", "#cf222e"]


def test_control_characters_and_markup_do_no_harm() -> None:
    nasty = dataclasses.replace(FOUND, said="a\x1b[31m & <script>\x00", verdicts=())
    assert "\x1b" not in bisect_markdown.render(nasty) and "\x1b" not in shown(nasty)
    assert "<script>" not in bisect_svg.render(nasty)
    ElementTree.fromstring(bisect_svg.render(nasty))


def test_json_comes_back_as_it_was() -> None:
    assert bisection_from_json(json.loads(as_json(FOUND))) == FOUND


@pytest.mark.parametrize(("ending", "status"), [("found", 0), ("range", 3), ("end-fails", 2), ("stopped", 3)])
def test_the_exit_status_says_how_it_ended(ending: str, status: int) -> None:
    assert dataclasses.replace(FOUND, ending=ending).exit_status == status  # type: ignore[arg-type]


def test_an_end_that_fails_needs_no_ends_to_be_shown() -> None:
    found = Bisection("torch", "p.py", "end-fails", "the good end 2.9 shows it as well")
    assert "shows it as well" in shown(found)
    assert "shows it as well" in bisect_markdown.render(found)
    ElementTree.fromstring(bisect_svg.render(found))
