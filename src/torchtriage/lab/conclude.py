"""From what a trial left behind (its event log, how it ended, the judge's word on each call) to one outcome.

Pure: plain data in, a value out. What comes first in the life of the trial decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torchtriage.lab.observed import graph_breaks, recompiles
from torchtriage.model.outcome import (
    Difference,
    Differs,
    ExceptionInfo,
    Exited,
    Inconclusive,
    Killed,
    Measures,
    MissingException,
    Outcome,
    OutOfMemory,
    Raised,
    Same,
    Step,
    TimedOut,
    exception_from_json,
)

Event = Mapping[str, Any]
ALLOCATOR = (
    "can't allocate memory",
    "CUDA out of memory",
    "MemoryError",
    "OutOfMemoryError",
    "std::bad_alloc",
)


def conclude(
    ended: Mapping[str, Any],
    events: Sequence[Event],
    judged: Mapping[int, Mapping[str, Any]],
    eager_end: Mapping[str, Any] | None,
    settled: Sequence[int] = (),
    ends: Sequence[Mapping[str, Any]] = (),
) -> Outcome:
    """`ended` is the keeper's report, `judged` the judge's by call, `eager_end` how the eager run ended."""
    measures = measures_of(ended, events)
    measures = replace(measures, rng_used=any(reply.get("rng_used") for reply in judged.values()))
    log = str(ended.get("log", ""))[-8000:]
    unfit = find(events, "unfit")
    if unfit is not None:
        said = unfit["exception"]
        return Inconclusive(
            measures, log, f"the variant cannot be applied: {said['type']}: {said['message']}"[:500]
        )
    noise: list[Difference] = []
    both: ExceptionInfo | None = None
    for number in sorted(judged):
        reply = judged[number]
        outcome = of_call(number, reply, noise, number in settled)
        if outcome is not None:
            return replace(outcome, measures=replace(measures, eager_repeats=reply.get("repeats")), log=log)
        if reply.get("verdict") == "both-raised":
            both = exception_from_json(reply["exception"])
    outcome = of_process(ended, events, eager_end) or of_end(events, eager_end, judged)
    if outcome is not None:
        return replace(outcome, measures=measures, log=log)
    if ends and not measures.rng_used:
        last = max((e["call"] for e in events if e["event"] == "call"), default=0)
        return Differs(measures, log, tuple(Difference(call=last, **d) for d in ends))
    return Same(measures, log, tuple(noise), both)


def of_call(number: int, reply: Mapping[str, Any], noise: list[Difference], settled: bool) -> Outcome | None:
    """What one call shows; noise is added to `noise`."""
    verdict = reply.get("verdict")
    if verdict == "raised":
        return raised(number, reply["exception"], "forward")
    if verdict == "missing-exception":
        return MissingException(exception=exception_from_json(reply["exception"]), call=number)
    if verdict == "compared":
        found = [Difference(call=number, **d) for d in reply.get("differences", ())]
        if settled:
            found = [replace(d, noise=True) for d in found]
        if any(not d.noise for d in found):
            return Differs(differences=tuple(found))
        noise += found
    if reply.get("backward_verdict") == "raised":
        return raised(number, reply["backward_exception"], "backward")
    if reply.get("backward_verdict") == "missing-exception":
        return MissingException(exception=exception_from_json(reply["backward_exception"]), call=number)
    return None


def raised(number: int | None, plain: Mapping[str, Any], phase: Any) -> Outcome:
    exception = exception_from_json(dict(plain))
    if any(part in f"{exception.type} {exception.message[:2000]}" for part in ALLOCATOR):
        return OutOfMemory(call=number)
    return Raised(exception=exception, call=number, phase=phase)


def of_process(
    ended: Mapping[str, Any], events: Sequence[Event], eager_end: Mapping[str, Any] | None
) -> Outcome | None:
    """How the process itself ended, where that is a finding."""
    call, phase = place(events)
    reason = ended.get("reason", "")
    if find(events, "begin") is None:
        how = reason or ended.get("signal")
        more = f" ({how})" if how else ""
        return Inconclusive(reason=f"the trial did not come to the call{more}{last_line(ended)}")
    if reason == "timeout":
        return TimedOut(seconds=float(ended.get("seconds", 0.0)), phase=phase, call=call)  # type: ignore[arg-type]
    if reason == "oom":
        return OutOfMemory(peak_bytes=int(ended.get("peak_bytes", 0)), call=call)
    if reason:
        return Inconclusive(reason=f"the trial was ended: {reason}")
    if ended.get("signal"):
        return Killed(signal=ended["signal"], call=call)
    died = find(events, "backward-died")
    if died is not None:
        if died["signal"] == "timeout":
            return TimedOut(seconds=600.0, phase="run", call=died["call"])
        if died["signal"] != "failed":
            return Killed(signal=died["signal"], call=died["call"])
    end = find(events, "end")
    left = ended.get("status", 0) if end is None else end.get("left")
    if left is None:
        return None
    theirs = exit_status(eager_end) if eager_end and not eager_end.get("exception") else None
    if eager_end is not None and eager_end.get("exit") is not None and left == theirs:
        return None  # os._exit, as in eager
    return Exited(status=int(left), call=call)


def last_line(ended: Mapping[str, Any]) -> str:
    rows = str(ended.get("log", "")).strip().splitlines()
    return f": {rows[-1][:300]}" if rows else ""


def place(events: Sequence[Event]) -> tuple[int | None, str]:
    """The call that was under way at the end, and whether it was compiling or running."""
    call: int | None = None
    open_call = compiling = False
    for event in events:
        name = event["event"]
        if name in ("call", "backward"):
            call, open_call = event["call"], True
        elif name in ("returned", "raised", "backwarded", "backward-died"):
            open_call = False
        elif name == "compile":
            compiling = True
        elif name == "compiled":
            compiling = False
    if compiling:
        return call, "compile"
    return call, "run" if open_call else "program"


def of_end(
    events: Sequence[Event], eager_end: Mapping[str, Any] | None, judged: Mapping[int, Mapping[str, Any]]
) -> Outcome | None:
    """An exception of the program's, after its regions had returned, that eager does not raise."""
    end = find(events, "end")
    if end is None or end.get("stopped"):
        return None
    exception = end.get("exception")
    theirs = (eager_end or {}).get("exception")
    both = any(reply.get("verdict") == "both-raised" for reply in judged.values())
    if theirs and not both and not theirs["type"].endswith("SystemExit"):
        if exception is None:
            last_call = max((e["call"] for e in events if e["event"] == "call"), default=0)
            return MissingException(exception=exception_from_json(dict(theirs)), call=last_call)
        if exception["type"] == theirs["type"]:
            return None
    if exception is None:
        return None
    if exception["type"].endswith("SystemExit") and eager_end is not None and end.get("exit") is not None:
        if end["exit"] == exit_status(eager_end):
            return None
        return Exited(status=int(end["exit"]), call=max(judged, default=None))
    if both:
        return None
    last = find(events, "raised")
    call = (
        last["call"]
        if last is not None
        else max((e["call"] for e in events if e["event"] == "call"), default=None)
    )
    return raised(call, exception, "forward" if last is not None else "program")


