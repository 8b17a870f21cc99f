"""Ask a lower-precision candidate as it is executed: what its formats cannot hold is no error of a node.

A quantised value is seen by its readers inside the range of its integers, and a quantiser that stands for a Relu
leaves the Relu to that range; so it is compared inside it. A mask of the smallest float32 becomes the smallest
float16, or minus infinity; the candidate keeps its own.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array, mask_class
from bisect_onnx.core.edits import NodeEdit
from bisect_onnx.core.graph import Node
from bisect_onnx.pipeline.prober import Prober
from bisect_onnx.pipeline.region import Region

__all__ = ["PrecisionProber", "masks_met", "range_of", "readable_ranges"]

# Half the largest float16, as `core.compare.MASK_CONSTANT` is half the largest float32.
NARROW_MASK = float(np.finfo(np.float16).max) / 2

Range = tuple[float, float]


class PrecisionProber(Prober):
    """A prober whose values are those that their readers see."""

    def __init__(self, prober: Prober, ranges: Mapping[str, Range]) -> None:
        super().__init__(prober.candidate, prober.capture, prober.feeds)
        self._ranges = ranges

    def partner(self, pair: Pair, *, like: Array) -> Array:
        """See `Prober.partner`; what the candidate's dtype cannot hold becomes infinite."""
        with np.errstate(over="ignore"):
            array = super().partner(pair, like=like)
        reference = self.reference(pair.reference)
        if reference.size != like.size:
            return array
        return np.where(_both_mask(reference.reshape(like.shape), like), like, array)

    def forced(
        self, cuts: Mapping[str, Array], fetch: Sequence[str], *, edits: Sequence[NodeEdit] = ()
    ) -> dict[str, Array]:
        """See `Prober.forced`."""
        found = super().forced(cuts, fetch, edits=edits)
        return {name: self.seen(name, array) for name, array in found.items()}

    def seen(self, name: str, array: Array) -> Array:
        """A value inside the range in which it is read."""
        if name not in self._ranges:
            return array
        low, high = self._ranges[name]
        return np.clip(array, array.dtype.type(low), array.dtype.type(high))


def masks_met(reference: Array, computed: Array) -> Array:
    """The reference, with the candidate's own mask where both mask an element."""
    if reference.shape != computed.shape or computed.dtype.kind not in "fV":
        return reference
    both = _both_mask(reference, computed)
    return np.where(both, computed.astype(reference.dtype), reference) if both.any() else reference


def _both_mask(reference: Array, computed: Array) -> Array:
    if reference.dtype.kind not in "fV" or computed.dtype.kind not in "fV":
        return np.zeros(computed.shape, dtype=bool)
    wide = computed.astype(np.float64)
    masks = mask_class(reference)
    found: Array = (masks != 0) & (np.abs(wide) >= NARROW_MASK) & (np.sign(wide) == masks)
    return found


def readable_ranges(region: Region) -> dict[str, Range]:
    """The range of each value that is read by quantisers alone; a single scale and zero point each."""
    found = {}
    for name in region.exposable:
        readers = region.graph.consumers(name)
        if name in region.graph.outputs or not readers or any(r.op_type != "QuantizeLinear" for r in readers):
            continue
        ranges = [range_of(region, reader) for reader in readers]
        known = [each for each in ranges if each is not None]
        if len(known) == len(ranges):
            found[name] = (min(low for low, _ in known), max(high for _, high in known))
    return found


def range_of(region: Region, node: Node) -> Range | None:
    """The numbers that a quantiser can hold; None when it has several scales, or none that is stored."""
    parameters = region.prober.candidate.parameters
    scale = parameters.get(node.inputs[1])
    zero = parameters.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else np.zeros(1, dtype=np.uint8)
    if scale is None or zero is None or scale.size != 1 or zero.size != 1 or np.asarray(zero).dtype.kind not in "iu":
        return None
    step, offset = float(np.asarray(scale).reshape(-1)[0]), int(np.asarray(zero).reshape(-1)[0])
    limits = np.iinfo(np.asarray(zero).dtype)
    return (limits.min - offset) * step, (limits.max - offset) * step
