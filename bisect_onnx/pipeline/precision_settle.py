"""Settle the pairs of a lower-precision candidate whose values have no names in common with the reference's.

The search is that of any candidate; only what counts as near is wider, as values that are right differ by what
their precision allows.
"""

from collections.abc import Mapping

from bisect_onnx.align.distance import NEAR
from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array
from bisect_onnx.pipeline.precision_align import telling
from bisect_onnx.pipeline.settle import Settling

__all__ = ["PrecisionSettling"]


class PrecisionSettling(Settling):
    """A settling among values that are near, not equal."""

    def _walk(self, values: Mapping[str, Array], fixed: Mapping[str, Pair], *, nearest: float) -> dict[str, Pair]:
        observed = {name: array for name, array in values.items() if telling(self.region, name, array)}
        return super()._walk(observed, fixed, nearest=max(nearest, NEAR))
