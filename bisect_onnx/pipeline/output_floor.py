"""The noise of an output whose calls cannot be repeated in float64: another ONNX file, or recorded values.

Two estimates, of which the larger counts. The first adds up the rounding of every operator above the output,
as independent errors add up. The second moves every float that the model reads, inputs and parameters, by a
unit in the last place and looks how far the output goes: a model that amplifies rounding amplifies that too.
"""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from bisect_onnx.core.compare import Array, ErrorStats, compare_arrays
from bisect_onnx.core.graph import Graph
from bisect_onnx.core.reductions import terms_per_element
from bisect_onnx.core.segments import segment_of
from bisect_onnx.core.tolerance import arithmetic_floor, unit_roundoff
from bisect_onnx.pipeline.sides import Sides
from bisect_onnx.runtimes.base import Candidate, Capture

__all__ = ["estimated_floor", "independent_roundings", "one_step"]

# Operators that compute sizes from floats: a moved scale would give another shape, which is no noise.
SIZING = frozenset({"Resize", "Upsample", "Range"})


def estimated_floor(sides: Sides, capture: Capture, *, candidate: str, reference: str) -> float:
    """The noise of one output, relative to its rms.

    Where the reference is no file that can be run, the candidate is counted and moved in its place.

    Args:
        sides: Both models and their feeds.
        capture: Of the reference.
        candidate: The output in the candidate.
        reference: The output in the reference.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    if sides.reference_runtime is not None:
        model, name, feeds = sides.reference_runtime, reference, sides.feeds.reference
        shapes = {value: print_.shape for value, print_ in capture.fingerprints.items()}
    else:
        model, name, feeds = sides.candidate, candidate, sides.feeds.arrays
    if model.graph.producer(name) is None:
        return 0.0
    plain = model.probe(feeds, fetch=[name], cuts={}).get(name)
    if plain is None:
        return 0.0
    roundoff = unit_roundoff(str(plain.dtype))
    rounding = independent_roundings(name, model=model, shapes=shapes, roundoff=roundoff)
    return max(rounding, _movement(plain, _moved(model, feeds, name=name, max_bytes=sides.max_bytes)))


def independent_roundings(
    output: str, *, model: Candidate, shapes: Mapping[str, tuple[int, ...]], roundoff: float
) -> float:
    """The root of the sum of the squares of the rounding of each operator above ``output``.

    Source:
        Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., section 2.8: rounding errors of
        random sign grow with the root of their number. One operator's share is `arithmetic_floor`.
    """

    def shape_of(name: str) -> tuple[int, ...] | None:
        if name in shapes:
            return shapes[name]
        declared = model.graph.values[name].shape if name in model.graph.values else None
        if declared is None or None in declared:
            return None
        return tuple(size for size in declared if size is not None)

    nodes = segment_of(model.graph, output, cut=model.graph.inputs).nodes
    shares = [arithmetic_floor(roundoff, [terms_per_element(node, shape_of)]) for node in nodes]
    return math.sqrt(sum(share**2 for share in shares))


def one_step(array: Array, *, seed: int) -> Array:
    """Every float moved by one unit in the last place, up or down at random; other numbers as they are.

    At random, because a common factor would pass through a normalisation without a trace.
    """
    if array.dtype.kind != "f":
        return array
    up = np.random.default_rng(seed).integers(0, 2, array.shape, dtype=bool)
    with np.errstate(all="ignore"):
        target = np.where(up, np.inf, -np.inf).astype(array.dtype)
        return np.where(np.isfinite(array), np.nextafter(array, target), array).astype(array.dtype)


def _moved(model: Candidate, feeds: Mapping[str, Array], *, name: str, max_bytes: int) -> Array | None:
    """The output when every float input and parameter is moved by one step; parameters up to ``max_bytes``."""
    cuts: dict[str, Array] = {}
    for place, parameter in enumerate(_arithmetic_parameters(model.graph)):
        array = model.parameters.get(parameter)
        if array is not None and array.dtype.kind == "f" and array.nbytes <= max_bytes:
            max_bytes -= array.nbytes
            cuts[parameter] = one_step(np.asarray(array), seed=place + 1)
    fed = {key: one_step(array, seed=0) for key, array in feeds.items()}
    return model.probe(fed, fetch=[name], cuts=cuts).get(name)


def _arithmetic_parameters(graph: Graph) -> Iterator[str]:
    """What nodes of the main graph read and none computes, but for what decides a size."""
    sizing = {name for node in graph.nodes if node.op_type in SIZING for name in node.real_inputs()[1:]}
    read = dict.fromkeys(name for node in graph.nodes for name in node.real_inputs())
    yield from (name for name in read if name not in sizing and graph.producer(name) is None)


def _movement(plain: Array, moved: Array | None) -> float:
    error = None if moved is None else compare_arrays(plain, moved)
    if not isinstance(error, ErrorStats) or error.scaled is None or not math.isfinite(error.scaled):
        return 0.0  # another shape, or a jump into infinity, is no noise that could excuse anything
    return error.scaled
