"""One question to the running models at a time: candidate values, plain or fed with the reference's."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array, mask_class
from bisect_onnx.core.edits import NodeEdit
from bisect_onnx.runtimes.base import Candidate, Capture

__all__ = ["Prober"]

# Session creation grows faster than linearly beyond this many graph inputs (measured: 10,000 in one session
# 0.7 s, 50,000 14.8 s, in chunks of 2,000 4.9 s).
MOST_CUTS = 2000


class Prober:
    """The candidate and the captured reference on one set of feeds."""

    def __init__(self, candidate: Candidate, capture: Capture, feeds: Mapping[str, Array]) -> None:
        self.candidate = candidate
        self.capture = capture
        self.feeds = feeds
        self._fetched: dict[str, Array] = {}

    def reference(self, name: str) -> Array:
        """The reference's array of a captured value; the caller must not write to it."""
        if name not in self._fetched:
            self._fetched.update(self.capture.fetch([name]))
        return self._fetched[name]

    def preload(self, names: Iterable[str]) -> None:
        """Fetch many reference arrays in one go."""
        wanted = [name for name in dict.fromkeys(names) if name not in self._fetched]
        if wanted:
            self._fetched.update(self.capture.fetch(wanted))

    def partner(self, pair: Pair, *, like: Array) -> Array:
        """The reference's array of a pair, in the candidate's shape and dtype.

        Where both sides mask an element, the candidate keeps its own mask constant: an -inf of the
        reference would meet operators that the exporter gave the smallest number.
        """
        array = self.reference(pair.reference)
        if array.shape != like.shape:
            array = array.reshape(like.shape)
        if array.dtype != like.dtype:
            array = array.astype(like.dtype)
        if array.dtype.kind == "f" and array.size:
            masks = mask_class(array)
            both = (masks != 0) & (masks == mask_class(like))
            if both.any():
                array = np.where(both, like, array)
        return array

    def plain(self, fetch: Sequence[str]) -> dict[str, Array]:
        """Values of the real run at level 0."""
        return self.candidate.probe(self.feeds, fetch=fetch, cuts={})

    def forced(
        self, cuts: Mapping[str, Array], fetch: Sequence[str], *, edits: Sequence[NodeEdit] = ()
    ) -> dict[str, Array]:
        """Values when the consumers of each cut value read the given array; in chunks when there are many."""
        if len(cuts) <= MOST_CUTS:
            return self.candidate.probe(self.feeds, fetch=fetch, cuts=cuts, edits=edits)
        found: dict[str, Array] = {}
        for start in range(0, len(fetch), MOST_CUTS):
            part = fetch[start : start + MOST_CUTS]
            found.update(self.candidate.probe(self.feeds, fetch=part, cuts=cuts, edits=edits))
        return found
