"""Ways of running a call in eager mode: nudged by a unit in the last place, and in float64."""

from __future__ import annotations

import contextlib
import math

import pytest
import torch

from torchtriage.probe import flavours
from torchtriage.probe.flavours import OtherRounding

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def fractions(dtype: torch.dtype, size: int = 200) -> torch.Tensor:
    return (torch.arange(1, size + 1) / 7.3).to(dtype)


# --- nudge ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_each_element_moves_by_at_most_one_unit_and_many_do(dtype: torch.dtype) -> None:
    before, x = fractions(dtype), fractions(dtype)
    flavours.nudge([x], 1)
    up = torch.nextafter(before, torch.full_like(before, math.inf))
    down = torch.nextafter(before, torch.full_like(before, -math.inf))
    assert bool(((x == before) | (x == up) | (x == down)).all())
    assert 50 < int((x != before).sum()) < 200


@pytest.mark.parametrize("dtype", FLOATS)
def test_specials_whole_numbers_and_the_largest_number_stay(dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    x = torch.tensor(
        [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -3.0, largest, -largest] * 20, dtype=dtype
    )
    before = x.clone()
    flavours.nudge([x], 1)
    torch.testing.assert_close(x, before, rtol=0, atol=0, equal_nan=True)


def test_one_seed_is_one_nudge_and_another_seed_another() -> None:
    def nudged(seed: int) -> torch.Tensor:
        x = fractions(torch.float32)
        flavours.nudge([x], seed)
        return x

    assert torch.equal(nudged(1), nudged(1))
    assert not torch.equal(nudged(1), nudged(2))


def test_views_of_one_storage_are_nudged_once() -> None:
    x, whole = fractions(torch.float32), fractions(torch.float32)
    flavours.nudge([x, x[:50], x.view(20, 10)], 1)
    flavours.nudge([whole], 1)
    assert torch.equal(x, whole)


def test_a_parameter_keeps_its_identity_and_its_gradient_flag() -> None:
    weight = torch.nn.Parameter(fractions(torch.float32))
    before = weight.detach().clone()
    flavours.nudge([weight], 1)
    assert weight.requires_grad
    assert not torch.equal(weight.detach(), before)


def test_what_is_not_floating_stays() -> None:
    whole, sparse = torch.arange(5), fractions(torch.float32, 5).to_sparse()
    flavours.nudge([whole, sparse, torch.empty(0)], 1)
    assert torch.equal(whole, torch.arange(5))
    assert torch.equal(sparse.to_dense(), fractions(torch.float32, 5))


def test_a_program_with_8_bit_floats_can_be_nudged() -> None:
    x, y = fractions(torch.float32), fractions(torch.float32)
    flavours.nudge([torch.ones(2).to(torch.float8_e4m3fn), x], 1)
    assert not torch.equal(x, y)


# --- float64 --------------------------------------------------------------------------------------


def in_float64(function: object, *args: torch.Tensor) -> torch.Tensor:
    with flavours.prepared("float64", {f"args[{n}]": arg for n, arg in enumerate(args)}):
        return function(*args)  # type: ignore[operator,no-any-return]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("plain", lambda x: x * 3),
        ("half", lambda x: x.half() * 3),
        ("bfloat16", lambda x: x.to(torch.bfloat16) * 3),
        ("to(dtype=)", lambda x: x.to(dtype=torch.float16) * 3),
        ("type", lambda x: x.type(torch.float16) * 3),
        ("there and back", lambda x: x.half().float() * 3),
        ("a factory", lambda x: x * torch.full((2,), 3.0, dtype=torch.float16)),
        ("a default factory", lambda x: x * (torch.ones(2) * 3)),
        ("a buffer written to", lambda x: torch.zeros(2, dtype=torch.float16).add_(x).mul_(3)),
        ("a positional dtype", lambda x: torch.ops.prims.convert_element_type(x, torch.float16) * 3),
        ("matmul", lambda x: (torch.eye(2, dtype=torch.bfloat16) * 3) @ x.bfloat16()),
        ("cat", lambda x: torch.cat([x.half()[:1], x.half()[1:]]) * 3),
    ],
)
def test_the_result_is_exact_to_float64_also_where_the_program_asks_for_less(
    name: str, function: object
) -> None:
    x = torch.tensor([0.1, 0.7])
    exact = x.double() * 3
    result = in_float64(function, x)
    assert result.dtype == torch.float64
    torch.testing.assert_close(result, exact, rtol=1e-15, atol=0)


