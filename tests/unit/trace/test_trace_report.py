"""The reports: one page that opens anywhere, escaped, complete; the command line; files for other tools."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from trace_writing import artifact, compiled, event, metrics, needs_real, real_logs, record, write
from typer.testing import CliRunner

from torchtriage.cli.trace import app
from torchtriage.report.trace_html import render_html
from torchtriage.report.trace_terminal import print_summary
from torchtriage.trace import Trace, read_trace
from torchtriage.trace.bundle import make_bundle, text_of, unpack
from torchtriage.trace.export import safe_name
from torchtriage.trace.page import make_page

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
WHITE, DARK = "rgb(255, 255, 255)", "rgb(20, 23, 28)"
EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


def page_of(trace: Trace) -> str:
    return render_html(make_bundle(trace, make_page(trace)))


CHROMIUM = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
DOM = ("--virtual-time-budget=8000", "--dump-dom")


def browse(
    tmp_path: Path, html: str, fragment: str = "", script: str = "", more: tuple[str, ...] = DOM
) -> str:
    """The document after its scripts have run, with one more script at its end."""
    file = tmp_path / "page.html"
    file.write_text(html.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    assert BROWSER is not None
    command = [
        BROWSER,
        *CHROMIUM,
        f"--user-data-dir={tmp_path / 'profile'}",
        *more,
        f"{file.as_uri()}{fragment}",
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def evil_trace(tmp_path: Path) -> Trace:
    return read_trace(
        write(
            tmp_path, compiled((0, 0, 0), EVIL, co_filename="../../" + EVIL), artifact(EVIL, EVIL),
            artifact("recompile_reasons", f"0/0: {EVIL} == 3", (0, 1, 0)), compiled((0, 1, 0), EVIL),
            artifact("dynamo_graph_break_reason", f"Graph break in user code at {EVIL}:3\nGraph Break Reason: {EVIL}\n"),
            record("link", {"name": EVIL, "url": "javascript:document.title='owned'"}), event(EVIL, "B", 1.0), event(EVIL, "E", 2e6),
        )
    )  # fmt: skip


def test_every_artefact_is_in_the_page(tmp_path: Path) -> None:
    trace = read_trace(
        write(
            tmp_path,
            compiled(),
            artifact("a", "one\n\ttab ünï"),
            artifact("b", "one\n\ttab ünï"),
            record("new", {"x": 1}),
        )
    )
    bundle = make_bundle(trace, make_page(trace))
    items = list(unpack(bundle))
    log = trace.logs[0]
    for row in bundle.index["compiles"]:
        for (title, _, item, _, _), number in zip(row[14], trace.logs[0].compiles[0].artifacts):  # noqa: B905
            assert bundle.index["names"][title] == log.artifacts[number].title
            assert items[item] == text_of(trace, log, log.artifacts[number])
    assert items.count("one\n\ttab ünï".encode()) == 1


def test_the_page_asks_for_nothing_from_outside(tmp_path: Path) -> None:
    html = page_of(read_trace(write(tmp_path, compiled())))
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', html) == []
    assert "default-src 'none'" in html
    assert "@import" not in html
    assert "url(" not in html


def test_nothing_from_a_trace_is_markup(tmp_path: Path) -> None:
    html = page_of(evil_trace(tmp_path))
    assert "<script>document" not in html
    assert "<img" not in html
    assert len(re.findall(r"</script>", html)) == len(re.findall(r"<script", html))


@needs_browser
@pytest.mark.parametrize(
    "fragment",
    [
        "",
        "#c=0",
        "#a=0.0",
        "#a=0.2",
        "#t=breaks",
        "#t=recompiles",
        "#t=stacks",
        "#t=time",
        "#p=0",
        "#c=99",
        "#x",
    ],
)
def test_nothing_from_a_trace_runs_in_a_browser(tmp_path: Path, fragment: str) -> None:
    dom = browse(tmp_path, page_of(evil_trace(tmp_path)), fragment)
    title = re.search(r"<title>(.*?)</title>", dom)
    assert title is not None
    assert title[1] != "owned"
    assert 'href="javascript:' not in dom


@needs_browser
def test_an_artefact_has_an_address_of_its_own_down_to_the_line(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, artifact("note", "alpha\nbeta\ngamma"), compiled()))
    dom = browse(tmp_path, page_of(trace), "#a=0.0.2")
    assert "alpha\nbeta\ngamma" in dom
    assert 'class="here" style="top: 22px;"' in dom


@needs_browser
def test_the_page_works_by_keyboard(tmp_path: Path) -> None:
    trace = read_trace(
        write(tmp_path, artifact("note", "alpha"), compiled(function="first"), compiled((1, 0, 0), "second"))
    )
    keys = "const press = k => dispatchEvent(new KeyboardEvent('keydown', { key: k }));"
    go = (
        keys
        + "setTimeout(() => { press('2'); setTimeout(() => { press('j'); press('j'); press('Enter'); setTimeout(() => { document.body.dataset.at = location.hash; press('u'); }, 300); }, 300); }, 300);"
    )
    dom = browse(tmp_path, page_of(trace), "", go)
    assert 'data-at="#c=1"' in dom
    assert re.search(r'<section id="t-compiles" class="on">', dom)


@needs_browser
def test_search_finds_texts_inside_artefacts(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, artifact("note", "alpha\nthe needle is here"), compiled()))
    go = "setTimeout(() => { $('search').value = 'NEEDLE'; search(true); }, 200);"
    dom = browse(tmp_path, page_of(trace), "", go)
    assert "<mark>needle</mark>" in dom
    assert "line 2" in dom


@needs_browser
def test_ten_thousand_compiles_are_shown_at_once(tmp_path: Path) -> None:
    parts = [compiled((n, 0, 0), f"function_{n}") for n in range(10_000)]
    html = page_of(read_trace(write(tmp_path, *parts)))
    assert len(html) < 6_000_000
    dom = browse(tmp_path, html, "#t=compiles", "$('list').scrollTop = 1e9; drawList();")
    assert 8 < dom.count('class="row') < 200  # only what can be seen is drawn
    assert "function_9999" in dom.partition('id="list"')[2].partition("</section>")[0]


@needs_browser
def test_the_theme_follows_the_system_and_can_be_changed(tmp_path: Path) -> None:
    html = page_of(read_trace(write(tmp_path, compiled())))
    tell = (
        "const tell = n => { document.body.dataset[n] = getComputedStyle(document.body).backgroundColor; };"
    )
    go = tell + "tell('before'); dispatchEvent(new KeyboardEvent('keydown', { key: 't' })); tell('after');"
    for flags, before, after in (
        ((), WHITE, DARK),
        (("--force-dark-mode", "--blink-settings=preferredColorScheme=0"), DARK, WHITE),
    ):
        dom = browse(tmp_path, html, "", go, (*flags, *DOM))
        found = re.search(r'data-before="([^"]*)" data-after="([^"]*)"', dom)
        assert found is not None
        assert found.groups() == (before, after)


@needs_browser
def test_a_long_text_is_printed_to_its_end(tmp_path: Path) -> None:
    trace = read_trace(
        write(tmp_path, artifact("note", "\n".join(f"line {n}" for n in range(400))), compiled())
    )
    pdf = tmp_path / "page.pdf"
    browse(tmp_path, page_of(trace), "#a=0.0", "", ("--virtual-time-budget=8000", f"--print-to-pdf={pdf}"))
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes()))
    assert pages >= 5


@needs_browser
def test_the_page_of_a_comparison_folds_what_is_equal(tmp_path: Path) -> None:
    text = "class GraphModule(torch.nn.Module):\n" + "\n".join(f"    a{n} = {n}" for n in range(60))
    a = write(tmp_path, record("dynamo_output_graph", {}, text) + metrics(), name="a.log")
    b = write(
        tmp_path,
        record("dynamo_output_graph", {}, text.replace("= 30", "= 31 </script><b>")) + metrics(),
        name="b.log",
    )
    page = tmp_path / "d.html"
    assert CliRunner().invoke(app, ["diff", str(a), str(b), "--html", str(page)]).exit_code == 0
    dom = browse(tmp_path, page.read_text(), "", "document.body.dataset.ran = 1;")
    assert "data-ran" not in dom  # its content policy lets no script run
    assert 'class="gone">    a30 = 30</pre>' in dom
    assert 'class="come">    a30 = 31 &lt;/script&gt;&lt;b&gt;</pre>' in dom
    assert len(re.findall(r'<details class="fold">', dom)) == 2


EVERYWHERE = """
const errors = [], say = e => errors.push(String(e.message || e.reason || e));
addEventListener('error', say); addEventListener('unhandledrejection', say);
(async () => {
  const stops = [...tabs.map(a => a.hash)];
  C.forEach((c, i) => { stops.push('#c=' + i, '#p=' + i); c[ARTS].forEach((_, j) => stops.push('#a=' + i + '.' + j)); });
  Object.keys(X.configs).forEach(k => stops.push('#g=' + k));
  for (const stop of stops.slice(0, 150)) {
    history.replaceState(null, '', stop); await route().catch(say);
    const tree = [...document.querySelectorAll('#view button')].find(b => b.textContent === 'as a tree');
    if (tree) { tree.click(); document.body.dataset.tree = document.querySelectorAll('#view .tree summary').length; }
  }
  document.body.dataset.visited = Math.min(150, stops.length); document.body.dataset.requests = performance.getEntriesByType('resource').length; document.body.dataset.errors = errors.length + ' ' + errors.slice(0, 3).join('; ');
})();
"""


@needs_browser
@pytest.mark.parametrize("name", ["dyn", "bwd", "fail"])
def test_every_view_of_a_real_trace_opens_without_an_error(name: str, tmp_path: Path) -> None:
    trace = read_trace(Path(__file__).parent / "data" / f"{name}.log.xz")
    dom = browse(tmp_path, page_of(trace), "", EVERYWHERE)
    assert re.search(r'data-visited="(\d+)"', dom)
    errors = re.search(r'data-errors="([^"]*)"', dom)
    assert errors is not None
    assert errors[1] == "0 "
    assert 'data-requests="0"' in dom
    if name != "fail":
        tree = re.search(r'data-tree="(\d+)"', dom)
        assert tree is not None
        assert int(tree[1]) > 1


@needs_browser
def test_a_stack_leads_to_the_source_file_where_the_log_has_it(tmp_path: Path) -> None:
    stack = {"stack": [{"line": 2, "name": "inner", "filename": "<eval_with_key>.3", "loc": ""}]}
    trace = read_trace(
        write(
            tmp_path,
            record("dump_file", {"name": "<eval_with_key>.3"}, "one\ntwo", at=None),
            record("dynamo_start", stack),
            compiled(),
        )
    )
    dom = browse(tmp_path, page_of(trace), "#c=0")
    assert re.search(r'href="#a=\d+\.0\.2">&lt;eval_with_key&gt;\.3:2', dom)


def test_the_summary_names_the_dearest_cause_and_fits_a_screen(tmp_path: Path) -> None:
    reason = "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5"
    trace = read_trace(
        write(
            tmp_path,
            compiled(),
            artifact("recompile_reasons", reason, (0, 1, 0)),
            compiled((0, 1, 0), seconds=7.0),
            b"noise\n",
        )
    )
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    print_summary(make_page(trace), console)
    text = console.export_text()
    assert "`x` changed in dimension 0" in text
    assert "7.0 s" in text
    assert "noise" in text
    assert len(text.splitlines()) < 40


def test_json_has_the_verdicts_and_the_model(tmp_path: Path) -> None:
    path = write(tmp_path, compiled(), artifact("note", "x"))
    result = CliRunner().invoke(app, ["trace", str(path), "--json"])
    assert result.exit_code == 0
    plain = json.loads(result.stdout)
    assert plain["totals"]["compiles"] == 1
    assert plain["logs"][0]["compiles"][0]["id"] == "0/0"
    assert [a["name"] for a in plain["logs"][0]["artifacts"]] == ["", "", "note"]


@pytest.mark.parametrize("content", [b"", b"\0\xff" * 500])
def test_what_is_no_trace_ends_with_one_line_and_status_2(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    result = CliRunner().invoke(app, ["trace", str(path)])
    assert result.exit_code == 2
    assert len(result.output.strip().splitlines()) == 1


def test_a_folder_report_cannot_leave_its_folder(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        artifact("../../../escape", "x"),
        artifact("/etc/passwd", "y"),
        artifact("..", "z"),
        compiled(),
    )
    out = tmp_path / "deep" / "er" / "out"
    result = CliRunner().invoke(
        app, ["trace", str(path), "--split", str(out), "--perfetto", str(tmp_path / "p.json")]
    )
    assert result.exit_code == 0, result.output
    written = [p for p in tmp_path.rglob("*") if p.is_file() and p not in (path, tmp_path / "p.json")]
    assert len(written) == 9
    assert all(out in p.parents for p in written)
    assert safe_name("..") == "_"


def test_perfetto_gets_every_event(tmp_path: Path) -> None:
    path = write(
        tmp_path, event("dynamo", "B", 1.0), event("dynamo", "E", 5.0), compiled(), name="rank_3.log"
    )
    CliRunner().invoke(app, ["trace", str(path), "--perfetto", str(tmp_path / "p.json")])
    events = json.loads((tmp_path / "p.json").read_text())
    assert [(e["name"], e["ph"], e["pid"]) for e in events] == [
        ("process_name", "M", 3),
        ("dynamo", "B", 3),
        ("dynamo", "E", 3),
    ]


def test_a_log_that_is_being_written_is_followed(tmp_path: Path) -> None:
    log = tmp_path / "trace" / "dedicated_log_torch_trace_x.log"
    command = [
        sys.executable,
        "-c",
        # whoever runs the tests in the background may have this signal ignored
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from torchtriage.cli.trace import app; app()",
        "trace",
        str(log.parent),
        "--follow",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        seen = [process.stdout.readline()]  # there is no folder yet
        for number in range(2):
            write(
                log.parent, *(compiled((n, 0, 0), f"function_{n}") for n in range(number + 1)), name=log.name
            )
            while not re.search(rf"\b{number + 1} compiles?, ", seen[-1]):
                seen.append(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert seen[0].startswith("waiting for the first record")
    assert "2 compiles" in rest  # what was read last is the report
    assert process.returncode == 0


def test_diff_tells_what_changed(tmp_path: Path) -> None:
    a, b = write(tmp_path, compiled(), name="a.log"), write(tmp_path, compiled(seconds=9.0), name="b.log")
    result = CliRunner().invoke(app, ["diff", str(a), str(b)])
    assert "1.0 s → 9.0 s" in result.output
    page = tmp_path / "d.html"
    CliRunner().invoke(app, ["diff", str(a), str(b), "--html", str(page)])
    assert "1.0 s → 9.0 s" in page.read_text()
    assert "Nothing differs" in CliRunner().invoke(app, ["diff", str(a), str(a)]).output


def test_a_notebook_shows_the_verdicts_escaped(tmp_path: Path) -> None:
    html = evil_trace(tmp_path)._repr_html_()
    assert "<script" not in html
    assert "compiles" in html


@needs_real
@pytest.mark.parametrize("path", real_logs(), ids=lambda p: p.name)
def test_every_real_trace_makes_a_page(path: Path) -> None:
    trace = read_trace(path)
    bundle = make_bundle(trace, make_page(trace))
    assert bundle.index["left_out"] == 0
    html = render_html(bundle)
    assert html.count("<script") == html.count("</script>")
    assert len(html) < 60_000 + trace.totals.bytes / 4
