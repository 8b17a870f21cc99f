"""Distances in units in the last place are steps from one number to the next, over both signs and zero."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bisect_onnx.core.compare import ErrorStats, compare_arrays

INF, NAN = math.inf, math.nan
ULP_DTYPES = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16]


def compared(reference, candidate, *, dtype=np.float64) -> ErrorStats:
    error = compare_arrays(np.array(reference, dtype=dtype), np.array(candidate, dtype=dtype))
    assert isinstance(error, ErrorStats)
    return error


def ulps(first, second, *, dtype) -> int | None:
    return compared([first], [second], dtype=dtype).max_ulp


@pytest.mark.parametrize("dtype", ULP_DTYPES)
@pytest.mark.parametrize("start", [0.0, 1.0, -1.0, 0.1, -3.5, 200.0])
def test_neighbours_are_one_apart(dtype, start):
    first = np.array(start, dtype=dtype)
    second = np.nextafter(first, np.array(INF, dtype=dtype))

    assert ulps(first, second, dtype=dtype) == 1
    assert ulps(second, first, dtype=dtype) == 1


@pytest.mark.parametrize("dtype", ULP_DTYPES)
def test_both_zeros_are_one_point(dtype):
    tiny = np.nextafter(np.array(0.0, dtype=dtype), np.array(1.0, dtype=dtype))

    assert ulps(0.0, -0.0, dtype=dtype) == 0
    assert ulps(-tiny, tiny, dtype=dtype) == 2


@given(
    st.sampled_from([np.float32, np.float64]),
    st.floats(width=16, allow_nan=False, allow_infinity=False),
    st.integers(0, 40),
)
@example(np.float32, -0.0, 3)
@example(np.float64, -5e-324, 2)
def test_distances_agree_with_stepping(dtype, start, steps):
    first = second = dtype(start)
    for _ in range(steps):
        second = np.nextafter(second, dtype(INF))

    assert ulps(first, second, dtype=dtype) == steps


@pytest.mark.parametrize(
    ("dtype", "patterns"), [(np.float16, 0x7BFF), (np.float32, 0x7F7FFFFF), (np.float64, 0x7FEFFFFFFFFFFFFF)]
)
def test_from_the_lowest_to_the_highest_number(dtype, patterns):
    limits = np.finfo(dtype)

    assert ulps(limits.min, limits.max, dtype=dtype) == 2 * patterns


def test_float64_numbers_of_one_sign_far_apart():
    assert ulps(0.0, np.finfo(np.float64).max, dtype=np.float64) == 0x7FEFFFFFFFFFFFFF


@given(*[st.floats(-1e38, 1e38)] * 3)
def test_distances_obey_the_triangle(first, second, third):
    straight = ulps(first, second, dtype=np.float64) or 0

    assert straight == ulps(second, first, dtype=np.float64)
    assert straight <= (ulps(first, third, dtype=np.float64) or 0) + (ulps(third, second, dtype=np.float64) or 0)
    assert (straight == 0) == (first == second)


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, np.int32, np.complex64, np.bool_])
def test_other_dtypes_have_no_such_distance(dtype):
    assert ulps(1, 0, dtype=dtype) is None


def test_non_finite_elements_have_no_distance():
    assert compared([NAN, 1.0], [NAN, 1.0]).max_ulp == 0
    assert compared([NAN], [NAN]).max_ulp is None
    assert compared([INF, 1.0], [NAN, 1.0]).max_ulp == 0
