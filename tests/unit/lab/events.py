"""What a trial leaves behind, written by hand: the event log of `probe/trial.py`, the keeper's report, the judge's replies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Event = dict[str, Any]
KEPT: Event = {
    "reason": "",
    "signal": "",
    "status": 0,
    "seconds": 2.5,
    "peak_bytes": 1 << 20,
    "log": "printed\n",
}


def kept(**changes: Any) -> Event:
    """How a trial that came to its end ended, unless changes say otherwise."""
    return {**KEPT, **changes}


def log(*names: Any) -> list[Event]:
    """`begin` and one event a second. A string is an event without fields, a pair one of a call, a dict is itself."""
    return list(timed(["begin", *names]))


def timed(names: list[Any]) -> Iterator[Event]:
    for second, name in enumerate(names):
        if isinstance(name, dict):
            yield {"at": 100.0 + second, **name}
        elif isinstance(name, tuple):
            yield {"at": 100.0 + second, "event": name[0], "call": name[1]}
        else:
            yield {"at": 100.0 + second, "event": name}


def whole(call: int) -> list[Any]:
    """A call that was compiled and ran."""
    return [("call", call), "compile", "compiled", ("returned", call)]


def end(**more: Any) -> Event:
    return {"event": "end", "stopped": False, "measures": {}, "notes": [], **more}


def exception(name: str, message: str = "", **more: Any) -> Event:
    """As `probe.exceptions.describe` writes it."""
    return {
        "type": name,
        "message": message,
        "bases": [name.rpartition(".")[2], "Exception"],
        "chain": [],
        "cause_message": message,
        "torch_frames": ["torch/_inductor/graph.py:run"],
        "traceback": "",
        "category": "",
        **more,
    }


def compared(*differences: Event, **more: Any) -> Event:
    return {"verdict": "compared", "differences": list(differences), **more}


def difference(aspect: str = "value", path: str = "output", **more: Any) -> Event:
    return {"path": path, "aspect": aspect, "detail": "differs from eager by 1", **more}
