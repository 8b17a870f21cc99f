"""Two results of a quantised model that differ by whole steps: another rounding of the same integers."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from bisect_onnx.core.compare import Array
from bisect_onnx.core.graph import Graph, Node
from bisect_onnx.core.tolerance import unit_roundoff

if TYPE_CHECKING:
    from bisect_onnx.runtimes.base import Candidate

__all__ = ["Steps", "whole_steps"]

# Operators that hand on the numbers as they are.
_MOVING: Final = frozenset({"Identity", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Gather"})


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """How the outputs differ, counted in steps of the quantiser that they come from."""

    largest: int
    elements: int
    total: int

    def told(self) -> str:
        one = "one step" if self.largest == 1 else f"up to {self.largest} steps"
        return (
            f"{self.elements:,} of {self.total:,} elements differ by whole quantisation steps ({one}): the integers "
            "are rounded in another place"
        )

    def facts(self) -> dict[str, object]:
        return {"whole quantisation steps": self.largest}


def whole_steps(
    candidate: "Candidate", *, wrong: Mapping[str, Array], right: Mapping[str, Array], failing: Sequence[str]
) -> Steps | None:
    """None unless every failing output is dequantised with a known scale and all its differences are whole steps."""
    found = []
    for name in failing:
        scale = _scale(candidate.graph, candidate.parameters, name)
        if scale is None or name not in right or right[name].shape != wrong[name].shape:
            return None
        ours, theirs = wrong[name].astype(np.float64), right[name].astype(np.float64)
        counts = (ours - theirs) / scale
        # Each side is an integer times the scale, rounded once; the difference is off by both roundings.
        off = 2 * unit_roundoff(wrong[name].dtype.name) * np.maximum(np.abs(ours), np.abs(theirs)) / scale
        if not np.isfinite(counts).all() or (np.abs(counts - np.rint(counts)) > off).any():
            return None
        found.append(np.abs(np.rint(counts)))
    if not found:
        return None
    return Steps(
        largest=int(max(counts.max(initial=0.0) for counts in found)),
        elements=int(sum(np.count_nonzero(counts) for counts in found)),
        total=int(sum(counts.size for counts in found)),
    )


def _scale(graph: Graph, parameters: Mapping[str, Array], name: str) -> float | None:
    """The step of the quantiser behind an output; 1 for integers; None where there is none, or one per channel."""
    node: Node | None = graph.producer(name)
    while node is not None and node.op_type in _MOVING:
        node = graph.producer(node.inputs[0])
    if node is None or node.op_type not in ("DequantizeLinear", "QuantizeLinear"):
        return None
    scale = parameters.get(node.inputs[1])
    if scale is None or scale.size != 1 or float(scale.reshape(-1)[0]) <= 0:
        return None
    return 1.0 if node.op_type == "QuantizeLinear" else float(scale.reshape(-1)[0])