def exit_status(eager_end: Mapping[str, Any]) -> int:
    """The status that sys.exit in the eager program gave: a text counts as 1."""
    code = eager_end.get("exit")
    return code if isinstance(code, int) else int(code is not None)


def find(events: Sequence[Event], name: str) -> Event | None:
    for event in reversed(events):
        if event["event"] == name:
            return event
    return None


def measures_of(ended: Mapping[str, Any], events: Sequence[Event]) -> Measures:
    end = find(events, "end") or {}
    found = end.get("measures") or {}
    notes = end.get("notes") or []
    seconds = float(found.get("compile_seconds", 0.0))
    nodes, file, line = found.get("repeated") or (0, "", 0)
    return Measures(
        graphs=int(found.get("graphs", 0)),
        breaks=int(found.get("breaks", 0)),
        captured=int(found.get("captured", 0)),
        recompiles=int(found.get("recompiles", 0)),
        compile_seconds=seconds or compile_time(ended, events),
        call_seconds=float(found.get("call_seconds", 0.0)),
        step_seconds=found.get("step_seconds"),
        eager_step_seconds=found.get("eager_step_seconds"),
        wall_seconds=float(ended.get("seconds", 0.0)),
        peak_bytes=int(ended.get("peak_bytes", 0)),
        graph_breaks=tuple(graph_breaks(notes)),
        recompile_reasons=tuple(recompiles(notes)),
        steps=tuple(Step(**step) for step in found.get("steps", ())),
        step_count=int(found.get("step_count", 0)),
        calls_seen=int(found.get("calls_seen", 0)),
        calls_compared=int(found.get("calls_compared", 0)),
        repeated_nodes=int(nodes),
        repeated_file=str(file),
        repeated_line=int(line),
        unimplemented=sum(found.get("unimplemented", {}).values()),
        recompile_limit_hit=any("recompile_limit" in str(k) for k in found.get("unimplemented", {})),
    )


def compile_time(ended: Mapping[str, Any], events: Sequence[Event]) -> float:
    """Seconds in compilation of a trial that did not come to its end."""
    total, begin = 0.0, None
    for event in events:
        if event["event"] == "compile":
            begin = float(event["at"])
        elif event["event"] == "compiled" and begin is not None:
            total, begin = total + float(event["at"]) - begin, None
    if begin is not None and events:
        total += max(0.0, float(events[0]["at"]) + float(ended.get("seconds", 0.0)) - begin)
    return total
