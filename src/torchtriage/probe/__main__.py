"""Entry of the processes that hold the user's program. Started by the lab, never by a person.

`python __main__.py stage CONTROL_FD JOB_FILE` is a stage, `keep CONTROL_FD JOB_FILE` a keeper that starts one
fresh trial process, `trial JOB_FILE` such a process, `judge CONTROL_FD` a judge of its own.
"""

from __future__ import annotations

import json
import os
import sys


def make_importable() -> None:
    """Our package is importable, and the program's sys.path looks as if we were not there."""
    here = os.path.dirname(os.path.abspath(__file__))
    package_parent = os.path.dirname(os.path.dirname(here))
    if sys.path and os.path.abspath(sys.path[0]) == here:
        sys.path.pop(0)
    try:
        import torchtriage  # noqa: F401
    except ImportError:
        sys.path.append(package_parent)


def main() -> None:
    make_importable()
    role, *rest = sys.argv[1:]
    if role == "keep":
        keep(int(rest[0]), rest[1])
    elif role == "judge":
        from torchtriage.probe import judge, wire

        judge.serve(wire.from_descriptor(int(rest[0])))
    elif role == "stage":
        stage(int(rest[0]), rest[1])
    elif role == "trial":
        stage(None, rest[0])


def keep(descriptor: int, job_file: str) -> None:
    """Start one fresh trial process and keep it within its limits."""
    from torchtriage.probe import keeper, wire

    connection = wire.from_descriptor(descriptor)
    with open(job_file) as file:
        job = json.load(file)

    def start() -> None:
        os.execv(sys.executable, [sys.executable, os.path.abspath(__file__), "trial", job_file])

    limits = keeper.Limits(job["job"].get("seconds", 120.0), job["job"].get("bytes", 8 << 30))
    result = keeper.keep(start, limits, connection)
    wire.send(connection, result or {})
    os._exit(0)


def stage(descriptor: int | None, job_file: str) -> None:
    """Run the target in eager mode under a stage (or as one trial)."""
    with open(job_file) as file:
        request = json.load(file)
    from torchtriage.probe import keeper, wire

    keeper.die_with_parent()
    control = wire.from_descriptor(descriptor) if descriptor is not None else None
    try:
        import torch

        from torchtriage.probe import compat, intercept, start

        compat.check_version()
    except Exception as error:
        fail(control, wire, f"{type(error).__name__}: {error}")
        return
    del torch
    intercept.install()
    start.run(request, control)


def fail(control: object, wire: object, text: str) -> None:
    if control is not None:
        wire.send(control, {"event": "unfit", "text": text})  # type: ignore[attr-defined]
    else:
        print(text, file=sys.stderr)
    os._exit(3)


if __name__ == "__main__":
    main()
