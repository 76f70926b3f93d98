"""What the process that runs a reducer's script sees: differences, values, call sites, graphs; and what it forbids."""

import math

import pytest

torch = pytest.importorskip("torch")

from torchtriage.probe import graphs, notes, observations  # noqa: E402


def found(eager: object, compiled: object, *aspects: str) -> list[tuple[str, str, bool]]:
    rows = observations.compare(observations.take(eager), observations.take(compiled), aspects)
    return [(row["path"], row["aspect"], row["gross"]) for row in rows]


@pytest.mark.parametrize(
    ("eager", "compiled", "wanted"),
    [
        (torch.ones(2), torch.ones(2), []),
        (torch.ones(2), torch.ones(2) + 1e-7, []),
        (torch.ones(2), torch.ones(2) * 1.001, [("{}", "value", False)]),
        (torch.ones(2), torch.ones(2) * 2, [("{}", "value", True)]),
        (torch.tensor([1.0]), torch.tensor([float("nan")]), [("{}", "value", True)]),
        (torch.tensor([float("nan")]), torch.tensor([float("nan")]), []),
        (torch.ones(2), torch.ones(2, dtype=torch.float64), [("{}", "dtype", True)]),
        (torch.ones(2), torch.ones(3), [("{}", "shape", True)]),
        ({"a": [1, 2]}, {"a": [1, 3]}, [("{}['a'][1]", "value", True)]),
        ((torch.ones(1), None), (torch.ones(1), torch.ones(1)), [("{}[1]", "structure", True)]),
        (1.0, 1.5, [("{}", "value", True)]),
    ],
)
def test_differences(eager: object, compiled: object, wanted: list[tuple[str, str, bool]]) -> None:
    assert found(eager, compiled) == wanted


def test_strides_requires_grad_and_aliases_are_compared_when_asked() -> None:
    turned = torch.ones(2, 3).t()
    assert found(turned, turned.contiguous()) == []
    assert found(turned, turned.contiguous(), "stride") == [("{}", "stride", True)]
    leaf = torch.ones(2, requires_grad=True)
    assert found(leaf, leaf.detach(), "requires_grad") == [("{}", "requires_grad", True)]
    base = torch.ones(4)
    (row,) = found([base, base[:2]], [base, base[:2].clone()], "alias")
    assert row[1] == "alias" and "data_ptr" in row[0]


def test_gradients_and_parameters_are_reached_by_expressions() -> None:
    model = torch.nn.Linear(2, 1)
    model(torch.ones(2)).backward()
    paths = observations.take({"model": model}, grads=True)
    assert "{}['model'].get_parameter('weight').grad" in paths


def written(function, *args):
    held = []

    def backend(graph, inputs):
        held.append(graphs.write(graph, inputs))
        return graph.forward

    torch._dynamo.reset()
    torch.compile(function, backend=backend)(*args)
    return held


def test_a_graph_becomes_the_code_that_a_person_writes() -> None:
    def model(x, w):
        h = torch.relu(x @ w)[:, 0]
        return -h.sum() / 2

    (graph,) = written(model, torch.ones(2, 3), torch.ones(3, 4))
    assert "x @ w" in graph["text"] and "torch.relu(" in graph["text"] and "[:, 0]" in graph["text"]
    names = {"torch": torch}
    exec(graph["text"], names)
    x, w = torch.randn(2, 3), torch.randn(3, 4)
    assert torch.equal(names["f"](x, w)[0], model(x, w))
    assert [note["shape"] for _, note in graph["inputs"]] == [[2, 3], [3, 4]]


def test_a_graph_of_a_model_runs_by_itself() -> None:
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.lin = torch.nn.LayerNorm(4), torch.nn.Linear(4, 4)

        def forward(self, x):
            q = self.lin(self.norm(x)).chunk(2, -1)
            return torch.nn.functional.scaled_dot_product_attention(q[0], q[1], q[0], is_causal=True)

    (graph,) = written(Block(), torch.ones(1, 2, 4))
    names = {"torch": torch}
    exec("\n".join(f"import {name}" for name in graph["imports"]) + "\n" + graph["text"], names)
    values = [torch.ones(note["shape"]) for _, note in graph["inputs"]]
    assert names["f"](*values)[0].shape == (1, 2, 2)


@pytest.mark.parametrize("value", [3, 2.5, True, None, "text", (2, 3), torch.float16, torch.ones(2).shape])
def test_plain_values_are_noted_as_their_literals(value: object) -> None:
    note = notes.describe(value)
    assert note["kind"] == "plain" and eval(note["text"], {"torch": torch}) == value


def test_values_that_are_no_numbers_are_noted_as_well() -> None:
    assert eval(notes.describe(float("-inf"))["text"]) == -math.inf
    assert math.isnan(eval(notes.describe(math.nan)["text"]))
    note = notes.describe(torch.tensor([1.0, math.nan, -math.inf, 3e8]))
    assert [str(v) for v in note["extremes"]] == ["nan", "-inf", "300000000.0"]
    assert notes.describe(torch.ones(3))["extremes"] == []
    assert "values" in notes.describe(torch.ones(4096)) and "values" not in notes.describe(torch.ones(4097))


@pytest.mark.parametrize("value", [object(), [1], torch.ones(2).to_sparse()])
def test_what_has_no_literal_is_left_alone(value: object) -> None:
    assert notes.describe(value) == {"kind": "other"}
