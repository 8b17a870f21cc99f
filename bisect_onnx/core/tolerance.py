"""Every number that decides good or bad, with its source.

Floors and thresholds are in units of `core.compare.ErrorStats.scaled`: largest absolute difference over the
rms of the reference.
"""

import dataclasses
import math
from collections.abc import Iterable
from typing import Final

from bisect_onnx.core.compare import ErrorStats

__all__ = ["FACTOR", "LARGER_IS_BETTER", "Tolerance", "arithmetic_floor", "unit_roundoff"]

# A threshold is this many floors. Two correct float32 runs each stay within the floor of the exact result in
# the rms sense, and the largest of a million normally distributed errors lies 4.9 standard deviations out
# (two-sided quantile of 1e-6); with both sides erring that is 4.9 * sqrt(2) = 6.9, the next power of two is 8.
FACTOR: Final = 8.0

# Figures of likeness, not of difference: their limit is a lower one.
LARGER_IS_BETTER: Final = frozenset({"cosine", "snr_db"})

_MANTISSA_BITS: Final = {
    "float16": 11, "bfloat16": 8, "float32": 24, "float64": 53, "complex64": 24, "complex128": 53,
    "float8_e4m3fn": 4, "float8_e4m3fnuz": 4, "float8_e5m2": 3, "float8_e5m2fnuz": 3, "float8_e8m0fnu": 1,
    "float4_e2m1fn": 2,
}  # fmt: skip


def unit_roundoff(*dtypes: str) -> float:
    """Half the spacing above 1 of the coarsest of the float dtypes; 0 when all are exact (integers, bool).

    Source: IEEE 754-2019, table 3.5 (precision p in bits): 2**-p.
    """
    bits = [_MANTISSA_BITS[dtype] for dtype in dtypes if dtype in _MANTISSA_BITS]
    return 2.0 ** -min(bits) if bits else 0.0


def arithmetic_floor(roundoff: float, reductions: Iterable[int]) -> float:
    """How far a correct run of some operators may be from the exact result, relative to its rms.

    Args:
        roundoff: Unit roundoff of the working precision.
        reductions: For each operator, how many terms each of its elements sums over (1: elementwise).

    Returns:
        Each operator rounds its result once, and a sum of n terms in an unknown order adds
        sqrt(n) / 2 roundoffs in the probable case (Higham, "Accuracy and Stability of Numerical
        Algorithms", 2nd ed., section 2.8: rounding errors of random sign grow with the root). Operators
        add up.
    """
    return roundoff * sum(1 + math.sqrt(max(terms - 1, 0)) / 2 for terms in reductions)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Tolerance:
    """What the user allows an output to differ; all None means: as far as the noise floor says."""

    atol: float | None = None
    rtol: float | None = None
    metric: str | None = None
    threshold: float | None = None

    @property
    def given(self) -> bool:
        return self.metric is not None or self.atol is not None or self.rtol is not None

    def exceeded_by(self, error: ErrorStats, *, largest_excess: float) -> bool:
        """Whether an output is beyond the user's tolerance.

        Args:
            error: The output's error.
            largest_excess: Largest |candidate - reference| - rtol * |reference| over its elements.
        """
        if error.nonfinite_mismatch:
            return True
        if error.max_abs is None:
            return bool(error.mismatched)  # strings
        if self.metric is not None:
            figure = getattr(error, self.metric)
            limit = math.inf if self.threshold is None else self.threshold
            if figure is None:
                return bool(error.mismatched)
            return not (figure >= limit if self.metric in LARGER_IS_BETTER else figure <= limit)
        return not largest_excess <= (self.atol or 0.0)  # a NaN is beyond
