"""Which operators cost what: generated kernels, their lines and the time to compile them, by ATen operator."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchtriage.trace.analyses.kernels import all_kernels
from torchtriage.trace.load import Trace, once

_FUSED = re.compile(r"(?:cpp|triton_\w{2,4}?)_fused_(\w+?)_\d+$")


@dataclass(frozen=True, slots=True)
class OperatorUse:
    """One ATen operator over all compiles. A kernel that fuses several operators counts for each of them."""

    name: str
    kernels: int
    fallbacks: int
    """How many of the kernels are eager's own operator."""
    lines: int
    """Lines of generated code of its kernels."""
    seconds: float
    """What compiling its kernels took, where the log has it (Triton)."""
    compiles: int


@dataclass(frozen=True, slots=True)
class SlowKernel:
    """One generated kernel by name, over all compiles."""

    name: str
    operators: tuple[str, ...]
    count: int
    lines: int
    seconds: float


@dataclass(frozen=True, slots=True)
class OperatorReport:
    operators: tuple[OperatorUse, ...]
    """Most time to compile first, then most generated code."""
    kernels: tuple[SlowKernel, ...]
    timed: bool
    """False where no time of any kernel was logged, as for C++ kernels, which are compiled one file a graph."""


def by_name(kernel: str) -> tuple[str, ...]:
    """The operators of a kernel whose code does not name them: Inductor joins them into the kernel's name."""
    found = _FUSED.match(kernel)
    return (found[1],) if found else ()


@once
def operator_report(trace: Trace) -> OperatorReport:
    operators: dict[str, list[float]] = {}
    kernels: dict[str, list[float]] = {}
    made_of: dict[str, tuple[str, ...]] = {}
    for found in all_kernels(trace).values():
        here: set[str] = set()
        for kernel in found:
            made_from = kernel.aten or by_name(kernel.name)
            for name in made_from:
                row = operators.setdefault(name, [0, 0, 0, 0.0, 0])
                row[0] += 1
                row[1] += kernel.kind == "fallback"
                row[2] += kernel.code_lines
                row[3] += kernel.seconds
                row[4] += name not in here
                here.add(name)
            if kernel.code_lines or kernel.seconds:
                sums = kernels.setdefault(kernel.name, [0, 0, 0.0])
                sums[0] += 1
                sums[1] += kernel.code_lines
                sums[2] += kernel.seconds
                made_of.setdefault(kernel.name, made_from)
    uses = [
        OperatorUse(n, int(k), int(f), int(lines), s, int(c)) for n, (k, f, lines, s, c) in operators.items()
    ]
    slow = [SlowKernel(n, made_of[n], int(c), int(lines), s) for n, (c, lines, s) in kernels.items()]
    return OperatorReport(
        tuple(sorted(uses, key=lambda u: (-u.seconds, -u.lines, -u.kernels, u.name))),
        tuple(sorted(slow, key=lambda k: (-k.seconds, -k.lines, k.name))),
        any(k.seconds for k in slow),
    )
