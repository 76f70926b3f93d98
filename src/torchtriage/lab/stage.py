"""The lab's end of one stage process: what it says, its judge, and its holders."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchtriage.probe import keeper, wire

ENTRY = Path(__file__).resolve().parent.parent / "probe" / "__main__.py"


class StageError(Exception):
    """The stage could not be brought to where it was wanted; the text is for the user."""


@dataclass
class Survey:
    """What the eager run of the program showed."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    regions: list[dict[str, Any]] = field(default_factory=list)
    exception: dict[str, Any] | None = None
    exit: Any = None
    truncated: bool = False
    ended: bool = False
    killed: str = ""
    cuda: bool = False
    unforkable: str = ""
    """Why trials have to be processes of their own, where they do."""
    elsewhere: int = 0
    """Calls in other threads than the one that is watched."""
    bad_target: str = ""
    unfit: str = ""
    environment: dict[str, Any] = field(default_factory=dict)
    configs: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    holders: list[int] = field(default_factory=list)
    seconds: float = 0.0
    log: str = ""

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


class Forked:
    """A process that was forked here, with the few methods of Popen that a stage needs."""

    def __init__(self, pid: int):
        self.pid = pid
        self.status: int | None = None

    def poll(self) -> int | None:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def wait(self) -> int:
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


class Stage:
    """One stage process, from its start to its end. `close` ends everything that it started."""

    def __init__(
        self,
        request: dict[str, Any],
        folder: Path,
        env: Mapping[str, str],
        python: str,
        live: Callable[[int, Path, dict[str, Any]], int] | None = None,
        waiting: Waiting | None = None,
    ):
        """`live` forks this very process into the stage, for objects that cannot be named; it returns the pid."""
        folder.mkdir(parents=True, exist_ok=True)
        self.survey = Survey()
        self.waiting = waiting or Waiting()
        self.output = folder / "stage.out"
        self.printed = keeper.Output()
        self.holders: dict[int, socket.socket] = {}
        self.judge: socket.socket | None = None
        self.own_judge: subprocess.Popen[bytes] | None = None
        self.judge_lock = threading.Lock()
        self.holder_lock = threading.Lock()
        self.progress = threading.Condition()
        self.begin = time.monotonic()
        ours, theirs = wire.pair()
        self.control = ours
        self.process: subprocess.Popen[bytes] | Forked
        if live is not None:
            self.process = Forked(live(theirs.fileno(), self.output, request))
        else:
            self.process = self.spawn(request, folder, env, python, theirs.fileno())
        theirs.close()
        self.reader = threading.Thread(target=self.listen, daemon=True)
        self.reader.start()

    def spawn(
        self, request: dict[str, Any], folder: Path, env: Mapping[str, str], python: str, descriptor: int
    ) -> subprocess.Popen[bytes]:
        job = folder / "stage.json"
        job.write_text(json.dumps(request))
        command = [python, str(ENTRY), "stage", str(descriptor), str(job)]
        process = subprocess.Popen(
            command, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            pass_fds=[descriptor], start_new_session=True,
        )  # fmt: skip
        threading.Thread(target=self.drain, args=(process.stdout,), daemon=True).start()
        return process

    def drain(self, pipe: Any) -> None:
        """Keep the head and the tail of what the program prints."""
        while data := pipe.read1(1 << 20):
            self.printed.add(data)
        pipe.close()

    def listen(self) -> None:
        """Read what the stage says until it is gone."""
        while True:
            received = wire.receive(self.control)
            with self.progress:
                if received is None:
                    self.lost()
                    self.progress.notify_all()
                    return
                self.take(*received)
                self.progress.notify_all()

    def take(self, message: dict[str, Any], descriptors: list[int]) -> None:
        survey = self.survey
        match message["event"]:
            case "judge":
                self.judge = wire.from_descriptor(descriptors[0])
            case "holder":
                self.holders[message["call"]] = wire.from_descriptor(descriptors[0])
                survey.holders.append(message["call"])
            case "environment":
                survey.environment = message["environment"]
            case "call":
                survey.calls.append(message)
            case "cuda":
                survey.cuda = True
            case "unforkable":
                survey.unforkable = message["reason"]
            case "bad-target":
                survey.bad_target, survey.ended = message["text"], True
            case "unfit":
                survey.unfit, survey.ended = message["text"], True
            case "enough":
                survey.truncated = True
            case "end":
                survey.ended = True
                survey.regions, survey.configs = message["regions"], message["configs"]
                survey.defaults, survey.elsewhere = message["defaults"], message["elsewhere"]
                survey.exception, survey.exit = message["exception"], message["exit"]
                survey.environment["packages"] = message["packages"]
        survey.seconds = time.monotonic() - self.begin

    def lost(self) -> None:
        """The stage process is gone before it was closed: a signal killed the eager program."""
        if not self.survey.ended:
            status = self.process.wait()
            self.survey.ended = True
            self.survey.killed = keeper.signal_name(-status) if status < 0 else f"exit status {status}"
        self.survey.log = self.tail()

    def tail(self) -> str:
        """The end of what the program printed in eager mode."""
        text = self.printed.text()
        if not text and self.output.exists():
            text = self.output.read_bytes()[-8000:].decode(errors="replace")
        return text[-8000:]

    def wait(self, seconds: float) -> Survey:
        """Wait until the eager run has ended. Raises StageError when it does not in time."""
        deadline = time.monotonic() + seconds
        with self.progress:
            while not self.survey.ended:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise StageError(f"the program did not end in eager mode within {seconds:.0f} s")
                self.progress.wait(left)
        self.survey.log = self.tail()
        return self.survey

    def ask_judge(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.judge is None:
            return {"error": "there is no judge"}
        with self.judge_lock:
            wire.send(self.judge, request)
            received = wire.receive(self.judge)
        return received[0] if received else {"error": "the judge is gone"}

    def trial(self, call: int, job: dict[str, Any]) -> dict[str, Any]:
        """Run one job at a holder and wait for how it ended."""
        ours, theirs = wire.pair()
        with self.holder_lock:
            wire.send(self.holders[call], job, theirs.fileno())
        theirs.close()
        return self.waiting.wait(ours)

    def release(self, env: Mapping[str, str], python: str) -> None:
        """Give back what the eager program holds (the GPU's memory), and keep a judge of its own."""
        ours, theirs = wire.pair()
        command = [python, str(ENTRY), "judge", str(theirs.fileno())]
        self.own_judge = subprocess.Popen(
            command, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()], start_new_session=True,
        )  # fmt: skip
        theirs.close()
        self.judge = ours
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.control.close()
        for holder in self.holders.values():
            holder.close()
        if self.judge is not None:
            self.judge.close()
        for process in (self.process, self.own_judge):
            if process is not None:
                if process.poll() is None:
                    process.kill()
                process.wait()


