"""Reference values of one size, laid out so that those near an observed value are found without looking at all."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from bisect_onnx.align.distance import NEAR, distance
from bisect_onnx.core.compare import Array, mask_class
from bisect_onnx.core.tensor import PROBE_COUNT, Fingerprint

__all__ = ["Bucket"]

# The mean of some differences, each with its sign turned or not, is at most their root mean square. So what is near in
# the end is near in each of these sums, and each leaves about a fifth of unrelated values.
SIGNS: Final = np.where(np.random.default_rng(0).random((4, PROBE_COUNT)) < 0.5, -1.0, 1.0)

# Sums of 64 float64 products err by less than this share.
SLACK: Final = 1e-9


class Bucket:
    """Classes of one element count, by the number of the class; `near` is a lookup by fingerprint."""

    def __init__(self, groups: Sequence[int], prints: Sequence[Fingerprint]) -> None:
        self.groups = tuple(groups)
        self._probes = np.stack([item.probes for item in prints])  # float64, (groups, probes)
        self._mean = np.array([item.mean for item in prints])
        self._rms = np.array([item.rms for item in prints])
        # An element that is masked or no number on both sides says nothing: such rows are always looked at.
        plain = (np.isfinite(self._probes) & (mask_class(self._probes) == 0)).all(axis=1)
        self._special = np.flatnonzero(~plain)
        rows = np.flatnonzero(plain)
        sums = self._sums(self._probes[rows])
        order = np.argsort(sums[0], kind="stable")
        self._rows = rows[order]
        self._keys = sums[:, order]  # increasing in the first row
        self._levels = np.stack([self._mean[self._rows], self._rms[self._rows]])

    def near(self, observed: Fingerprint) -> list[tuple[int, float]]:
        """Classes within `distance.NEAR` of ``observed``, with the distance, nearest first."""
        rows = self._candidates(observed)
        gaps = distance(self._probes[rows], mean=self._mean[rows], rms=self._rms[rows], observed=observed)
        order = np.argsort(gaps, kind="stable")
        return [(self.groups[rows[place]], float(gaps[place])) for place in order if gaps[place] <= NEAR]

    def _candidates(self, observed: Fingerprint) -> Array:
        """Rows that may be near, in order."""
        probes = observed.probes
        if not np.isfinite(probes).all() or mask_class(probes).any():
            return np.arange(len(self.groups))
        # What is near has an rms that differs by that share of its own at most.
        scale = max(observed.rms / (1 - NEAR), float(np.finfo(np.float32).tiny))
        reach = NEAR * scale + SLACK * (scale + float(np.max(np.abs(probes), initial=0.0)))
        keys = self._sums(probes[None, :])[:, 0]
        first = int(np.searchsorted(self._keys[0], keys[0] - reach, side="left"))
        last = int(np.searchsorted(self._keys[0], keys[0] + reach, side="right"))
        window = slice(first, last)
        close = (np.abs(self._keys[1:, window] - keys[1:, None]) <= reach).all(axis=0)
        close &= (np.abs(self._levels[:, window] - np.array([[observed.mean], [observed.rms]])) <= reach).all(axis=0)
        return np.sort(np.concatenate([self._rows[window][close], self._special]))

    @staticmethod
    def _sums(probes: Array) -> Array:
        """Mean of each row's probes under each of `SIGNS`: shape (signs, rows)."""
        count = probes.shape[1]
        sums: Array = SIGNS[:, :count] @ probes.T / max(count, 1)
        return sums
