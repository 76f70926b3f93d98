"""Functions whose compiled form, but not their eager form, does something terrible: `deaths.py MARK [NAMES]`.

Each is a region of its own, named after what it does, so that a trial can compile one and leave the others alone.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

import torch

MARK = sys.argv[1]


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
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            os.close(descriptor)


def raise_without_output():
    close_output()
    raise ValueError("nobody will see this")


DO = {
    "print": print_much,
    "close": close_output,
    "child": lambda: subprocess.Popen(["sleep", MARK], start_new_session=True),
    "grandchild": lambda: subprocess.run(
        ["sh", "-c", f"setsid sh -c 'trap \"\" TERM HUP INT; sleep {MARK}' &"], check=True
    ),
    "fpe": lambda: os.kill(os.getpid(), signal.SIGFPE),
    "segv": lambda: ctypes.string_at(0),
    "compile:segv": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "exit": lambda: os._exit(7),
    "exit-0": lambda: os._exit(0),
    "compile:exit": lambda: os._exit(7),
    "sys-exit": lambda: sys.exit(5),
    "grow": grow,
    "allocate": lambda: torch.empty(1 << 50),
    "memory-error": lambda: bytearray(1 << 60),
    "hang": hang,
    "compile:hang": hang,
    "compile:wait": lambda: subprocess.run(["sleep", MARK], check=True),
    "close-raise": raise_without_output,
    "keeper": lambda: (os.kill(os.getppid(), signal.SIGKILL), time.sleep(5)),
}


def region(kind):
    def backend(graph, inputs):
        if kind.startswith("compile:"):
            DO[kind]()
            return graph

        def run(*args):
            DO[kind]()
            return graph(*args)

        return run

    def double(x):
        return x * 2

    double.__qualname__ = kind
    return torch.compile(double, backend=backend)


for name in sys.argv[2:] or DO:
    print(name, region(name)(torch.ones(3)).sum().item(), flush=True)
