"""A fingerprint is blind to shape and layout, sees every element in its sums, and leaves masks out."""

import warnings

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_onnx.core.tensor import PROBE_COUNT, Fingerprint, fingerprint, probe_positions

LOWEST = float(np.finfo(np.float32).min)


def statistics(of: Fingerprint) -> tuple[object, ...]:
    return (of.size, of.finite, of.counted, of.mean, of.rms, of.minimum, of.maximum)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


@given(st.integers(0, 100_000))
def test_positions_lie_inside_and_grow(size):
    positions = probe_positions(size)

    assert positions.size == size if size <= PROBE_COUNT else 1 <= positions.size <= PROBE_COUNT
    assert np.all(np.diff(positions) > 0)
    assert not size or (0 <= positions[0] and positions[-1] < size)


def test_positions_of_an_image_see_many_rows_and_columns():
    positions = probe_positions(256 * 256)

    assert np.unique(positions // 256).size > PROBE_COUNT // 2
    assert np.unique(positions % 256).size > PROBE_COUNT // 2


def test_positions_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        probe_positions(100)[0] = 1


@pytest.mark.parametrize("shape", [(24, 10), (240,), (2, 3, 4, 10), (1, 240, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_a_reshape_has_the_same_fingerprint(shape, dtype):
    array = numbers(12, 20).astype(dtype)
    first, second = fingerprint(array), fingerprint(array.reshape(shape))

    assert statistics(first) == statistics(second)
    assert first.neighbours == second.neighbours
    assert np.array_equal(first.probes, second.probes)
    assert second.shape == shape


def test_a_permutation_keeps_the_statistics_and_moves_the_samples():
    array = numbers(12, 20)
    first, second = fingerprint(array), fingerprint(array.T)

    assert statistics(second) == pytest.approx(statistics(first))
    assert not np.array_equal(first.probes, second.probes)


@given(st.permutations(range(30)))
def test_any_permutation_keeps_the_statistics(order):
    array = numbers(30).astype(np.float32)

    assert statistics(fingerprint(array[list(order)])) == pytest.approx(statistics(fingerprint(array)), rel=1e-6)


def test_memory_layout_makes_no_difference():
    array = numbers(6, 8, 10).astype(np.float32)
    wide = np.repeat(array, 2, axis=1)
    for same in (array.T.copy().T, wide[:, ::2], np.flip(np.flip(array, 0).copy(), 0)):
        assert statistics(fingerprint(same)) == statistics(fingerprint(array))
        assert np.array_equal(fingerprint(same).probes, fingerprint(array).probes)


def test_two_elements_that_change_places_are_seen_although_no_sample_moves():
    array = numbers(1000)
    first, second = np.setdiff1d(np.arange(1000), probe_positions(1000))[[100, 700]]
    swapped = array.copy()
    swapped[[first, second]] = array[[second, first]]

    assert statistics(fingerprint(swapped)) == pytest.approx(statistics(fingerprint(array)))
    assert np.array_equal(fingerprint(swapped).probes, fingerprint(array).probes)
    assert abs(fingerprint(swapped).neighbours - fingerprint(array).neighbours) > 1e-6


def test_products_of_neighbours_are_averaged():
    assert fingerprint(np.array([1.0, 2.0, 3.0])).neighbours == pytest.approx(8 / 3)
    assert fingerprint(np.array(5.0)).neighbours == 0.0


def test_one_element_of_many_moves_the_mean():
    array = numbers(1000)
    changed = array.copy()
    changed[np.setdiff1d(np.arange(1000), probe_positions(1000))[0]] += 1e-3

    assert np.array_equal(fingerprint(array).probes, fingerprint(changed).probes)
    assert fingerprint(changed).mean - fingerprint(array).mean == pytest.approx(1e-6)


@pytest.mark.parametrize("odd", [LOWEST, -LOWEST, np.inf, -np.inf, np.nan])
def test_masks_and_non_finite_elements_stay_out_of_the_statistics(odd):
    array = np.array([3.0, -4.0, odd], dtype=np.float32)

    found = fingerprint(array)

    assert (found.mean, found.minimum, found.maximum) == (-0.5, -4.0, 3.0)
    assert found.rms == pytest.approx(np.sqrt(12.5))
    assert (found.finite, found.counted) == (3 if np.isfinite(odd) else 2, 2)
    assert np.array_equal(found.probes, array.astype(np.float64), equal_nan=True)


def test_what_holds_nothing_but_masks_has_empty_statistics():
    found = fingerprint(np.full((2, 3), LOWEST, np.float32))

    assert statistics(found) == (6, 6, 0, 0.0, 0.0, 0.0, 0.0)
    assert found.distinct == 1


def test_an_empty_array_and_a_scalar_have_fingerprints():
    empty, scalar = fingerprint(np.zeros((0, 3))), fingerprint(np.array(-2.0))

    assert (statistics(empty), empty.distinct) == ((0, 0, 0, 0.0, 0.0, 0.0, 0.0), 0)
    assert (statistics(scalar), scalar.distinct, scalar.shape) == ((1, 1, 1, -2.0, 2.0, -2.0, -2.0), 1, ())


@pytest.mark.parametrize(
    "dtype",
    [np.bool_, np.int8, np.uint8, np.int64, np.float16, np.complex64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2],
)
def test_every_dtype_has_one_and_says_which_it_is(dtype):
    found = fingerprint(np.array([0, 1, 1], dtype=dtype))

    assert found.dtype == np.dtype(dtype).name
    assert statistics(found) == pytest.approx((3, 3, 3, 2 / 3, np.sqrt(2 / 3), 0.0, 1.0))
    assert found.probes.tolist() == [0.0, 1.0, 1.0]
    assert found.distinct == 2


def test_int64_extremes_do_not_wrap():
    found = fingerprint(np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max]))

    assert (found.minimum, found.maximum, found.rms) == (-(2.0**63), 2.0**63, 2.0**63)


@pytest.mark.parametrize("size", [1e-30, 1e-18, 1.0, 1e18, 1e30])
def test_the_rms_of_tiny_and_huge_float32_numbers_is_right(size):
    array = (numbers(200) * size).astype(np.float32)

    assert fingerprint(array).rms == pytest.approx(
        np.sqrt(np.mean(np.square(array.astype(np.float64)))), rel=1e-5, abs=0
    )


@pytest.mark.parametrize("bits", [0x7FA00000, 0x7F800001, 0xFF800000])
def test_nothing_warns_and_nothing_is_written(bits):
    array = np.array([bits, 0x3F800000], np.uint32).view(np.float32)
    array.flags.writeable = False

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fingerprint(array).finite == 1
