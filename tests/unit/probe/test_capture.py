"""Fingerprints that notice every change, and records that another process can read."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from torchtriage.probe import capture

LARGE = 16 * capture.SAMPLE + 16
IGNORED = pytest.mark.filterwarnings(
    "ignore:.*(quantize_per_tensor|Sparse|ComplexHalf|sparse csr|torch.ao).*"
)


def changed(value: Any, change: Any) -> bool:
    before = capture.fingerprint(value)
    assert capture.fingerprint(value) == before, "a fingerprint must not change by itself"
    change(value)
    return bool(capture.fingerprint(value) != before)


# --- fingerprints ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(6.0),
        torch.arange(6.0).reshape(2, 3).t(),
        torch.arange(12.0)[::2],
        torch.arange(6, dtype=torch.uint8),
        torch.ones(6, dtype=torch.bfloat16),
        torch.ones(6, dtype=torch.complex64),
        torch.ones(6, dtype=torch.complex64).conj(),
        torch.tensor(1.0),
        torch.ones(LARGE),
    ],
    ids=lambda t: f"{str(t.dtype)[6:]}-{tuple(t.shape)}",
)
def test_an_in_place_change_changes_the_fingerprint(value: torch.Tensor) -> None:
    assert changed(value, lambda t: t.add_(1))


def test_a_change_of_one_element_of_a_large_tensor_is_noticed() -> None:
    assert changed(torch.ones(LARGE), lambda t: t[7].add_(1))


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.requires_grad_(),
        lambda t: t.resize_(2),
        lambda t: t.t_(),
        lambda t: setattr(t, "data", t.data.double()),
    ],
)
def test_a_change_of_metadata_changes_the_fingerprint(change: Any) -> None:
    assert changed(torch.ones(2, 3), change)


def test_nan_is_like_itself() -> None:
    assert capture.fingerprint(torch.tensor([float("nan")])) == capture.fingerprint(
        torch.tensor([float("nan")])
    )


def test_values_of_other_types_have_other_fingerprints() -> None:
    values = [1, 1.0, True, "1", b"1", None, numpy.ones(1), numpy.zeros(1), numpy.ones(1, dtype="float32")]
    assert len({str(capture.fingerprint(value)) for value in values}) == len(values)


def test_an_array_changes_in_place() -> None:
    assert changed(numpy.ones(3), lambda a: a.__iadd__(1))


def test_a_tensor_that_cannot_be_read_is_unreadable_and_not_an_error() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(2)
    assert capture.fingerprint(fake)[0] == "unreadable"


def test_tensors_are_read_without_numpy() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None\nimport torch\nfrom torchtriage.probe import capture\n"
        "assert capture.fingerprint(torch.ones(1))[0] != 'unreadable'\ncapture.rng_mark()"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_digest_covers_names_values_and_random_numbers() -> None:
    x = torch.ones(1)
    first = capture.digest(capture.state_of({"x": x}))
    assert capture.digest(capture.state_of({"x": x.clone()})) == first
    assert capture.digest(capture.state_of({"y": x})) != first
    random.random()
    drawn = capture.digest(capture.state_of({"x": x}))
    assert drawn != first
    torch.rand(1)
    assert capture.digest(capture.state_of({"x": x})) != drawn


# --- what changed ---------------------------------------------------------------------------------


def test_only_what_changed_is_recorded() -> None:
    state = {"args[0]": torch.ones(1), "args[1]": torch.ones(1), "self": {"n": 1, "old": 2}}
    before = capture.state_of(state)
    state["args[1]"].add_(1)  # type: ignore[attr-defined]
    state["self"] = {"n": 2, "new": 3}
    found = capture.changed_leaves(before, capture.state_of(state))
    assert [(r["path"], r["kind"]) for r in found] == [
        ("args[1]", "tensor"), ("self['n']", "value"), ("self['new']", "value"), ("self['old']", "gone"),
    ]  # fmt: skip


# --- records --------------------------------------------------------------------------------------


class Tagged(torch.Tensor):
    """A subclass without parts of its own."""


def quantised() -> torch.Tensor:
    return torch.quantize_per_tensor(torch.tensor([1.0, 2.0]), 0.1, 0, torch.quint8)


@IGNORED
@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: torch.ones(2), {"": [1.0, 1.0]}),
        (lambda: torch.tensor(2.0), {"": 2.0}),
        (lambda: torch.empty(0, 3), {"": []}),
        (lambda: torch.tensor([1 + 2j]).conj(), {"": [1 - 2j]}),
        (lambda: torch.tensor([True]), {"": [True]}),
        (lambda: torch.tensor([0.0, 2.0]).to_sparse(), {".indices": [[1]], ".values": [2.0]}),
        (
            lambda: torch.tensor([[0.0, 2.0]]).to_sparse_csr(),
            {".crow_indices": [0, 1], ".col_indices": [1], ".values": [2.0]},
        ),
        (
            lambda: torch.tensor([[0.0, 2.0]]).to_sparse_csc(),
            {".ccol_indices": [0, 0, 1], ".row_indices": [0], ".values": [2.0]},
        ),
        (quantised, {"": [10, 20]}),
        (lambda: torch.ones(2).as_subclass(Tagged), {"": [1.0, 1.0]}),
    ],
    ids=["dense", "scalar", "empty", "conjugate", "bool", "coo", "csr", "csc", "quantised", "subclass"],
)
def test_every_kind_of_tensor_is_recorded_as_plain_parts(make: Any, parts: dict[str, Any]) -> None:
    record = capture.leaf_record("x", make(), "output")
    assert {name: part.tolist() for name, part in record["parts"].items()} == parts
    assert all(type(part) is torch.Tensor for part in record["parts"].values())


def test_a_nested_tensor_is_recorded() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(1)], layout=torch.jagged)
    assert capture.leaf_record("x", nested, "output")["kind"] == "tensor"


def test_metadata_is_recorded_beside_the_data() -> None:
    record = capture.leaf_record("x", torch.nn.Parameter(torch.ones(2, 3).t()), "output")
    del record["parts"]
    assert record == {
        "path": "x", "group": "output", "kind": "tensor", "dtype": "torch.float32", "shape": [3, 2],
        "device": "cpu", "layout": "torch.strided", "requires_grad": True, "subclass": "Parameter",
        "inference": False, "stride": [1, 3],
    }  # fmt: skip


@IGNORED
def test_a_quantised_tensor_is_recorded_with_its_scale() -> None:
    assert capture.leaf_record("x", quantised(), "output")["quantiser"] == (
        "torch.per_tensor_affine scale=0.1 zero_point=0"
    )


def test_a_record_is_a_copy() -> None:
    x = torch.ones(1)
    record = capture.leaf_record("x", x, "output")
    x.add_(1)
    assert record["parts"][""].item() == 1.0


def test_an_array_is_recorded_as_a_tensor_of_its_own_class() -> None:
    record = capture.leaf_record("x", numpy.ones(2, dtype="float32"), "output")
    assert (record["kind"], record["subclass"]) == ("tensor", "ndarray[float32]")
    assert record["parts"][""].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("place", [0, 123_456, -1, -capture.BLOCKS + 1, -capture.WHOLE // 4 - 1])
def test_an_extreme_of_a_large_tensor_is_recorded_wherever_it_is(place: int) -> None:
    x = torch.zeros(capture.WHOLE + capture.BLOCKS + 5)
    x[place] = 9.0
    parts = capture.leaf_record("x", x, "output")["parts"]
    assert list(parts) == ["<first>", "<last>", "<sample>", "<block maxima>", "<block minima>"]
    assert max(part.max() for part in parts.values()) == 9.0


def test_a_tensor_that_is_very_large_is_recorded_in_part() -> None:
    x = torch.zeros(20 * capture.WHOLE)
    parts = capture.leaf_record("x", x, "output")["parts"]
    assert sum(part.numel() for part in parts.values()) < 2 * capture.WHOLE


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    record = {"status": "returned", "leaves": [capture.leaf_record("x", torch.ones(2), "output")]}
    capture.save(record, str(tmp_path / "0.pt"))
    assert str(capture.load(str(tmp_path / "0.pt"))) == str(record)
    assert [path.name for path in tmp_path.iterdir()] == ["0.pt"]


# --- outputs --------------------------------------------------------------------------------------


def test_an_output_that_shares_memory_with_an_input_is_named_after_it() -> None:
    x = torch.ones(4)
    names = {capture.compat.storage_key(x): "args[0]"}
    records = capture.output_leaves((x[:2], x + 1, torch.empty(0)), names)  # type: ignore[arg-type]
    assert {r["path"]: r.get("alias") for r in records[:-1]} == {
        "output[0]": "args[0]", "output[1]": "output[1]", "output[2]": None,
    }  # fmt: skip


def test_two_outputs_that_share_memory_are_named_after_the_first() -> None:
    x = torch.ones(4)
    records = capture.output_leaves((x[:2], x[2:]), {})
    assert [r["alias"] for r in records[:-1]] == ["output[0]", "output[0]"]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (torch.ones(1), "Tensor"),
        ((torch.ones(1), [1]), "tuple(Tensor, list(int))"),
        ({"loss": torch.ones(1), "n": None}, "dict(loss=Tensor, n=NoneType)"),
    ],
)
def test_the_structure_of_an_output_is_one_line(result: Any, text: str) -> None:
    assert capture.structure(result) == text


# --- gradients ------------------------------------------------------------------------------------


def test_a_cotangent_is_the_same_in_every_process_and_another_for_each_output() -> None:
    one = torch.ones(3, dtype=torch.float64)
    first = capture.cotangent("output", one, 0)
    torch.testing.assert_close(first, capture.cotangent("elsewhere", one.clone(), 0), rtol=0, atol=0)
    assert not torch.equal(first, capture.cotangent("output", one, 1))
    assert capture.cotangent("output", one.to(torch.complex64), 0).dtype == torch.complex64
