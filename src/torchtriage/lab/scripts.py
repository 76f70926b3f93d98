"""Runs scripts in forks of a process that has torch imported: what the reducers try their candidates with."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchtriage.lab.stage import DROPPED, Nursery, Waiting, environment
from torchtriage.probe import landlock
from torchtriage.probe.keeper import signal_name

MOST_FILES = 1000
"""Entries of a folder that scripts find in theirs."""


@dataclass(frozen=True)
class ScriptRequest:
    """One run of one script. See `probe.script.ScriptJob` for what the fields mean there."""

    text: str
    mode: str = "compiled"
    backend: str = ""
    threads: int = 1
    switches: tuple[tuple[str, Any], ...] = ()
    before: str = ""
    caches: bool = False
    fresh_store: bool = False
    covered: bool = False
    aspects: tuple[str, ...] = ()
    seconds: float = 120.0

    def with_(self, **changes: Any) -> ScriptRequest:
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True)
class ScriptEnd:
    """How it ended."""

    exception: dict[str, Any] | None = None
    exit: int | None = None
    signal: str = ""
    reason: str = ""
    """`timeout`, `oom`, or what went wrong with the run itself; empty where it came to its end."""
    past: bool = False
    found: tuple[dict[str, Any], ...] = ()
    counts: dict[str, Any] = field(default_factory=dict)
    covered: frozenset[int] = frozenset()
    notes: dict[str, dict[str, Any]] = field(default_factory=dict)
    sites: tuple[dict[str, Any], ...] = ()
    graphs: tuple[dict[str, Any], ...] = ()
    seconds: float = 0.0
    log: str = ""


class ScriptLab:
    """Runs scripts, several at a time. `close` ends what it started."""

    def __init__(
        self,
        folder: Path,
        store: Path,
        python: str,
        path: tuple[str, ...] = (),
        bytes: int = 8 << 30,
        workdir: str = "",
        imports: tuple[str, ...] = (),
    ):
        """`store`: compiled kernels; `path`: folders of modules that scripts import; `workdir`: files that they read.

        `imports`: statements that import installed packages, run once for all scripts.
        """
        self.imports = imports
        self.folder, self.store, self.python, self.bytes = folder, store, python, bytes
        self.path, self.workdir = path, workdir
        self.folder.mkdir(parents=True, exist_ok=True)
        self.env = environment(store)
        self.waiting = Waiting()
        self.lock = threading.Lock()
        self.serial = 0
        self._nursery: Nursery | None = None

    def nursery(self) -> Nursery:
        with self.lock:
            if self._nursery is not None and self._nursery.process.poll() is not None:
                self._nursery.close()
                self._nursery = None
            if self._nursery is None:
                self._nursery = Nursery(
                    self.env, self.python, patterns=True, role="scripts", imports=self.imports
                )
            return self._nursery

    def run(self, request: ScriptRequest) -> ScriptEnd:
        """Run a script under a keeper of its own, in an empty folder."""
        folder = self.new_folder()
        try:
            return self.conclude(self.start(request, folder), folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def start(self, request: ScriptRequest, folder: Path) -> dict[str, Any]:
        script, job_file = folder / "repro.py", folder / "job.json"
        script.write_text(request.text)
        workdir = folder / "work"
        workdir.mkdir()
        self.link_sources(workdir)
        job = {
            "file": str(script), "folder": str(workdir), "mode": request.mode, "path": self.path,
            "backend": request.backend, "threads": request.threads, "switches": dict(request.switches),
            "before": request.before, "caches": request.caches, "covered": request.covered,
            "aspects": request.aspects, "store": str(folder / "store") if request.fresh_store else "",
        }  # fmt: skip
        job_file.write_text(json.dumps(job))
        limits = {"kind": "script", "seconds": request.seconds, "bytes": self.bytes}
        return self.nursery().trial(job_file, limits, self.waiting)

    def link_sources(self, folder: Path) -> None:
        for source in dict.fromkeys(filter(None, (self.workdir, *self.path))):
            link_files(Path(source), folder)

    def conclude(self, ended: dict[str, Any], folder: Path) -> ScriptEnd:
        log = str(ended.get("log", ""))
        try:
            result = json.loads((folder / "work" / "result.json").read_text())
        except (OSError, ValueError):
            result = None
        if ended.get("reason"):
            return ScriptEnd(reason=ended["reason"], seconds=ended.get("seconds", 0.0), log=log)
        if result is None:
            if ended.get("signal"):
                return ScriptEnd(signal=ended["signal"], log=log)
            return ScriptEnd(exit=ended.get("status", 1), log=log)
        return ScriptEnd(
            exception=result.get("exception"),
            exit=result.get("exit"),
            past=bool(result.get("past")),
            found=tuple(result.get("found", ())),
            counts=result.get("counts", {}),
            covered=frozenset(result.get("covered", ())),
            notes=result.get("notes", {}),
            sites=tuple(result.get("sites", ())),
            graphs=tuple(result.get("graphs", ())),
            seconds=result.get("seconds", 0.0),
            log=log,
        )

    def plain(self, script: Path, seconds: float, compiled: bool = True) -> tuple[int, str]:
        """Run a script by plain `python` in a fresh process. Exit status (124: time-out) and the end of its output.

        It finds the program's files where the program found them, and cannot change them where the kernel can see to it.
        """
        work = self.new_folder()
        self.link_sources(work)
        copy = work / script.name
        copy.unlink(missing_ok=True)
        shutil.copyfile(script, copy)
        rules = landlock.ruleset((str(self.folder), tempfile.gettempdir(), "/dev", "/proc"))
        text = copy.read_bytes()  # what another script left in torch's caches may change how this one ends
        env = self.plain_environment(f"plain-cache-{hashlib.sha256(text).hexdigest()[:12]}")
        if not compiled:
            env["TORCHDYNAMO_DISABLE"] = "1"
        process = subprocess.Popen(
            [self.python, copy.name], cwd=work, env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=rules.enter if rules is not None else None,
        )  # fmt: skip
        if rules is not None:
            rules.close()
        try:
            output, _ = process.communicate(timeout=seconds)
            status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, _ = process.communicate()
            status = 124
        shutil.rmtree(work, ignore_errors=True)
        shown = output.decode(errors="replace").replace(f"{work}{os.sep}", "")[-20_000:]
        return status, shown + (f"\n{signal_name(-status)}" if status < 0 else "")

    def plain_environment(self, cache: str) -> dict[str, str]:
        """The user's environment, with a folder of the lab for the compiler's caches and the program's modules in reach."""
        env = {k: v for k, v in os.environ.items() if k not in DROPPED}
        env["TORCHINDUCTOR_CACHE_DIR"] = str(self.folder / cache)
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (*self.path, env.get("PYTHONPATH", ""))))
        return env

    def new_folder(self) -> Path:
        with self.lock:
            self.serial += 1
            folder = self.folder / f"script-{self.serial}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def close(self) -> None:
        self.waiting.give_up()
        if self._nursery is not None:
            self._nursery.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def link_files(source: Path, target: Path) -> None:
    """The program's working folder as its scripts see it: its entries by link, what is written stays in the copy."""
    for entry in sorted(source.iterdir())[:MOST_FILES]:
        if (
            entry.name not in ("result.json", "runs", "__pycache__")
            and not (target / entry.name).is_symlink()
        ):
            (target / entry.name).symlink_to(entry.resolve())
