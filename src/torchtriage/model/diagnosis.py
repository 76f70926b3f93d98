"""The result of `diagnose`: the one value from which every report is rendered, and its JSON form.

`SCHEMA_VERSION` changes when a field changes its meaning or goes away, not when one is added.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from torchtriage.model.outcome import Difference, ExceptionInfo, GraphBreak, Recompile, to_json

SCHEMA_VERSION = 1
Kind = Literal["bug", "noise", "by-design", "user-error", "none", "inconclusive"]
#: backend -> the layer that it adds to the one before it
LAYERS = {
    "eager": "dynamo",
    "aot_eager": "aot_autograd",
    "aot_eager_decomp_partition": "decomposition_partition",
    "inductor": "inductor",
}


@dataclass(frozen=True)
class Region:
    """One thing that the program handed to the compiler."""

    name: str
    file: str
    line: int
    settings: str
    """The arguments of the user's torch.compile, as Python."""
    calls: int
    signatures: int


@dataclass(frozen=True)
class Program:
    """The target as it ran in eager mode."""

    target: str
    regions: tuple[Region, ...] = ()
    calls: int = 0
    signatures: int = 0
    truncated: bool = False
    """True when only the first calls were watched."""
    eager_exception: ExceptionInfo | None = None
    seconds: float = 0.0
    mode: str = "fork"


@dataclass(frozen=True)
class Symptom:
    """What is wrong, in the user's terms."""

    words: tuple[str, ...]
    """As in the matrix: `value`, `grad`, `exception`, `missing-exception`, `recompiles`, `graph-break`, `timeout`..."""
    region: str = ""
    file: str = ""
    line: int = 0
    call: int | None = None
    sentence: str = ""
    differences: tuple[Difference, ...] = ()
    exception: ExceptionInfo | None = None
    evidence: tuple[str, ...] = ()
    """Further sentences: eager repeats itself, float64 says who is right, k of n runs."""
    signature: str = ""


@dataclass(frozen=True)
class Culprit:
    """What inside the layer is at fault, as far as trials could tell."""

    subsystem: str = ""
    detail: str = ""
    operator: str = ""
    file: str = ""
    line: int = 0
    code: str = ""
    how: str = ""
    """The experiment that says so."""


@dataclass(frozen=True)
class Workaround:
    """A change that was applied and run."""

    change: str
    lines: tuple[str, ...]
    outcome: str
    explanation: str = ""
    step_time_ratio: float | None = None
    """Warm step time against the program as it is (against eager where compiled fails before it has one)."""
    ratio_against: str = "own"
    variant: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Environment:
    """Everything about the machine that a maintainer asks for."""

    torch: str = ""
    torch_git: str = ""
    python: str = ""
    os: str = ""
    cpu: str = ""
    gpu: str = ""
    driver: str = ""
    compiler: str = ""
    triton: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    configs: dict[str, str] = field(default_factory=dict)
    """Every torch config value that is not its default."""
    threads: int = 0
    packages: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One cell of a matrix, with the trial that filled it."""

    word: str
    trial: str = ""
    detail: str = ""
    graphs: int = 0
    breaks: int = 0
    captured: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Diagnosis:
    """The whole answer."""

    kind: Kind
    symptoms: tuple[str, ...]
    program: Program
    symptom: Symptom | None = None
    matrix: dict[str, dict[str, Cell]] = field(default_factory=dict)
    """backend -> `None`/`True`/`False` -> cell."""
    modes: dict[str, Cell] = field(default_factory=dict)
    own: Cell | None = None
    """The program's own settings."""
    own_settings: str = ""
    own_dynamic: str = "None"
    first_failing_layer: str = "none"
    monotone: bool = True
    needs: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    """What the verdict says besides: not monotone, only backward, only with caches, k of n."""
    culprit: Culprit | None = None
    explanation: str = ""
    source: str = ""
    """Where a by-design difference is documented."""
    workarounds: tuple[Workaround, ...] = ()
    tried: tuple[str, ...] = ()
    """Changes that were run and did not help."""
    graph_breaks: tuple[GraphBreak, ...] = ()
    recompiles: tuple[Recompile, ...] = ()
    environment: Environment = field(default_factory=Environment)
    command: str = ""
    run_folder: str = ""
    trace_page: str = ""
    """File in the run folder that explains the torch trace of the program as it is; empty where there is none."""
    started: str = ""
    seconds: float = 0.0
    trials: int = 0
    inconclusive_reason: str = ""
    version: str = ""

    @property
    def operator(self) -> str:
        return self.culprit.operator if self.culprit else ""

    @property
    def line(self) -> int | None:
        return (self.culprit.line or None) if self.culprit else None

    @property
    def exit_status(self) -> int:
        if self.kind == "inconclusive":
            return 3
        if self.kind in ("none", "noise"):
            return 2 if self.program.eager_exception else 0
        return 1

    def to_json(self) -> dict[str, Any]:
        """The published form. `matrix` holds words only; `cells` has the details of each."""
        plain: dict[str, Any] = to_json(self)
        plain["schema_version"] = SCHEMA_VERSION
        plain["cells"] = plain.pop("matrix")
        plain["matrix"] = {
            backend: {dynamic: cell.word for dynamic, cell in row.items()}
            for backend, row in self.matrix.items()
        }
        plain["operator"] = self.operator or None
        plain["line"] = self.line
        plain["exit_status"] = self.exit_status
        return plain
