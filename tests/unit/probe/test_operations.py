"""What a call does, operation by operation, in eager mode and as it was captured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from torchtriage.lab.diverge import first_divergence
from torchtriage.probe.operations import FILE, Recording, watched

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def both(function: Function, folder: Path, *args: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of eager mode and of the capture."""
    recording = Recording()
    torch.compile(function, backend=recording)(*args)
    watched(function, str(folder))(*args)
    return json.loads((folder / FILE).read_text()), json.loads(json.dumps(recording.rows))


def attention(x: torch.Tensor) -> torch.Tensor:
    scores = torch.softmax(x @ x.T, -1)
    y = (scores @ x).view(-1)
    y[:2] = 0
    return torch.nn.functional.layer_norm(y, y.shape)


def test_eager_and_capture_run_the_same(tmp_path: Path) -> None:
    eager, captured = both(attention, tmp_path, torch.randn(4, 3))
    assert len(eager) > 4
    assert first_divergence(eager, captured) is None
    first = attention.__code__.co_firstlineno
    assert {one["line"] - first for one in captured} <= {1, 2, 3, 4}
    assert any("softmax" in one["operator"] and one["line"] - first == 1 for one in eager)


def test_rows_are_written_where_the_call_raises(tmp_path: Path) -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).reshape(7)

    with pytest.raises(RuntimeError):
        watched(fails, str(tmp_path))(torch.ones(2))
    assert [one["operator"] for one in json.loads((tmp_path / FILE).read_text())] == ["aten.add.Tensor"]


def test_regions_inside_of_a_graph_are_looked_into(tmp_path: Path) -> None:
    @torch.compiler.nested_compile_region
    def inner(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * 2

    def outer(x: torch.Tensor) -> torch.Tensor:
        return inner(inner(x)) + 1

    eager, captured = both(outer, tmp_path, torch.randn(3))
    assert [one["operator"] for one in captured].count("aten.sin.default") == 2
    assert first_divergence(eager, captured) is None


def test_other_higher_order_operators_run_unwatched(tmp_path: Path) -> None:
    def branches(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (x,)) + 1

    x = torch.ones(3)
    recording = Recording()
    got = torch.compile(branches, backend=recording)(x)
    torch.testing.assert_close(got, x.sin() + 1)
    assert recording.rows[-1]["operator"] == "aten.add.Tensor"


def test_what_only_hands_on_its_input_is_no_operation(tmp_path: Path) -> None:
    eager, _ = both(lambda x: x.view(3).detach() + 1, tmp_path, torch.randn(3))
    assert [one["operator"] for one in eager] == ["aten.add.Tensor"]
