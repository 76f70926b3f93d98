"""Tables of numbers: the few that matter are found, and what is left says so."""

import ast
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchtriage.reduce import engine, notes
from torchtriage.reduce import tree as trees
from torchtriage.reduce.engine import Row, Search
from torchtriage.reduce.passes import arguments, elements, literals

torch = pytest.importorskip("torch")
ROWS = (
    Row("ones", elements.plain(1)),
    Row("zeros", elements.plain(0)),
    Row("fewer", elements.fewer),
    Row("short", elements.short, how="singly"),
)


def reduced(text: str, fails: Any, rows: tuple[Row, ...] = ROWS) -> str:
    """The script, as small as the passes make it while `fails` holds for the variable x of it."""

    def test(candidate: str) -> bool:
        names: dict[str, Any] = {"torch": torch}
        try:
            exec(candidate, names)
            return bool(fails(names))
        except (RuntimeError, ValueError, IndexError, TypeError):
            return False

    search = Search(test, trees.text_of(ast.parse(text)), jobs=1)
    engine.run(search, rows)
    search.close()
    return search.best.strip()


def table(values: torch.Tensor, more: str = "") -> str:
    return f"import torch\nx = torch.tensor({notes.number(values.tolist())}{more})\n"


def test_one_nan_among_a_thousand_is_found() -> None:
    values = torch.randn(1000)
    values[617] = math.nan
    found = reduced(table(values), lambda names: names["x"].isnan().any())
    assert found.endswith("x = torch.tensor([float('nan')])")


def test_where_the_length_matters_the_others_become_ones() -> None:
    values = torch.randn(6, 50)
    values[2, 33] = -math.inf
    found = reduced(table(values), lambda n: n["x"].shape == (6, 50) and (n["x"] == -math.inf).any())
    assert found.endswith("x = torch.where(torch.arange(300) == 133, float('-inf'), 1.0).reshape(6, 50)")


def test_a_pair_of_equal_indices_is_left() -> None:
    values = torch.arange(40)
    values[31] = 7
    found = reduced(table(values), lambda n: len(n["x"]) > len(n["x"].unique()), ROWS)
    assert found.endswith("x = torch.tensor([0, 0])")


def test_tensors_that_belong_together_shrink_together() -> None:
    text = table(torch.rand(20, 3)) + f"y = torch.tensor({torch.rand(20, 3).tolist()})\nz = x + y\n"
    found = reduced(text, lambda names: names["z"].numel() and names["x"].shape == names["y"].shape)
    assert found.count("torch.tensor([[1.0]])") == 2


def test_where_no_element_can_go_few_scripts_are_tried() -> None:
    text = table(torch.randn(600))
    asked: list[str] = []
    whole: dict[str, Any] = {}
    exec(text, whole)

    def fails(names: dict[str, Any]) -> bool:
        asked.append("")
        return bool(torch.equal(names["x"], whole["x"]))

    reduced(text, fails)
    assert len(asked) < 600


def test_a_dtype_and_a_wish_for_gradients_stay() -> None:
    text = table(torch.rand(30), ", dtype=torch.float64, requires_grad=True")
    found = reduced(
        text,
        lambda n: len(n["x"]) == 30 and n["x"].dtype == torch.float64 and n["x"].requires_grad,
    )
    assert found.endswith("x = torch.ones(30).to(torch.float64).requires_grad_()")


def test_numbers_of_a_long_table_are_not_shrunk_one_by_one() -> None:
    long = ast.parse(table(torch.arange(100)))
    assert not literals.single(long) and not literals.shared(long)
    assert len(arguments.drop(long)) == 1, "the argument of torch.tensor"
    assert literals.single(ast.parse(table(torch.arange(5))))


@given(
    st.lists(st.lists(st.integers(-9, 9), min_size=3, max_size=3), min_size=1, max_size=6),
    st.integers(-9, 9),
)
@settings(max_examples=60, deadline=None)
def test_what_is_left_is_a_table_that_still_holds_what_matters(rows: list[list[int]], wanted: int) -> None:
    rows[0][1] = wanted
    found = reduced(
        f"x = torch.tensor({rows})", lambda n: n["x"].dtype == torch.int64 and (n["x"] == wanted).any()
    )
    names: dict[str, Any] = {"torch": torch}
    exec(found, names)
    assert names["x"].tolist() == [[wanted]]


@pytest.mark.parametrize("text", ["torch.tensor([])", "torch.tensor([[1], [1, 2]])", "torch.tensor([a, 2])"])
def test_what_is_no_table_of_numbers_is_left_alone(text: str) -> None:
    tree = ast.parse(f"a = 1\nx = {text}\n")
    assert not elements.plain(1)(tree) and not elements.fewer(tree) and not elements.short(tree)
