"""Fingerprints: what is kept of an array when the array itself is not."""

import dataclasses
import functools
from typing import Any

import numpy as np

__all__ = ["PROBE_COUNT", "Fingerprint", "fingerprint", "probe_positions"]

Array = np.ndarray[Any, np.dtype[Any]]

# 64 sampled elements tell apart values that differ anywhere but in a few elements; sums and norms see the
# rest. More costs time on every value of a run and decided no further pair on the project's own nets.
PROBE_COUNT = 64


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Fingerprint:
    """Statistics and sampled elements of one array.

    ``probes`` are elements at `probe_positions` of the row-major flattening, so two arrays that differ
    by a reshape alone have equal fingerprints; after a permutation only the order-free statistics agree.
    """

    shape: tuple[int, ...]
    dtype: str
    size: int
    finite: int  # count of finite elements
    counted: int  # count of finite elements below the mask constant, which all that follow are about
    mean: float
    rms: float
    neighbours: float  # mean product of two elements that follow each other: moves when elements change places
    minimum: float
    maximum: float
    probes: Array  # float64, at most PROBE_COUNT elements, non-finite kept
    distinct: int  # number of different values among the probes: 1 for a constant tensor


@functools.lru_cache(maxsize=4096)  # a run has many values and few sizes
def probe_positions(size: int) -> Array:
    """Flat positions that are sampled of an array of ``size`` elements: int64, increasing, read-only."""
    positions = _spread(size)
    positions.flags.writeable = False
    return positions


def _spread(size: int) -> Array:
    if size <= PROBE_COUNT:
        return np.arange(size, dtype=np.int64)
    # A fixed multiplicative sequence (golden ratio) spreads over all axes; equal strides would see one column.
    spread = np.arange(1, PROBE_COUNT + 1, dtype=np.float64) * 0.6180339887498949 % 1.0
    return np.unique((spread * size).astype(np.int64))


def fingerprint(array: Array) -> Fingerprint:
    """Summarise ``array`` (any shape, numeric or bool) in one pass or two.

    Source of the mask rule: `core.compare.MASK_CONSTANT`.
    """
    from bisect_onnx.core.compare import MASK_CONSTANT

    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind == "c":
        flat = np.abs(flat)
    with np.errstate(all="ignore"):
        probes = flat[probe_positions(flat.size)].astype(np.float64)
        if flat.dtype.kind not in "fiub":
            flat = flat.astype(np.float32)
        top = np.max(np.abs(flat.astype(np.float64) if flat.dtype.kind in "iub" else flat), initial=0)
        if not top < MASK_CONSTANT:  # also when NaN
            finite = int(np.count_nonzero(np.isfinite(flat)))
            flat = flat[np.abs(flat) < MASK_CONSTANT]
        else:
            finite = int(flat.size)
        if flat.size:
            mean = float(flat.mean(dtype=np.float64))
            low, high = float(flat.min()), float(flat.max())
            # Squares of float32 outside of this range are infinite or zero.
            safe = flat.dtype == np.float32 and 1e-15 < max(-low, high) < 1e15
            wide = flat if safe else flat.astype(np.float64)
            # A float32 dot uses fast pairwise blocks: relative error about 1e-6, far below any match tolerance.
            rms = float(np.sqrt(float(np.dot(wide, wide)) / flat.size))
            neighbours = float(np.dot(wide[:-1], wide[1:])) / flat.size
        else:
            mean = rms = neighbours = low = high = 0.0
    return Fingerprint(
        shape=tuple(array.shape),
        dtype=str(array.dtype),
        size=int(array.size),
        finite=finite,
        counted=int(flat.size),
        mean=mean,
        rms=rms,
        neighbours=neighbours,
        minimum=low,
        maximum=high,
        probes=probes,
        distinct=int(np.unique(probes).size),
    )
