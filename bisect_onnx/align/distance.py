"""How far two fingerprints lie apart, relative to the size of the reference's numbers."""

import numpy as np

from bisect_onnx.core.compare import Array, mask_class
from bisect_onnx.core.tensor import Fingerprint

__all__ = ["NEAR", "distance"]

# Above this two values are strangers. It only limits which hypotheses are looked at: a pair is judged
# by the noise floor of its segment afterwards. 3 % admits an 8-bit weight and excludes another layer's values.
NEAR = 0.03


def distance(probes: Array, *, mean: Array, rms: Array, observed: Fingerprint) -> Array:
    """Distance of an observed fingerprint to many reference fingerprints of the same element count.

    Args:
        probes: Sampled elements, float64, shape (references, probes).
        mean: Mean per reference, float64.
        rms: Root mean square per reference, float64.
        observed: Same element count.

    Returns:
        Shape (references,): the largest of the rms difference of the samples, the difference of the means
        and of the rms, over the reference's rms; infinite where non-finite samples stand elsewhere.
    """
    with np.errstate(all="ignore"):
        ours = observed.probes[None, :]
        special = ~(np.isfinite(probes) & np.isfinite(ours))
        same_special = (probes == ours) | (np.isnan(probes) & np.isnan(ours))
        masks = mask_class(probes)
        masked = (masks != 0) & (masks == mask_class(ours))
        skip = special | masked
        difference = np.where(skip, 0.0, probes - ours)
        scale = np.maximum(rms, np.finfo(np.float32).tiny)
        samples = np.sqrt(np.mean(np.square(difference), axis=1))
        gap = np.maximum(np.maximum(samples, np.abs(mean - observed.mean)), np.abs(rms - observed.rms)) / scale
        return np.where((special & ~same_special & ~masked).any(axis=1), np.inf, gap)
