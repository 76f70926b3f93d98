"""`torchtriage reduce`: from the command line to the reproducer and back."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from typing import Any

from torchtriage.api import Settings, UsageError
from torchtriage.cli.diagnose import PlainProgress, Progress, check, end, leave, parse_target
from torchtriage.reduce import drive
from torchtriage.reducing import ReduceSettings, reduce
from torchtriage.report import reduction as reports


def command(
    target: str, args: list[str], *, module: bool, quiet: bool, settings: dict[str, Any], more: dict[str, Any]
) -> None:
    """Run, show the script, and leave: 0 where it is proven, 1 where not, 2 for bad input, 130 when interrupted."""
    show = Progress(quiet) if sys.stderr.isatty() else PlainProgress(quiet)
    shown = Shrinking(show, more["time_limit"])
    signal.signal(signal.SIGTERM, end)
    try:
        check(settings)
        if more["time_limit"] <= 0:
            raise UsageError("--time-limit must be positive")
        found = reduce(
            parse_target(target, args, module),
            Settings(**settings),
            ReduceSettings(**more),
            progress=show.trial,
            note=shown.note,
            best=shown.best,
            command=" ".join(["torchtriage", *map(shlex.quote, sys.argv[1:])]),
        )
    except UsageError as error:
        show.close()
        print(f"torchtriage: {error}", file=sys.stderr)
        leave(2)
    except KeyboardInterrupt:
        show.close()
        print("torchtriage: interrupted; the same command goes on from here", file=sys.stderr)
        leave(130)
    show.close()
    sys.stdout.write(reports.text(found))
    if found.stopped.startswith("interrupted"):
        leave(130)
    leave(0 if found.proven else 1)


class Shrinking:
    """Says how large the best script is, how many were tried, at what rate, and how long the search may still take."""

    def __init__(self, progress: Progress, limit: float):
        self.progress, self.limit = progress, limit
        self.sizes: list[int] = []
        self.begin = time.monotonic()

    def note(self, text: str) -> None:
        if text == drive.FIRST:
            self.begin = time.monotonic()
        self.progress.note(text)

    def best(self, point: Any, text: str) -> None:
        self.sizes.append(point.lines)
        spent = max(time.monotonic() - self.begin, 0.01)
        left = max(self.limit - spent, 0)
        self.progress.note(
            f"{trend(self.sizes)} {self.sizes[0]} lines → {point.lines} ({point.by}), {point.tests} tried, "
            f"{point.tests / spent:.1f} a second, at most {left:.0f} s left"
        )


def trend(sizes: list[int], width: int = 16) -> str:
    """How the size went down, as a row of bars; the last is now."""
    step = max(-(-len(sizes) // width), 1)
    shown = sizes[::-1][::step][::-1]
    most = max(*shown, 1)
    return "".join("▁▂▃▄▅▆▇█"[min(size * 8 // most, 7)] for size in shown)
