"""Brings up a stage or a fresh trial: judge, environment, target; then hands over to the program."""

from __future__ import annotations

import functools
import os
import signal
import socket
import sys
import threading
from typing import Any

from torchtriage.model.outcome import one_line
from torchtriage.probe import environment, exceptions, intercept, judge, keeper, program, wire
from torchtriage.probe.stage import Plan, Stage, run_program, send_end


def run(request: dict[str, Any], control: socket.socket | None) -> None:
    """Run the target of `request`. In a stage, stay afterwards as the parent of the holders."""
    known = Plan.__dataclass_fields__
    plan = Plan(**{k: v for k, v in request.items() if k in known})
    stage = Stage(control, plan)
    if control is not None:
        start_judge(stage, control)
        guard_exit(stage)
        stage.rest = functools.partial(rest, stage)
    intercept.set_dispatcher(stage)
    try:
        loaded = program.load(program.Target.from_json(request["target"]))
    except program.BadTarget as error:
        stage.send({"event": "bad-target", "text": str(error)})
        rest(stage)
        return
    except BaseException as error:
        stage.send(
            {
                "event": "bad-target",
                "text": f"it fails while it is imported: {one_line(exceptions.describe(error))}",
            }
        )
        rest(stage)
        return
    call = loaded.run
    if request["target"]["kind"] == "callable":
        call = functools.partial(run_callable, stage, loaded.run)
    run_program(stage, call)
    rest(stage)


def run_callable(stage: Stage, function: Any) -> None:
    """Call the target; when that compiles nothing, the target itself is what to compile."""
    function()
    if stage.count == 0 and stage.trial is None:
        intercept.compile_as_program(function, {})()


def start_judge(stage: Stage, control: socket.socket) -> None:
    """Fork the judge and send the lab its end, with what there is to say about the machine."""
    ours, theirs = wire.pair()
    child = os.fork()
    if child == 0:
        theirs.close()
        control.close()
        judge.serve(ours)
    ours.close()
    stage.send({"event": "judge", "pid": child}, theirs.fileno())
    theirs.close()
    stage.send({"event": "environment", "environment": environment.collect()})


def guard_exit(stage: Stage) -> None:
    """os._exit in the program must not take the holders with it."""
    real, home = os._exit, os.getpid()

    def leave(status: int) -> None:
        if os.getpid() == home and threading.get_ident() == stage.main:
            send_end(stage, None, status)
            rest(stage)
        trial = stage.trial
        if trial is not None and os.getpid() == trial.pid and not trial.finished:
            trial.finish(None, left=status)
        real(status)

    os._exit = leave  # type: ignore[assignment]


def rest(stage: Stage) -> None:
    """Wait until the lab is done: the holders die with this process."""
    if stage.control is None:
        sys.exit(1)
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGINT", "SIGTERM"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    stage.control.settimeout(None)
    while wire.receive(stage.control) is not None:
        pass
    keeper.sweep()
    os.kill(os.getpid(), signal.SIGKILL)
