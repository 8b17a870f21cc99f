"""Comparing has an order (shape, dtype, non-finite positions, numbers) and a defined answer for every dtype."""

import dataclasses
import math
import warnings

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bisect_onnx.core.compare import (
    MASK_CONSTANT,
    ErrorStats,
    Objection,
    compare_arrays,
    dtype_tiny,
    mask_class,
    root_mean_square,
)
from tests.builders import FEW

INF, NAN = math.inf, math.nan
LOWEST = float(np.finfo(np.float32).min)

NUMERIC = [
    np.float16, np.float32, np.float64, np.complex64, np.complex128, np.bool_, np.int8, np.int64, np.uint8, np.uint64,
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn, ml_dtypes.int4, ml_dtypes.uint4,
]  # fmt: skip


def compared(reference, candidate, *, dtype=None, **options) -> ErrorStats:
    error = compare_arrays(np.array(reference, dtype=dtype), np.array(candidate, dtype=dtype), **options)
    assert isinstance(error, ErrorStats)
    return error


def floats(dtype=np.float32, **limits):
    return hnp.arrays(
        dtype,
        hnp.array_shapes(min_dims=0, max_dims=3, max_side=5),
        elements=st.floats(width=np.dtype(dtype).itemsize * 8, **limits),
    )


@st.composite
def pairs_of_floats(draw: st.DrawFn, /, dtype=np.float32, **limits):
    first = draw(floats(dtype, **limits))
    elements = st.floats(width=np.dtype(dtype).itemsize * 8, **limits)
    return first, draw(hnp.arrays(dtype, first.shape, elements=elements))


# --- the order ---


def test_shapes_that_would_broadcast_are_not_compared():
    assert compare_arrays(np.ones((3, 1)), np.ones((1, 3))) == Objection(
        reason="shape: reference (3, 1), candidate (1, 3)"
    )


def test_an_empty_array_does_not_equal_what_it_broadcasts_with():
    assert compare_arrays(np.ones((0, 3)), np.ones((1, 3))) == Objection(
        reason="shape: reference (0, 3), candidate (1, 3)"
    )


def test_a_scalar_does_not_equal_an_array_of_one_element():
    assert compare_arrays(np.array(1.0), np.array([1.0])) == Objection(reason="shape: reference (), candidate (1,)")


def test_the_shape_is_named_before_the_dtype():
    found = compare_arrays(np.ones(2, np.float32), np.ones(3, np.float64))

    assert found == Objection(reason="shape: reference (2,), candidate (3,)")


def test_the_dtype_is_named_before_any_number_is_looked_at():
    found = compare_arrays(np.array([NAN], np.float32), np.array([1.0], np.float64))

    assert found == Objection(reason="dtype: reference float32, candidate float64")


def test_two_dtypes_are_compared_as_float64_when_asked():
    error = compared(np.array([0.1], np.float32), np.array([0.1], np.float64), check_dtype=False)

    assert error.max_abs == abs(float(np.float32(0.1)) - 0.1)
    assert error.max_ulp is None


def test_text_and_numbers_are_not_compared_even_when_dtypes_may_differ():
    found = compare_arrays(np.array(["1"]), np.array([1.0]), check_dtype=False)

    assert found == Objection(reason="dtype: reference <U1, candidate float64")


# --- non-finite positions ---


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_non_finite_value_agrees_with_itself(value):
    error = compared([1.0, value], [1.0, value], dtype=np.float32)

    assert (error.nonfinite_mismatch, error.mismatched, error.max_abs, error.scaled) == (0, 0, 0.0, 0.0)


