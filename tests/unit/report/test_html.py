"""The HTML page: self-contained, escaped, and saying what the diagnosis says."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from html.parser import HTMLParser

import pytest

from torchtriage.report import html, view

from . import samples

VOID = {"meta", "br", "wbr", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Elements, attributes and text of a page; asserts that tags are balanced."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.text += data

    def attributes(self, name: str) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.elements if name in attrs]


@pytest.mark.parametrize("sample", samples.SAMPLES)
def test_the_page_is_well_formed_and_its_anchors_lead_somewhere(sample: str) -> None:
    page = Page(html.render(samples.SAMPLES[sample]()))
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    for target in page.attributes("href"):
        if target.startswith("#"):
            assert target[1:] in ids
    for labelled in page.attributes("aria-labelledby"):
        assert labelled in ids


@pytest.mark.parametrize("sample", samples.SAMPLES)
def test_the_page_asks_the_network_for_nothing(sample: str) -> None:
    text = html.render(samples.SAMPLES[sample]())
    page = Page(text)
    assert page.attributes("src") == []
    assert {tag for tag, _ in page.elements}.isdisjoint({"link", "img", "iframe", "object", "base", "form"})
    for tag, attrs in page.elements:
        href = attrs.get("href") or "#"
        assert href.startswith("#") or (tag == "a" and (href.startswith("https://") or href == "trace.html"))
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style and "@import" not in style


def test_only_its_own_script_may_run() -> None:
    text = html.render(samples.hostile())
    page = Page(text)
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    script = re.search(r"<script>(.*?)</script>", text, re.S)
    policy = next(a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert script and policy
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy and "default-src 'none'" in policy


def test_hostile_strings_are_shown_as_they_are() -> None:
    text = html.render(samples.hostile())
    shown = Page(text).text
    assert "</script><script>alert(1)</script><img src=x onerror=alert(2)>" in shown
    assert "{{ 7*7 }} {% raw %}" in shown and "日本語" in shown
    assert "\\u202egnp.exe" in shown and "\x1b" not in text and "\x00" not in text
    text.encode()


def test_the_verdict_comes_first() -> None:
    text = Page(html.render(samples.wrong_value())).text
    order = [
        "Bug in inductor: wrong values.",
        "output 0 differs from eager by 3.1e-1",
        "float64 says eager is right",
        "First failing layer",
        "Rounds where eager rounds.",
        "aot_eager_decomp_partition",
        "With 13 lowerings the output is the same",
        "Failure signature",
        "Xeon Platinum",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_a_cell_has_its_word_a_mark_and_its_trial() -> None:
    text = html.render(samples.wrong_value())
    assert re.search(r'<td class="bad"><details><summary title="trial inductor-None · took 1.2 s', text)
    assert re.search(r'<td class="good"><details><summary title="trial eager-None', text)
    assert 'aria-hidden="true">✕</span> differs:<wbr>value' in text
    assert "<dt>trial</dt><dd>inductor-None</dd>" in text
    recompiled = html.render(samples.recompiles())
    assert '<td class="count">' in recompiled and '<td class="empty unknown">not run</td>' in recompiled


def test_lines_to_paste_can_be_copied_as_they_are() -> None:
    text = html.render(samples.exception())
    assert (
        '<div data-copy="the lines of this workaround"><pre tabindex="0"><code>import torch._inductor.lowering\n'
        "torch._inductor.lowering.make_fallback(torch.ops.aten.view)</code></pre></div>"
    ) in text


def test_a_source_can_be_followed() -> None:
    assert '<a href="https://github.com/pytorch/pytorch/issues/113169"' in html.render(samples.by_design())
    assert '<a href="https://docs.pytorch.org/docs/stable' in html.render(samples.noise())
    assert "<a" not in html.links("javascript:alert(1)")


@pytest.mark.parametrize(
    ("sample", "badge", "words"),
    [
        ("nothing", "no difference", "12 cells of the matrix"),
        ("noise", "not a bug: noise", "eager itself is 2.0e-2 from float64"),
        ("by_design", "not a bug: by design", "draws other random numbers"),
        ("user_error", "error in the program", "index 7 is out of bounds"),
        ("inconclusive", "no verdict", "no C++ compiler was found"),
        ("fails_in_eager", "no difference", "no such data set"),
        ("recompiles", "bug", "tensor 'x' size mismatch"),
    ],
)
def test_each_kind_says_what_it_is(sample: str, badge: str, words: str) -> None:
    text = Page(html.render(samples.SAMPLES[sample]())).text
    assert badge in text and words in text


def test_sections_with_nothing_to_say_are_left_out() -> None:
    ids = Page(html.render(samples.nothing())).attributes("id")
    assert {"workarounds", "exception", "recompiles", "graph-breaks", "differences", "layer"}.isdisjoint(ids)


def test_the_trace_s_page_is_linked_where_there_is_one() -> None:
    found = dataclasses.replace(samples.SAMPLES["recompiles"](), trace_page="trace.html")
    assert '<a href="trace.html">' in html.render(found)
    assert view.report_files(found)[-1] == "trace.html"
    hostile = dataclasses.replace(found, trace_page="javascript:alert(1)//.html")
    assert "javascript:" not in html.render(hostile)
    assert "trace.html" not in html.render(dataclasses.replace(found, trace_page=""))
