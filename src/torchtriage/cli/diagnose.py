"""`torchtriage diagnose`: from the command line to the API and back."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from torchtriage.api import Settings, UsageError, describe_request, run
from torchtriage.cli.paths import can_be_written
from torchtriage.lab.request import Request
from torchtriage.model.diagnosis import Diagnosis
from torchtriage.model.outcome import Outcome, label
from torchtriage.report import jsonout, terminal

LEAST_LEFT = 30.0
"""Seconds of the budget below which no reduction is begun."""


def command(
    target: str,
    args: list[str],
    *,
    module: bool,
    json_to: str,
    quiet: bool,
    settings: dict[str, Any],
    reduce: bool | None = None,
) -> None:
    """Run, render, reduce, and leave with the exit status of the diagnosis. `reduce`: None is what suits the verdict."""
    quiet = quiet or json_to == "-"
    show = Progress(quiet) if sys.stderr.isatty() else PlainProgress(quiet)
    signal.signal(signal.SIGTERM, end)
    try:
        check(settings)
        check_writable(json_to)
        found = run(
            parse_target(target, args, module),
            Settings(**settings),
            progress=show.trial,
            note=show.note,
            command=" ".join(["torchtriage", *map(shlex.quote, sys.argv[1:])]),
        )
    except UsageError as error:
        show.close()
        print(f"torchtriage: {error}", file=sys.stderr)
        leave(2)
    except KeyboardInterrupt as stop:
        show.close()
        how, status = ("ended", 143) if isinstance(stop, Ended) else ("interrupted", 130)
        print(f"torchtriage: {how}; the same command goes on from here", file=sys.stderr)
        leave(status)
    show.close()
    write(found, json_to)
    chosen = Settings(**settings)
    if is_to_be_reduced(found, chosen, reduce):
        out = sys.stderr if json_to == "-" else sys.stdout
        reduce_after(found, parse_target(target, args, module), chosen, show, out)
    leave(found.exit_status)


def is_to_be_reduced(found: Diagnosis, settings: Settings, wanted: bool | None) -> bool:
    """A bug is, unless the person wants no more than a verdict or there is no time left; any failure, where it is asked for."""
    if wanted is not None:
        return wanted and found.kind not in ("none", "inconclusive")
    left = settings.budget - found.seconds
    return found.kind == "bug" and not settings.verdict_only and left >= LEAST_LEFT


def reduce_after(
    found: Diagnosis, target: dict[str, Any], settings: Settings, show: Progress, out: TextIO
) -> None:
    """Go on to a reproducer with what is left of the budget. The verdict stands, whatever comes of it."""
    from torchtriage.reducing import ReduceSettings
    from torchtriage.reducing import reduce as run_reduction
    from torchtriage.report.reduction import text

    more = ReduceSettings(time_limit=max(settings.budget - found.seconds, LEAST_LEFT))
    try:
        made = run_reduction(target, settings, more, note=show.note, command=found.command, diagnosis=found)
        show.close()
        out.write("\n" + text(made))
    except UsageError as error:
        show.close()
        print(f"torchtriage: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        show.close()


class Ended(KeyboardInterrupt):
    """SIGTERM came: stop as for an interrupt."""


def end(number: int, frame: Any) -> None:
    raise Ended


def check(settings: dict[str, Any]) -> None:
    if settings["isolation"] not in ("auto", "fork", "rerun"):
        raise UsageError("--isolation is one of auto, fork, rerun")
    if settings["jobs"] < 0 or settings["trial_timeout"] <= 0 or settings["max_calls"] < 1:
        raise UsageError("--jobs, --trial-timeout and --max-calls must be positive")
    if settings["budget"] < 0:
        raise UsageError("--budget must not be negative")
    if settings["trial_memory"] < 0:
        raise UsageError("--trial-memory must not be negative")
    python = settings["python"]
    if python and not (os.path.isfile(python) and os.access(python, os.X_OK)):
        raise UsageError(f"no such interpreter: {settings['python']}")


def check_writable(json_to: str) -> None:
    """Before a long run, not after it."""
    if json_to not in ("", "-") and not can_be_written(json_to):
        raise UsageError(f"cannot write {json_to}")


def parse_target(target: str, args: list[str], module: bool) -> dict[str, Any]:
    """A script, a module, or `module:callable`."""
    if module:
        return {"kind": "module", "name": target, "args": args}
    name, colon, attribute = target.rpartition(":")
    if colon and not name:
        raise UsageError(f"no module before the colon in {target!r}: write module:function")
    if colon and attribute.replace(".", "").isidentifier() and not Path(target).exists():
        return {"kind": "callable", "name": target, "args": args}
    if not Path(target).exists():
        raise UsageError(f"no such file: {target}")
    return {"kind": "script", "name": target, "args": args}


def write(found: Diagnosis, json_to: str) -> None:
    if json_to == "-":
        sys.stdout.write(jsonout.render(found).rstrip("\n") + "\n")
        return
    if json_to:
        Path(json_to).write_text(jsonout.render(found))
    terminal.render(found, Console(highlight=False))


def leave(status: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(status)


EARLY = ("the program in eager mode", "the program as it is", "ablation: backends and dynamic shapes")


class Progress:
    """One line on standard error that says what is being asked, how many trials are done, and how long it took."""

    def __init__(self, quiet: bool):
        self.quiet = quiet
        self.lock = threading.Lock()
        self.begin = time.monotonic()
        self.done, self.running, self.phase, self.last = 0, 0, "", ""
        self.spent = 0.0

    def note(self, text: str) -> None:
        with self.lock:
            self.phase = text
        self.draw()

    def trial(self, event: str, request: Request, outcome: Outcome | None) -> None:
        with self.lock:
            if event == "start":
                self.running += 1
            else:
                self.running -= event == "end"
                self.done += 1
                if outcome is not None:
                    self.last = f"{describe_request(request)}: {label(outcome)}"
        self.draw()

    def draw(self) -> None:
        if self.quiet:
            return
        seconds = time.monotonic() - self.begin
        width = 100
        try:
            width = os.get_terminal_size(2).columns
        except OSError:
            pass
        text = f"{seconds:4.0f} s{self.left(seconds)}  {self.done} trials  {self.phase}  {self.last}".replace(
            "\n", " "
        )
        sys.stderr.write("\r\x1b[2K" + text[: width - 1])
        sys.stderr.flush()

    def left(self, seconds: float) -> str:
        """A rough guess of the time left, from the pace so far and the trials that phases usually take."""
        if self.done < 3:
            return ""
        expected = 16 if self.phase in EARLY else 16 + 24
        more = max(expected - self.done, 2) * seconds / self.done
        return f", about {max(more, 1):.0f} s left"

    def close(self) -> None:
        if not self.quiet:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


class PlainProgress(Progress):
    """Where standard error is a file: one line for each question, once the program has run in eager mode."""

    def note(self, text: str) -> None:
        started = bool(self.phase)
        super().note(text)
        if started and not self.quiet:
            print(f"{time.monotonic() - self.begin:6.0f} s  {text}", file=sys.stderr, flush=True)

    def draw(self) -> None:
        """Nothing moves in a file."""

    def close(self) -> None:
        """Nothing to wipe out."""
