"""The noise of an output whose calls cannot be repeated in float64: another ONNX file, or recorded values.

Two estimates, of which the larger counts. The first adds up the rounding of every operator above the output,
as independent errors add up. The second moves the inputs by a unit in the last place and looks how far the
output goes: rounding inside an ill-conditioned model is amplified as rounding of its inputs is.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from bisect_onnx.core.compare import Array, ErrorStats, compare_arrays
from bisect_onnx.core.graph import Graph
from bisect_onnx.core.reductions import terms_per_element
from bisect_onnx.core.segments import Segment, segment_of
from bisect_onnx.core.tolerance import arithmetic_floor, unit_roundoff
from bisect_onnx.pipeline.sides import Sides
from bisect_onnx.runtimes.base import Capture

__all__ = ["estimated_floor", "independent_roundings", "one_step"]

Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]


def estimated_floor(sides: Sides, capture: Capture, *, candidate: str, reference: str) -> float:
    """The noise of one output, relative to its rms.

    A recording cannot be run: there the candidate is counted and moved in its place.

    Args:
        sides: Both models and their feeds.
        capture: Of the reference.
        candidate: The output in the candidate.
        reference: The output in the reference.
    """
    if capture.graph.nodes:
        graph, name, run, feeds = capture.graph, reference, sides.reference.run, sides.feeds.reference
        shapes = {value: print_.shape for value, print_ in capture.fingerprints.items()}
    else:
        graph, name, run, feeds = sides.candidate.graph, candidate, sides.candidate.run, sides.feeds.arrays
        shapes = {value: array.shape for value, array in sides.candidate.parameters.items()}
    if name not in graph.values:
        return 0.0
    segment = segment_of(graph, name, cut=graph.inputs)
    plain = run(feeds)[name]
    rounding = independent_roundings(segment, graph=graph, shapes=shapes, roundoff=unit_roundoff(str(plain.dtype)))
    moved = _movement(plain, run({key: one_step(array) for key, array in feeds.items()})[name])
    return max(rounding, moved * math.sqrt(max(len(segment.nodes), 1)))


def independent_roundings(
    segment: Segment, *, graph: Graph, shapes: Mapping[str, tuple[int, ...]], roundoff: float
) -> float:
    """The root of the sum of the squares of each operator's rounding.

    Source:
        Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., section 2.8: rounding errors of
        random sign grow with the root of their number. One operator's share is `arithmetic_floor`.
    """

    def shape_of(name: str) -> tuple[int, ...] | None:
        if name in shapes:
            return shapes[name]
        declared = graph.values[name].shape if name in graph.values else None
        if declared is None or None in declared:
            return None
        return tuple(size for size in declared if size is not None)

    shares = [arithmetic_floor(roundoff, [terms_per_element(node, shape_of)]) for node in segment.nodes]
    return math.sqrt(sum(share**2 for share in shares))


def one_step(array: Array) -> Array:
    """Every float moved by one unit in the last place, up and down in turns; other numbers as they are.

    In turns, because a common factor would pass through a normalisation without a trace.
    """
    if array.dtype.kind != "f":
        return array
    signs = np.where(np.arange(array.size).reshape(array.shape) % 2 == 0, np.inf, -np.inf).astype(array.dtype)
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(array), np.nextafter(array, signs), array).astype(array.dtype)


def _movement(plain: Array, moved: Array) -> float:
    error = compare_arrays(plain, moved)
    if not isinstance(error, ErrorStats) or error.scaled is None or not math.isfinite(error.scaled):
        return 0.0  # a jump of shape or into infinity is no noise that could excuse anything
    return error.scaled
