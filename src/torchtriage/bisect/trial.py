"""Runs the target once in one environment, in a process group of its own with a time limit, and reads what it did."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchtriage.bisect.errors import BadInput, Stopped
from torchtriage.bisect.judge import Kind, Observed, Signature, normalised, signal_name

RUNNER = Path(__file__).parent / "inside" / "runner.py"
#: Characters of output that are kept.
TAIL = 4000
#: A stale cache can cause or hide a failure.
CACHES_OFF = {
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


@dataclass(frozen=True)
class Target:
    """What is run: `kind` is script, module, callable, pytest or command."""

    kind: str
    name: str
    args: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """As on a command line, after the interpreter where there is one."""
        shown = {"module": ["-m", self.name], "pytest": ["-m", "pytest", self.name]}
        return [*shown.get(self.kind, [self.name]), *self.args]


@dataclass(frozen=True)
class Question:
    """How the target is to be run, or what else the runner is asked (`kind` as the runner knows it)."""

    watch: bool = False
    patches: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    kind: str = ""
    steps: int = 0
    imports: tuple[str, ...] = ()

    def key(self) -> str:
        return json.dumps([self.watch, self.patches, self.kind, self.steps], sort_keys=True)


class Runner:
    """Starts runs and can end all of them."""

    def __init__(self, target: Target, folder: Path, seconds: float, fresh_kernels: bool = False):
        self.target, self.folder, self.seconds, self.fresh = target, folder, seconds, fresh_kernels
        self.lock = threading.Lock()
        self.running: set[subprocess.Popen[bytes]] = set()
        self.closed = False

    def run(self, python: Path, version: str, question: Question) -> Observed:
        """Run once. Raises BadInput where the command itself cannot be started."""
        with tempfile.TemporaryDirectory(prefix="run-", dir=self.folder) as scratch:
            folder = Path(scratch)
            command = self._command(python, question, folder)
            environment = self._environment(python, version, folder)
            begin = time.monotonic()
            status, timed_out, tail = self._wait(command, environment, folder)
            seconds = time.monotonic() - begin
            report = read(folder / "out.json")
        return conclude(
            report, status, timed_out, tail, seconds, self.target.kind == "command" and not question.kind
        )

    def close(self) -> None:
        """End what runs."""
        with self.lock:
            self.closed = True
            for process in self.running:
                end(process)

    def _command(self, python: Path, question: Question, folder: Path) -> list[str]:
        target = self.target
        if target.kind == "command" and not question.kind:
            return target.words()
        spec = {
            "kind": question.kind or target.kind, "as": target.kind, "name": target.name, "args": target.args,
            "out": str(folder / "out.json"), "watch": question.watch, "patches": question.patches,
            "steps": question.steps, "imports": question.imports,
        }  # fmt: skip
        (folder / "spec.json").write_text(json.dumps(spec))
        return [str(python), str(RUNNER), str(folder / "spec.json")]

    def _environment(self, python: Path, version: str, folder: Path) -> dict[str, str]:
        kernels = folder / "kernels" if self.fresh else self.folder / "kernels" / version
        kernels.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join((str(python.parent), os.environ.get("PATH", os.defpath)))
        return {
            **{k: v for k, v in os.environ.items() if k != "PYTHONHOME"},
            **CACHES_OFF,
            "PATH": path,
            "VIRTUAL_ENV": str(python.parent.parent),
            "TORCHINDUCTOR_CACHE_DIR": str(kernels),
            "TRITON_CACHE_DIR": str(kernels / "triton"),
            "TORCHTRIAGE_VERSION": version,
        }

    def _wait(self, command: list[str], environment: dict[str, str], folder: Path) -> tuple[int, bool, str]:
        """(exit status, whether it timed out, the end of its output)."""
        with open(folder / "output", "w+b") as output:
            with self.lock:
                if self.closed:
                    raise Stopped("interrupted")
                try:
                    process = subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                        env=environment, start_new_session=True,
                    )  # fmt: skip
                except OSError as error:
                    raise BadInput(f"cannot start {command[0]}: {error.strerror}") from error
                self.running.add(process)
            timed_out = False
            try:
                process.wait(self.seconds)
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                end(process)
                with self.lock:
                    self.running.discard(process)
            if self.closed:
                raise Stopped("interrupted")
            size = output.seek(0, os.SEEK_END)
            output.seek(max(0, size - TAIL))
            return process.returncode, timed_out, output.read().decode("utf-8", "replace")


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it has started."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


EXTRA = ("configs", "tables", "packages", "operators")


def conclude(
    report: dict[str, Any], status: int, timed_out: bool, tail: str, seconds: float, plain: bool
) -> Observed:
    """The outcome, from the runner's report and how the process ended. `plain`: a command without our runner."""
    error = report.get("exception")
    kind, signature = how_it_ended(report, status, timed_out, tail, plain)
    steps = report.get("steps") or ()
    return Observed(
        kind=kind,
        signature=signature,
        status=status if not error or error.get("status") is None else int(error["status"]),
        seconds=round(seconds, 3),
        differences=tuple(map(str, report.get("differences") or ())),
        steps=tuple(float(step) for step in steps),
        compile_seconds=report.get("compile_seconds"),
        memory=report.get("memory"),
        recompiles=report.get("recompiles"),
        graph_breaks=report.get("graph_breaks"),
        facts=report.get("facts") or {},
        extra={name: report[name] for name in EXTRA if name in report},
        tail=tail,
    )


def how_it_ended(
    report: dict[str, Any], status: int, timed_out: bool, tail: str, plain: bool
) -> tuple[Kind, Signature | None]:
    importing = not plain and report.get("phase", "start") in ("start", "import")
    if timed_out:
        return ("import" if importing else "timeout"), Signature("timeout", "takes too long")
    if status < 0 or (plain and 128 < status < 160):
        name = signal_name(-status if status < 0 else status - 128)
        frames = tuple(re.findall(r'File ".*?(torch/[\w./]+)", line \d+ in (\S+)', tail)[:3])
        places = tuple(f"{file}:{function}" for file, function in reversed(frames))
        return ("import" if importing else "killed"), Signature("killed", f"killed by {name}", "", places)
    error = report.get("exception")
    if error and error.get("status") is None:
        found = Signature(
            "raised", error["inner"], normalised(error["message"]), tuple(error.get("frames") or ())
        )
        kind: Kind = "import" if importing else "unusable" if is_unusable(error) else "raised"
        return kind, found
    if importing:
        return "import", Signature("exit", f"ends with exit status {status} while it is imported")
    if status:
        return "exit", Signature("exit", f"exit status {status}")
    return "ok", None


def is_unusable(error: dict[str, Any]) -> bool:
    return error["inner"] == "RuntimeError" and str(error["message"]).startswith("pytest: ")
