"""Outputs of the two sides: which is compared with which, and when they agree."""

import numpy as np
import pytest

from bisect_onnx.core.compare import Verdict
from bisect_onnx.core.report import OutputRow
from bisect_onnx.core.tolerance import FACTOR, Tolerance
from bisect_onnx.pipeline.confirming import settle_outputs, with_floors
from bisect_onnx.pipeline.output_pairing import OutputPair, pair_outputs

NONE = Tolerance()
TRUTH = np.linspace(-1, 1, 64, dtype=np.float32)


def row(
    observed: np.ndarray, *, tolerance: Tolerance = NONE, truth: np.ndarray = TRUTH, operators: int = 4
) -> OutputRow:
    pairs = [OutputPair(candidate="y", reference="out")]
    rows = settle_outputs(
        pairs, truth={"out": truth}, observed={"y": observed}, tolerance=tolerance, operators=operators
    )
    return rows[0]


def test_an_output_without_a_partner_is_untestable():
    pairs = pair_outputs(("x", "y"), ("only",))
    rows = settle_outputs(pairs, truth={"only": TRUTH}, observed={"x": TRUTH, "y": TRUTH}, tolerance=NONE, operators=1)

    assert [each.verdict for each in rows] == [Verdict.MATCH, Verdict.UNTESTABLE]
    assert rows[1].reason == "the reference has no output in this place"


def test_equal_outputs_match():
    assert row(TRUTH.copy()).verdict is Verdict.MATCH


def test_an_error_beyond_the_arithmetic_bound_is_a_mismatch_until_a_floor_explains_it():
    found = row(TRUTH + np.float32(1e-4))

    assert found.verdict is Verdict.MISMATCH
    assert found.error is not None
    assert found.error.scaled is not None
    assert with_floors([found], {"y": found.error.scaled})[0].verdict is Verdict.MATCH
    assert with_floors([found], {"y": found.error.scaled / (2 * FACTOR)})[0].verdict is Verdict.MISMATCH


def test_a_floor_below_the_arithmetic_bound_does_not_tighten_it():
    found = row(TRUTH + np.float32(1e-4))

    assert with_floors([found], {"y": 0.0})[0].threshold == found.threshold


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        (TRUTH.reshape(8, 8), "shape: reference (64,), candidate (8, 8)"),
        (np.zeros(64, dtype=np.int64), "dtype: reference float32, candidate int64"),
    ],
)
def test_another_shape_or_kind_of_number_is_a_mismatch_with_its_reason(observed, reason):
    found = row(observed)

    assert (found.verdict, found.reason, found.error) == (Verdict.MISMATCH, reason, None)


def test_a_narrower_float_is_compared_and_said():
    found = row(TRUTH.astype(np.float16), tolerance=Tolerance(atol=1e-2))

    assert found.verdict is Verdict.MATCH
    assert found.reason == "dtype: reference float32, candidate float16"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_number_that_is_none_fails_any_tolerance(bad):
    observed = TRUTH.copy()
    observed[7] = bad

    assert row(observed).verdict is Verdict.MISMATCH
    assert row(observed, tolerance=Tolerance(atol=1e9, rtol=1e9)).verdict is Verdict.MISMATCH


@pytest.mark.parametrize(("rtol", "verdict"), [(0.011, Verdict.MATCH), (0.009, Verdict.MISMATCH)])
def test_a_relative_tolerance_is_relative_to_each_element(rtol, verdict):
    assert row(TRUTH * np.float32(1.01), tolerance=Tolerance(atol=0.0, rtol=rtol)).verdict is verdict


@pytest.mark.parametrize(
    ("metric", "threshold", "verdict"),
    [
        ("max_abs", 0.02, Verdict.MATCH),
        ("max_abs", 0.005, Verdict.MISMATCH),
        ("snr_db", 30.0, Verdict.MATCH),
        ("snr_db", 50.0, Verdict.MISMATCH),
        ("cosine", 0.999, Verdict.MATCH),
    ],
)
def test_a_metric_is_judged_in_its_own_direction(metric, threshold, verdict):
    observed = TRUTH * np.float32(1.01)

    assert row(observed, tolerance=Tolerance(metric=metric, threshold=threshold)).verdict is verdict


def test_integers_match_only_when_equal():
    ids = np.arange(6)

    assert row(ids.copy(), truth=ids).verdict is Verdict.MATCH
    assert row(ids + (ids == 3), truth=ids).verdict is Verdict.MISMATCH


def test_masks_of_opposite_signs_fail_an_absolute_tolerance():
    lowest = np.finfo(np.float32).min
    truth = np.array([0.5, lowest], np.float32)

    assert row(truth.copy(), truth=truth, tolerance=Tolerance(atol=1e-3)).verdict is Verdict.MATCH
    assert row(np.array([0.5, -lowest], np.float32), truth=truth, tolerance=Tolerance(atol=1e-3)).verdict is (
        Verdict.MISMATCH
    )


def test_large_integers_that_differ_by_one_fail_an_absolute_tolerance_of_nothing():
    ids = np.array([2**60, 7])

    assert row(ids.copy(), truth=ids, tolerance=Tolerance(atol=0.0)).verdict is Verdict.MATCH
    assert row(ids + np.array([1, 0]), truth=ids, tolerance=Tolerance(atol=0.0)).verdict is Verdict.MISMATCH


@pytest.mark.parametrize(
    ("tolerance", "metric", "threshold", "reason"),
    [
        (Tolerance(atol=0.5), "max_abs", 0.5, None),
        (Tolerance(metric="cosine", threshold=0.9), "cosine", 0.9, None),
        (Tolerance(rtol=0.5), "max_abs", None, "allowed for each element: 0 + 0.5 x |reference|"),
        (Tolerance(atol=0.25, rtol=0.5), "max_abs", None, "allowed for each element: 0.25 + 0.5 x |reference|"),
        (Tolerance(), "scaled", FACTOR * 2.0**-24, None),
    ],
)
def test_a_row_says_which_figure_its_threshold_is_about(tolerance, metric, threshold, reason):
    found = row(TRUTH.copy(), tolerance=tolerance, operators=1)

    assert (found.metric, found.threshold, found.reason) == (metric, threshold, reason)
