"""Operators of the program's own: what their schema and their fake kernel say, and what they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchtriage.probe.own_operators import Checks

Function = Callable[..., Any]
SPACE = "triage_tests"


def checked(function: Function, *args: Any) -> list[tuple[str, str]]:
    with Checks() as checks:
        function(*args)
    return [(row["operator"], row["what"]) for row in checks.found]


@torch.library.custom_op(f"{SPACE}::honest", mutates_args=("out",))
def honest(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    out.copy_(x)
    return x.t().contiguous()


@honest.register_fake
def _(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[1], x.shape[0])


@torch.library.custom_op(f"{SPACE}::secret", mutates_args=())
def secret(x: torch.Tensor, by: float) -> torch.Tensor:
    x.add_(by)
    return x.clone()


LIBRARY = torch.library.Library(SPACE, "FRAGMENT")
LIBRARY.define("same(Tensor x) -> Tensor")
LIBRARY.impl("same", lambda x: x.view(-1), "CompositeExplicitAutograd")
LIBRARY.define("turned(Tensor x) -> Tensor")
LIBRARY.impl(
    "turned", lambda x: x.t().clone(memory_format=torch.preserve_format), "CompositeExplicitAutograd"
)


@torch.library.register_fake(f"{SPACE}::turned")
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[1], x.shape[0])


def test_an_operator_that_keeps_its_promises_is_not_named() -> None:
    assert checked(honest, torch.randn(2, 3), torch.zeros(2, 3)) == []


def test_an_argument_that_is_changed_in_secret() -> None:
    assert checked(secret, torch.ones(3), 2.0) == [
        (f"{SPACE}.secret.default", "changes its argument x in place, which its schema does not say")
    ]


def test_a_change_by_nothing_is_no_change() -> None:
    assert checked(secret, torch.ones(3), 0.0) == []


def test_a_result_that_is_an_argument() -> None:
    assert checked(torch.ops.triage_tests.same, torch.ones(3)) == [
        (f"{SPACE}.same.default", "returns memory of its argument x, which its schema does not say")
    ]


def test_a_fake_kernel_with_other_strides() -> None:
    assert checked(torch.ops.triage_tests.turned, torch.randn(2, 3)) == [
        (
            f"{SPACE}.turned.default",
            "has another stride of its result ((1, 3)) than its fake kernel says ((2, 1))",
        )
    ]


def test_torch_s_own_operators_are_left_alone() -> None:
    def work(x: torch.Tensor) -> None:
        x.add_(1)
        torch.nn.functional.dropout(x.view(3), 0.5)
        torch.cat([x, x]).resize_(1)

    assert checked(work, torch.ones(3)) == []


@pytest.mark.parametrize("wanted", [1, 5])
def test_each_fault_is_named_once_with_its_line(wanted: int) -> None:
    x = torch.ones(3)
    with Checks() as checks:
        for _ in range(wanted):
            secret(x, 1.0)
    (row,) = checks.found
    assert row["file"] == __file__
    assert row["code"] == "secret(x, 1.0)"


def test_it_works_below_autograd_and_in_no_grad() -> None:
    x = torch.ones(3, requires_grad=True)
    assert [what for _, what in checked(lambda: secret(x * 1, 1.0))] == [
        "changes its argument x in place, which its schema does not say"
    ]
    with torch.no_grad():
        assert checked(lambda: secret(x * 1, 1.0))


@torch.library.custom_op(f"{SPACE}::row_wise", mutates_args=())
def row_wise(x: torch.Tensor) -> torch.Tensor:
    return x.t().clone(memory_format=torch.preserve_format)


@row_wise.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[1], x.shape[0])


def test_the_stride_of_a_dimension_of_size_one_means_nothing() -> None:
    assert checked(row_wise, torch.randn(5, 1)) == []


def test_an_argument_that_shares_memory_with_one_that_is_changed_openly() -> None:
    x = torch.randn(4)
    assert checked(honest, torch.randn(2, 2), x.view(2, 2)) == []
    base = torch.ones(2, 2)
    assert checked(honest, base, base) == []