def test_whole_numbers_and_comparisons_keep_their_dtypes() -> None:
    assert in_float64(lambda x: (x > 0.5).sum(), torch.tensor([0.1, 0.7])).dtype == torch.int64
    assert in_float64(lambda x: torch.arange(3), torch.ones(1)).tolist() == [0, 1, 2]


def test_a_view_still_shares_memory_with_its_tensor() -> None:
    def function(x: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        head.add_(1)
        return x

    x = torch.zeros(4)
    assert in_float64(function, x, x[1:3]).tolist() == [0.0, 1.0, 1.0, 0.0]


def test_a_module_is_run_with_its_weights_in_float64() -> None:
    module = torch.nn.Linear(2, 1)
    with flavours.prepared("float64", {"self": module}):
        assert module(torch.ones(2)).dtype == torch.float64
    assert module.weight.dtype == torch.float64


def test_a_gradient_is_in_float64_as_well() -> None:
    x = torch.tensor([0.1], requires_grad=True)
    with flavours.prepared("float64", {"args[0]": x}):
        (gradient,) = torch.autograd.grad((x.half() ** 2).sum(), x)
    assert gradient.dtype == torch.float64
    torch.testing.assert_close(gradient, 2 * x.detach(), rtol=1e-15, atol=0)


def test_a_plain_repetition_changes_nothing() -> None:
    x = fractions(torch.float32)
    with flavours.prepared("again", {"args[0]": x}):
        assert torch.equal(x * 1, fractions(torch.float32))


def scaled(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(x, x) / 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_results_in_half_precision_are_rounded_otherwise(dtype: torch.dtype) -> None:
    x = torch.linspace(0.1, 0.9, 64).reshape(8, 8)
    with torch.autocast("cpu", dtype=dtype):
        plain = scaled(x)
        with OtherRounding(1):
            moved = scaled(x)
    apart = ((moved - plain).float().abs() / plain.float().abs()).max().item()
    assert plain.dtype == dtype
    assert 0 < apart <= 4 * torch.finfo(dtype).eps


def test_the_gradients_of_a_call_in_half_precision_move_as_well() -> None:
    x = torch.linspace(0.1, 0.9, 64).reshape(8, 8).requires_grad_()
    found = []
    for seed in (None, 1, 1, 2):
        with OtherRounding(seed) if seed else contextlib.nullcontext():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = scaled(x)
            found.append(torch.autograd.grad(y.float().square().sum(), x)[0])
    assert not torch.equal(found[0], found[1])
    assert torch.equal(found[1], found[2])
    assert not torch.equal(found[2], found[3])


def test_other_precisions_views_and_the_random_state_are_left_alone() -> None:
    x = torch.linspace(0.1, 0.9, 8)
    half = x.bfloat16()
    state = torch.get_rng_state()
    with OtherRounding(1):
        assert torch.equal(
            scaled(x.reshape(2, 4)), torch.nn.functional.linear(x.reshape(2, 4), x.reshape(2, 4)) / 3
        )
        assert torch.equal(half.view(2, 4).t().expand(3, 4, 2)[0].t().reshape(-1), half)
        half.mul_(2)
    assert torch.equal(half, x.bfloat16() * 2)
    assert torch.equal(torch.get_rng_state(), state)


def test_what_only_moves_or_chooses_numbers_is_exact() -> None:
    x = torch.linspace(0.1, 0.9, 64).reshape(8, 8).bfloat16()
    with OtherRounding(1):
        assert torch.equal(x.clone(), x)
        assert torch.equal(torch.cat([x, x])[:8], x)
        assert torch.equal(torch.nn.functional.embedding(torch.tensor([3, 3]), x)[0], x[3])
        assert torch.equal(x.sort(0, descending=True).values, x.flip(0))
        assert torch.equal(x.relu(), x)
        assert not torch.equal(x * 3, torch.mul(x, 3))