class Waiting:
    """The trials that are waited for, so that all can be given up at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connections: set[socket.socket] = set()
        self.over = False

    def wait(self, connection: socket.socket) -> dict[str, Any]:
        """Wait for the keeper at the other end to say how its trial ended."""
        with self.lock:
            self.connections.add(connection)
            if self.over:
                connection.shutdown(socket.SHUT_RDWR)
        received = wire.receive(connection)
        with self.lock:
            self.connections.discard(connection)
        connection.close()
        return received[0] if received else {"reason": "its keeper died"}

    def give_up(self) -> None:
        """End every trial: a keeper whose connection is gone kills what it keeps, and leaves."""
        with self.lock:
            self.over = True
            for connection in self.connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class Nursery:
    """A process that has torch imported and nothing of the program: each trial of rerun mode is a fork of it.

    As good as a fresh process, since the program starts from its first line and no operator has run before, and
    without the seconds that importing the compiler takes.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        python: str,
        patterns: bool,
        role: str = "nursery",
        imports: Sequence[str] = (),
    ):
        """`patterns`: build the pattern tables of a compiler for the CPU beforehand. `imports`: statements to run."""
        self.control, theirs = wire.pair()
        self.lock = threading.Lock()
        command = [python, str(ENTRY), role, str(theirs.fileno()), "patterns" if patterns else "", *imports]
        self.process = subprocess.Popen(
            command, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()], start_new_session=True,
        )  # fmt: skip
        theirs.close()

    def trial(self, job_file: Path, job: Mapping[str, Any], waiting: Waiting) -> dict[str, Any]:
        """Run the program for one job, under its own keeper, and wait for how it ended."""
        ours, theirs = wire.pair()
        message = {"file": str(job_file), **{k: job[k] for k in ("kind", "seconds", "bytes") if k in job}}
        try:
            with self.lock:
                wire.send(self.control, message, theirs.fileno())
        except OSError:
            ours.close()
            return {"reason": "the process that trials are forked from died"}
        finally:
            theirs.close()
        return waiting.wait(ours)

    def close(self) -> None:
        self.control.close()
        self.process.kill()
        self.process.wait()


#: torch's caches: off, since a stale entry can cause or hide a failure.
CACHES_OFF = {
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": "0",
    "TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE": "0",
    "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO": "0",
    "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_REMOTE_PGO": "0",
}
#: Variables that would make our processes write where the user does not expect it, or bisect by themselves.
DROPPED = (
    "TORCH_TRACE", "TORCH_DTRACE", "TORCH_COMPILE_DEBUG", "TORCHDYNAMO_REPRO_AFTER", "TORCHDYNAMO_DISABLE",
    "TORCH_BISECT_BACKEND", "TORCH_BISECT_SUBSYSTEM", "TORCH_BISECT_MAX", "TORCH_COMPILE_BACKEND",
)  # fmt: skip


def environment(store: Path, user: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of stages and trials: the user's, with caches off and one thread until a trial asks for more."""
    env = dict(os.environ if user is None else user)
    for name in DROPPED:
        env.pop(name, None)
    env.update(CACHES_OFF)
    env.update(
        TORCHINDUCTOR_CACHE_DIR=str(store),
        TORCHINDUCTOR_COMPILE_THREADS="1",
        OMP_NUM_THREADS="1",
        PYTHONDONTWRITEBYTECODE="1",
        PYTORCH_NVML_BASED_CUDA_CHECK="1",  # asking for a GPU must not forbid CUDA to forked children
    )
    return env