@pytest.mark.parametrize(("reference", "candidate"), [(NAN, INF), (INF, -INF), (INF, NAN), (1.0, NAN), (-INF, 3.0)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_other_non_finite_values_are_an_infinite_error(reference, candidate, dtype):
    error = compared([0.5, reference], [0.5, candidate], dtype=dtype)

    assert (error.nonfinite_mismatch, error.mismatched, error.worst_index) == (1, 1, (1,))
    assert error.max_abs == error.max_rel == error.rmse == error.relative_l2 == error.scaled == INF
    assert error.snr_db == -INF


def test_an_infinite_error_is_not_hidden_by_a_finite_relative_error_elsewhere():
    assert compared([1.0, INF], [1.5, 0.0]).max_rel == INF


def test_the_first_of_the_worst_elements_is_named():
    assert compared([[0.0, 1.0], [2.0, 0.0]], [[0.0, 3.0], [0.0, 0.0]]).worst_index == (0, 1)


# --- mask constants ---


@pytest.mark.parametrize("ours", [LOWEST, LOWEST * 0.75, float(np.finfo(np.float64).min)])
def test_mask_constants_agree_as_a_class(ours):
    error = compared([1.0, LOWEST], [1.0, ours], dtype=np.float64)

    assert (error.mismatched, error.max_abs, error.scaled, error.rmse, error.max_ulp) == (0, 0.0, 0.0, 0.0, 0)
    assert error.cosine == pytest.approx(1.0)


@pytest.mark.parametrize("ours", [-INF, INF, NAN])
def test_a_mask_constant_against_an_infinity_is_a_difference(ours):
    error = compared([1.0, LOWEST], [1.0, ours], dtype=np.float32)

    assert (error.nonfinite_mismatch, error.max_abs) == (1, INF)


def test_inside_a_model_a_mask_constant_may_stand_for_the_infinity_of_its_sign():
    assert compared([1.0, -INF], [1.0, LOWEST], masks_alike=True).mismatched == 0
    assert compared([1.0, INF], [1.0, LOWEST], masks_alike=True).nonfinite_mismatch == 1
    assert compared([1.0, NAN], [1.0, LOWEST], masks_alike=True).nonfinite_mismatch == 1


def test_mask_constants_of_two_signs_differ():
    assert compared([LOWEST], [-LOWEST]).mismatched == 1


def test_a_mask_constant_against_a_number_is_a_difference():
    error = compared([1.0, LOWEST], [1.0, 1.0], dtype=np.float32)

    assert (error.mismatched, error.worst_index) == (1, (1,))
    assert error.scaled == pytest.approx(-LOWEST)


def test_masked_elements_count_in_no_scale():
    assert root_mean_square(np.array([3.0, LOWEST, -INF, NAN])) == 3.0
    assert compared([3.0, LOWEST], [3.3, LOWEST]).scaled == pytest.approx(0.1)


def test_the_mask_class_of_a_number_is_its_sign_when_it_is_huge():
    values = np.array([1.0, MASK_CONSTANT, -MASK_CONSTANT, INF, -INF, NAN, 0.0])

    assert mask_class(values).tolist() == [0, 1, -1, 1, -1, 0, 0]


# --- dtypes ---


@pytest.mark.parametrize("dtype", NUMERIC)
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,), (3, 0)])
def test_an_array_agrees_with_itself_whatever_its_dtype_and_shape(dtype, shape):
    array = np.ones(shape, dtype=dtype)

    error = compare_arrays(array, array.copy())

    assert isinstance(error, ErrorStats)
    assert (error.max_abs, error.max_rel, error.rmse, error.relative_l2, error.scaled) == (0.0,) * 5
    assert (error.mismatched, error.nonfinite_mismatch, error.worst_index) == (0, 0, None)
    assert (error.snr_db, error.total) == (INF, array.size)
    assert error.cosine == pytest.approx(1.0)
    assert error.max_ulp in (0, None)


@pytest.mark.parametrize("dtype", [d for d in NUMERIC if d is not np.bool_])
def test_one_against_two_is_a_difference_of_one_in_every_dtype(dtype):
    error = compare_arrays(np.array([2, 1], dtype=dtype), np.array([1, 1], dtype=dtype))

    assert isinstance(error, ErrorStats)
    assert (error.max_abs, error.max_rel, error.mismatched, error.worst_index) == (1.0, 0.5, 1, (0,))
    assert error.scaled == pytest.approx(1 / math.sqrt(2.5))


def test_uint8_does_not_wrap():
    assert compared([0, 255], [1, 0], dtype=np.uint8).max_abs == 255.0


def test_int64_extremes_neither_wrap_nor_melt_together():
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max

    assert compared([low], [high], dtype=np.int64).max_abs == 2.0**64
    assert compared([high], [high - 1], dtype=np.int64).max_abs == 1.0
    assert compared([high], [high - 1], dtype=np.int64).mismatched == 1
    assert compared([low, high], [low, high], dtype=np.int64).mismatched == 0


def test_a_signed_and_an_unsigned_integer_are_compared_exactly():
    reference, candidate = np.array([2**63 - 1, -1, -(2**63)]), np.array([2**63, 2**64 - 1, 2**63], dtype=np.uint64)

    error = compare_arrays(reference, candidate, check_dtype=False)

    assert isinstance(error, ErrorStats)
    assert (error.mismatched, error.max_abs) == (3, 2.0**64)
    assert compared(reference[:1], candidate[:1], check_dtype=False).max_abs == 1.0


