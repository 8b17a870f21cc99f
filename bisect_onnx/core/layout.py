"""Where an array has its channel axis, and how it is moved to the other place."""

import enum
from typing import Any

import numpy as np

__all__ = ["Layout", "layouts"]

Array = np.ndarray[Any, np.dtype[Any]]


class Layout(enum.Enum):
    """A move of the channel axis; the value is what it is called."""

    CHANNELS_LAST = "channels first to channels last (NCHW to NHWC)"
    CHANNELS_FIRST = "channels last to channels first (NHWC to NCHW)"

    def moved(self, array: Array) -> Array:
        """The array, of three axes or more, with its channel axis on the other side; row-major."""
        axes = (1, -1) if self is Layout.CHANNELS_LAST else (-1, 1)
        return np.ascontiguousarray(np.moveaxis(array, *axes))


def layouts(array: Array) -> tuple[Layout, ...]:
    """The moves that change an array of three to five axes; between two inner axes both are the same one."""
    if array.ndim not in (3, 4, 5) or array.dtype.kind not in "fiu":
        return ()
    return tuple(Layout)[: 1 if array.ndim == 3 else 2]
