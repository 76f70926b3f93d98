"""What counts as bad: from what one run did to failed, passed or cannot tell. Pure; a row of `MODES` a way to judge."""

from __future__ import annotations

import dataclasses
import difflib
import re
import signal
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

#: ok, raised, killed by a signal, timed out, left with a status, the package cannot be imported, no test to run.
Kind = Literal["ok", "raised", "killed", "timeout", "exit", "import", "unusable"]


@dataclass(frozen=True)
class Signature:
    """What makes two failures the same, from version to version."""

    kind: str
    type: str = ""
    message: str = ""
    """Normalised: without numbers, addresses, paths."""
    frames: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind == "differs":
            return f"compiled differs from eager: {self.message}"
        what = f"{self.type}: {self.message}" if self.message else self.type or self.kind
        return what + (f" (in {self.frames[-1]})" if self.frames else "")


@dataclass(frozen=True)
class Observed:
    """What one run did. Times in seconds, memory in bytes, None where this version does not tell."""

    kind: Kind
    signature: Signature | None = None
    status: int = 0
    seconds: float = 0.0
    differences: tuple[str, ...] = ()
    steps: tuple[float, ...] = ()
    compile_seconds: float | None = None
    memory: int | None = None
    recompiles: int | None = None
    graph_breaks: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Answers of the runner to other questions than a run."""
    tail: str = ""
    """The end of what it printed."""


@dataclass(frozen=True)
class Goal:
    """What is looked for."""

    mode: str = "signature"
    threshold: float = 0.2
    """Part above the baseline that counts as worse, for times and memory."""
    signature: Signature | None = None
    baseline: float | None = None
    """The good end's, in the unit of the measure."""


@dataclass(frozen=True)
class Judged:
    """failed: True bad, False good, None cannot tell; final: nor would another run."""

    failed: bool | None
    reason: str
    final: bool = False


def signature_of(observed: Observed) -> Signature | None:
    """The failure of a run: its exception or death, else its difference from eager."""
    if observed.signature is not None:
        return observed.signature
    if observed.differences:
        return Signature("differs", message="; ".join(sorted(observed.differences)[:8]))
    return None


def normalised(message: str, limit: int = 300) -> str:
    """The message without what moves between versions: numbers, addresses, folders, advice at its end."""
    text = re.split(r"\n\s*(?:Set TORCH|You can suppress|from user code:|The above exception)", message)[0]
    text = re.sub(r"0x[0-9a-fA-F]+", "ADDRESS", text)
    text = re.sub(r"(?:[\w.\-~]*/)+([\w.\-]+)", r"\1", text)
    text = re.sub(r"(?<![A-Za-z_\d])\d+(?:\.\d+)*", "N", text)
    return " ".join(text.split())[:limit]


def same_failure(a: Signature, b: Signature) -> bool:
    """The same kind and type, and a message that is the same or nearly so from the same place."""
    if a.kind == b.kind == "differs":
        return bool(set(a.message.split("; ")) & set(b.message.split("; ")))
    if a.kind != b.kind or a.type != b.type:
        return False
    if a.message == b.message:
        return True
    near = difflib.SequenceMatcher(None, a.message, b.message).ratio()
    return near > 0.9 or (near > 0.6 and a.frames[-1:] == b.frames[-1:] != ())


def in_words(observed: Observed) -> str:
    """A few words on a run."""
    if observed.kind == "ok":
        return "; ".join(observed.differences[:3]) if observed.differences else "ends well"
    return str(observed.signature) if observed.signature else observed.kind


def _any(o: Observed, goal: Goal) -> Judged:
    return Judged(o.kind != "ok", in_words(o))


def _signature(o: Observed, goal: Goal) -> Judged:
    found = signature_of(o)
    if found is None:
        return Judged(False, in_words(o))
    if goal.signature is None or same_failure(found, goal.signature):
        return Judged(True, in_words(o))
    return Judged(None, f"fails in another way: {found}")


