"""One compiled function whose compiled form, but not its eager form, does something terrible: `deaths.py KIND [MARK]`."""

import ctypes
import os
import signal
import subprocess
import sys
import time

import torch

KIND = sys.argv[1]
MARK = sys.argv[2] if len(sys.argv) > 2 else "300"


def grow():
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20) * 32))


def hang():
    while True:
        pass


def print_much():
    row = ("x" * 1023 + "\n") * 1024
    for _ in range(300):
        sys.stdout.write(row)


def close_output():
    os.close(1)
    os.close(2)


def leave_child():
    subprocess.Popen(["sleep", MARK], start_new_session=True)


def leave_grandchild():
    subprocess.run(["sh", "-c", f"setsid sh -c 'trap \"\" TERM HUP INT; sleep {MARK}' &"], check=True)


def wait_for_child():
    subprocess.run(["sleep", MARK], check=True)


DO = {
    "fpe": lambda: os.kill(os.getpid(), signal.SIGFPE),
    "segv": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "exit": lambda: os._exit(7),
    "exit-0": lambda: os._exit(0),
    "sys-exit": lambda: sys.exit(5),
    "grow": grow,
    "allocate": lambda: torch.empty(1 << 50),
    "memory-error": lambda: bytearray(1 << 60),
    "hang": hang,
    "print": print_much,
    "close": close_output,
    "child": leave_child,
    "grandchild": leave_grandchild,
    "wait": wait_for_child,
}


def backend(graph, inputs):
    when, _, what = KIND.rpartition(":")
    if when == "compile":
        DO[what]()
        time.sleep(0.1)
        return graph

    def run(*args):
        DO[what]()
        return graph(*args)

    return run


@torch.compile(backend=backend)
def double(x):
    return x * 2


print(double(torch.ones(3)).sum().item())
print(double(torch.ones(3)).sum().item())
