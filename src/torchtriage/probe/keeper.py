"""Keeps one trial within its limits, from outside of it, and leaves nothing of it behind.

Uses only the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
HEAD, TAIL = 8 << 10, 24 << 10
"""Bytes of output that are kept: a message to the lab has to hold them."""


@dataclass
class Limits:
    """Seconds of wall time, bytes of resident memory (all processes of the trial together)."""

    seconds: float = 120.0
    bytes: int = 8 << 30


def prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the lab's own clean-up has to do."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def die_with_parent() -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def descendants(root: int) -> dict[int, int]:
    """pid -> resident bytes of every process below `root`."""
    parents: dict[int, list[tuple[int, int]]] = {}
    page = os.sysconf("SC_PAGE_SIZE")
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[0] != b"Z":
            parents.setdefault(int(fields[1]), []).append((int(name), int(fields[21]) * page))
    found: dict[int, int] = {}
    queue = [root]
    while queue:
        for pid, resident in parents.get(queue.pop(), ()):
            found[pid] = resident
            queue.append(pid)
    return found


def private_bytes(pids: list[int]) -> int:
    """Memory that ends with these processes: what they share with the stage is not counted."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                for line in file:
                    if line.startswith((b"Private_Dirty", b"Private_Clean")):
                        total += int(line.split()[1]) << 10
        except OSError:
            continue
    return total


class Output:
    """The head and the tail of what a process prints."""

    def __init__(self) -> None:
        self.head, self.tail, self.total = b"", b"", 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = HEAD - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        self.tail = (self.tail + data)[-TAIL:]

    def text(self) -> str:
        cut = self.total - len(self.head) - len(self.tail)
        middle = f"\n... {cut} bytes cut ...\n".encode() if cut > 0 else b""
        return (self.head + middle + self.tail).decode(errors="replace")


def keep(
    start: Callable[[], None] | None, limits: Limits, lab: socket.socket | None
) -> dict[str, Any] | None:
    """Fork a child and watch it; returns how it ended. The caller becomes the reaper of all that it starts.

    The child runs `start` and never returns; without `start`, it returns None from here.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        enter_trial(reading, writing)
        if start is None:
            return None
        try:
            start()
        finally:
            os._exit(127)
    os.close(writing)
    os.set_blocking(reading, False)
    return watch(child, reading, limits, lab)


def enter_trial(reading: int, writing: int) -> None:
    """In the child: its own session, its output to the keeper, no input."""
    os.setsid()
    die_with_parent()
    os.close(reading)
    os.dup2(writing, 1)
    os.dup2(writing, 2)
    os.close(writing)
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)


def watch(child: int, reading: int, limits: Limits, lab: socket.socket | None) -> dict[str, Any]:
    output, begin, peak = Output(), time.monotonic(), 0
    ended, status, reason, next_look, next_count = False, 0, "", 0.0, begin + 0.2
    usage = None
    alarm = end_of(child)
    while True:
        drain(reading, output, 0.0 if ended else 0.05, alarm)
        pid, status_now, usage_now = os.wait4(child, os.WNOHANG) if not ended else (0, 0, None)
        if pid:
            ended, status, usage = True, status_now, usage_now
            break
        now = time.monotonic()
        if now >= next_look:
            below = descendants(os.getpid())
            if sum(below.values()) > limits.bytes or now >= next_count:  # counting what is private takes long
                resident = private_bytes(list(below))
                peak, next_count = max(peak, resident), time.monotonic() + 1.0
                if resident > limits.bytes:
                    reason = "oom"
            next_look = time.monotonic() + 0.1
        if now - begin > limits.seconds:
            reason = "timeout"
        if lab is not None and gone(lab):
            reason = "lab-gone"
        if reason:
            break
    if alarm >= 0:
        os.close(alarm)
    busy = busy_programs() if reason == "timeout" else []
    left = sweep()
    if not ended:
        with contextlib.suppress(ChildProcessError):
            _, status = os.waitpid(child, 0)
    drain(reading, output, 0.0)
    os.close(reading)
    return {
        "reason": reason,
        "signal": signal_name(status) if not reason else "",
        "status": os.waitstatus_to_exitcode(status) if not os.WIFSIGNALED(status) else -1,
        "seconds": time.monotonic() - begin,
        "peak_bytes": max(peak, 0),
        "cpu_seconds": (usage.ru_utime + usage.ru_stime) if usage else 0.0,
        "log": output.text(),
        "left_behind": left,
        "busy": busy,
    }


def end_of(child: int) -> int:
    """A descriptor that can be read once the process has ended; -1 where the system has none. Linux."""
    try:
        return os.pidfd_open(child)
    except (AttributeError, OSError):
        return -1


def drain(reading: int, output: Output, seconds: float, alarm: int = -1) -> None:
    """Read what there is, and wait for more at most `seconds`, or until `alarm` can be read."""
    begin = time.monotonic()
    watched = [reading] if alarm < 0 else [reading, alarm]
    while True:
        ready, _, _ = select.select(watched, [], [], seconds)
        if reading not in ready:
            return
        try:
            data = os.read(reading, 1 << 20)
        except BlockingIOError:
            return
        if not data:  # every writer closed it: the trial may still run
            select.select(watched[1:], [], [], seconds)
            return
        output.add(data)
        if time.monotonic() - begin > 0.1:
            return


def busy_programs() -> list[str]:
    """Names of the programs that the trial was running when its time was up."""
    names = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as file:
            names.append(file.read().strip())
    return names


def sweep() -> int:
    """Kill everything below this process. How many processes the trial had left behind."""
    count = 0
    for _ in range(200):
        found = descendants(os.getpid())
        if not found:
            break
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                count += 1
        reap()
        time.sleep(0.005)
    reap()
    return count


def reap() -> None:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return


def gone(lab: socket.socket) -> bool:
    try:
        return lab.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def signal_name(status: int) -> str:
    if not os.WIFSIGNALED(status):
        return ""
    try:
        return signal.Signals(os.WTERMSIG(status)).name
    except ValueError:
        return f"SIG{os.WTERMSIG(status)}"
