"""`torchtriage trace` and `torchtriage diff`: read TORCH_TRACE logs and say what they mean."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from torchtriage.trace import Trace
    from torchtriage.trace.page import Page

app = typer.Typer(no_args_is_help=True, add_completion=False)
Paths = Annotated[
    list[str], typer.Argument(help="Files, folders (one or many ranks), .gz, .zst, .zip or URLs.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Write the model as JSON instead.")]


@app.command()
def trace(
    paths: Paths,
    as_json: AsJson = False,
    html: Annotated[
        Path | None, typer.Option("--html", "-o", help="Write the report: one HTML file.")
    ] = None,
    split: Annotated[
        Path | None, typer.Option(help="Write the report as a folder with every artefact as a file.")
    ] = None,
    perfetto: Annotated[
        Path | None, typer.Option(help="Write all events for ui.perfetto.dev or chrome://tracing.")
    ] = None,
    follow: Annotated[bool, typer.Option(help="Read again whenever the log grows, until Ctrl-C.")] = False,
    latest: Annotated[
        bool, typer.Option(help="Read only the newest log, or those of all ranks of the newest run.")
    ] = False,
    header: Annotated[
        str, typer.Option("--header-html", help="HTML of yours for the top of the report, taken as it is.")
    ] = "",
    browse: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
    strict: Annotated[
        bool, typer.Option(help="End with status 1 where a part of a log could not be read.")
    ] = False,
    strict_compile_id: Annotated[
        bool, typer.Option(help="End with status 1 where a record lacks the compile that it belongs to.")
    ] = False,
    workers: Annotated[int | None, typer.Option(help="Processes that read logs.", min=1)] = None,
    shown: Annotated[int, typer.Option("--top", help="Verdicts to show.", min=1)] = 12,
) -> None:
    """Say what was compiled, what went wrong, why, and what to do."""
    if browse and html is None and split is None:
        raise typer.BadParameter("--open opens what --html or --split writes: give one of them")
    read = partial(_read, paths, workers, latest)
    found = _first(paths, workers, latest) if follow else read()
    try:
        while follow:
            _show(found, shown)
            found = _grown(read, found)
    except KeyboardInterrupt:
        pass  # what was read last is reported below
    from torchtriage.trace.page import make_page

    page = make_page(found, _version())
    written = _write(found, page, header, html, split, perfetto)
    if as_json:
        _write_json(found, page)
    else:
        from torchtriage.report.trace_terminal import print_summary

        console = Console()
        print_summary(page, console, shown=shown)
        for path in written:
            console.print(f"written: {path}", highlight=False, soft_wrap=True)
    if browse:
        typer.launch(str(written[0]))
    unplaced = any(log.unplaced for log in found.logs)
    if (strict and found.totals.problems) or (strict_compile_id and unplaced):
        raise typer.Exit(1)


def _write(
    found: Trace, page: Page, header: str, html: Path | None, split: Path | None, perfetto: Path | None
) -> list[Path]:
    """The files that were asked for; the report comes first."""
    written: list[Path] = []
    if html is not None or split is not None:
        from torchtriage.report.trace_html import write_html
        from torchtriage.trace.bundle import make_bundle

        bundle = make_bundle(found, page)
        for path in (html, split and split / "index.html"):
            if path is not None:
                write_html(bundle, path, header)
                written.append(path)
    if split is not None:
        from torchtriage.trace.export import write_files, write_records

        write_files(found, split)
        write_records(found, split)
    for path in (perfetto, split and split / "events.json"):
        if path is not None:
            from torchtriage.trace.export import write_perfetto

            write_perfetto(found, path)
            written.append(path)
    return written


@app.command()
def diff(
    before: Annotated[str, typer.Argument(help="The first trace: a file, folder, archive or URL.")],
    after: Annotated[str, typer.Argument(help="The second.")],
    as_json: AsJson = False,
    html: Annotated[
        Path | None, typer.Option("--html", "-o", help="Write the differences as one HTML file.")
    ] = None,
) -> None:
    """Say what changed between two traces, most important first."""
    left, right = _read([before]), _read([after])
    from torchtriage.trace.diff import compare, details

    changes = compare(left, right)
    if html is not None:
        from torchtriage.report.trace_html import render_diff

        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(render_diff(changes, (before, after), details(left, right)), encoding="utf-8")
    if as_json:
        import orjson

        sys.stdout.buffer.write(orjson.dumps(changes, option=orjson.OPT_INDENT_2) + b"\n")
        return
    from torchtriage.report.trace_terminal import print_changes

    print_changes(changes, Console(), (before, after))


def _read(paths: list[str], workers: int | None = None, latest: bool = False) -> Trace:
    """The trace; ends the program with one line and status 2 where there is none."""
    from torchtriage.trace import NotATrace, read_trace

    console = Console(stderr=True)
    many = console.is_terminal

    def progress(done: int, of: int) -> None:
        if many and of > 1:
            console.print(f"read {done} of {of} logs", end="\r" if done < of else "\n", highlight=False)

    try:
        found = read_trace(paths, workers=workers, progress=progress, latest=latest)
        gc.freeze()  # the trace stays: looking through it for cycles again and again costs a tenth of the time
        return found
    except NotATrace as error:
        typer.echo(f"torchtriage: {error}", err=True)
        raise typer.Exit(2) from None


def _show(found: Trace, shown: int) -> None:
    from torchtriage.report.trace_terminal import print_summary
    from torchtriage.trace.page import make_page

    console = Console()
    console.clear()
    print_summary(make_page(found), console, shown=shown)


def _first(paths: list[str], workers: int | None, latest: bool) -> Trace:
    """The trace as soon as there is a record: the program may not have compiled anything yet."""
    from torchtriage.trace import NotATrace, read_trace

    told = False
    while True:
        try:
            return read_trace(paths, workers=workers, latest=latest)
        except NotATrace as error:
            if not told:
                typer.echo(f"waiting for the first record ({error})", err=True)
            told = True
            try:
                time.sleep(1.0)
            except KeyboardInterrupt:
                raise typer.Exit(2) from None


def _grown(read: Callable[[], Trace], found: Trace) -> Trace:
    """The trace again, once it is larger than it was. A log that takes long to read is looked at less often."""
    pause = 1.0
    while True:
        time.sleep(pause)
        begin = time.monotonic()
        again = read()
        if again.totals.bytes != found.totals.bytes or again.logs[-1].name != found.logs[-1].name:
            return again
        pause = max(1.0, time.monotonic() - begin)


def _write_json(found: Trace, page: Page) -> None:
    import orjson

    from torchtriage.trace.page import plain, to_json

    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
    sys.stdout.buffer.write(orjson.dumps(to_json(found, page), default=plain, option=options) + b"\n")


def _version() -> str:
    from torchtriage import __version__

    return __version__
