"""What can end a bisection early, each with one line for the user."""

from __future__ import annotations


class BadInput(Exception):
    """What was asked for cannot be: exit status 2."""


class Stopped(Exception):
    """Something outside (network, disk) is in the way; the same command goes on later: exit status 3."""


class Unreachable(Stopped):
    """An index or file server does not answer."""


class CannotInstall(Exception):
    """This version has no environment, for a reason of its own: a skip."""
