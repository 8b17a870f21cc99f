"""What a model's inputs are declared to be, and what a user gave for them."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["Array", "GivenFeeds", "InputSignature"]

Array = np.ndarray[Any, np.dtype[Any]]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class InputSignature:
    """One graph input as the ONNX file declares it.

    ``dtype`` is as in `core.graph.Value`, "string", or None for a sequence, map or optional. ``dims`` is
    None when even the rank is unknown; an entry is a symbol's name, or None for an unnamed unknown.
    """

    name: str
    dtype: str | None
    dims: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        """``float32[batch, 3, ?, ?]``."""
        if self.dims is None:
            return f"{self.dtype or 'unknown'} of any rank"
        return f"{self.dtype or 'unknown'}[{', '.join('?' if dim is None else str(dim) for dim in self.dims)}]"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class GivenFeeds:
    """Arrays as the user gave them: by name, or in order (an entry of None stands for "left out")."""

    source: str  # for the report and for errors: "feeds.npz", "caller", "factory"
    named: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    ordered: tuple[Array | None, ...] = ()
    in_graph_order: bool = False  # ``ordered`` follows the ONNX file rather than the reference's call
