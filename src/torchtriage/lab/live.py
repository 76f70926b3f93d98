"""Where the API meets the probe: diagnosing objects of the calling process. Imports torch only when it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torchtriage.lab.local import Live


class CannotFork(Exception):
    """This process cannot be forked; the text is one line for the user."""


def launcher(target: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Live:
    """A function that forks this process into a stage that calls `target(*args, **kwargs)`."""
    from torchtriage.probe import live

    try:
        return live.launcher(target, args, kwargs)
    except live.CannotFork as error:
        raise CannotFork(str(error)) from error