@given(st.data())
def test_integers_differ_by_what_python_says(data):
    dtype = data.draw(st.sampled_from([np.int8, np.uint8, np.int32, np.int64, np.uint64]))
    numbers = st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    first, second = data.draw(numbers), data.draw(numbers)

    error = compared([first], [second], dtype=dtype)

    assert error.max_abs == float(abs(first - second))
    assert error.mismatched == (first != second)
    assert error.max_ulp is None


def test_bools_differ_by_one():
    error = compared([True, False, True], [True, True, True])

    assert (error.max_abs, error.mismatched, error.worst_index) == (1.0, 1, (1,))


def test_complex_numbers_differ_by_the_length_of_their_difference():
    error = compared([3 + 4j], [0j], dtype=np.complex64)

    assert (error.max_abs, error.scaled, error.max_rel) == (5.0, 1.0, 1.0)
    assert compared([complex(0, INF)], [complex(0, -INF)]).nonfinite_mismatch == 1


def test_a_complex_and_a_real_array_may_be_compared():
    assert compared(np.array([1 + 1j]), np.array([1.0]), check_dtype=False).max_abs == 1.0


@pytest.mark.parametrize("stored", [np.str_, object])
def test_strings_are_counted_whatever_array_holds_them(stored):
    error = compare_arrays(np.array([["cat", "dog"]]), np.array([["cat", "cow"]], dtype=stored))

    assert isinstance(error, ErrorStats)
    assert (error.mismatched, error.total, error.worst_index) == (1, 2, (0, 1))
    assert (error.max_abs, error.scaled, error.cosine, error.max_ulp) == (None, None, None, None)


def test_equal_strings_agree_and_a_scalar_string_has_an_empty_index():
    assert compared("dog", "dog").mismatched == 0
    assert compared("dog", "cow").worst_index == ()


def test_a_scalar_has_an_empty_index():
    error = compared(1.0, 3.0)

    assert (error.worst_index, error.max_abs, error.total) == ((), 2.0, 1)


def test_byte_order_makes_no_difference_to_the_distance():
    reference, candidate = np.array([1.0, 2.0], ">f4"), np.array([1.0, 2.0 + 2**-22], ">f4")

    error = compare_arrays(reference, candidate)

    assert isinstance(error, ErrorStats)
    assert error.max_ulp == 1


# --- figures ---


