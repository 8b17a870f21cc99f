"""Initializers find the parameter they are, in whatever form, and the nearest when they are none exactly."""

import warnings

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_onnx.align.by_parameter import SMALLEST, ParameterMatch, ParameterMatcher


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


PARAMETERS = {f"layer{at}.weight": normal(6, 4, seed=at) for at in range(12)} | {
    "norm.weight": np.ones(24, np.float32),
    "conv.weight": normal(2, 3, 2, 2, seed=50),
}


def matched(array: np.ndarray, name: str = "val_1", **parameters: np.ndarray) -> ParameterMatch:
    found = ParameterMatcher(parameters or PARAMETERS).match(name, array)
    assert found is not None
    return found


@pytest.mark.parametrize("at", range(12))
def test_an_equal_array_is_the_parameter_whatever_its_name(at):
    name = f"layer{at}.weight"

    assert matched(PARAMETERS[name].copy()) == ParameterMatch(
        initializer="val_1", parameter=name, transform="identity", error=0.0, rearranged=False
    )


@pytest.mark.parametrize(("form", "transform"), [(lambda a: a.T, "transpose"), (lambda a: a.reshape(3, 8), "reshape")])
def test_a_transposed_or_reshaped_array_is_known(form, transform):
    found = matched(form(PARAMETERS["layer3.weight"]))

    assert (found.parameter, found.transform, found.error) == ("layer3.weight", transform, 0.0)


def test_a_square_matrix_is_known_in_both_forms():
    w = normal(5, 5)

    assert [matched(form, w=w).transform for form in (w, w.T)] == ["identity", "transpose"]


def test_the_name_decides_between_equals():
    tied = {"encoder.weight": normal(4, 4), "decoder.weight": normal(4, 4)}

    assert matched(normal(4, 4), name="decoder.weight", **tied).parameter == "decoder.weight"
    assert matched(normal(4, 4), name="val_1", **tied).parameter == "encoder.weight"


def test_numbers_count_more_than_a_name():
    assert matched(PARAMETERS["layer2.weight"], name="layer7.weight").parameter == "layer2.weight"


@given(st.integers(0, 11), st.floats(1e-7, 1e-2))
def test_a_parameter_that_was_changed_a_little_is_the_nearest(at, change):
    name = f"layer{at}.weight"
    noise = normal(6, 4, seed=99) * np.float32(change)

    found = matched(PARAMETERS[name] + noise)

    assert found.parameter == name
    assert 0 < found.error < 3 * change


@pytest.mark.parametrize(
    "spoil", [lambda w: np.roll(w, 1, axis=0), lambda w: w[::-1].copy(), lambda w: w[:, [1, 0, 2, 3]]]
)
def test_a_rearranged_parameter_is_found_and_differs(spoil):
    found = matched(spoil(PARAMETERS["layer4.weight"]))

    assert found.parameter == "layer4.weight"
    assert found.error > 0.1
    assert found.rearranged
    assert found.plausible


def test_unrelated_weights_of_one_scale_are_not_taken_for_each_other():
    found = matched(normal(6, 4, seed=77))

    assert not found.rearranged
    assert not found.plausible


def test_a_parameter_that_lost_half_of_its_size_is_still_that_parameter():
    found = matched(PARAMETERS["layer4.weight"] * np.float32(0.6))

    assert (found.parameter, found.rearranged, found.plausible) == ("layer4.weight", False, True)


def test_a_parameter_in_another_precision_is_found():
    half = matched(PARAMETERS["layer1.weight"].astype(np.float16))
    brain = matched(PARAMETERS["layer1.weight"].astype(ml_dtypes.bfloat16))

    assert (half.parameter, brain.parameter) == ("layer1.weight", "layer1.weight")
    assert 0 < half.error < 1e-3 < brain.error < 1e-2
    assert matched(normal(2, 4), w=normal(2, 4).astype(ml_dtypes.bfloat16)).parameter == "w"


def test_constants_and_integers_identify_nothing():
    matcher = ParameterMatcher(PARAMETERS | {"table": np.arange(24), "scale": np.ones(SMALLEST - 1, np.float32)})

    assert matcher.match("val", np.ones(SMALLEST - 1, np.float32)) is None
    assert matcher.match("val", np.arange(24)) is None
    assert matcher.match("val", normal(5, 5)) is None  # nothing of 25 elements


def test_no_parameters_no_match():
    assert ParameterMatcher({}).match("val", normal(4, 4)) is None


def test_zeros_equal_zeros_and_nothing_else():
    assert matched(np.zeros(8, np.float32), bias=np.zeros(8, np.float32)).error == 0.0
    assert matched(np.ones(8, np.float32), bias=np.zeros(8, np.float32)).error > 1e30


def test_damaged_numbers_neither_warn_nor_match_exactly():
    w = normal(4, 4)
    damaged = w.copy()
    damaged[0, 0], damaged[1, 1] = np.nan, np.inf

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ParameterMatcher({"w": w, "huge": np.full(16, 1e300)}).match("w", damaged)

    assert found is not None
    assert not found.error <= 1.0


def test_arrays_are_read_and_not_changed():
    w = normal(4, 4)
    w.flags.writeable = False

    assert matched(w, w=w).error == 0.0
