"""Which nodes of a wrong segment can be to blame, and which is the likeliest where nothing tells them apart."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from bisect_onnx.align.operators import KEEPS_ALL, PASS_THROUGH
from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.graph import Graph, Node
from bisect_onnx.pipeline.judge import scaled_gap
from bisect_onnx.pipeline.region import Judged, Region

__all__ = ["harmless", "is_free", "moving_tail", "narrows", "only_rearranged", "unlike_siblings"]

# Keep every element, in another place.
REARRANGING = KEEPS_ALL - {"Cast"} | {"Transpose", "DepthToSpace", "SpaceToDepth", "Concat"}

FLOAT_BITS = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16}


def moving_tail(part: Judged) -> frozenset[int]:
    """Indices of the last nodes, as long as they only put all elements in another place."""
    found: set[int] = set()
    for node in reversed(part.segment.nodes):
        readers = [other for other in part.segment.nodes if set(node.outputs) & set(other.reads)]
        if node.op_type in REARRANGING and all(reader.index in found for reader in readers):
            found.add(node.index)
    return frozenset(found)


def only_rearranged(item: Judged, *, region: Region, pairs: Mapping[str, Pair]) -> bool:
    """Whether the computed elements are the reference's in another order."""
    cuts = {**region.entry_values} | {
        name: region.partner(pairs[name]) for name in item.segment.inputs if name in region.plain
    }
    computed = region.prober.forced(cuts, [item.pair.candidate])[item.pair.candidate]
    reference = region.prober.reference(item.pair.reference)
    if computed.size != reference.size or computed.dtype.kind not in "fiub":
        return False
    return scaled_gap(np.sort(reference.reshape(-1)), np.sort(computed.reshape(-1))) <= item.judgement.threshold


def harmless(node: Node, item: Judged, *, region: Region, right_shape: bool) -> bool:
    """Whether the node cannot introduce an error: it widens its input, or shapes it as the reference does."""
    if node.op_type == "Cast":
        before, after = (FLOAT_BITS.get(_dtype(region, name), 0) for name in (node.inputs[0], node.outputs[0]))
        return 0 < before <= after
    return right_shape and node.op_type in KEEPS_ALL - {"Cast"} and item.pair.candidate in node.outputs


def narrows(node: Node, region: Region) -> bool:
    """Whether the node rounds to a coarser type: the lossy half of a round trip."""
    if node.op_type != "Cast":
        return False
    before, after = (_dtype(region, name) for name in (node.inputs[0], node.outputs[0]))
    return FLOAT_BITS.get(after, 0) < FLOAT_BITS.get(before, 0)


def _dtype(region: Region, name: str) -> str:
    if name in region.plain:
        return str(region.plain[name].dtype)
    if name in region.entry_values:
        return str(region.entry_values[name].dtype)
    known = region.graph.values.get(name)
    return (known.dtype if known is not None else None) or ""


def is_free(node: Node, region: Region, parameter_of: Mapping[str, str]) -> bool:
    """Whether something about the node could be wrong: an attribute, or a constant that is no parameter."""
    if node.op_type in PASS_THROUGH:
        return False
    constants = [name for name in node.real_inputs() if name in region.prober.candidate.parameters]
    return bool(node.attributes) or any(name not in parameter_of for name in constants)


def unlike_siblings(nodes: Sequence[Node], whole: Graph) -> frozenset[int]:
    """Indices of nodes that differ from the node at the same place of every other such sequence in the graph."""
    kinds = [node.op_type for node in nodes]
    if any(second.index - first.index > 64 for first, second in itertools.pairwise(nodes)):
        return frozenset()
    siblings: list[list[Node]] = []
    flat = [node for node in whole.nodes if node.op_type != "Constant"]
    for start in range(len(flat) - len(kinds) + 1):
        window = flat[start : start + len(kinds)]
        if [node.op_type for node in window] == kinds and window[0].index != nodes[0].index:
            siblings.append(window)
    if not siblings:
        return frozenset()
    return frozenset(
        node.index
        for place, node in enumerate(nodes)
        if all(repr(sibling[place].attributes) != repr(node.attributes) for sibling in siblings)
    )
