"""What a trial did: one of a closed set of outcomes, with what it counted and how long it took.

An outcome says what was seen, never what it means; that is for the investigations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

Aspect = Literal[
    "value", "grad", "dtype", "shape", "stride", "device", "layout", "subclass",
    "requires_grad", "alias", "mutation", "side-effect", "structure",
]  # fmt: skip
#: The order in which the aspects of one outcome are named.
ASPECTS: tuple[Aspect, ...] = (
    "structure", "subclass", "layout", "device", "dtype", "shape", "stride",
    "value", "mutation", "grad", "requires_grad", "alias", "side-effect",
)  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """One leaf in which a compiled call is not like eager."""

    call: int
    path: str
    """Where: `output[0]`, `grad[model.weight]`, `args[1]`."""
    aspect: Aspect
    detail: str
    """For a person: by how much, at which index, or which metadata."""
    magnitude: float = 0.0
    noise: bool = False
    """True when eager's own noise, or a float64 run, accounts for it."""
    why_noise: str = ""
    eager: str = ""
    compiled: str = ""
    float64: str = ""
    later: bool = False
    """Seen at the end of the program, not in what the call itself returned."""


@dataclass(frozen=True)
class ExceptionInfo:
    """An exception as the program saw it."""

    type: str
    message: str
    bases: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()
    """Types of the exceptions that led to it, outermost first, without itself."""
    cause_message: str = ""
    user_file: str = ""
    user_line: int = 0
    user_code: str = ""
    torch_frames: tuple[str, ...] = ()
    """The innermost frames of torch, as `torch/_inductor/ir.py:make_loader`, innermost last."""
    traceback: str = ""
    category: str = ""
    """Dynamo's own hint about whose fault it is, where it gives one."""


@dataclass(frozen=True)
class GraphBreak:
    """One place where Dynamo gave up tracing."""

    reason: str
    file: str = ""
    line: int = 0
    code: str = ""
    hints: tuple[str, ...] = ()
    identifier: str = ""
    explanation: str = ""


@dataclass(frozen=True)
class Recompile:
    """One more compilation of a frame, with the reasons that torch gives."""

    frame: str
    reason: str
    file: str = ""
    line: int = 0
    also: tuple[str, ...] = ()
    """Further guards that failed at the same time; torch names the first only."""


@dataclass(frozen=True)
class Step:
    """One application of a compiler step that can be switched off: a pass, a lowering, a decomposition."""

    index: int
    name: str
    file: str = ""
    line: int = 0
    code: str = ""


@dataclass(frozen=True)
class Divergence:
    """The first operation of a call in which what Dynamo captured and eager mode part."""

    operator: str
    file: str = ""
    line: int = 0
    code: str = ""
    only_in: Literal["", "eager", "captured"] = ""
    """Which of the two runs it at all; empty: both do, with another result."""


@dataclass(frozen=True)
class Measures:
    """What a trial counted and how long it took. Times in seconds."""

    graphs: int = 0
    breaks: int = 0
    captured: int = 0
    recompiles: int = 0
    """Compilations beyond the first of the frame that was compiled most often."""
    unimplemented: int = 0
    """Times that Dynamo met what it cannot trace, counted as a break or not."""
    compile_seconds: float = 0.0
    call_seconds: float = 0.0
    step_seconds: float | None = None
    """One warm call of the region, if it could be repeated."""
    eager_step_seconds: float | None = None
    """The same call in eager mode, in the same process."""
    wall_seconds: float = 0.0
    peak_bytes: int = 0
    graph_breaks: tuple[GraphBreak, ...] = ()
    recompile_reasons: tuple[Recompile, ...] = ()
    steps: tuple[Step, ...] = ()
    step_count: int = 0
    """All steps of the limited subsystem; `steps` describes the first few thousand."""
    calls_seen: int = 0
    calls_compared: int = 0
    recompile_limit_hit: bool = False
    repeated_nodes: int = 0
    """The most graph nodes that one line of the program became, in one graph."""
    repeated_file: str = ""
    repeated_line: int = 0
    eager_repeats: bool | None = None
    """Whether two eager runs of the failing call are the same; None where it was not asked."""
    rng_used: bool = False
    """A compared call draws random numbers in eager mode."""
    divergence: Divergence | None = None


@dataclass(frozen=True)
class Outcome:
    """Base of all outcomes. `kind` names the class in JSON."""

    kind: ClassVar[str] = ""
    measures: Measures = field(default_factory=Measures)
    log: str = ""
    """The end of what the trial printed."""


@dataclass(frozen=True)
class Same(Outcome):
    """Every call that was compared is like eager, up to the noise in `differences`."""

    kind: ClassVar[str] = "same"
    differences: tuple[Difference, ...] = ()
    eager_exception: ExceptionInfo | None = None
    """Set where eager and compiled both raised, with the same meaning."""


