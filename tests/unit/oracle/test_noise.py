"""When a difference between two tensors is nothing, rounding noise, or a wrong value. Right values are inside."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchtriage.oracle.noise import SAME, Verdict, compare

from .records import tensor

INF, NAN = math.inf, math.nan
F64, F32, F16, BF16 = torch.float64, torch.float32, torch.float16, torch.bfloat16
C64 = torch.complex64
FLOATS = (F64, F32, F16, BF16, torch.float8_e4m3fn, torch.float8_e5m2)
INTEGERS = (
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
)
EVERY = (*FLOATS, *INTEGERS, torch.bool, torch.complex64, torch.complex128)
shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)


def drawn(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randint(0, 100, shape, generator=generator)
    return (whole / 7).to(dtype) if dtype.is_floating_point or dtype.is_complex else whole.to(dtype)


# --- the same -------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(EVERY), shapes, st.integers(0, 99))
def test_a_tensor_is_the_same_as_itself_whatever_its_dtype_and_shape(
    dtype: torch.dtype, shape: tuple[int, ...], seed: int
) -> None:
    value = drawn(dtype, shape, seed)
    assert compare(value, value.clone()) == SAME


@pytest.mark.parametrize("dtype", [F64, F32, F16, BF16, C64])
def test_specials_at_the_same_places_are_the_same(dtype: torch.dtype) -> None:
    value = tensor(NAN, INF, -INF, 1.0, dtype=dtype)
    assert compare(value, value.clone()) == SAME


def test_tensors_without_elements_are_the_same() -> None:
    assert compare(torch.empty(0, 3), torch.empty(0, 3)) == SAME


def test_both_zeros_are_the_same() -> None:
    assert compare(tensor(0.0), tensor(-0.0)) == SAME


@pytest.mark.parametrize(
    ("dtype", "inside", "outside"),
    [
        (F64, 1.0 + 1.9e-7, 1.0 + 2.1e-7),
        (F32, 1.0 + 1.12e-5, 1.0 + 1.16e-5),
        (F16, 1.0 + 2**-10, 1.0 + 2**-9),  # the tolerance of 1e-3 lies between one step of float16 and two
        (BF16, 1.0 + 2**-6, 1.0 + 3 * 2**-7),  # the tolerance of 1.6e-2 lies between two steps and three
        (C64, 1.0 + 1.12e-5, 1.0 + 1.16e-5),
    ],
)
def test_the_edge_of_the_tolerance_is_that_of_assert_close(
    dtype: torch.dtype, inside: float, outside: float
) -> None:
    one = tensor(1.0, dtype=dtype)
    assert compare(one, tensor(inside, dtype=dtype)).same
    assert not compare(one, tensor(outside, dtype=dtype)).same
    torch.testing.assert_close(tensor(inside, dtype=dtype), one)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(tensor(outside, dtype=dtype), one)


def test_a_complex_number_is_compared_by_its_own_size_and_not_by_that_of_its_parts() -> None:
    eager, compiled = tensor(1e6 + 0j, dtype=C64), tensor(1e6 + 0.01j, dtype=C64)  # off by 1e-8 of its size
    torch.testing.assert_close(compiled, eager)
    assert compare(eager, compiled).same


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_half_complex_numbers_are_compared_as_half_floats_are() -> None:
    one, other = tensor(1.0), tensor(1.1)
    assert not compare(one.to(torch.complex32), other.to(torch.complex32)).same


# --- different ------------------------------------------------------------------------------------


def test_a_wrong_value_is_told_with_its_place_and_size() -> None:
    found = compare(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 2.5], [3.0, 6.0]]))
    assert found == Verdict(False, magnitude=2.0, index=(1, 1), eager="4", compiled="6", count=2)


def test_a_scalar_has_no_index() -> None:
    found = compare(torch.tensor(1.0), torch.tensor(2.0))
    assert (found.same, found.index, found.magnitude) == (False, (), 1.0)


@pytest.mark.parametrize(
    ("eager", "compiled"), [(NAN, 1.0), (1.0, NAN), (INF, 1.0), (1.0, -INF), (INF, -INF), (NAN, INF)]
)
def test_a_special_is_infinitely_far_from_anything_else(eager: float, compiled: float) -> None:
    found = compare(tensor(5.0, eager), tensor(5.0, compiled))
    assert (found.same, found.noise, found.magnitude, found.index) == (False, False, INF, (1,))


def test_a_special_is_shown_before_a_number_that_is_off() -> None:
    assert compare(tensor(1.0, 2.0), tensor(1e30, NAN)).index == (1,)


def test_one_complex_number_is_one_element_of_the_index() -> None:
    found = compare(torch.tensor([[1 + 1j, 2 + 2j]]), torch.tensor([[1 + 1j, 2 + 5j]]))
    assert (found.index, found.magnitude, found.eager, found.compiled) == ((0, 1), 3.0, "2+2j", "2+5j")


def test_one_complex_number_is_counted_once() -> None:
    assert compare(torch.tensor([1 + 1j, 2 + 2j]), torch.tensor([1 + 1j, 5 + 5j])).count == 1


def test_a_conjugate_view_is_compared_by_what_it_means() -> None:
    value = torch.tensor([1 + 2j])
    assert compare(value.conj(), torch.tensor([1 - 2j])) == SAME
    assert not compare(value.conj(), value).same


@pytest.mark.parametrize("dtype", INTEGERS)
def test_whole_numbers_are_compared_exactly(dtype: torch.dtype) -> None:
    found = compare(tensor(100, 7, dtype=dtype), tensor(100, 8, dtype=dtype))
    assert found == Verdict(False, magnitude=1.0, index=(1,), eager="7", compiled="8", count=1)


def test_truth_values_are_compared_exactly() -> None:
    found = compare(tensor(True, False, dtype=torch.bool), tensor(True, True, dtype=torch.bool))
    assert (found.index, found.eager, found.compiled, found.magnitude) == ((1,), "False", "True", 1.0)


def test_large_whole_numbers_are_not_rounded() -> None:
    big = 2**60
    assert not compare(tensor(big, dtype=torch.int64), tensor(big + 1, dtype=torch.int64)).same


@settings(max_examples=100, deadline=None)
@given(st.sampled_from((F64, F32, F16, BF16, C64)), st.integers(1, 6), st.data())
def test_a_big_error_in_one_element_is_never_noise_without_evidence(
    dtype: torch.dtype, size: int, data: st.DataObject
) -> None:
    eager, place = drawn(dtype, (size,), data.draw(st.integers(0, 99))), data.draw(st.integers(0, size - 1))
    compiled = eager.clone()
    compiled[place] += data.draw(st.sampled_from((-50.0, 50.0, INF, NAN)))
    found = compare(eager, compiled, eager.to(torch.complex128 if dtype.is_complex else F64), [eager, eager])
    assert (found.same, found.noise, found.index) == (False, False, (place,))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from((F64, F32, F16, BF16, torch.int32, C64)), shapes, st.integers(0, 99), st.integers(0, 99)
)
def test_the_size_of_a_difference_does_not_depend_on_the_side(
    dtype: torch.dtype, shape: tuple[int, ...], one: int, other: int
) -> None:
    a, b = drawn(dtype, shape, one), drawn(dtype, shape, other)
    if dtype.is_floating_point or dtype.is_complex:
        assert compare(a, b).magnitude == compare(b, a).magnitude
    assert compare(a, b).same == compare(b, a).same


# --- noise: float64 knows better ------------------------------------------------------------------


def test_float64_says_that_compiled_is_closer() -> None:
    found = compare(tensor(1.02), tensor(1.001), tensor(1.0, dtype=F64))
    assert found.noise
    assert found.why == "float64 says compiled is at least as close as eager"
    assert found.truth == "1"


def test_float64_says_that_both_are_as_far_off() -> None:
    found = compare(tensor(1.01), tensor(0.97), tensor(1.0, dtype=F64))  # three times as far as eager
    assert found.noise
    assert found.why == "float64 says both are as far off"


def test_float64_says_that_eager_is_right() -> None:
    found = compare(tensor(1.0), tensor(1.02), tensor(1.0, dtype=F64))
    assert (found.same, found.noise, found.truth) == (False, False, "1")


def test_five_times_as_far_from_float64_as_eager_is_wrong() -> None:
    assert not compare(tensor(1.01), tensor(1.05), tensor(1.0, dtype=F64)).noise


def test_an_element_where_eager_happens_to_be_exact_may_be_off_by_what_is_usual() -> None:
    # eager's errors are 0.01 in five of six elements: 0.01 in the sixth is no more than that
    truth = torch.ones(6, dtype=F64)
    eager = tensor(1.01, 0.99, 1.01, 0.99, 1.01, 1.0)
    compiled = tensor(1.01, 0.99, 1.01, 0.99, 1.01, 1.01)
    assert compare(eager, compiled, truth).noise


def test_one_element_that_eager_has_badly_wrong_does_not_excuse_another() -> None:
    truth = tensor(1100.0, 1.0, dtype=F64)
    assert not compare(tensor(1000.0, 1.0), tensor(1000.0, 30.0), truth).noise


def test_an_overflow_of_eager_s_that_compiled_avoids_is_noise() -> None:
    assert compare(tensor(INF, dtype=F16), tensor(65000.0, dtype=F16), tensor(65010.0, dtype=F64)).noise


@pytest.mark.parametrize(("eager", "compiled"), [(INF, -INF), (INF, 5.0), (NAN, 5.0)])
def test_a_special_of_eager_s_does_not_excuse_a_value_far_from_float64(eager: float, compiled: float) -> None:
    assert not compare(tensor(eager), tensor(compiled), tensor(7e4, dtype=F64)).noise


def test_where_float64_overflows_too_a_number_is_wrong() -> None:
    assert not compare(tensor(INF), tensor(5.0), tensor(INF, dtype=F64)).noise


def test_a_float64_run_of_another_shape_says_nothing() -> None:
    assert not compare(tensor(1.02), tensor(1.001), tensor(1.0, 1.0, dtype=F64)).noise


# --- noise: eager is not sure itself --------------------------------------------------------------


def test_eager_that_moves_as_much_itself_is_noise() -> None:
    found = compare(tensor(1.0, 2.0), tensor(1.0, 2.3), None, [tensor(1.0, 2.1)])
    assert found.noise
    assert found.why == "eager moves as much when its inputs move by one unit in the last place"


def test_the_largest_move_of_all_runs_counts() -> None:
    nudged = [tensor(1.0), tensor(0.9), tensor(1.0)]
    assert compare(tensor(1.0), tensor(1.39), None, nudged).noise
    assert not compare(tensor(1.0), tensor(1.41), None, nudged).noise


def test_an_element_that_never_moves_is_not_covered_by_one_that_does() -> None:
    assert not compare(tensor(1.0, 2.0), tensor(1.5, 2.0), None, [tensor(1.0, 2.5)]).noise


def test_both_kinds_of_evidence_may_each_explain_some_elements() -> None:
    # float64 explains the first element, the nudged run the second
    truth, nudged = tensor(1.0, 2.0, dtype=F64), [tensor(1.02, 2.3)]
    found = compare(tensor(1.02, 2.0), tensor(1.001, 2.3), truth, nudged)
    assert found.noise
    assert found.why.count(";") == 1


def test_whole_numbers_that_eager_is_not_sure_of_are_noise() -> None:
    eager, compiled = tensor(3, 5, dtype=torch.int64), tensor(3, 6, dtype=torch.int64)
    assert compare(eager, compiled, None, [tensor(3, 4, dtype=torch.int64)]).noise
    assert not compare(eager, compiled, None, [tensor(2, 5, dtype=torch.int64)]).noise


def shaky(count: int, size: int = 100) -> torch.Tensor:
    """1 everywhere, and 2 in the first `count` elements."""
    value = torch.ones(size)
    value[:count] = 2.0
    return value


def test_in_a_crowd_of_unstable_elements_compiled_may_differ_in_others() -> None:
    compiled = torch.ones(100)
    compiled[50 : 50 + 16] = 2.0
    assert compare(torch.ones(100), compiled, None, [shaky(16)]).noise
    assert not compare(torch.ones(100), compiled, None, [shaky(15)]).noise


def test_a_crowd_excuses_neither_many_more_elements_nor_much_larger_errors() -> None:
    many, far = torch.ones(100), torch.ones(100)
    many[50 : 50 + 33] = 2.0
    far[50] = 3.1
    assert not compare(torch.ones(100), many, None, [shaky(16)]).noise
    assert not compare(torch.ones(100), far, None, [shaky(16)]).noise


def test_a_crowd_of_whole_numbers_is_judged_by_its_count() -> None:
    eager, nudged, few, many = (torch.zeros(100, dtype=torch.int64) for _ in range(4))
    nudged[:16] = 1
    few[50 : 50 + 32] = 1
    many[50 : 50 + 33] = 1
    assert compare(eager, few, None, [nudged]).noise
    assert not compare(eager, many, None, [nudged]).noise


def test_an_index_that_float64_gives_too_is_noise() -> None:
    found = compare(torch.tensor([3]), torch.tensor([4]), truth=torch.tensor([4]))
    assert (found.noise, found.why) == (True, "float64 gives what compiled gives")


def test_an_index_that_only_compiled_gives_is_wrong() -> None:
    assert not compare(torch.tensor([3]), torch.tensor([4]), truth=torch.tensor([3])).noise
