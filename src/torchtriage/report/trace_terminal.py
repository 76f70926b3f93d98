"""The summary of a trace in the terminal: the verdicts with their cost, then what was counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from torchtriage.trace.diff import Change
    from torchtriage.trace.page import Page

SHOWN = 12


def print_summary(page: Page, console: Console, *, shown: int = SHOWN) -> None:
    """The whole answer on about a screen."""
    t = page.totals
    versions = sorted({log.torch_version for log in page.logs if log.torch_version})
    console.print(
        Text(f"{page.name}", style="bold"), Text(f"torch {', '.join(versions)}" if versions else "")
    )
    console.print(
        f"{count(t.logs, 'log')}, {t.bytes / 1e6:.1f} MB, {count(t.records, 'record')}: {count(t.compiles, 'compile')}, "
        f"{count(t.graphs, 'graph')}, {count(t.recompiles, 'recompile')}, {count(t.break_sites, 'graph-break line')}, "
        f"{t.failed} failed, {count(t.artifacts, 'artefact')}, {t.seconds:.1f} s of compile time{_longest(page)}",
        highlight=False,
    )
    found = page.problems
    if not found:
        console.print("[green]Nothing stands out.[/green]")
    for verdict in found[:shown]:
        console.print(_verdict(verdict.seconds, verdict.title, verdict.advice))
    if len(found) > shown:
        console.print(f"[dim]and {len(found) - shown} more, in the report[/dim]")
    notes = [v for v in page.verdicts if v.level == "note" and v.kind != "log"]
    if notes:
        console.print("[bold]Also[/bold]")
    for verdict in notes[:6]:
        console.print(_verdict(verdict.seconds, verdict.title, ""))
    if page.time.phases:
        console.print(_phases(page))
    if t.problems:
        _unreadable(page, console)


def _longest(page: Page) -> str:
    """Ranks compile beside each other: the sum is not what one waits for."""
    if len(page.logs) < 2:
        return ""
    longest = max(page.logs, key=lambda log: log.seconds)
    return f" in all, {longest.seconds:.1f} s at most in one log ({longest.title})"


def count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _verdict(seconds: float, title: str, advice: str) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", width=9, no_wrap=True)
    table.add_column(overflow="fold")
    body = Text(title)
    if advice:
        body.append(f"\n{advice}", style="dim")
    table.add_row(Text(f"{seconds:.1f} s" if seconds else "", style="bold yellow"), body)
    return table


def _phases(page: Page) -> Group:
    whole = sum(seconds for _, seconds in page.time.phases) or 1.0
    rows = Table.grid(padding=(0, 1))
    for phase, seconds in page.time.phases[:7]:
        if seconds / whole >= 0.01:
            bar = "█" * max(1, round(30 * seconds / whole))
            rows.add_row(
                f"{seconds:8.1f} s", f"{seconds / whole:4.0%}", escape(phase), Text(bar, style="blue")
            )
    return Group(Text("Compile time by phase", style="bold"), rows)


def _unreadable(page: Page, console: Console) -> None:
    console.print("[bold]Could not be read as it should[/bold]")
    for verdict in [v for v in page.verdicts if v.kind == "log"][:5]:
        console.print(f"  {escape(verdict.title)}", highlight=False)
        for detail in verdict.details[:5]:
            console.print(f"    {escape(detail)}", highlight=False)


def print_changes(
    changes: tuple[Change, ...], console: Console, names: tuple[str, str], *, shown: int = 40
) -> None:
    """What differs between two traces, most important first."""
    console.print(Text(f"{names[0]} → {names[1]}", style="bold"))
    if not changes:
        console.print("[green]Nothing differs.[/green]")
    for change in changes[:shown]:
        seconds = f"{change.seconds:+.1f} s" if abs(change.seconds) >= 0.05 else ""
        body = Text(change.title)
        for detail in change.details[:4]:
            body.append(f"\n{detail}", style="dim")
        table = Table.grid(padding=(0, 1))
        table.add_column(justify="right", width=9, no_wrap=True)
        table.add_column(overflow="fold")
        table.add_row(Text(seconds, style="bold yellow"), body)
        console.print(table)
    if len(changes) > shown:
        console.print(f"[dim]and {len(changes) - shown} more: --json has all[/dim]")
