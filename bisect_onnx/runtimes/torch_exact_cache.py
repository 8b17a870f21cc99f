"""What repetitions computed, kept for the next one within a bound of memory.

Thousands of segments are judged, and most of what leads to one led to another: a value computed from the same
given values is the same value.
"""

import collections

import torch

from bisect_onnx.runtimes.torch_arrays import holds_array

__all__ = ["ExactCache", "Origin"]

# A value, and those of the given values that it was computed from; the rest comes from the recorded run.
Origin = tuple[str, frozenset[str]]

# A small model's values all fit. Of a large one the latest do, which are those that neighbouring segments share.
MAX_BYTES = 1 << 28


class ExactCache:
    """Tensors by origin, not to be written to; None for a value that cannot be computed.

    What was not asked for longest goes when ``max_bytes`` are full. A view is charged with all that it keeps alive.
    """

    def __init__(self, *, max_bytes: int | None) -> None:
        """Keep ``max_bytes`` at most, and never more than `MAX_BYTES`."""
        self._max_bytes = MAX_BYTES if max_bytes is None else min(max_bytes, MAX_BYTES)
        self._kept: collections.OrderedDict[Origin, torch.Tensor | None] = collections.OrderedDict()
        self.bytes = 0

    def __contains__(self, origin: Origin) -> bool:
        return origin in self._kept

    def __getitem__(self, origin: Origin) -> torch.Tensor | None:
        self._kept.move_to_end(origin)
        return self._kept[origin]

    def keep(self, origin: Origin, tensor: torch.Tensor | None) -> None:
        """Keep the value unless it alone is too large."""
        if origin in self._kept or _size(tensor) > self._max_bytes:
            return
        self._kept[origin] = tensor
        self.bytes += _size(tensor)
        while self.bytes > self._max_bytes:
            _, dropped = self._kept.popitem(last=False)
            self.bytes -= _size(dropped)


def _size(tensor: torch.Tensor | None) -> int:
    if tensor is None:
        return 0
    # A sparse or nested tensor has no one storage.
    return tensor.untyped_storage().nbytes() if holds_array(tensor) else tensor.numel() * tensor.element_size()
