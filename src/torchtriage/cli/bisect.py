"""`torchtriage bisect` and `torchtriage environments`: from the command line to the bisect room and back."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from torchtriage.cli.paths import can_be_written

REGRESS = (
    "What counts as bad: any, signature (the failure of the bad end), eager (a difference from it), step-time, "
    "compile-time, memory, recompiles, graph-breaks."
)
#: Parameters of the command that are no settings of the run.
NOT_SETTINGS = {"context", "target", "command", "module", "log", "json_to", "quiet", "plan_only"}
Many = list[str] | None


def option(text: str, *names: str, **more: Any) -> Any:
    """An option of a command, with its help."""
    return typer.Option(*names, help=text, **more)


def bisect(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="TARGET [ARGS]...", help="A script, module:function, or file.py::test.")
    ],
    good: Annotated[str, option("A version that is good: 2.9.1, a nightly, its date, a commit.")],
    bad: Annotated[str, option("A version that is bad.")],
    package: Annotated[str, option("What is bisected; torch is held if it is another.")] = "torch",
    find: Annotated[
        str, option("regression, or fix: the first good version after a bad one.")
    ] = "regression",
    regress: Annotated[str, option(REGRESS)] = "signature",
    command: Annotated[
        bool, option("TARGET is a command; its exit status counts, 125 skips.", "--command")
    ] = False,
    module: Annotated[bool, option("TARGET is a module, as for `python -m`.", "-m")] = False,
    threshold: Annotated[float, option("Times and memory: the part above the good end that is worse.")] = 0.2,
    versions: Annotated[str, option("Versions in order, apart by commas, or @FILE.")] = "",
    index: Annotated[str, option("Package index. Default: pip's own, else PyPI.", "--index-url")] = "",
    extra: Annotated[Many, option("A further index for the other packages.", "--extra-index-url")] = None,
    links: Annotated[
        Many, option("A folder or page of wheels for the other packages.", "--find-links")
    ] = None,
    folder: Annotated[str, option("A folder of wheels that has the versions.")] = "",
    cuda: Annotated[str, option("PyTorch's own index: cu128, cpu, rocm6.4 ...")] = "",
    nightly: Annotated[bool, option("PyTorch's nightly index.", "--nightly")] = False,
    prereleases: Annotated[bool, option("Pre-releases, too.", "--pre")] = False,
    further: Annotated[Many, option("A further requirement in each environment.", "--with")] = None,
    files: Annotated[Many, option("A requirements file.", "-r", "--requirements")] = None,
    hold: Annotated[Many, option("With --package: what is held, as torch==2.13.0.")] = None,
    installer: Annotated[str, option("uv, pip, or auto: uv, and pip where uv cannot.")] = "auto",
    python: Annotated[str, option("Interpreter to make environments with.")] = "",
    store: Annotated[str, option("Folder of environments.")] = "",
    store_limit: Annotated[float, option("GB that environments may take. 0: no limit.")] = 60.0,
    timeout: Annotated[float, option("Seconds that one run may take.")] = 600.0,
    jobs: Annotated[int, option("Versions at a time.")] = 1,
    ahead: Annotated[bool, option("Install the next candidates during a run.", "--ahead")] = False,
    repeat: Annotated[int, option("Runs at the bad end that must fail alike. 1: repeat nothing.")] = 4,
    patience: Annotated[int, option("Runs at the bad end without the failure before giving up.")] = 8,
    error: Annotated[float, option("Accepted probability of a wrong answer, if flaky.")] = 0.05,
    max_installs: Annotated[int, option("Versions to try at most. 0: as many as it takes.")] = 0,
    flips: Annotated[int, option("Changed defaults to try on the bad version.")] = 24,
    log: Annotated[str, option("Write the log of verdicts here, too.")] = "",
    replay: Annotated[str, option("A log whose verdicts stand.")] = "",
    checkout: Annotated[str, option("A checkout of PyTorch, to go on among commits.")] = "",
    build: Annotated[str, option("Shell command that builds the checkout.")] = "",
    plan_only: Annotated[bool, option("Say what it would take, and stop.", "--plan")] = False,
    json_to: Annotated[str, option("Write JSON here too; - for stdout.", "--json", metavar="FILE")] = "",
    runs: Annotated[str, option("Folder for run folders.")] = "runs",
    fresh: Annotated[bool, option("Do not go on with an unfinished run.", "--fresh")] = False,
    quiet: Annotated[bool, option("No progress.", "--quiet", "-q")] = False,
) -> None:
    """Find the version, nightly or commit that broke (or fixed) a program."""
    settings = {name: value for name, value in locals().items() if name not in NOT_SETTINGS}
    for name in ("extra", "links", "further", "files", "hold"):
        settings[name] = tuple(settings[name] or ())
    settings.update(regress="command" if command and regress == "signature" else regress)
    kind = "command" if command else "module" if module else ""
    answer = planned if plan_only else bisected
    leave(go(lambda: answer([target, *context.args], kind, settings, log, json_to, quiet)))


def bisected(
    words: list[str], kind: str, settings: dict[str, Any], log: str, json_to: str, quiet: bool
) -> int:
    """Run and render; the exit status."""
    from torchtriage.bisect.run import Settings, run

    for path in (log, json_to):
        check_writable(path)
    settings["store_limit"] = bytes_of(settings["store_limit"], "--store-limit")
    show = Notes(quiet or json_to == "-")
    command = " ".join(["torchtriage", *map(shlex.quote, sys.argv[1:])])
    found = run(target_of(words, kind), Settings(**settings), show.note, command)
    try:
        write(found, log, json_to)
    except BaseException:  # it is not finished before all is written
        (Path(found.run_folder) / "finished").unlink(missing_ok=True)
        raise
    return int(found.exit_status)


def planned(
    words: list[str], kind: str, settings: dict[str, Any], log: str, json_to: str, quiet: bool
) -> int:
    """What it would take, on standard output or as JSON."""
    from torchtriage.bisect.run import Settings, plan

    check_writable(json_to)
    settings["store_limit"] = bytes_of(settings["store_limit"], "--store-limit")
    forecast = plan(target_of(words, kind), Settings(**settings), Notes(quiet or json_to == "-").note)
    text = json.dumps(dataclasses.asdict(forecast), indent=2) + "\n"
    if json_to not in ("", "-"):
        Path(json_to).write_text(text, encoding="utf-8")
    sys.stdout.write(text if json_to == "-" else forecast.text + "\n")
    return 0


def go(answer: Callable[[], int]) -> int:
    """The exit status of an answer, or of what stopped it, which is told in one line."""
    from torchtriage.bisect.errors import BadInput, Stopped

    signal.signal(signal.SIGTERM, ended)
    try:
        return answer()
    except BadInput as error:
        print(f"torchtriage: {error}", file=sys.stderr)
        return 2
    except Stopped as error:
        print(f"torchtriage: {error}. Nothing is lost: the same command goes on from here", file=sys.stderr)
        return 3
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        where = f": {error.filename}" if error.filename else ""
        more = ". Nothing is lost: the same command goes on from here" if full else ""
        print(f"torchtriage: {error.strerror or error}{where}{more}", file=sys.stderr)
        return 3 if full else 2
    except KeyboardInterrupt as stop:
        word, status = ("ended", 143) if isinstance(stop, Ended) else ("interrupted", 130)
        print(f"torchtriage: {word}; the same command goes on from here", file=sys.stderr)
        return status


def write(found: Any, log: str, json_to: str) -> None:
    from rich.console import Console

    from torchtriage.bisect.record import log_text
    from torchtriage.report import bisect_files, bisect_terminal

    folder = Path(found.run_folder)
    bisect_files.write_all(found, folder)
    for path in (str(folder / "bisect.log"), log):
        if path:
            Path(path).write_text(log_text(found), encoding="utf-8")
    if json_to == "-":
        sys.stdout.write(bisect_files.as_json(found))
        return
    if json_to:
        Path(json_to).write_text(bisect_files.as_json(found), encoding="utf-8")
    bisect_terminal.render(found, Console(highlight=False))


def target_of(words: list[str], kind: str) -> Any:
    """What TARGET is, by its form. Raises BadInput."""
    from torchtriage.bisect.errors import BadInput
    from torchtriage.bisect.trial import Target

    name, args = words[0], tuple(words[1:])
    if kind == "command":
        if shutil.which(name) is None:
            raise BadInput(
                f"{name} is not executable: `chmod +x` it, or name its interpreter as `sh {name}`"
                if Path(name).is_file()
                else f"no such command: {name}"
            )
        return Target("command", name, args)
    if kind == "module":
        return Target("module", name, args)
    file, colons, _ = name.partition("::")
    if colons and Path(file).exists():
        return Target("pytest", name, args)
    before, colon, attribute = name.rpartition(":")
    names_one = colon and before and not colons and attribute.replace(".", "").isidentifier()
    if names_one and not Path(name).exists():
        if before.endswith(".py") and not Path(before).is_file():
            raise BadInput(f"no such file: {before}")
        return Target("callable", name, args)
    if not Path(name).is_file():
        raise BadInput(f"no such file: {name}")
    return Target("script", name, args)


def bytes_of(gigabytes: float, name: str) -> int:
    """Raises BadInput for what is no size."""
    from torchtriage.bisect.errors import BadInput

    if not math.isfinite(gigabytes) or gigabytes < 0:
        raise BadInput(f"{name} is a number of GB, 0 or more")
    return int(gigabytes * 1e9)


def check_writable(path: str) -> None:
    """Before a long run, not after it."""
    from torchtriage.bisect.errors import BadInput

    if path not in ("", "-") and not can_be_written(path):
        raise BadInput(f"cannot write {path}")


class Ended(KeyboardInterrupt):
    """SIGTERM came: stop as for an interrupt."""


def ended(number: int, frame: Any) -> None:
    raise Ended


class Notes:
    """One line on standard error for each thing that happens, with the seconds since the start."""

    def __init__(self, quiet: bool):
        self.quiet, self.begin = quiet, time.monotonic()

    def note(self, text: str) -> None:
        if not self.quiet:
            plain = " ".join(text.split())
            print(f"{time.monotonic() - self.begin:6.0f} s  {plain[:400]}", file=sys.stderr, flush=True)


def leave(status: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(status)


def environments(
    store: Annotated[str, typer.Option(help="Folder of environments.")] = "",
    limit: Annotated[
        float | None, typer.Option(help="Remove the longest unused until all fit in this many GB.")
    ] = None,
) -> None:
    """List the environments that bisect has made; `--limit 0` removes all that are not in use."""
    from torchtriage.bisect.environments import Store
    from torchtriage.bisect.errors import BadInput
    from torchtriage.bisect.provide import store_folder
    from torchtriage.bisect.sources import Sources

    folder = store_folder(store)
    known = Store(folder, Sources(), ())
    try:
        if limit is not None:
            removed, freed = known.clean(bytes_of(limit, "--limit"))
            print(f"{removed} removed, {freed / 1e9:.2f} GB freed")
        listed = known.all()
    except (BadInput, OSError) as error:
        print(f"torchtriage: {error}", file=sys.stderr)
        leave(2)
    if not listed:
        print(f"no environments in {folder}")
    for environment, holds, used in listed:
        when = time.strftime("%Y-%m-%d", time.localtime(used))
        print(f"{environment.bytes / 1e9:6.2f} GB  used {when}  {' '.join(holds)}  {environment.folder}")
    if len(listed) > 1:
        total = sum(environment.bytes for environment, _, _ in listed)
        print(f"{total / 1e9:6.2f} GB  in {len(listed)} environments")
