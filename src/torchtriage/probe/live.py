"""Forks the calling process into a stage for objects that live in it: a model or function and its inputs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchtriage.probe import compat, intercept, keeper, start, switches, wire
from torchtriage.probe.stage import Plan, Stage, run_program


class CannotFork(Exception):
    """This process cannot be forked; the text is one line for the user."""


def launcher(
    target: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Callable[[int, Path, dict[str, Any]], int]:
    """A function that forks a stage which calls `target(*args, **kwargs)`. Raises CannotFork where CUDA is in use."""
    import torch

    if torch.cuda.is_initialized():
        raise CannotFork("CUDA is in use in this process, which cannot be forked: diagnose a script instead")
    compat.check_version()

    def launch(descriptor: int, output: Path, request: dict[str, Any]) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child:
            return child
        try:
            become_stage(descriptor, output, request, target, args, dict(kwargs))
        finally:
            os._exit(1)

    return launch


def become_stage(
    descriptor: int,
    output: Path,
    request: dict[str, Any],
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """In the child: never returns."""
    import torch

    os.setsid()
    keeper.die_with_parent()
    copy = os.dup(descriptor)
    out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    control = wire.from_descriptor(copy)
    torch.set_num_threads(1)  # the parent's thread pool does not survive the fork
    for name, value in request.get("env", {}).items():
        os.environ[name] = value
    switches.caches_off()
    intercept.install()
    plan = Plan(**{k: v for k, v in request.items() if k in Plan.__dataclass_fields__})
    stage = Stage(control, plan)
    start.start_judge(stage, control)
    intercept.set_dispatcher(stage)
    plain, arguments = compat.uncompiled(target)
    region = intercept.compile_as_program(plain, arguments)
    run_program(stage, lambda: region(*args, **kwargs))
    start.rest(stage)
