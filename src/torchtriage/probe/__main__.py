"""Entry of the processes that hold the user's program. Started by the lab, never by a person.

`python __main__.py stage CONTROL_FD JOB_FILE` is a stage, `nursery CONTROL_FD PATTERNS` what runs the program anew
for each trial, `scripts CONTROL_FD PATTERNS IMPORT...` what runs the candidates of a reducer, `judge CONTROL_FD` a judge of its own.
"""

from __future__ import annotations

import json
import os
import socket
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
    if role == "judge":
        from torchtriage.probe import judge, wire

        judge.serve(wire.from_descriptor(int(rest[0])))
    elif role == "stage":
        stage(int(rest[0]), rest[1])
    elif role == "nursery":
        nursery(int(rest[0]), rest[1] == "patterns")
    elif role == "scripts":
        scripts(int(rest[0]), rest[1] == "patterns", rest[2:])


def nursery(descriptor: int, patterns: bool) -> None:
    """Hold torch, imported, and nothing of the program; fork for each job, and run the program from its start."""
    import functools

    from torchtriage.probe import wire

    control = wire.from_descriptor(descriptor)
    if not bring_up(None):
        return
    from torchtriage.probe import compat, start
    from torchtriage.probe.stage import hold_call

    job = hold_call(control, functools.partial(compat.warm_up, patterns))
    with open(job["file"]) as file:
        request = json.load(file)
    start.run(request, None)


def scripts(descriptor: int, patterns: bool, imports: list[str]) -> None:
    """Hold torch, imported and as it is; fork for each script, and run it.

    `imports`: import statements of installed packages, which scripts then need not wait for.
    """
    import contextlib
    import gc

    from torchtriage.probe import compat, keeper, wire

    keeper.die_with_parent()
    control = wire.from_descriptor(descriptor)
    compat.skip_in_dynamo("torchtriage")
    from torchtriage.probe import script
    from torchtriage.probe.stage import hold_call

    def warm_up() -> None:
        compat.warm_up(patterns)
        compat.rehearse()
        for statement in imports:
            with contextlib.suppress(Exception):
                exec(statement, {})
        gc.collect()
        gc.freeze()  # a collection in a fork would copy every page that objects lie in

    script.run(hold_call(control, warm_up))


def stage(descriptor: int, job_file: str) -> None:
    """Run the target in eager mode under a stage."""
    with open(job_file) as file:
        request = json.load(file)
    from torchtriage.probe import keeper, wire

    keeper.die_with_parent()
    control = wire.from_descriptor(descriptor)
    if bring_up(control):
        from torchtriage.probe import start

        start.run(request, control)


def bring_up(control: socket.socket | None) -> bool:
    """Import torch and put our functions in place. Where that fails, tell the lab why, and be False."""
    from torchtriage.probe import wire

    try:
        import torch  # noqa: F401

        from torchtriage.probe import compat, intercept

        compat.check_version()
    except Exception as error:
        if control is not None:
            wire.send(control, {"event": "unfit", "text": f"{type(error).__name__}: {error}"})
        return False
    intercept.install()
    return True


if __name__ == "__main__":
    main()
