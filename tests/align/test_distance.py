"""The distance of two fingerprints is relative to the reference, and no mask or infinity hides it."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_onnx.align.distance import NEAR, distance
from bisect_onnx.core.tensor import fingerprint

LOWEST = float(np.finfo(np.float32).min)


def apart(reference: np.ndarray, observed: np.ndarray) -> float:
    of = fingerprint(reference)
    (found,) = distance(
        of.probes[None], mean=np.array([of.mean]), rms=np.array([of.rms]), observed=fingerprint(observed)
    )
    return float(found)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def test_many_references_are_measured_at_once():
    first, second = fingerprint(normal(3, 4)), fingerprint(normal(3, 4, seed=1))

    found = distance(
        np.stack([first.probes, second.probes]), mean=np.array([first.mean, second.mean]),
        rms=np.array([first.rms, second.rms]), observed=second,
    )  # fmt: skip

    assert found.shape == (2,)
    assert found[1] == 0.0 < NEAR < found[0]


@given(st.floats(1e-6, 0.5), st.integers(-35, 35))
def test_a_change_in_proportion_is_its_own_distance_whatever_the_scale(change, exponent):
    array = normal(6, 7) * 10.0**exponent

    assert apart(array, array * (1 + change)) == pytest.approx(change, rel=1e-6)


def test_a_change_outside_of_the_samples_is_seen_in_the_mean():
    array = np.ones(10_000)
    changed = array.copy()
    changed[5_000:5_400] = 3.0

    assert apart(array, changed) > NEAR


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, LOWEST])
def test_special_elements_in_the_same_places_add_nothing(value):
    array = normal(6, 7)
    array[2, 3] = value

    assert apart(array, array) == 0.0


@pytest.mark.parametrize(
    ("reference", "observed"),
    [(np.nan, 1.0), (1.0, np.nan), (np.inf, -np.inf), (np.nan, np.inf), (1.0, np.inf), (LOWEST, np.inf), (LOWEST, 1.0)],
)
def test_special_elements_in_other_places_are_infinitely_far(reference, observed):
    first, second = normal(6, 7), normal(6, 7)
    first[2, 3], second[2, 3] = reference, observed

    assert apart(first, second) > 1e30


def test_an_infinity_and_a_mask_constant_of_one_sign_are_the_same_mask():
    first, second = normal(6, 7), normal(6, 7)
    first[2, 3], second[2, 3] = -np.inf, LOWEST

    assert apart(first, second) == 0.0


def test_zeros_are_near_zeros_only():
    zeros = np.zeros(20)

    assert apart(zeros, zeros) == 0.0
    assert apart(zeros, np.full(20, 1e-20)) > 1.0


def test_nothing_warns_even_where_squares_overflow():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert apart(np.full(3, 1e37), np.array([LOWEST, np.nan, 1e300])) == np.inf
