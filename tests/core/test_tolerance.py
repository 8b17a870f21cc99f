"""The numbers that decide good or bad, and that what decides is never a NaN."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_onnx.core.compare import ErrorStats, compare_arrays
from bisect_onnx.core.tolerance import FACTOR, Tolerance, arithmetic_floor, unit_roundoff


def error(reference: list[float], candidate: list[float]) -> ErrorStats:
    found = compare_arrays(np.array(reference), np.array(candidate))
    assert isinstance(found, ErrorStats)
    return found


@pytest.mark.parametrize(
    "dtype",
    [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
     ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz, ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e8m0fnu],
)  # fmt: skip
def test_the_roundoff_of_a_float_dtype_is_half_the_spacing_above_one(dtype):
    info = ml_dtypes.finfo(dtype)

    assert unit_roundoff(np.dtype(dtype).name) == float(info.eps) / 2


def test_the_coarsest_of_several_dtypes_counts_and_integers_round_nothing():
    assert unit_roundoff("float32", "float16", "int64") == 2.0**-11
    assert unit_roundoff("complex64") == unit_roundoff("float32")
    assert unit_roundoff("int64", "bool", "uint8") == unit_roundoff() == 0.0


def test_operators_add_up_and_a_sum_grows_with_the_root_of_its_length():
    assert arithmetic_floor(2.0**-24, []) == 0.0
    assert arithmetic_floor(2.0**-24, [1]) == 2.0**-24
    assert arithmetic_floor(1.0, [17]) == 3.0
    assert arithmetic_floor(1.0, [1, 17, 1]) == 5.0
    assert arithmetic_floor(1.0, [0]) == 1.0  # a sum over an empty axis


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=8), st.integers(1, 10_000))
def test_more_terms_never_lower_the_floor(reductions, more):
    assert arithmetic_floor(1e-7, [*reductions, more]) > arithmetic_floor(1e-7, reductions)
    assert arithmetic_floor(1e-7, [reductions[0] + more]) >= arithmetic_floor(1e-7, [reductions[0]])


def test_a_correct_float32_sum_in_another_order_stays_within_the_threshold():
    rng = np.random.default_rng(0)
    for terms in (8, 64, 512, 4096):
        rows = rng.normal(size=(500, terms)).astype(np.float32)
        one_by_one = np.zeros(500, np.float32)
        for column in rows.T:
            one_by_one += column
        exact = rows.astype(np.float64).sum(axis=1)
        found = compare_arrays(exact, one_by_one, check_dtype=False)
        assert isinstance(found, ErrorStats)
        assert found.scaled is not None
        assert 0 < found.scaled <= FACTOR * arithmetic_floor(unit_roundoff("float32"), [terms])


def test_a_tolerance_is_given_when_anything_in_it_is():
    assert not Tolerance().given
    assert Tolerance(atol=0.0).given
    assert Tolerance(rtol=0.0).given
    assert Tolerance(metric="cosine", threshold=0.99).given


def test_atol_bounds_what_rtol_leaves():
    small = error([1.0], [1.5])

    assert Tolerance(atol=0.4, rtol=0.1).exceeded_by(small, largest_excess=0.41)
    assert not Tolerance(atol=0.4, rtol=0.1).exceeded_by(small, largest_excess=0.4)
    assert Tolerance(rtol=0.1).exceeded_by(small, largest_excess=1e-9)
    assert not Tolerance(rtol=0.1).exceeded_by(small, largest_excess=0.0)


@pytest.mark.parametrize(
    ("metric", "allows", "forbids"),
    [("max_abs", 0.5, 0.4), ("max_rel", 0.25, 0.2), ("scaled", 0.4, 0.3), ("max_ulp", 2**50, 2**48),
     ("snr_db", 12.0, 20.0), ("cosine", 0.9, 0.9999)],
)  # fmt: skip
def test_a_metric_has_a_bad_side(metric, allows, forbids):
    found = error([2.0, 1.0], [2.5, 1.0])

    assert not Tolerance(metric=metric, threshold=allows).exceeded_by(found, largest_excess=math.inf)
    assert Tolerance(metric=metric, threshold=forbids).exceeded_by(found, largest_excess=0.0)


@pytest.mark.parametrize("metric", [None, "max_abs", "cosine", "snr_db", "max_ulp"])
def test_a_nan_against_a_number_is_beyond_every_tolerance(metric):
    tolerance = Tolerance(atol=math.inf, metric=metric, threshold=-1.0 if metric in ("cosine", "snr_db") else math.inf)

    assert tolerance.exceeded_by(error([1.0], [math.nan]), largest_excess=-math.inf)
    assert tolerance.exceeded_by(error([math.inf], [-math.inf]), largest_excess=-math.inf)


def test_an_excess_that_is_no_number_is_beyond():
    assert Tolerance(atol=1.0).exceeded_by(error([1.0], [1.0]), largest_excess=math.nan)


@pytest.mark.parametrize("tolerance", [Tolerance(metric="max_ulp", threshold=10), Tolerance(atol=9, rtol=9)], ids=repr)
def test_strings_are_beyond_when_any_differs(tolerance):
    equal, other = (compare_arrays(np.array(["a"]), np.array([word])) for word in "ab")
    assert isinstance(equal, ErrorStats)
    assert isinstance(other, ErrorStats)

    assert not tolerance.exceeded_by(equal, largest_excess=0.0)
    assert tolerance.exceeded_by(other, largest_excess=0.0)


def test_a_figure_that_has_no_meaning_is_beyond_when_anything_differs():
    tolerance = Tolerance(metric="max_ulp", threshold=10)
    equal, other = (compare_arrays(np.array([1]), np.array([number])) for number in (1, 2))
    assert isinstance(equal, ErrorStats)
    assert isinstance(other, ErrorStats)

    assert not tolerance.exceeded_by(equal, largest_excess=0.0)
    assert tolerance.exceeded_by(other, largest_excess=0.0)


def test_an_all_zero_reference_has_no_cosine_and_is_beyond_when_it_differs():
    tolerance = Tolerance(metric="cosine", threshold=0.5)

    assert tolerance.exceeded_by(error([0.0], [1.0]), largest_excess=0.0)
    assert not tolerance.exceeded_by(error([0.0], [0.0]), largest_excess=0.0)
