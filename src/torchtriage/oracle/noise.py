"""Decides what a difference between two tensors means: nothing, rounding noise, or a wrong value.

Works on plain CPU tensors. `truth` is the same call in float64; `nudged` are eager runs whose inputs were moved
by a unit in the last place, or plain repetitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

#: (rtol, atol) below which two values are the same, as torch.testing.assert_close has them.
TOLERANCES = {
    torch.float64: (1e-7, 1e-7),
    torch.complex128: (1e-7, 1e-7),
    torch.float32: (1.3e-6, 1e-5),
    torch.complex64: (1.3e-6, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float16: (1e-3, 1e-5),
    torch.complex32: (1e-3, 1e-5),
}
LOW_PRECISION = (2**-3, 2**-3)
"""For 8-bit floats and smaller."""
FACTOR = 4.0
"""How much worse than eager's own error compiled may be before it counts."""
OVERFLOWED = 0.02
"""Relative error that compiled may have where eager has a special value and float64 a number."""
CROWD = 16
"""From this many noisy elements on, noise is judged by its distribution and not element by element."""

LARGEST_COMPANY = 1e-4


@dataclass(frozen=True)
class Verdict:
    """How two tensors of equal dtype and shape compare."""

    same: bool
    noise: bool = False
    why: str = ""
    magnitude: float = 0.0
    index: tuple[int, ...] = ()
    eager: str = ""
    compiled: str = ""
    truth: str = ""
    count: int = 0


SAME = Verdict(True)


def compare(
    eager: torch.Tensor,
    compiled: torch.Tensor,
    truth: torch.Tensor | None = None,
    nudged: Sequence[torch.Tensor] = (),
    company: float = 0.0,
) -> Verdict:
    """Compare `compiled` with `eager` (same dtype and shape, any layout of numbers).

    `company`: the usual relative error of eager's other results against float64. One number alone may come out better
    than it could be expected to, by luck, and says little of what rounding does.
    """
    if not (eager.dtype.is_floating_point or eager.dtype.is_complex):
        return compare_exact(eager, compiled, truth, nudged)
    a, b = as_real(eager), as_real(compiled)
    rtol, atol = TOLERANCES.get(eager.dtype, LOW_PRECISION)
    apart = distance(a, b)
    wrong = apart > atol + rtol * finite_abs(a)
    if not bool(wrong.any()):
        return SAME
    reference = as_real(truth) if truth is not None and truth.shape == eager.shape else None
    others = [as_real(n) for n in nudged if n.shape == eager.shape and n.dtype == eager.dtype]
    why = explained(a, b, wrong, atol + rtol * finite_abs(a), reference, others, company)
    shown = torch.where(wrong, apart, torch.zeros_like(apart))
    flat = int(torch.nan_to_num(shown, nan=float("inf"), posinf=float("inf")).argmax())
    where = tuple(int(n) for n in torch.unravel_index(torch.tensor(flat), a.shape)) if a.dim() else ()
    return Verdict(
        same=False,
        noise=bool(why),
        why=why,
        magnitude=float(apart.reshape(-1)[flat]),
        index=where,
        eager=number(a, flat),
        compiled=number(b, flat),
        truth=number(reference, flat) if reference is not None else "",
        count=int(wrong.sum()),
    )


def compare_exact(
    eager: torch.Tensor, compiled: torch.Tensor, truth: torch.Tensor | None, nudged: Sequence[torch.Tensor]
) -> Verdict:
    """Integers and booleans are the same or not; noise is where eager's own answer hangs on rounding."""
    wrong = eager != compiled
    if not bool(wrong.any()):
        return SAME
    unstable = torch.zeros_like(wrong)
    for other in nudged:
        if other.shape == eager.shape and other.dtype == eager.dtype:
            unstable |= other != eager
    right = torch.zeros_like(wrong)
    if truth is not None and truth.shape == eager.shape:
        right = compiled == truth.to(compiled.dtype)
    covered = not bool((wrong & ~unstable & ~right).any())
    crowded = int(unstable.sum()) >= CROWD and int(wrong.sum()) <= 2 * int(unstable.sum())
    why = ""
    if covered or crowded:
        why = "eager itself changes there when its inputs move by one unit in the last place"
        if covered and bool((wrong & right).any()):
            why = "float64 gives what compiled gives"
    flat = int(wrong.reshape(-1).to(torch.uint8).argmax())
    where = tuple(int(n) for n in torch.unravel_index(torch.tensor(flat), eager.shape)) if eager.dim() else ()
    a, b = eager.reshape(-1)[flat], compiled.reshape(-1)[flat]
    return Verdict(
        same=False,
        noise=bool(why),
        why=why,
        magnitude=abs(float(a.double()) - float(b.double())),
        index=where,
        eager=str(a.item()),
        compiled=str(b.item()),
        truth=str(truth.reshape(-1)[flat].item()) if truth is not None and truth.shape == eager.shape else "",
        count=int(wrong.sum()),
    )


