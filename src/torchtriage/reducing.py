"""The front door of `reduce`: from a target to the reproducer, the issue and the bundle in a run folder."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchtriage import api
from torchtriage.api import Settings, UsageError
from torchtriage.lab import runs
from torchtriage.lab.bundle import NAME as BUNDLE
from torchtriage.lab.bundle import make_bundle
from torchtriage.lab.local import Progress
from torchtriage.lab.scripts import ScriptLab
from torchtriage.model.diagnosis import Diagnosis
from torchtriage.model.reduction import Reduction
from torchtriage.reduce import drive, files
from torchtriage.reduce.drive import CannotReduce, Program, Wishes
from torchtriage.report import reduction as reports
from torchtriage.report.files import write
from torchtriage.report.view import headline


@dataclasses.dataclass(frozen=True)
class ReduceSettings:
    """What a person can choose about a reduction. Times in seconds."""

    time_limit: float = 600.0
    """From the start of the search."""
    redact: bool = False
    bundle: bool = True


DEFAULT, USUAL = Settings(), ReduceSettings()


def reduce(
    target: Mapping[str, Any],
    settings: Settings = DEFAULT,
    more: ReduceSettings = USUAL,
    progress: Progress | None = None,
    note: Callable[[str], None] = lambda text: None,
    best: drive.Best = lambda point, text: None,
    command: str = "",
    diagnosis: Diagnosis | None = None,
) -> Reduction:
    """Reduce a program that fails. Raises UsageError for what cannot be reduced; writes repro.py, issue.md, a bundle.

    `diagnosis`: the verdict, where it is known already; else it is made first.
    """
    program = program_of(target)
    if diagnosis is None:
        verdict = dataclasses.replace(settings, verdict_only=True)
        diagnosis = api.run(target, verdict, progress, note, command, finishes=False)
    if diagnosis.kind in ("none", "inconclusive"):
        raise UsageError(f"cannot reduce it: {why_not(diagnosis)}")
    folder = api.run_folder(
        {**target, "redact": more.redact}, dataclasses.replace(settings, verdict_only=True), "-reduce"
    )
    journal = api.open_journal(folder)
    chosen = api.options(settings)
    lab = ScriptLab(
        folder / "scripts", chosen.store, chosen.python, path=program.folders, bytes=chosen.trial_bytes,
        workdir=os.getcwd(), imports=files.installed_imports(program.text, files.reader(program.folders)),
    )  # fmt: skip
    wishes = Wishes(
        jobs=chosen.jobs,
        threads=chosen.user_threads,
        trial_seconds=max(60.0, 30.0 + 5.0 * diagnosis.program.seconds),
        deadline=time.monotonic() + more.time_limit,
        redact=more.redact,
    )
    try:
        found = drive.reduce(lab, program, diagnosis, wishes, journal, folder, note, best)
        bundle = BUNDLE if more.bundle and found.proven else ""
        found = dataclasses.replace(found, folder=runs.shown(folder), command=command, bundle=bundle)
        deliver(found, lab, folder, more, note)
        if not found.stopped:
            runs.finish(folder)
            runs.finish(Path(diagnosis.run_folder))
        return found
    except CannotReduce as error:
        raise UsageError(f"cannot reduce it: {error}") from error
    finally:
        journal.close()
        lab.close()


def why_not(diagnosis: Diagnosis) -> str:
    """Why there is nothing to reduce, in one line."""
    error = diagnosis.program.eager_exception
    if error is not None:
        first = error.message.strip().partition("\n")[0][:200]
        return f"the program fails in eager mode already: {error.type.rpartition('.')[2]}: {first}"
    if diagnosis.kind == "none":
        return "nothing is wrong that could be reduced"
    return headline(diagnosis)


def deliver(
    found: Reduction, lab: ScriptLab, folder: Path, more: ReduceSettings, note: Callable[[str], None]
) -> None:
    """Write the issue, the page and the bundle beside the script."""
    issue = reports.issue(found)
    write(folder / "issue.md", issue)
    write(folder / "reduction.html", reports.page(found))
    write(folder / "reduction.json", json.dumps(found.to_json(), indent=2, default=str) + "\n")
    if found.bundle:
        note("collecting logs for the bundle")
        make_bundle(lab, folder, found.script, issue, found.command, private=more.redact)


def program_of(target: Mapping[str, Any]) -> Program:
    """The text of a target, and where its modules lie. Raises UsageError where it has none."""
    name, args = str(target["name"]), list(target.get("args", ()))
    if target["kind"] == "script":
        path = Path(name, "__main__.py") if Path(name).is_dir() else Path(name)
        if Path(name).is_dir() and not path.is_file():
            raise UsageError(f"the folder {name} has no __main__.py")
        text, folder = read(path), str(path.resolve().parent)
        return Program(with_arguments(text, [name, *args]) if args else text, (folder,))
    if target["kind"] == "module":
        return program_of_module(name, args)
    if target["kind"] == "callable":
        module, _, attribute = name.partition(":")
        if module.endswith(".py"):
            folder, module = str(Path(module).resolve().parent), Path(module).stem
        else:
            folder = os.getcwd()
        first = attribute.partition(".")[0]
        return Program(f"from {module} import {first}\n{attribute}()\n", (folder,))
    raise UsageError("only programs can be reduced: a script, a module or module:function")


def program_of_module(name: str, args: list[str]) -> Program:
    sys.path.insert(0, os.getcwd())
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        spec = None
    finally:
        sys.path.remove(os.getcwd())
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise UsageError(f"no module named {name} that can be run with -m")
    from torchtriage.reduce.files import absolute_text

    text = absolute_text(read(Path(spec.origin)), name)
    return Program(with_arguments(text, [name, *args]) if args else text, (os.getcwd(),))


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error


def with_arguments(text: str, argv: list[str]) -> str:
    """The script with its command line in it: a reproducer is run without one."""
    lines = text.splitlines(keepends=True)
    position = next(
        (i + 1 for i, line in reversed(list(enumerate(lines))) if line.startswith("from __future__")), 0
    )
    lines.insert(position, f"import sys\nsys.argv = {argv!r}\n")
    return "".join(lines)
