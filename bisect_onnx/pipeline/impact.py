"""How much of the final error goes away when the reference's values stand somewhere."""

from collections.abc import Mapping

import numpy as np

from bisect_onnx.core.compare import Array, ErrorStats, compare_arrays
from bisect_onnx.pipeline.region import Region

__all__ = ["impact_of", "root_mean_square_error"]


def impact_of(region: Region, cut: Mapping[str, Array], *, truth: Mapping[str, Array]) -> float | None:
    """1 - rmse_after / rmse_before on the worst output with ``cut`` in place; None when no output can tell."""
    outputs = [name for name in truth if name in region.plain and truth[name].shape == region.plain[name].shape]
    before = {name: root_mean_square_error(truth[name], region.plain[name]) for name in outputs}
    name = max(outputs, key=lambda output: before[output], default=None)
    if name is None or not before[name]:
        return None
    after = cut[name] if name in cut else region.prober.forced(cut, [name]).get(name)
    if after is None or after.shape != truth[name].shape:
        return None
    if not np.isfinite(before[name]):
        return 1.0 if np.isfinite(root_mean_square_error(truth[name], after)) else 0.0
    return float(min(1.0, max(0.0, 1 - root_mean_square_error(truth[name], after) / before[name])))


def root_mean_square_error(reference: Array, computed: Array) -> float:
    """Of two outputs; infinite when they cannot be subtracted, the count of unequal elements for what is no number."""
    error = compare_arrays(reference, computed, check_dtype=False)
    if not isinstance(error, ErrorStats):
        return float("inf")
    return error.rmse if error.rmse is not None else float(error.mismatched or 0)
