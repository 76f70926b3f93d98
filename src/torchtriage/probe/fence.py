"""Keeps a script that a reducer has changed from writing outside of its own folder.

A program may clean up its output folder; with one argument less, the same line may clean up a home folder.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {
    "os.remove": (0,), "os.rmdir": (0,), "os.rename": (0, 1), "os.truncate": (0,), "os.link": (1,), "os.symlink": (1,),
    "os.chmod": (0,), "os.chown": (0,), "os.mkdir": (0,), "shutil.rmtree": (0,), "shutil.move": (0, 1),
    "shutil.copyfile": (1,), "shutil.copytree": (1,),
}  # fmt: skip
"""Audit event -> which of its arguments are paths that are changed."""


def put_up(*allowed: str) -> None:
    """From now on this process and its forks change files below the given folders only. Others raise PermissionError."""
    roots = tuple(
        os.path.realpath(root) + os.sep for root in (*allowed, tempfile.gettempdir(), "/dev", "/proc")
    )

    def check(path: Any) -> None:
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if isinstance(path, (str, os.PathLike)):
            full = os.path.realpath(path)
            if not (full + os.sep).startswith(roots):
                raise PermissionError(f"torchtriage keeps reduced scripts from changing {full}")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            writes = (flags or 0) & WRITES if mode is None else any(c in mode for c in "wax+")
            if writes or (isinstance(flags, int) and flags & WRITES):
                check(path)
        elif event in CHANGES:
            for position in CHANGES[event]:
                if position < len(args):
                    check(args[position])
        elif event == "os.system":
            raise PermissionError("torchtriage runs no shell commands of reduced scripts")

    sys.addaudithook(hook)
