"""Keeps a script that a reducer has changed from changing files that are not its own.

A program may clean up its output folder; with one argument less, the same line may clean up a home folder. A script runs
in a folder of its own that has the program's files as links. What it writes there becomes a copy: the link is replaced
just before the file is opened. Everything else outside is a PermissionError, from an audit hook for what Python opens,
and from Landlock, where the kernel has it, for what C++ code and processes of the script do.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import sys
import tempfile
from typing import Any

import torch

from torchtriage.probe import landlock

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: audit event -> for each path that it changes: position of the path and of its folder's descriptor, whether links are
#: followed (what a link points to is changed then)
CHANGES: dict[str, tuple[tuple[int, int, bool], ...]] = {
    "os.remove": ((0, 1, False),), "os.rmdir": ((0, 1, True),), "os.mkdir": ((0, 2, False),),
    "os.rename": ((0, 2, False), (1, 3, False)), "os.link": ((1, 3, False),), "os.symlink": ((1, 2, False),),
    "os.truncate": ((0, 9, True),), "os.chmod": ((0, 2, True),), "os.chown": ((0, 3, True),), "os.utime": ((0, 3, True),),
    "shutil.rmtree": ((0, 1, True),),
}  # fmt: skip
MOST_ENTRIES, LARGEST = 10_000, 1 << 30
"""Entries of a folder, bytes of a file, up to which a script gets a copy of it to change."""
REFUSAL = "torchtriage keeps reduced scripts from changing"


def put_up(folder: str, *allowed: str) -> None:
    """From now on this process and its forks change files below the given folders only. Others raise PermissionError.

    `folder`: the script's own, whose links are replaced by copies when they are written to.
    """
    roots = (folder, *allowed, tempfile.gettempdir(), "/dev", "/proc")
    sys.addaudithook(Fence(folder, roots))
    tell_of_saved_files()
    landlock.restrict(roots)


def tell_of_saved_files() -> None:
    """torch.save opens its file in C++, which no audit hook sees."""
    real = torch.save

    @functools.wraps(real)
    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(f, (str, os.PathLike)):
            sys.audit("open", os.fspath(f), "w", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        real(obj, f, *args, **kwargs)

    torch.save = save


class Fence:
    """An audit hook."""

    def __init__(self, folder: str, roots: tuple[str, ...]):
        self.folder = os.path.realpath(folder)
        self.roots = tuple(os.path.realpath(root) + os.sep for root in roots)
        self.busy = False

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if self.busy or not (event == "open" or event in CHANGES or event == "os.system"):
            return
        self.busy = True  # what is done here has events of its own
        try:
            self.look(event, args)
        finally:
            self.busy = False

    def look(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "os.system":
            raise PermissionError("torchtriage runs no shell commands of reduced scripts")
        if event == "open":
            path, mode, flags = args
            flags = flags if isinstance(flags, int) else 0
            if flags & WRITES or any(c in (mode or "") for c in "wax+"):
                fresh = bool(flags & os.O_TRUNC) or "w" in (mode or "")
                self.check(path, fresh=fresh)
            return
        for position, descriptor, follows in CHANGES[event]:
            if position < len(args):
                base = args[descriptor] if descriptor < len(args) else -1
                self.check(args[position], base, follows)

    def check(self, path: Any, base: Any = -1, follows: bool = True, fresh: bool = False) -> None:
        """Make what is to be changed the script's own, where it lies in its folder; raise where it is not.

        `base`: descriptor of the folder that a relative path begins in; -1: the working folder. `fresh`: the old
        content is not needed.
        """
        if not isinstance(path, (str, bytes, os.PathLike)):
            return  # a descriptor: it was looked at when it was opened
        full = os.path.normpath(os.path.join(folder_of(base), os.fsdecode(path)))
        if (full + os.sep).startswith(self.folder + os.sep):
            self.make_own(full, follows, fresh)
        head, tail = os.path.split(full)
        real = os.path.realpath(full) if follows else os.path.join(os.path.realpath(head), tail)
        if not (real + os.sep).startswith(self.roots):
            raise PermissionError(f"{REFUSAL} {real}")

    def make_own(self, full: str, follows: bool, fresh: bool) -> None:
        """Replace the links on the way to a path by folders of links, and a link at its end by what it points to."""
        at = self.folder
        *parents, last = os.path.relpath(full, self.folder).split(os.sep)
        for part in parents:
            at = os.path.join(at, part)
            if os.path.islink(at) and os.path.isdir(at):
                own_folder(at)
        at = os.path.join(at, last)
        if not follows or not os.path.islink(at):
            return
        if os.path.isdir(at):
            own_folder(at)
        elif os.path.exists(at):
            own_file(at, fresh)


def folder_of(descriptor: Any) -> str:
    if isinstance(descriptor, int) and descriptor >= 0:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    return os.getcwd()


def own_folder(link: str) -> None:
    target = os.path.realpath(link)
    with os.scandir(target) as entries:
        found = [entry.name for entry in itertools.islice(entries, MOST_ENTRIES)]
    os.unlink(link)
    os.mkdir(link)
    for name in found:
        os.symlink(os.path.join(target, name), os.path.join(link, name))


def own_file(link: str, fresh: bool) -> None:
    target = os.path.realpath(link)
    if not fresh and os.path.getsize(target) > LARGEST:
        raise PermissionError(f"{REFUSAL} {target}")
    os.unlink(link)
    if not fresh:
        shutil.copyfile(target, link)
