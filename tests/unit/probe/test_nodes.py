"""A backend that compiles only some of the captured nodes: whatever it chooses, the program computes the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchtriage.probe.nodes import Nodes

Function = Callable[..., Any]


def faulty(graph: torch.fx.GraphModule, inputs: Any, **more: Any) -> Function:
    """A compiler with a fault: it takes sin for cos."""
    for node in graph.graph.nodes:
        if node.target is torch.sin:
            node.target = torch.cos
    graph.recompile()
    return graph.forward


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    torch._dynamo.register_backend(compiler_fn=faulty, name="faulty_sin")  # type: ignore[no-untyped-call]


def chain(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x * 2
    y.add_(1)
    z = torch.sin(y)
    with torch.no_grad():
        kept = z + y
    return torch.relu(z), kept


NODES = 7
"""mul, add_, sin, the two that switch gradients, add, relu."""


def run(backend: str, start: int, maximum: int, function: Function, *args: Any) -> tuple[Any, Nodes]:
    torch._dynamo.reset()
    nodes = Nodes(backend, start, maximum)
    return torch.compile(function, backend=nodes)(*args), nodes


@settings(max_examples=40, deadline=None)
@given(st.integers(0, NODES), st.integers(0, NODES + 1), st.sampled_from(["eager", "aot_eager"]))
def test_whatever_is_chosen_the_result_is_that_of_eager_mode(start: int, maximum: int, backend: str) -> None:
    x = torch.linspace(-2, 2, 6, requires_grad=True)
    wanted, (got, nodes) = chain(x), run(backend, start, maximum, chain, x)
    assert nodes.count == NODES
    for a, b in zip(wanted, got, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
        assert a.requires_grad == b.requires_grad
    (gradient,) = torch.autograd.grad(got[0].sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(wanted[0].sum(), x)[0])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, NODES), st.integers(0, NODES))
def test_the_fault_shows_exactly_where_its_node_is_compiled(start: int, maximum: int) -> None:
    x = torch.linspace(0.1, 2, 6)
    (got, _), nodes = run("faulty_sin", start, maximum, chain, x)
    number = next(step["index"] for step in nodes.steps if step["name"] == "aten.sin")
    assert torch.equal(got, chain(x)[0]) != (start < number <= maximum)


def test_steps_name_the_operator_and_the_line() -> None:
    _, nodes = run("eager", 0, 1 << 30, chain, torch.ones(2))
    first = chain.__code__.co_firstlineno
    assert [(step["name"], step.get("line", 0) - first) for step in nodes.steps[:3]] == [
        ("aten.mul", 1), ("aten.add_", 2), ("aten.sin", 3),
    ]  # fmt: skip


def test_nodes_are_numbered_over_all_graphs() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x)
        torch._dynamo.graph_break()
        return torch.sin(y) + 1

    x = torch.linspace(0.1, 1, 4)
    got, nodes = run("faulty_sin", 1, 2, broken, x)
    assert [step["name"] for step in nodes.steps] == ["aten.sin", "aten.sin", "aten.add"]
    torch.testing.assert_close(got, torch.cos(torch.sin(x)) + 1)


def test_a_module_of_torch_s_own_is_named_where_there_is_no_line() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    _, nodes = run("eager", 0, 1, model, torch.ones(2, 3))
    assert "line" not in nodes.steps[0]
    assert "Linear" in nodes.steps[0]["code"]


@pytest.mark.parametrize("dynamic", [True, None])
def test_sizes_that_are_symbols_pass_between_the_parts(dynamic: bool | None) -> None:
    def grown(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x)
        return y.reshape(x.shape[0] * 2, -1) * x.shape[0]

    for start, maximum in ((0, 1), (1, 2), (1, 9), (2, 3)):
        torch._dynamo.reset()
        compiled = torch.compile(grown, backend=Nodes("aot_eager", start, maximum), dynamic=dynamic)
        for size in (4, 6, 8):
            x = torch.randn(size, 4)
            torch.testing.assert_close(compiled(x), grown(x))


def test_what_takes_an_item_of_several_results_goes_with_its_node() -> None:
    def attention(x: torch.Tensor) -> torch.Tensor:
        q, k, v = x.chunk(3, -1)
        return torch.softmax(q @ k.transpose(0, 1), -1) @ v

    x = torch.randn(4, 6)
    for backend in ("aot_eager", "aot_eager_decomp_partition"):
        _, nodes = run(backend, 0, 1 << 30, attention, x)
        assert [step["name"] for step in nodes.steps].count("aten.chunk") == 1
        assert not any("getitem" in step["name"] for step in nodes.steps)
        for start in range(nodes.count):
            for maximum in range(start, nodes.count + 1):
                torch.testing.assert_close(run(backend, start, maximum, attention, x)[0], attention(x))


def test_a_branch_is_one_node() -> None:
    def branches(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (x,)) + 1

    x = torch.ones(3)
    _, nodes = run("aot_eager", 0, 1 << 30, branches, x)
    for maximum in range(nodes.count + 1):
        torch.testing.assert_close(run("aot_eager", 0, maximum, branches, x)[0], x.sin() + 1)
