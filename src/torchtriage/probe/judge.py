"""The judge: a healthy process that reads the records of a trial and says what differs.

It never runs anything of the user's, so a trial that poisons its own process cannot mislead it.
"""

from __future__ import annotations

import os
import socket
import traceback
from typing import Any

import torch

from torchtriage.oracle.compare import compare_ends, compare_records
from torchtriage.oracle.exceptions import same_meaning
from torchtriage.probe import capture, flavours, keeper, wire
from torchtriage.probe.perform import grad_path

MOST = 40


def serve(lab: socket.socket) -> None:
    """Answer requests until the lab goes. Never returns."""
    keeper.die_with_parent()
    torch.set_num_threads(1)
    while True:
        message = wire.receive(lab)
        if message is None:
            os._exit(0)
        request, _ = message
        try:
            if request.get("kind") == "end":
                reply = judge_end(request["eager"], request["trial"], request["others"])
            else:
                reply = judge(request["reference"], request["trial"])
        except Exception:
            reply = {"error": traceback.format_exc()[-4000:]}
        wire.send(lab, reply)


def judge_end(eager: str, trial: str, others: list[str]) -> dict[str, Any]:
    """Compare what two runs of the whole program left behind."""
    ours, theirs = read(trial), read(eager)
    rivals = [record for path in others if (record := read(path)) is not None]
    if ours is None or theirs is None or not rivals or ours["calls"] != theirs["calls"]:
        return {"differences": []}
    return {"differences": compare_ends(theirs, ours, rivals)[:MOST]}


def judge(reference: str, trial: str) -> dict[str, Any]:
    """Compare one call. `reference` is a folder of eager references, `trial` the file of the compiled record."""
    eager = read(os.path.join(reference, "eager.pt"))
    compiled = read(trial)
    if eager is None:
        return {"verdict": "no-reference"}
    if compiled is None:
        return {"verdict": "no-record"}
    names = [n for n in flavours.FLAVOURS if n != "eager"]
    others = {n: r for n in names if (r := read(os.path.join(reference, f"{n}.pt"))) is not None}
    facts = {"rng_used": eager.get("rng_used", False), "flavours": sorted(others)}
    if eager["status"] == "returned" and others.get("again", {}).get("status") == "returned":
        facts["repeats"] = not compare_records(eager, others["again"], {})
    if eager["status"] == "raised" or compiled["status"] == "raised":
        return {**facts, **judge_raised(eager, compiled)}
    unreadable = eager.get("unreadable") or compiled.get("unreadable")
    found = [] if unreadable else compare_records(eager, compiled, others)
    result: dict[str, Any] = {**facts, "verdict": "compared"}
    backward = judge_backward(reference, trial, names)
    found += backward.pop("differences", [])
    found.sort(key=lambda d: bool(d.get("noise")))
    return {**result, "differences": found[:MOST], "more": max(0, len(found) - MOST), **backward}


def judge_raised(eager: dict[str, Any], compiled: dict[str, Any]) -> dict[str, Any]:
    if eager["status"] != "raised":
        return {"verdict": "raised", "exception": compiled["exception"]}
    if compiled["status"] != "raised":
        return {"verdict": "missing-exception", "exception": eager["exception"]}
    if same_meaning(eager["exception"], compiled["exception"]):
        return {"verdict": "both-raised", "exception": eager["exception"], "compiled": compiled["exception"]}
    return {"verdict": "raised", "exception": compiled["exception"], "eager": eager["exception"]}


def judge_backward(reference: str, trial: str, names: list[str]) -> dict[str, Any]:
    """Compare the backward of one call, where both ran one."""
    eager = read(grad_path(os.path.join(reference, "eager.pt")))
    compiled = read(grad_path(trial))
    if eager is None or compiled is None:
        return {}
    if eager["status"] == "returned" and compiled["status"] == "returned":
        paths = {n: grad_path(os.path.join(reference, f"{n}.pt")) for n in names}
        others = {n: r for n, path in paths.items() if (r := read(path)) is not None}
        return {"differences": compare_records(eager, compiled, others), "backward": True}
    raised = judge_raised(eager, compiled)
    if raised["verdict"] == "both-raised":
        return {"backward": True}
    return {"backward_verdict": raised["verdict"], "backward_exception": raised["exception"]}


def read(path: str) -> dict[str, Any] | None:
    try:
        return capture.load(path)
    except (FileNotFoundError, EOFError, RuntimeError):
        return None