@dataclass(frozen=True)
class Differs(Outcome):
    """At least one call gave something else than eager."""

    kind: ClassVar[str] = "differs"
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True)
class Raised(Outcome):
    """Compiled raised and eager did not (or with another meaning)."""

    kind: ClassVar[str] = "raised"
    exception: ExceptionInfo = field(default_factory=lambda: ExceptionInfo("", ""))
    call: int | None = None
    """None when it came from the program, after the region had returned."""
    phase: Literal["forward", "backward", "program"] = "forward"


@dataclass(frozen=True)
class MissingException(Outcome):
    """Eager raised and compiled did not."""

    kind: ClassVar[str] = "missing-exception"
    exception: ExceptionInfo = field(default_factory=lambda: ExceptionInfo("", ""))
    call: int = 0


@dataclass(frozen=True)
class Killed(Outcome):
    """A signal ended the process."""

    kind: ClassVar[str] = "killed"
    signal: str = ""
    call: int | None = None


@dataclass(frozen=True)
class Exited(Outcome):
    """The process ended before the program did (`os._exit`, `sys.exit` in a region)."""

    kind: ClassVar[str] = "exited"
    status: int = 0
    call: int | None = None


@dataclass(frozen=True)
class TimedOut(Outcome):
    """The time limit ended it."""

    kind: ClassVar[str] = "timeout"
    seconds: float = 0.0
    phase: Literal["compile", "run", "program"] = "run"
    call: int | None = None


@dataclass(frozen=True)
class OutOfMemory(Outcome):
    """The memory limit, or the allocator, ended it."""

    kind: ClassVar[str] = "oom"
    peak_bytes: int = 0
    call: int | None = None


@dataclass(frozen=True)
class Inconclusive(Outcome):
    """The trial could not be run: a defect of ours or of the machine, never evidence."""

    kind: ClassVar[str] = "inconclusive"
    reason: str = ""


OUTCOMES: dict[str, type[Outcome]] = {
    cls.kind: cls
    for cls in (
        Same, Differs, Raised, MissingException, Killed, Exited, TimedOut, OutOfMemory, Inconclusive
    )
}  # fmt: skip


def label(outcome: Outcome) -> str:
    """The word for one cell of the matrix, as `differs:value+grad` or `raises:InductorError`."""
    match outcome:
        case Same():
            return "same"
        case Differs(differences=differences):
            return "differs:" + "+".join(aspects(differences))
        case Raised(exception=exception):
            return f"raises:{exception.type.rpartition('.')[2]}"
        case MissingException():
            return "missing-exception"
        case Killed(signal=signal):
            return f"killed:{signal}"
        case Exited(status=status):
            return f"exited:{status}"
        case TimedOut():
            return "timeout"
        case OutOfMemory():
            return "oom"
    return "inconclusive"


def aspects(differences: tuple[Difference, ...], noise: bool = False) -> list[str]:
    """What differs (or, with `noise`, what is only noise), in a fixed order.

    A wrong value that was also kept somewhere is one fault: a side effect is named only when it stands alone.
    """
    named = {d.aspect for d in differences if d.noise == noise}
    if len(named) > 1:
        named.discard("side-effect")
    return [a for a in ASPECTS if a in named]


def to_json(value: Any) -> Any:
    """A frozen value as JSON types; outcomes carry their `kind`."""
    if hasattr(value, "__dataclass_fields__"):
        plain = {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
        if isinstance(value, Outcome):
            plain = {"kind": value.kind, **plain}
        return plain
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    return value


def outcome_from_json(plain: dict[str, Any]) -> Outcome:
    """The inverse of `to_json` for outcomes. Raises KeyError for an unknown kind."""
    given = dict(plain)
    cls = OUTCOMES[given.pop("kind")]
    given["measures"] = measures_from_json(given.get("measures") or {})
    if given.get("differences") is not None:
        given["differences"] = tuple(Difference(**d) for d in given["differences"])
    for name in ("exception", "eager_exception"):
        if given.get(name) is not None:
            given[name] = exception_from_json(given[name])
    return cls(**given)


def one_line(plain: Mapping[str, Any]) -> str:
    """Class, first line of the message and place of an exception, from the fields of an ExceptionInfo."""
    rows = str(plain["message"]).strip().splitlines() or [""]
    place = f" ({plain['user_file']}:{plain['user_line']})" if plain.get("user_file") else ""
    return f"{str(plain['type']).rpartition('.')[2]}: {rows[0][:300]}{place}"


def exception_from_json(plain: dict[str, Any]) -> ExceptionInfo:
    given = dict(plain)
    for name in ("bases", "chain", "torch_frames"):
        given[name] = tuple(given.get(name, ()))
    return ExceptionInfo(**given)


def measures_from_json(plain: dict[str, Any]) -> Measures:
    given = dict(plain)
    given["graph_breaks"] = tuple(
        GraphBreak(**{**g, "hints": tuple(g.get("hints", ()))}) for g in given.get("graph_breaks", ())
    )
    given["recompile_reasons"] = tuple(
        Recompile(**{**r, "also": tuple(r.get("also", ()))}) for r in given.get("recompile_reasons", ())
    )
    given["steps"] = tuple(Step(**s) for s in given.get("steps", ()))
    if given.get("divergence"):
        given["divergence"] = Divergence(**given["divergence"])
    return Measures(**given)
