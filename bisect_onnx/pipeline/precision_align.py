"""Pair the values of a lower-precision candidate: every value differs, so names decide and values only rank.

Two ONNX files that were made of each other share the names of values; those are the strongest evidence. What is
left is paired by a walk over values, first of the real run and then of runs on the reference's values, in which
errors do not add up.
"""

import logging
from collections.abc import Mapping
from typing import Final

from bisect_onnx.align.by_value import pair_by_value
from bisect_onnx.align.operators import same_operator
from bisect_onnx.core.alignment import Basis, Pair
from bisect_onnx.core.compare import Array, ErrorStats, compare_arrays
from bisect_onnx.core.graph import Graph
from bisect_onnx.pipeline.precision_format import DEQUANTIZING, QUANTIZING
from bisect_onnx.pipeline.region import Region

__all__ = ["align_by_name_first", "cuts", "shared_names", "telling"]

logger = logging.getLogger(__name__)

# Walks over values; each is one run, and what the third does not find no fourth did on the project's own nets.
_MOST_WALKS: Final = 3

# Half of the energy of a value: two quantities without anything in common are apart by more than all of it
# (sqrt(2) for independent values of one size), so this tells them apart however coarse the precision is.
_STRANGERS: Final = 0.5


def align_by_name_first(region: Region, *, standing: Mapping[str, Pair]) -> dict[str, Pair]:
    """Pairs of the whole candidate in topological order.

    Args:
        region: The whole candidate.
        standing: Pairs that stand: of the outputs, and by shared names.
    """
    pairs = _ordered(region.graph, {**region.entry, **standing})
    values: Mapping[str, Array] = region.plain
    for _ in range(_MOST_WALKS):
        observed = {name: array for name, array in values.items() if telling(region, name, array)}
        wider = pair_by_value(region.graph, region.index, observed=region.prints(observed), fixed=pairs, narrow=True)
        wider = _ordered(region.graph, wider)
        if len(wider) == len(pairs):
            break
        pairs = wider
        values = region.run(cuts(region, pairs))
    logger.debug("%d pairs of %d values", len(pairs), len(region.exposable))
    return pairs


def cuts(region: Region, pairs: Mapping[str, Pair]) -> list[Pair]:
    """Pairs that can be fed: computed here, and of as many elements on both sides."""
    return [
        pair
        for name, pair in pairs.items()
        if name in region.plain and region.plain[name].size == _size(region, pair.reference)
    ]


def shared_names(region: Region) -> dict[str, Pair]:
    """Values of one name in two ONNX files, where what computes them or their numbers bear that out."""
    calls = region.index.graph
    found = {}
    for name in region.exposable:
        if name not in region.index.group_of or calls.producer(name) is None or name not in region.plain:
            continue
        if region.plain[name].size == _size(region, name) and _borne_out(region, name):
            same = region.index.fingerprints[name].shape == region.plain[name].shape
            transform = "identity" if same else "reshape"
            found[name] = Pair(candidate=name, reference=name, basis=Basis.NAME, transform=transform)
    return found


def _borne_out(region: Region, name: str) -> bool:
    """Numbered names are given anew by every tool: a name alone could be another value's.

    The operator may be another one (a Relu that a quantiser left to the range of its integers is not there): then
    the node's own name leads to the value in the reference, or the numbers are no strangers.
    """
    ours, theirs = region.graph.producer(name), region.index.graph.producer(name)
    if ours is None or theirs is None:
        return False
    if same_operator(ours.op_type, theirs.op_type) or ours.op_type == theirs.op_type or ours.name == theirs.name:
        return True
    above = {
        producer.name
        for value in region.index.graph.ancestors([name])
        if (producer := region.index.graph.producer(value)) is not None
    }
    if ours.name in above:
        return True
    reference = region.prober.reference(name).reshape(region.plain[name].shape)
    error = compare_arrays(reference, region.plain[name], check_dtype=False)
    return isinstance(error, ErrorStats) and error.relative_l2 is not None and error.relative_l2 < _STRANGERS


def telling(region: Region, name: str, array: Array) -> bool:
    """Whether a value may be paired by its numbers: the machinery of quantisation stands for nothing of its own."""
    producer = region.graph.producer(name)
    machinery = QUANTIZING | DEQUANTIZING
    return producer is not None and producer.op_type not in machinery and array.size > 1


def _size(region: Region, reference: str) -> int:
    return region.index.fingerprint(region.index.group_of[reference]).size


def _ordered(graph: Graph, pairs: Mapping[str, Pair]) -> dict[str, Pair]:
    names = [*graph.inputs, *(name for node in graph.nodes for name in node.real_outputs())]
    return {name: pairs[name] for name in dict.fromkeys(names) if name in pairs}