def explained(
    eager: torch.Tensor,
    compiled: torch.Tensor,
    wrong: torch.Tensor,
    tolerance: torch.Tensor,
    truth: torch.Tensor | None,
    nudged: Sequence[torch.Tensor],
    company: float = 0.0,
) -> str:
    """Why the elements in `wrong` are only noise; empty where they are not."""
    left = wrong
    reasons = []
    if truth is not None:
        mine, theirs = distance(eager, truth), distance(compiled, truth)
        expected = torch.maximum(mine, torch.full_like(mine, usual(mine)))
        if truth.numel() < CROWD:
            expected = torch.maximum(expected, min(company, LARGEST_COMPANY) * finite_abs(truth))
        allowed = FACTOR * expected
        # Where eager overflowed its error is infinite and excuses nothing: compiled has to be right there.
        allowed = torch.where(torch.isfinite(mine), allowed, OVERFLOWED * finite_abs(truth))
        closer = theirs <= allowed + tolerance
        if bool((left & closer).any()):
            better = float(rms(theirs)) <= float(rms(mine))
            reasons.append(
                "float64 says compiled is at least as close as eager"
                if better
                else "float64 says both are as far off"
            )
        left = left & ~closer
        if not bool(left.any()):
            return reasons[0] if reasons else "float64 agrees with compiled"
    if nudged:
        moved = torch.zeros_like(distance(eager, eager))
        for other in nudged:
            moved = torch.maximum(moved, distance(other, eager))
        shaky = moved > tolerance
        covered = distance(eager, compiled) <= FACTOR * moved + tolerance
        left = left & ~covered
        if not bool(left.any()) or crowd(eager, compiled, left, moved, shaky):
            reasons.append("eager moves as much when its inputs move by one unit in the last place")
            return "; ".join(reasons)
    return ""


def crowd(
    eager: torch.Tensor, compiled: torch.Tensor, left: torch.Tensor, moved: torch.Tensor, shaky: torch.Tensor
) -> bool:
    """Many elements are unstable: compiled may differ in other ones, as often and as much."""
    if int(shaky.sum()) < CROWD or int(left.sum()) > 2 * int(shaky.sum()):
        return False
    return float(distance(eager, compiled)[left].max()) <= 2 * float(moved.max())


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in double precision."""
    return tensor.to(torch.complex128 if tensor.dtype.is_complex else torch.float64)


def distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """|a - b|, where equal specials are at distance 0 and a special is infinitely far from anything else."""
    if a.dtype.is_complex:
        parts = distance(torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj()))
        return torch.hypot(parts[..., 0], parts[..., 1])
    apart = (a - b).abs()
    equal = (a == b) | (torch.isnan(a) & torch.isnan(b))
    apart = torch.where(equal, torch.zeros_like(apart), apart)
    return torch.nan_to_num(apart, nan=float("inf"), posinf=float("inf"))


def finite_abs(a: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(a.abs(), nan=0.0, posinf=0.0, neginf=0.0)


def rms(errors: torch.Tensor) -> float:
    """Root mean square of the finite errors."""
    finite = errors[torch.isfinite(errors)]
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0


def usual(errors: torch.Tensor) -> float:
    """A usual error, three quarters from below: a few large ones do not lift it."""
    finite = errors[torch.isfinite(errors)].sort().values
    return float(finite[(finite.numel() - 1) * 3 // 4]) if finite.numel() else 0.0


def relative_error(a: torch.Tensor, b: torch.Tensor) -> float:
    """Size of the difference over the size of `a`; infinite where specials differ."""
    if a.shape != b.shape:
        return float("inf")
    x, y = as_real(a), as_real(b)
    apart = distance(x, y)
    if not bool(torch.isfinite(apart).all()):
        return float("inf")
    size = rms(finite_abs(x))
    return rms(apart) / size if size else float(rms(apart) > 0)


def number(tensor: torch.Tensor, flat: int) -> str:
    value = tensor.reshape(-1)[flat].item()
    if isinstance(value, complex):
        return f"{value.real:.6g}{value.imag:+.6g}j"
    return f"{value:.6g}"
