"""What the walk finds below a call: every tensor and scalar, each under a stable name."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy
import pytest
import torch

from torchtriage.probe import capture, walk

X, Y = torch.ones(1), torch.zeros(1)
SCALE = 3
TABLE = {"rows": [X]}


def paths(root: Any, name: str = "r") -> list[str]:
    return [leaf.path for leaf in walk.leaves({name: root})]


@dataclass
class Batch:
    x: torch.Tensor
    size: int


class Pair(NamedTuple):
    left: Any
    right: Any


class Plain:
    shared = X  # of the class, not of the object

    def __init__(self, **attributes: Any):
        self.__dict__.update(attributes)


@dataclass(slots=True)
class Slotted:
    x: torch.Tensor


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (X, ["r"]),
        (1.5, ["r"]),
        (None, ["r"]),
        (torch.float16, ["r"]),
        ([X, 2], ["r[0]", "r[1]"]),
        ((X, (2,)), ["r[0]", "r[1][0]"]),
        (collections.deque([1, 2]), ["r[0]", "r[1]"]),
        ({"b": 1, "a": 2}, ["r['b']", "r['a']"]),
        ({(1, 2): 3}, ["r[#0]"]),
        (Batch(X, 3), ["r.x", "r.size"]),
        (Pair(X, 2), ["r.left", "r.right"]),
        (Plain(a=1, b=Plain(c=2)), ["r.a", "r.b.c"]),
        (numpy.ones(2), ["r"]),
        (functools.partial(max, X, key=2), ["r.args[0]", "r.keywords['key']"]),
        (int, []),
        (torch, []),
    ],
)
def test_each_container_names_its_parts(value: Any, expected: list[str]) -> None:
    assert paths(value) == expected


def test_slots_are_found() -> None:
    assert paths(Slotted(X)) == ["r.x"]


def test_what_a_set_holds_is_found() -> None:
    assert len(paths({1, 2})) == 2


def test_names_are_as_deep_as_the_program_and_no_deeper_than_twelve() -> None:
    def nested(depth: int) -> Any:
        return functools.reduce(lambda inner, _: [inner], range(depth), 1)

    assert paths(nested(12)) == ["r" + "[0]" * 12]
    assert paths(nested(walk.MAX_DEPTH + 2)) == []


def test_a_cycle_ends() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    assert paths(ring) == ["r[0]"]


def test_a_tensor_that_is_reached_twice_is_named_by_the_first_way() -> None:
    assert paths([X, X, Y]) == ["r[0]", "r[2]"]


def test_a_gradient_is_named_after_its_tensor() -> None:
    x = torch.ones(1, requires_grad=True)
    x.grad = torch.ones(1)
    assert paths([x]) == ["r[0]", "r[0].grad"]


def test_parameters_buffers_and_attributes_of_modules_are_found_and_bookkeeping_is_not() -> None:
    module = torch.nn.BatchNorm1d(2)
    module.step = 7  # type: ignore[assignment]
    net = torch.nn.Sequential(module)
    names = paths(net, "self")
    tensors = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    assert {f"self.0.{name}" for name in (*tensors, "step", "eps", "momentum", "training")} <= set(names)
    assert not any("hooks" in name or "_backward" in name for name in names)


def test_the_state_of_an_optimizer_is_found() -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.5, momentum=0.9)
    weight.grad = torch.ones(1)
    optimizer.step()
    found = {leaf.path: leaf.value for leaf in walk.leaves({"o": optimizer})}
    assert found["o.param_groups[0]['lr']"] == 0.5
    assert found["o.param_groups[0]['params'][0]"] is weight
    assert found["o.state[0]['momentum_buffer']"].item() == 1.0


def test_a_function_is_read_with_its_closure_defaults_and_globals() -> None:
    hidden = {"n": 1}

    def function(x: Any, by: int = 5) -> Any:
        return x * SCALE + hidden["n"] + (lambda: TABLE)()["rows"][0]

    assert paths(function) == [
        "globals.SCALE",
        "r.<hidden>['n']",
        "r.<defaults>[0]",
        "globals.TABLE['rows'][0]",
    ]


def test_a_method_is_read_with_its_object() -> None:
    assert paths(types.MethodType(lambda self: SCALE, Plain(n=1))) == ["r.self.n", "globals.SCALE"]


def test_a_function_below_torch_compile_is_the_user_s() -> None:
    def function(x: Any) -> Any:
        return x * SCALE

    assert paths(torch.compile(function, backend="eager")) == paths(function) == ["globals.SCALE"]


def test_a_closure_that_is_not_filled_yet_is_left_out() -> None:
    def outer() -> Callable[[], Any]:
        def inner() -> Any:
            return later

        found = inner
        if found is None:
            later = 1
        return found

    assert paths(outer()) == []


class Refusing(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("closed")

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


def test_an_object_that_cannot_be_read_does_not_hide_the_rest() -> None:
    assert paths([Refusing(), 1]) == ["r[1]"]


class Lazy(Mapping[int, Any]):
    """Makes its parts anew each time that it is asked."""

    def __init__(self, depth: int):
        self.depth = depth

    def __getitem__(self, key: int) -> Any:
        return Lazy(self.depth - 1) if self.depth else key

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))

    def __len__(self) -> int:
        return 3


def test_parts_that_are_made_anew_are_all_found() -> None:
    assert len(paths(Lazy(3))) == 3**4


def test_globals_of_two_modules_with_one_name_are_both_found() -> None:
    assert sorted(leaf.value for leaf in walk.leaves({"fn": two_modules()})) == [1, 2]


def test_globals_of_two_modules_with_one_name_have_names_of_their_own() -> None:
    assert len(capture.state_of({"fn": two_modules()})) == 2


def two_modules() -> Any:
    """`a.f`, which uses `a.COUNT` and calls `b.g`, which uses `b.COUNT`."""
    a, b = types.ModuleType("a"), types.ModuleType("b")
    exec("COUNT = 1\ndef g(): return COUNT", b.__dict__)
    exec("COUNT = 2\ndef f(): return COUNT + g()", a.__dict__)
    a.g = b.g  # type: ignore[attr-defined]
    return a.f
