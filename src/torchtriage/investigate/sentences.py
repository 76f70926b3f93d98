"""Plain sentences about outcomes, for people. Says only what trials showed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchtriage.model.outcome import (
    Differs,
    Exited,
    Killed,
    MissingException,
    Outcome,
    OutOfMemory,
    Raised,
    Same,
    TimedOut,
)


def symptom_sentence(outcome: Outcome) -> str:
    """What is wrong, without the place."""
    match outcome:
        case Differs(differences=found):
            real = [d for d in found if not d.noise] or list(found)
            more = f" (and {len(real) - 1} more)" if len(real) > 1 else ""
            return f"{real[0].path} {phrase(real[0].aspect, real[0].detail)}{more}"
        case Raised(exception=exception, phase=phase):
            where = {
                "forward": "",
                "backward": " in the backward",
                "program": " after the region has returned",
            }[phase]
            return f"raises {short(exception.type)}{where}, eager does not: {first_line(exception.message)}"
        case MissingException(exception=exception):
            return (
                f"eager raises {short(exception.type)} ({first_line(exception.message)}), compiled does not"
            )
        case Killed(signal=signal):
            return f"the process is killed by {signal}"
        case TimedOut(seconds=seconds, phase=phase):
            what = {
                "compile": "still compiling",
                "run": "does not return",
                "program": "the program does not end",
            }[phase]
            return f"{what} after {seconds:.0f} s"
        case OutOfMemory():
            return "runs out of memory, eager does not"
        case Exited(status=status):
            return f"the process ends with exit status {status} before the program does"
        case Same(differences=found) if found:
            return f"{found[0].path} {found[0].detail}; {found[0].why_noise}"
    return ""


def phrase(aspect: str, detail: str) -> str:
    """The detail of a difference, with the aspect where it does not speak for itself."""
    if aspect in ("value", "grad", "mutation") and detail.startswith("differs"):
        return detail
    return (
        f"has another {aspect.replace('_', ' ')}: {detail}"
        if detail.startswith("eager ")
        else f"{aspect}: {detail}"
    )


def evidence(outcome: Outcome) -> tuple[str, ...]:
    """What eager and float64 say about a wrong value."""
    found = [d for d in getattr(outcome, "differences", ()) if not d.noise]
    if not isinstance(outcome, Differs) or not found:
        return ()
    said = []
    repeats = outcome.measures.eager_repeats
    if repeats is not None:
        said.append("eager repeats itself" if repeats else "eager does not repeat itself")
    first = found[0]
    if first.float64:
        said.append(
            f"float64 gives {first.float64} where eager gives {first.eager} and compiled {first.compiled}"
        )
    return tuple(said)


def counts_sentence(words: tuple[str, ...], measures: Any) -> str:
    said = []
    if "recompiles" in words:
        limit = ", up to the recompile limit" if measures.recompile_limit_hit else ""
        said.append(f"compiled {measures.recompiles + 1} times{limit}")
    if "graph-break" in words:
        breaks = len(measures.graph_breaks) or measures.breaks
        said.append(
            f"{breaks} graph break{'s' * (breaks != 1)}, {measures.captured} operators captured in {measures.graphs} graphs"
        )
    return "; ".join(said)


def slow_sentence(measures: Any) -> str:
    sentence = f"compiling takes {measures.compile_seconds:.0f} s for {measures.captured} captured operators"
    if measures.repeated_nodes > 1:
        sentence += f", {measures.repeated_nodes} of them from line {measures.repeated_line}"
    return sentence


def short(name: str) -> str:
    return name.rpartition(".")[2]


def first_line(text: str) -> str:
    rows = text.strip().splitlines()
    return rows[0][:300] if rows else ""


def place(region: Mapping[str, Any]) -> str:
    return f"{region.get('name', '')} ({region.get('file', '')}:{region.get('line', 0)})"