def test_scaled_is_the_largest_difference_over_the_rms_of_the_reference():
    error = compared([3.0, -4.0, 0.0], [3.0, -4.0, 0.5])

    assert error.scaled == pytest.approx(0.5 / math.sqrt(25 / 3))
    assert error.rmse == pytest.approx(math.sqrt(0.25 / 3))
    assert error.relative_l2 == pytest.approx(0.1)
    assert error.snr_db == pytest.approx(20.0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_against_an_all_zero_reference_the_error_is_scaled_by_the_smallest_normal_number(dtype):
    tiny = float(np.finfo(dtype).tiny)

    error = compared([0.0, 0.0], [0.0, tiny], dtype=dtype)

    assert error.scaled == 1.0
    assert (error.max_rel, error.relative_l2, error.snr_db, error.cosine) == (INF, INF, -INF, None)
    assert compared([0.0, 0.0], [0.0, 0.0], dtype=dtype).cosine == 1.0


def test_relative_error_leaves_out_zeros_of_the_reference_while_another_element_differs():
    assert compared([0.0, 2.0], [9.0, 3.0]).max_rel == 0.5
    assert compared([0.0, 2.0], [9.0, 2.0]).max_rel == INF


@pytest.mark.parametrize("size", [1e-200, 1e-30, 1.0, 1e30])
def test_tiny_and_huge_numbers_have_figures_like_any_other(size):
    plain, error = compared([3.0, -4.0], [3.0, -4.5]), compared([3.0 * size, -4.0 * size], [3.0 * size, -4.5 * size])

    assert error.relative_l2 == pytest.approx(plain.relative_l2)
    assert error.snr_db == pytest.approx(plain.snr_db)
    assert error.scaled == pytest.approx(plain.scaled)
    assert error.cosine == pytest.approx(plain.cosine)
    assert error.rmse == pytest.approx(size * 0.5 / math.sqrt(2), rel=1e-9, abs=0)


def test_an_opposite_array_has_cosine_minus_one():
    assert compared([1.0, 2.0], [-1.0, -2.0]).cosine == pytest.approx(-1.0)


def test_the_smallest_normal_number_of_each_kind_of_dtype():
    assert [dtype_tiny(np.dtype(dtype)) for dtype in (np.int64, np.bool_, ml_dtypes.int4, ml_dtypes.uint4)] == [1.0] * 4
    assert dtype_tiny(np.dtype(np.float32)) == 2.0**-126
    assert dtype_tiny(np.dtype(np.complex64)) == 2.0**-126
    assert dtype_tiny(np.dtype(ml_dtypes.bfloat16)) == 2.0**-126
    assert dtype_tiny(np.dtype(ml_dtypes.float8_e4m3fn)) == 2.0**-6


def test_statistics_survive_the_way_through_plain_data():
    error = compared([[1.0, 2.0]], [[1.0, 2.5]])

    assert ErrorStats.from_dict(error.to_dict()) == error
    assert error.to_dict()["worst_index"] == [0, 1]
    assert ErrorStats.from_dict(dataclasses.replace(error, worst_index=None, input="x").to_dict()).input == "x"


# --- properties ---


@FEW
@given(floats())
def test_an_array_has_no_error_against_itself(array):
    error = compare_arrays(array, array.copy())

    assert isinstance(error, ErrorStats)
    assert (error.max_abs, error.max_rel, error.rmse, error.relative_l2, error.scaled) == (0.0,) * 5
    assert (error.mismatched, error.nonfinite_mismatch, error.snr_db) == (0, 0, INF)
    assert error.max_ulp in (0, None)


@FEW
@given(pairs_of_floats())
def test_the_largest_difference_and_the_counts_are_symmetric(pair):
    first, second = pair
    there, back = compared(first, second), compared(second, first)

    for figure in ("max_abs", "rmse", "max_ulp", "mismatched", "nonfinite_mismatch", "worst_index", "cosine"):
        assert getattr(there, figure) == getattr(back, figure), figure


@FEW
@given(pairs_of_floats(allow_nan=False, allow_infinity=False))
def test_a_difference_is_found_exactly_where_elements_differ(pair):
    first, second = pair
    masks = (np.abs(first) >= MASK_CONSTANT) & (np.abs(second) >= MASK_CONSTANT) & (np.sign(first) == np.sign(second))
    differing = (first != second) & ~masks

    error = compared(first, second)

    assert error.mismatched == np.count_nonzero(differing)
    assert (error.max_abs == 0.0) == (not differing.any())
    if error.worst_index is not None:
        worst = abs(float(second[error.worst_index]) - float(first[error.worst_index]))
        assert error.max_abs == worst
        assert worst == np.max(np.abs(second.astype(np.float64) - first)[differing])


@given(st.lists(st.tuples(st.integers(-999, 999), st.integers(-999, 999)), min_size=1), st.integers(-900, 80))
def test_scaling_both_sides_by_a_power_of_two_leaves_the_scaled_error(pairs, exponent):
    first, second = (np.array(side, dtype=np.float64) for side in zip(*pairs, strict=True))
    assume(first.any())
    factor = 2.0**exponent

    before, after = compared(first, second), compared(first * factor, second * factor)

    assert after.max_abs == before.max_abs * factor
    for figure in ("scaled", "relative_l2", "max_rel", "snr_db", "cosine"):
        assert getattr(after, figure) == pytest.approx(getattr(before, figure)), figure


@FEW
@given(pairs_of_floats())
def test_neither_side_is_changed_and_nothing_warns(pair):
    first, second = pair
    copies = first.tobytes(), second.tobytes()
    first.flags.writeable = second.flags.writeable = False

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare_arrays(first, second)

    assert (first.tobytes(), second.tobytes()) == copies


def test_a_signalling_nan_does_not_warn():
    array = np.array([0x7FA00000, 0x3F800000], np.uint32).view(np.float32)

    assert compared(array, array).mismatched == 0


@FEW
@given(pairs_of_floats())
def test_memory_layout_makes_no_difference(pair):
    first, second = pair
    turned = first.T.copy().T
    spread = np.repeat(second.reshape(-1), 2)[::2].reshape(second.shape)

    assert compare_arrays(turned, spread) == compare_arrays(first, second)
