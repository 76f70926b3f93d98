"""Leaf by leaf: metadata exactly, values up to noise, and each kind of difference under its own name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from torchtriage.oracle.compare import compare_records
from torchtriage.probe import capture

from .records import aspects, differences, leaf, record, returned, tensor

F64, F32, F16, BF16 = torch.float64, torch.float32, torch.float16, torch.bfloat16


def test_equal_records_have_no_differences() -> None:
    x = torch.ones(2, requires_grad=True)
    eager = record(
        *capture.output_leaves((x * 2, {"n": 3}), {}),
        leaf(x, "args[0]", "state"),
        leaf(x.detach(), "grad[args[0]]", "grad"),
    )
    assert compare_records(eager, eager, {"again": eager, "float64": eager}) == []


@pytest.mark.parametrize(("group", "aspect"), [("output", "value"), ("state", "mutation"), ("grad", "grad")])
def test_a_wrong_tensor_is_named_after_its_group(group: str, aspect: str) -> None:
    (found,) = differences(tensor(1.0, 2.0), tensor(1.0, 3.0), group)
    assert (found["aspect"], found["magnitude"], found["noise"]) == (aspect, 1.0, False)
    assert found["detail"] == "differs from eager by 1 at [1] (eager 2, compiled 3, 1 of 2 elements)"


def test_a_wrong_scalar_has_neither_index_nor_count() -> None:
    (found,) = differences(torch.tensor(2.0), torch.tensor(3.0))
    assert found["detail"] == "differs from eager by 1 (eager 2, compiled 3)"


@pytest.mark.parametrize(
    ("path", "value", "aspect"),
    [
        ("args[0]", tensor(1.0), "mutation"),
        ("kwargs['x']", tensor(1.0), "mutation"),
        ("self.running_mean", tensor(1.0), "mutation"),
        ("fn.<cache>", tensor(1.0), "side-effect"),
        ("globals.table", tensor(1.0), "side-effect"),
        ("self.step", 3, "side-effect"),
    ],
)
def test_inputs_and_module_are_mutated_and_the_rest_is_a_side_effect(
    path: str, value: Any, aspect: str
) -> None:
    eager = record(leaf(value, path, "state"))
    assert aspects(compare_records(eager, record(), {})) == [aspect]
    assert aspects(compare_records(record(), eager, {})) == [aspect]


def test_a_change_that_only_one_side_makes_says_which() -> None:
    changed = record(leaf(3, "self.step", "state"))
    (left_out,) = compare_records(changed, record(), {})
    (made_up,) = compare_records(record(), changed, {})
    assert left_out["detail"] == "eager changes it to 3, compiled leaves it as it was"
    assert made_up["detail"] == "compiled changes it to 3, eager leaves it as it was"


def test_a_leaf_that_only_one_side_removes_says_which() -> None:
    gone = record({"path": "self.cache", "group": "state", "kind": "gone"})
    (left,) = compare_records(gone, record(), {})
    (removed,) = compare_records(record(), gone, {})
    assert (left["aspect"], left["detail"]) == ("side-effect", "eager removes it, compiled leaves it")
    assert (removed["aspect"], removed["detail"]) == ("side-effect", "compiled removes it, eager leaves it")
    assert compare_records(gone, gone, {}) == []


def test_a_gradient_that_only_one_side_has_is_a_wrong_gradient() -> None:
    grad = record(leaf(tensor(1.0), "grad[args[0]]", "grad"))
    assert aspects(compare_records(grad, record(), {})) == ["grad"]
    assert aspects(compare_records(record(), grad, {})) == ["grad"]


def test_no_gradient_in_place_of_a_tensor_is_a_wrong_gradient() -> None:
    (found,) = differences(tensor(1.0), None, "grad")
    assert (found["aspect"], found["detail"]) == ("grad", "eager gives a tensor, compiled a value to None")


# --- metadata -------------------------------------------------------------------------------------


def test_another_dtype_is_named_and_equal_values_are_not() -> None:
    (found,) = differences(tensor(1.5, dtype=F16), tensor(1.5, dtype=F32))
    assert (found["aspect"], found["detail"]) == ("dtype", "eager float16, compiled float32")


def test_another_dtype_with_other_values_is_two_findings() -> None:
    assert aspects(differences(tensor(1.5, dtype=F32), tensor(2.5, dtype=F16))) == ["dtype", "value"]
    assert aspects(differences(tensor(1, dtype=torch.int8), tensor(2.0))) == ["dtype", "value"]


def test_a_value_that_only_the_coarser_dtype_rounded_is_not_wrong() -> None:
    assert aspects(differences(tensor(1.001), tensor(1.001, dtype=F16))) == ["dtype"]
    assert aspects(differences(tensor(1.001, dtype=BF16), tensor(1.001, dtype=F64))) == ["dtype"]


def test_strides_count_only_where_there_is_more_than_one_element() -> None:
    three_by_one = torch.zeros(3, 1)
    assert differences(three_by_one, three_by_one.as_strided((3, 1), (1, 7))) == []
    assert aspects(differences(torch.zeros(2, 3), torch.zeros(3, 2).t())) == ["stride"]
    assert differences(torch.zeros(0, 3), torch.empty_strided((0, 3), (1, 9))) == []


def test_strides_are_not_told_beside_another_dtype() -> None:
    assert aspects(differences(torch.zeros(2, 3), torch.zeros(3, 2, dtype=F64).t())) == ["dtype"]


def test_other_strides_are_shown() -> None:
    (found,) = differences(torch.zeros(2, 3), torch.zeros(3, 2).t())
    assert found["detail"] == "eager (3, 1), compiled (1, 2)"


def test_the_strides_of_a_gradient_are_the_engine_s_choice() -> None:
    assert differences(torch.zeros(2, 3), torch.zeros(3, 2).t(), "grad") == []


def test_another_shape_is_the_only_finding() -> None:
    (found,) = differences(torch.zeros(2, 3), torch.ones(3, 2))
    assert (found["aspect"], found["detail"]) == ("shape", "eager (2, 3), compiled (3, 2)")


def test_requires_grad_is_compared() -> None:
    (found,) = differences(torch.ones(1), torch.ones(1, requires_grad=True))
    assert (found["aspect"], found["detail"]) == ("requires_grad", "eager False, compiled True")


class Tagged(torch.Tensor):
    """A subclass without parts of its own."""


@pytest.mark.parametrize(
    ("eager", "compiled"),
    [
        (torch.nn.Parameter(torch.ones(1)), torch.ones(1, requires_grad=True)),
        (torch.nn.Buffer(torch.ones(1)), torch.ones(1)),
    ],
)
def test_a_parameter_or_buffer_is_a_tensor(eager: torch.Tensor, compiled: torch.Tensor) -> None:
    assert differences(eager, compiled) == []


def test_any_other_subclass_is_compared() -> None:
    (found,) = differences(torch.ones(1).as_subclass(Tagged), torch.ones(1))
    assert (found["aspect"], found["detail"]) == ("subclass", "eager Tagged, compiled Tensor")


def test_another_layout_is_one_finding() -> None:
    assert aspects(differences(torch.eye(2).to_sparse(), torch.eye(2))) == ["layout"]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_sparse_values_are_compared_in_the_order_of_their_indices() -> None:
    a = torch.sparse_coo_tensor([[1, 0]], tensor(1.0, 2.0), (2,))
    b = torch.sparse_coo_tensor([[0, 1]], tensor(2.0, 1.0), (2,))
    assert differences(a, b) == []
    assert aspects(differences(a, torch.sparse_coo_tensor([[0, 1]], tensor(2.0, 5.0), (2,)))) == ["value"]


def test_another_number_of_sparse_values_is_another_shape() -> None:
    found = differences(tensor(1.0, 2.0).to_sparse(), tensor(1.0, 0.0).to_sparse())
    assert set(aspects(found)) == {"shape"}


def test_an_output_that_is_its_input_is_not_one_that_is_a_copy() -> None:
    eager, compiled = leaf(tensor(1.0), alias="args[0]"), leaf(tensor(1.0), alias="output")
    (found,) = differences(eager, compiled)
    assert (found["aspect"], found["detail"]) == ("alias", "eager args[0], compiled output")


def test_aliases_of_empty_tensors_and_of_state_do_not_count() -> None:
    empty = torch.empty(0)
    assert differences(leaf(empty, alias="args[0]"), leaf(empty, alias="output")) == []
    state = [leaf(tensor(1.0), "args[0]", "state", alias=name) for name in ("args[0]", "args[1]")]
    assert differences(*state) == []


# --- structure ------------------------------------------------------------------------------------


def test_another_container_is_another_structure() -> None:
    (found,) = compare_records(returned((tensor(1.0),)), returned([tensor(1.0)]), {})
    assert (found["aspect"], found["detail"]) == (
        "structure",
        "eager 'tuple(Tensor)', compiled 'list(Tensor)'",
    )


def test_a_missing_output_is_one_finding_about_structure() -> None:
    eager, compiled = returned({"a": tensor(1.0), "b": tensor(2.0)}), returned({"a": tensor(1.0)})
    assert aspects(compare_records(eager, compiled, {})) == ["structure"]
    assert aspects(compare_records(compiled, eager, {})) == ["structure"]


def test_a_number_in_place_of_a_tensor_is_told_once_for_its_value_and_once_for_its_structure() -> None:
    found = compare_records(returned((torch.tensor(1.0),)), returned((1.0,)), {})
    assert sorted(aspects(found)) == ["structure", "value"]


def test_one_tensor_returned_twice_in_place_of_two_is_found() -> None:
    one, two = tensor(1.0), tensor(2.0)
    assert compare_records(returned((one, two)), returned((one, one)), {}) != []


def test_two_tensors_in_place_of_one_returned_twice_are_found() -> None:
    one, two = tensor(1.0), tensor(2.0)
    assert compare_records(returned((one, one)), returned((one, two)), {}) != []


class Result:
    """An ordinary object that a region may return."""

    def __init__(self, items: Any):
        self.items = items


@dataclass(slots=True)
class Slotted:
    x: torch.Tensor


def test_the_attributes_of_a_returned_object_are_compared() -> None:
    found = compare_records(returned(Result(tensor(1.0))), returned(Result(tensor(2.0))), {})
    assert [(f["path"], f["aspect"]) for f in found] == [("output.items", "value")]


def test_a_tensor_that_is_missing_in_a_returned_object_is_found() -> None:
    eager, compiled = Result([tensor(1.0), tensor(2.0)]), Result([tensor(1.0)])
    assert compare_records(returned(eager), returned(compiled), {}) != []


def test_the_slots_of_a_returned_object_are_compared() -> None:
    found = compare_records(returned(Slotted(tensor(1.0))), returned(Slotted(tensor(2.0))), {})
    assert aspects(found) == ["value"]


def test_a_returned_set_is_compared() -> None:
    assert compare_records(returned({1, 2}), returned({1, 3}), {}) != []


# --- values that are not tensors ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("eager", "compiled"), [(1, 2), ("a", "b"), (True, 1), (1, 1.0), (None, 0), (1.0, 1.1), (b"a", b"b")]
)
def test_values_that_are_not_tensors_are_compared_exactly(eager: Any, compiled: Any) -> None:
    (found,) = differences(eager, compiled)
    assert (found["aspect"], found["noise"]) == ("value", False)
    assert found["detail"] == f"eager {eager!r}, compiled {compiled!r}"


def test_two_nans_are_the_same() -> None:
    assert differences(float("nan"), float("nan")) == []


def test_a_python_float_that_was_computed_in_float32_is_noise() -> None:
    (found,) = differences(0.1, float(torch.tensor(0.1)))
    assert (found["noise"], found["why_noise"]) == (True, "a Python float that was computed in float32")


def test_a_value_that_changes_between_two_eager_runs_is_not_compared() -> None:
    assert differences(17, 23, "state", path="self.clock", again=18) == []
    assert aspects(differences(17, 23, "state", path="self.clock", again=17)) == ["side-effect"]


def test_a_value_that_eager_has_only_sometimes_is_not_compared() -> None:
    changed = record(leaf(3, "globals.hits", "state"))
    assert compare_records(changed, record(), {"again": record()}) == []
    assert compare_records(record(), changed, {"again": changed}) == []


def test_a_tensor_that_changes_between_two_eager_runs_is_judged_as_noise() -> None:
    (found,) = differences(tensor(1.0), tensor(1.2), again=tensor(1.1))
    assert found["noise"]


# --- further eager runs ---------------------------------------------------------------------------


def test_float64_says_that_compiled_is_closer() -> None:
    (found,) = differences(tensor(1.02), tensor(1.001), float64=tensor(1.0, dtype=F64))
    assert (found["noise"], found["float64"]) == (True, "1")
    assert found["why_noise"] == "float64 says compiled is at least as close as eager"


def test_a_flavour_that_raised_says_nothing() -> None:
    eager, compiled = record(leaf(tensor(1.0))), record(leaf(tensor(1.2)))
    (found,) = compare_records(eager, compiled, {"again": {"status": "raised", "leaves": []}})
    assert not found["noise"]


@pytest.mark.parametrize(
    ("flavour", "where"),
    [("float64", "in float64"), ("ulp1", "when its inputs move by one unit in the last place")],
)
def test_a_size_that_hangs_on_rounding_is_noise(flavour: str, where: str) -> None:
    (found,) = differences(torch.ones(3), torch.ones(4), **{flavour: torch.ones(4)})
    assert (found["aspect"], found["noise"]) == ("shape", True)
    assert found["why_noise"] == f"eager gives another size {where}: the size hangs on rounding"


def test_a_size_that_eager_is_sure_of_is_wrong() -> None:
    (found,) = differences(torch.ones(3), torch.ones(4), float64=torch.ones(3), ulp1=torch.ones(3))
    assert not found.get("noise")


def test_one_number_that_eager_got_right_by_luck_is_judged_by_its_company() -> None:
    """A bias of one element: eager hit float64, compiled is off by what the other gradients are off by."""
    weight = torch.linspace(1, 2, 64, dtype=F64)
    exact = {"w": weight, "v": weight * 3, "bias": torch.tensor([-7.5804], dtype=F64)}
    off = {"w": 1 + 6e-6, "v": 1 - 5e-6, "bias": 1.0}

    def grads(factors: dict[str, float], dtype: torch.dtype) -> Any:
        return record(*(leaf((exact[n] * factors[n]).to(dtype), f"grad[{n}]", "grad") for n in exact))

    eager, truth = grads(off, F32), grads(dict.fromkeys(exact, 1.0), F64)
    found = compare_records(eager, grads(off | {"bias": 1 + 5e-6}, F32), {"float64": truth})
    assert [f["noise"] for f in found] == [True]
    found = compare_records(eager, grads(off | {"bias": 1 + 1e-4}, F32), {"float64": truth})
    assert [f["noise"] for f in found] == [False], "far more than the others are off"
    alone = {"bias": 1 + 5e-6}
    only = record(leaf(exact["bias"].to(F32), "grad[bias]", "grad"))
    found = compare_records(
        only,
        record(leaf((exact["bias"] * alone["bias"]).to(F32), "grad[bias]", "grad")),
        {"float64": record(leaf(exact["bias"], "grad[bias]", "grad"))},
    )
    assert [f["noise"] for f in found] == [False], "without company there is nothing to go by"
