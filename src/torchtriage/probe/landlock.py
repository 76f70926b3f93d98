"""Landlock, Linux's way for a process without privileges to give up writing outside of some folders, for good.

See https://docs.kernel.org/userspace-api/landlock.html. Kernels before 5.13, and those that have it turned off, do nothing.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""The same on every architecture."""
VERSION_FLAG, PATH_BENEATH, NO_NEW_PRIVILEGES = 1, 1, 38
WRITE_FILE, REFER, TRUNCATE = 1 << 1, 1 << 13, 1 << 14
REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
"""Remove folders and files; make files, folders, links, sockets, pipes and devices."""


class Ruleset:
    """Folders below which writing stays allowed. `enter` makes no lock and loads nothing: it may be called after a fork."""

    def __init__(self, libc: ctypes.CDLL, descriptor: int):
        self.libc, self.descriptor = libc, descriptor
        self.prctl, self.syscall = libc.prctl, libc.syscall

    def enter(self) -> bool:
        """From now on this thread and what it starts write below the folders only."""
        self.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        return bool(self.syscall(RESTRICT_SELF, self.descriptor, 0) == 0)

    def close(self) -> None:
        os.close(self.descriptor)


def ruleset(folders: Iterable[str]) -> Ruleset | None:
    """None where the kernel has no Landlock."""
    version = version_of_kernel()
    if version < 2:  # the first could not move files between folders at all
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    rights = WRITE_FILE | REMOVE_AND_MAKE | REFER | (TRUNCATE if version >= 3 else 0)
    wanted = struct.pack("=Q", rights)
    descriptor = libc.syscall(CREATE_RULESET, wanted, ctypes.c_size_t(len(wanted)), 0)
    if descriptor < 0:
        return None
    for folder in folders:
        allow(libc, descriptor, folder, rights)
    return Ruleset(libc, descriptor)


def restrict(folders: Iterable[str]) -> bool:
    """Give up writing outside of these folders, for good. False where the kernel has no Landlock."""
    rules = ruleset(folders)
    if rules is None:
        return False
    try:
        return rules.enter()
    finally:
        rules.close()


def version_of_kernel() -> int:
    """The version of Landlock that the kernel has; 0 or less: none."""
    if platform.system() != "Linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION_FLAG))


def allow(libc: ctypes.CDLL, ruleset: int, folder: str, rights: int) -> None:
    try:
        opened = os.open(folder, os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY)
    except OSError:  # what is not there cannot be written to
        return
    try:
        rule = struct.pack("=Qi", rights, opened)
        libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, rule, 0)
    finally:
        os.close(opened)
