"""When a segment's noise is measured in float64, and what counts without."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bisect_onnx.core.compare import Array, Verdict
from bisect_onnx.core.graph import Node
from bisect_onnx.core.segments import Segment
from bisect_onnx.pipeline.judge import Judge, Judgement

SEGMENT = Segment(output="y", inputs=("x",), nodes=(Node(index=0, name="n", op_type="Add", outputs=("y",)),))
REFERENCE = np.ones(8, dtype=np.float32)


class Noisy:
    """A capture whose float64 repetition lies ``noise`` off; counts how often it is asked."""

    def __init__(self, noise: float) -> None:
        self.noise = noise
        self.asked = 0

    def exact(self, fetch: Sequence[str], **_: Any) -> dict[str, Array]:
        self.asked += 1
        return dict.fromkeys(fetch, REFERENCE.astype(np.float64) + self.noise)

    def fetch(self, names: Sequence[str]) -> dict[str, Array]:
        return dict.fromkeys(names, REFERENCE)


def judged(capture: Noisy, *, off: float, hasty: bool) -> Judgement:
    judge = Judge(capture, lambda _: (8,))  # type: ignore[arg-type]  # the two members that are asked
    judge.hasty = hasty
    return judge.segment(SEGMENT, given=["x"], name="y", reference=REFERENCE, computed=REFERENCE + np.float32(off))


@pytest.mark.parametrize("off", [1e-3, 0.5])
def test_what_is_beyond_the_arithmetic_bound_is_measured(off: float):
    found = judged(Noisy(off), off=off, hasty=False)

    assert (found.verdict, found.gross) == (Verdict.MATCH, False)


def test_in_haste_what_is_grossly_wrong_is_not_measured():
    capture = Noisy(0.5)

    found = judged(capture, off=0.5, hasty=True)

    assert (found.verdict, found.gross, capture.asked) == (Verdict.MISMATCH, True, 0)


def test_in_haste_what_could_be_noise_is_measured_all_the_same():
    found = judged(Noisy(1e-3), off=1e-3, hasty=True)

    assert (found.verdict, found.gross) == (Verdict.MATCH, False)
