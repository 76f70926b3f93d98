"""The Markdown issue, read back by a Markdown parser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from torchtriage.report import markdown

from . import samples

OURS = (
    "### 🐛 Describe the bug", "### To reproduce", "### Ablation", "### Layer and culprit", "### Error logs",
    "### Workarounds that were run", "### Graph breaks", "### Recompilations", "### Versions",
)  # fmt: skip


def tokens(text: str) -> Iterator[Token]:
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        yield token
        yield from token.children or ()


def test_a_bug_report_has_what_a_maintainer_asks_for() -> None:
    text = markdown.render(samples.wrong_value())
    for part in (
        "### 🐛 Describe the bug",
        "**Bug in inductor: wrong values.**",
        "output 0 differs from eager by 3.1e-1 at [0, 7]",
        "- eager repeats itself exactly; `float64` says eager is right",
        "```sh\ntorchtriage diagnose train.py --steps 3\n```",
        "| backend | dynamic=None | dynamic=True | dynamic=False |",
        "| `inductor` | `differs:value` | `differs:value` | `differs:value` |",
        "First setting of the matrix that differs: `torch.compile(..., backend='inductor', dynamic=None)`.",
        "- First failing layer: `inductor`",
        "- Operator: `aten.ldexp`",
        "- Source: `model.py:88`",
        "ran, `same`, step time x1.02.",
        "```python\nBlock.rescale = torch.compiler.disable(Block.rescale)\n```",
        "torch: 2.13.0+cpu (git abc1234)",
        "torch._inductor.config.freezing = True",
        "OMP_NUM_THREADS = 2",
    ):
        assert part in text


def test_a_traceback_is_folded_and_trimmed() -> None:
    text = markdown.render(samples.exception())
    folded = text[text.index("<summary>Traceback</summary>") :]
    assert "lines left out" in folded
    assert "frame_59" in folded and "frame_0" in folded and "frame_20" not in folded
    assert "AttributeError: 'NoneType' object has no attribute 'size'" in text


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ("noise", "Not a bug: the difference is within rounding noise."),
        ("by_design", "Source: pytorch/pytorch#113169"),
        ("user_error", "Eager and the compiled program raise `IndexError` at `e.py:4`:"),
        ("nothing", "Compared with eager: 2 compiled regions"),
        ("fails_in_eager", "Eager raises `ValueError`:"),
        ("inconclusive", "No verdict: the stage could not be started"),
        ("recompiles", "8 × `step` at `loop.py:8`:"),
    ],
)
def test_each_kind_says_what_it_is(sample: str, words: str) -> None:
    assert words in markdown.render(samples.SAMPLES[sample]())


@pytest.mark.parametrize("sample", samples.SAMPLES)
def test_it_fits_an_issue_and_every_fold_is_closed(sample: str) -> None:
    text = markdown.render(samples.SAMPLES[sample]())
    assert len(text) < 65_536
    found = [token.content for token in tokens(text) if token.type == "html_block"]
    assert sum(c.count("<details>") for c in found) == sum(c.count("</details>") for c in found)


def test_hostile_strings_add_no_structure() -> None:
    text = markdown.render(samples.hostile())
    for token in tokens(text):
        assert token.type not in (
            "link_open",
            "image",
            "strong_em",
            "s_open",
            "heading_open" if token.tag != "h3" else "",
        )
        if token.type in ("html_block", "html_inline"):
            bare = re.sub(r"<summary>[\w() -]+</summary>|</?details>|<!-- -->", "", token.content)
            assert not bare.strip(), token.content
    headings = [line for line in text.splitlines() if line.startswith("###")]
    assert all(line.startswith(OURS) for line in headings)
    assert "\x1b" not in text and "\u202e" not in text
    text.encode()


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    rows: list[int] = []
    cells = 0
    for token in tokens(markdown.render(samples.hostile())):
        if token.type == "tr_open":
            cells = 0
        cells += token.type in ("th_open", "td_open")
        if token.type == "tr_close":
            rows.append(cells)
        if token.type == "table_close":
            assert len(set(rows)) == 1 and len(rows) > 1
            rows = []


@pytest.mark.parametrize(
    "text",
    ["a", "`", "``", "a ``` b", "`a`", "a\\", "|", "a|b", "``` ```` `", "<b>", "&amp;", "  x  ", "*", "\\`"],
)
def test_a_code_span_shows_the_text_as_it_is(text: str) -> None:
    [span] = [token for token in tokens(f"x {markdown.code(text)} y") if token.type == "code_inline"]
    assert span.content.strip() == text.strip()
    table = markdown.table(("h",), [(markdown.code(text),)])
    [span] = [token for token in tokens(table) if token.type == "code_inline"]
    assert span.content.strip() == text.strip()


@pytest.mark.parametrize("text", ["x", "```", "~~~", "a\n````\nb", "</details>"])
def test_a_fence_is_closed_only_by_itself(text: str) -> None:
    [block] = [token for token in tokens(markdown.fence(text) + "\n\nafter") if token.type == "fence"]
    assert block.content == text + "\n"


@pytest.mark.parametrize(
    "text",
    ["# a", "- a", "1. a", "1) a", "> a", "+ a", "= a", "*a*", "_a_", "[a](b)", "![a](b)", "<b>", "~~~", "a_b_c", "\\*", "&lt;"],
)  # fmt: skip
def test_prose_reads_as_it_was_written(text: str) -> None:
    kinds = [token for token in tokens(markdown.prose(text))]
    assert kinds[0].type == "paragraph_open"
    parts = [token.content for token in kinds if token.type in ("text", "text_special")]
    assert "".join(parts) == text


def test_nobody_is_mentioned() -> None:
    assert markdown.prose("ask @someone, not a@b") == "ask @<!-- -->someone, not a@b"
