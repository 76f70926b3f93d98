"""All guards that fail at a recompilation, on real frames compiled with the eager backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo import convert_frame

from torchtriage.probe import guards

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    name = "get_and_maybe_log_recompilation_reasons"
    monkeypatch.setattr(convert_frame, name, getattr(convert_frame, name))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def failing(function: Function, *calls: tuple[Any, ...], **options: Any) -> list[list[str]]:
    """For each recompilation, what failed, without code and place."""
    told: list[list[str]] = []
    guards.watch(lambda found: told.append([text.partition("  # ")[0].strip() for text in found]))
    compiled = torch.compile(function, backend="eager", **options)
    for call in calls:
        compiled(*call)
    return told


def test_every_guard_that_fails_is_told_not_only_the_first() -> None:
    def f(x: torch.Tensor, n: int, flag: bool, name: str) -> torch.Tensor:
        return x * n + len(name) + (1 if flag else 2)

    x = torch.ones(2, 3)
    (found,) = failing(f, (x, 2, True, "a"), (torch.ones(2, 5), 3, False, "bb"))
    assert sorted(found) == [
        "L['flag'] == True",
        "L['n'] == 2",
        "L['name'] == 'a'",
        "tensor 'x' size mismatch at index 1. expected 3, actual 5",
    ]


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (torch.ones(2), torch.ones(2, 2), "tensor 'x' rank mismatch. expected 1, actual 2"),
        (torch.ones(2), torch.ones(2, dtype=torch.float64), "tensor 'x' dtype mismatch. expected torch.float32, actual torch.float64"),
        (torch.ones(2, 3), torch.ones(3, 2).t(), "tensor 'x' stride mismatch at index 0. expected 3, actual 1"),
        (torch.ones(2), torch.ones(2, requires_grad=True), "tensor 'x' requires_grad mismatch. expected requires_grad=0"),
    ],
)  # fmt: skip
def test_what_is_another_about_a_tensor(first: torch.Tensor, second: torch.Tensor, said: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert failing(f, (first,), (second,)) == [[said]]


def test_attributes_of_a_module_that_change_together() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.scale = 0, {"by": 1}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x * self.calls * self.scale["by"]

    net = Net()
    told: list[list[str]] = []
    guards.watch(lambda found: told.append([text.partition("  # ")[0].strip() for text in found]))
    compiled = torch.compile(net, backend="eager")
    compiled(torch.ones(2))
    net.scale["by"] = 3
    compiled(torch.ones(2))
    assert set(told[0]) == {"L['self'].calls == 0", "L['self'].scale['by'] == 1"}


def test_global_state_is_told_as_what_changed() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    told: list[list[str]] = []
    guards.watch(told.append)
    compiled = torch.compile(f, backend="eager")
    compiled(torch.ones(2))
    with torch.no_grad():
        compiled(torch.ones(2))
    assert [text.strip() for text in told[0]] == ["GLOBAL_STATE changed: grad_mode"]


def test_of_many_conditions_on_sizes_only_those_that_fail_are_told() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] > 4 and x.shape[1] < 100 else x - 1

    x = torch.ones(6, 8)
    told = failing(f, (x,), (torch.ones(3, 9),), dynamic=True)
    assert len(told) == 1
    assert all("size()[0]" in text or "shape[0]" in text for text in told[0])
    assert told[0]


def test_nothing_that_goes_wrong_while_explaining_reaches_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*args: Any) -> list[str]:
        raise RuntimeError("no")

    monkeypatch.setattr(guards, "failing", broken)
    assert failing(lambda x: x + 1, (torch.ones(2),), (torch.ones(3),)) == []


def test_nothing_is_read_below_an_object_of_another_class() -> None:
    """Reading can run the program's own code: an attribute may count, load or remove something."""
    read: list[str] = []

    class Plain:
        k = 2

    class Counting:
        def __getattr__(self, name: str) -> int:
            read.append(name)
            return 3

    def f(x: torch.Tensor, options: Any) -> torch.Tensor:
        return x * options.k

    told = failing(f, (torch.ones(2), Plain()))
    guards.watch(lambda found: told.append(found))
    compiled = torch.compile(f, backend="eager")
    compiled(torch.ones(2), Plain())
    read.clear()
    real = guards.failing
    seen: list[int] = []
    try:
        guards.failing = lambda *args: (real(*args), seen.append(len(read)))[0]  # type: ignore[func-returns-value]
        compiled(torch.ones(2), Counting())
    finally:
        guards.failing = real
    assert set(seen) == {0}