def _eager(o: Observed, goal: Goal) -> Judged:
    found = Signature("differs", message="; ".join(sorted(o.differences)[:8])) if o.differences else None
    if found is not None:
        if goal.signature is not None and not same_failure(found, goal.signature):
            return Judged(None, f"differs from eager in another way: {found.message}")
        return Judged(True, found.message)
    if o.kind == "ok":
        return Judged(False, "as eager")
    return Judged(None, f"cannot be compared with eager: {in_words(o)}")


def _measure(
    name: str, read: Callable[[Observed], float | None], unit: str
) -> Callable[[Observed, Goal], Judged]:
    def judge(o: Observed, goal: Goal) -> Judged:
        value = read(o)
        if o.kind != "ok":
            return Judged(None, f"no {name}: {in_words(o)}")
        if value is None:
            return Judged(None, f"no {name}: {NEEDS.get(name, 'there is no torch, or it does not tell')}")
        text = f"{name} {value:.4g}{unit}"
        if goal.baseline is None:
            return Judged(False, text)
        limit = goal.baseline * (1 + goal.threshold) if unit else goal.baseline
        return Judged(value > limit, f"{text}, limit {limit:.4g}{unit}")

    return judge


def step_time(o: Observed) -> float | None:
    return statistics.median(o.steps) if o.steps else None


#: measure -> (how to read it, its unit; counts have none and are compared exactly).
MEASURES: dict[str, tuple[Callable[[Observed], float | None], str]] = {
    "step-time": (step_time, " s"),
    "compile-time": (lambda o: o.compile_seconds, " s"),
    "memory": (lambda o: None if o.memory is None else o.memory / 2**20, " MiB"),
    "recompiles": (lambda o: o.recompiles, ""),
    "graph-breaks": (lambda o: o.graph_breaks, ""),
}
#: measure -> what a run without it lacks.
NEEDS = {
    "step-time": "it is that of the second and later calls of one compiled function, or of a target module:function",
    "compile-time": "nothing was compiled, or this torch does not tell",
}
#: Those whose verdicts are noisy on both sides.
NOISY = ("step-time", "compile-time", "memory")


def _command(o: Observed, goal: Goal) -> Judged:
    """As `git bisect run`: 0 good, 125 cannot tell, others bad. A signal is a failure as well."""
    if o.kind == "exit" and o.status == 125:
        return Judged(None, "the command says 125: cannot tell")
    if o.kind == "exit" and o.status in (126, 127):
        return Judged(None, f"the command could not be run (exit status {o.status})")
    return Judged(o.kind != "ok", "exit status 0" if o.kind == "ok" else in_words(o))


MODES: dict[str, Callable[[Observed, Goal], Judged]] = {
    "any": _any,
    "signature": _signature,
    "eager": _eager,
    "command": _command,
    **{name: _measure(name, read, unit) for name, (read, unit) in MEASURES.items()},
}


def judge(observed: Observed, goal: Goal) -> Judged:
    """Whether this run shows what is looked for. A package that cannot be imported tells nothing, unless that is it."""
    if observed.kind in ("import", "unusable"):
        looked_for = goal.signature
        if (
            looked_for is not None
            and observed.signature is not None
            and same_failure(looked_for, observed.signature)
        ):
            return Judged(True, in_words(observed))
        what = "cannot be imported" if observed.kind == "import" else "cannot be run"
        return Judged(None, f"{what}: {in_words(observed)}")
    return MODES[goal.mode](observed, goal)


def baseline(mode: str, runs: Sequence[Observed]) -> float | None:
    """The good end's value of a measure: the median of its runs; None if no run has one."""
    read, _ = MEASURES[mode]
    values = [value for value in map(read, runs) if value is not None]
    return statistics.median(values) if values else None


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def observed_from_json(plain: dict[str, Any]) -> Observed:
    fields = dict(plain)
    if fields["signature"] is not None:
        fields["signature"] = Signature(
            **{**fields["signature"], "frames": tuple(fields["signature"]["frames"])}
        )
    for name in ("differences", "steps"):
        fields[name] = tuple(fields[name])
    return Observed(**fields)


def observed_to_json(observed: Observed) -> dict[str, Any]:
    return dataclasses.asdict(observed)
