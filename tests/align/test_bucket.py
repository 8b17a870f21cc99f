"""A lookup by fingerprint that does not look at everything finds what a look at everything finds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bisect_onnx.align.bucket import Bucket
from bisect_onnx.align.distance import NEAR, distance
from bisect_onnx.core.tensor import Fingerprint, fingerprint
from tests.builders import FEW


def by_looking_at_everything(prints: list[Fingerprint], observed: Fingerprint) -> list[tuple[int, float]]:
    gaps = distance(
        np.stack([item.probes for item in prints]),
        mean=np.array([item.mean for item in prints]),
        rms=np.array([item.rms for item in prints]),
        observed=observed,
    )
    return [(int(row), float(gaps[row])) for row in np.argsort(gaps, kind="stable") if gaps[row] <= NEAR]


@FEW
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1, 2, 5, 64, 300]),
    scale=st.sampled_from([0.0, 1e-39, 1e-3, 1.0, 1e30]),
    moved=st.sampled_from([0.0, 1e-7, 0.02, 0.03, 0.031, 0.2]),
    special=st.sampled_from([None, np.nan, np.inf, -3.4e38]),
)
def test_the_same_classes_in_the_same_order(seed: int, size: int, scale: float, moved: float, special: float | None):
    generator = np.random.default_rng(seed)
    arrays = [scale * generator.standard_normal(size) for _ in range(12)]
    arrays += [array * (1 + moved * generator.standard_normal(size)) for array in arrays]
    if special is not None:
        for array in arrays[::5]:
            array[0] = special
    prints = [fingerprint(array.astype(np.float32)) for array in arrays]

    bucket = Bucket(range(len(prints)), prints)

    for observed in prints:
        assert bucket.near(observed) == by_looking_at_everything(prints, observed)


def test_the_class_is_told_by_its_own_number():
    first, second = (fingerprint(np.full(4, number, np.float32)) for number in (1.0, 2.0))

    assert Bucket([7, 9], [first, second]).near(second) == [(9, 0.0)]
