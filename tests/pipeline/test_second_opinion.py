"""With whom a third implementation agrees, and what is said when it speaks for the file."""

import dataclasses

import numpy as np
import pytest

from bisect_onnx.core.finding import Confidence
from bisect_onnx.core.second_judge import Agreement, SecondJudge
from bisect_onnx.pipeline.second_opinion import agreement, runtime_doubted
from tests.report_builders import culprit

ONE = np.array([1.0, 2.0, 3.0], np.float32)
OTHER = np.array([1.0, 2.0, 4.0], np.float32)
BROKEN = np.array([1.0, np.nan, 3.0], np.float32)


@pytest.mark.parametrize(
    ("third", "reference", "computed", "expected"),
    [
        (OTHER, ONE, OTHER, Agreement.RUNTIME),
        (ONE, ONE, OTHER, Agreement.REFERENCE),
        (ONE * 7, ONE, OTHER, Agreement.NEITHER),
        (ONE.reshape(3, 1), ONE, OTHER, Agreement.NEITHER),
        (OTHER * np.float32(1 + 1e-6), ONE, OTHER, Agreement.RUNTIME),
        (BROKEN, ONE, BROKEN, Agreement.RUNTIME),
        (ONE, ONE, BROKEN, Agreement.REFERENCE),
        (BROKEN, ONE, OTHER, Agreement.NEITHER),
        (np.array([4, 5]), np.array([4, 6]), np.array([4, 5]), Agreement.RUNTIME),
    ],
)
def test_the_third_agrees_with_one_of_two(third, reference, computed, expected: Agreement):
    assert agreement(third, reference, computed, threshold=1e-5) is expected


@pytest.mark.parametrize("agrees_with", [each for each in Agreement if each is not Agreement.REFERENCE])
def test_the_runtime_is_not_doubted_when_the_third_speaks_for_it_or_for_nobody(agrees_with: Agreement):
    accused = dataclasses.replace(culprit(), second_judge=SecondJudge(agrees_with=agrees_with))

    assert runtime_doubted(accused) is None


def test_the_runtime_is_doubted_when_two_are_against_it():
    accused = dataclasses.replace(culprit(), second_judge=SecondJudge(agrees_with=Agreement.REFERENCE))

    finding = runtime_doubted(accused)

    assert finding is not None
    assert (finding.code, finding.cause, finding.confidence) == ("SJ001", "K28", Confidence.LIKELY)
    assert finding.message == (
        f"the onnx reference evaluator makes of {accused.node} what the reference does, and ONNX Runtime something "
        "else: the file may be right, and the runtime's kernel wrong"
    )
