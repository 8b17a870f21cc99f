"""From an accused segment to the node in it.

The reference's own calls are opened up (a GELU into its erf, a linear layer into product and bias), and the
segment is settled against those like a model of its own. What is left is told apart by experiments: a
parameter of the module put in the place of an initializer, the order of the elements.
"""

import dataclasses
import enum
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from bisect_onnx.align.operators import MOVEMENT, PASS_THROUGH, same_operator
from bisect_onnx.align.reference_index import ReferenceIndex
from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array
from bisect_onnx.core.graph import Graph, Node
from bisect_onnx.pipeline.experiments import (
    WeightProof,
    calls_between,
    cured_by_an_edit,
    reads_another,
    weight_proof,
)
from bisect_onnx.pipeline.fixed_values import fixed_proof, fixed_suspects, unlike_the_reference
from bisect_onnx.pipeline.judge import scaled_gap
from bisect_onnx.pipeline.prober import Prober
from bisect_onnx.pipeline.region import Judged, Region
from bisect_onnx.pipeline.settle import Settling, subgraph

__all__ = ["Decision", "Narrowed", "falls_short", "narrow"]

# Operators with a place for a bias or a scale of their own.
TAKES_A_BIAS = frozenset({
    "BatchNormalization", "Conv", "ConvTranspose", "Gemm", "GroupNormalization", "GRU", "InstanceNormalization",
    "LayerNormalization", "LSTM", "RNN",
})  # fmt: skip

# Give their input on; an Identity may stand where something should be computed.
KEEPS_ALL = PASS_THROUGH - {"Identity"}

FLOAT_BITS = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16}


class Decision(enum.Enum):
    """What singled a node out of its segment."""

    ALONE = enum.auto()  # nothing else in the segment could be wrong
    REWIRED = enum.auto()  # the segment is right when the node reads another value
    WEIGHT = enum.auto()  # with the module's own parameter
    EDITED = enum.auto()  # in another form, or with another number of the reference
    RANKED = enum.auto()  # nothing: it is the likeliest of several


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Narrowed:
    """The accused node first, then the others that could not be cleared, then the rest of the segment."""

    node: Node
    suspects: tuple[Node, ...]
    decision: Decision
    weight: WeightProof | None = None


def narrow(
    item: Judged,
    *,
    region: Region,
    pairs: Mapping[str, Pair],
    parameter_of: Mapping[str, str],
    cleared: frozenset[int],
    right_shape: bool,
) -> Narrowed:
    """Find the node that makes ``item`` wrong.

    Args:
        item: The accused segment.
        region: The whole candidate.
        pairs: All pairs.
        parameter_of: Reference parameter by candidate initializer.
        cleared: Nodes that another segment, a right one, holds too.
        right_shape: The segment's result has the reference's shape.
    """
    rewired = reads_another(item, region=region, pairs=pairs, cleared=cleared)
    if rewired is not None:
        return Narrowed(node=rewired, suspects=(rewired,), decision=Decision.REWIRED)
    part, inner, inner_pairs = _opened(item, region=region, pairs=pairs, parameter_of=parameter_of, cleared=cleared)
    shaped = right_shape and part.pair.candidate == item.pair.candidate
    known = {**pairs, **inner_pairs}
    fixed = fixed_suspects(part, graph=region.graph, pairs=known, cleared=cleared, right_shape=shaped)
    nodes = [node for node in part.segment.nodes if not _harmless(node, part, region=inner, right_shape=shaped)]
    own = [node for node in nodes if node.index not in cleared] or nodes or list(part.segment.nodes)
    own = [node for node in own if node not in fixed.nodes]
    weight = weight_proof(part, [*fixed.nodes, *own], region=inner, pairs=inner_pairs)
    if weight is not None:
        node = next(node for node in (*fixed.nodes, *part.segment.nodes) if weight.initializer in node.inputs)
        return Narrowed(node=node, suspects=(node,), decision=Decision.WEIGHT, weight=weight)
    if len(own) + len(fixed.nodes) == 1:
        return Narrowed(node=own[0], suspects=(own[0],), decision=Decision.ALONE)
    outer = calls_between(item, region=region, pairs=pairs)
    calls = (*outer, *calls_between(part, region=inner, pairs=inner_pairs))
    wrong = fixed_proof(part, fixed, region=inner, pairs=inner_pairs, calls=calls)
    among = [*fixed.nodes, *own]
    if wrong is not None and (source := region.graph.producer(wrong)) is not None:
        chain = unlike_the_reference(source, region=region, cut=frozenset(known), calls=outer)
        among = [node for node in chain if node.index not in cleared] or [source]
        if len(among) == 1:
            return Narrowed(node=among[0], suspects=(among[0],), decision=Decision.ALONE)
    cured = cured_by_an_edit(part, among, region=inner, pairs=inner_pairs, calls=calls)
    if cured:
        decision = Decision.EDITED if len(cured) == 1 else Decision.RANKED
        return Narrowed(node=cured[0], suspects=tuple(cured), decision=decision)
    if wrong is not None:
        return Narrowed(node=among[-1], suspects=tuple(reversed(among)), decision=Decision.RANKED)
    suspects = _suspects(
        part, region=inner, pairs=inner_pairs, parameter_of=parameter_of, cleared=cleared, whole=region.graph
    )
    return Narrowed(node=suspects[0], suspects=(*suspects, *fixed.nodes), decision=Decision.RANKED)


def falls_short(item: Judged, *, region: Region, pairs: Mapping[str, Pair], computed: Array) -> bool:
    """Whether the one node computed a step on the reference's way, rightly: what follows that step is missing.

    Not for operators that would have taken the next step themselves: a convolution its bias, a Transpose the
    transposition after it.
    """
    node = item.segment.nodes[-1]
    call = region.index.graph.producer(item.pair.reference)
    if len(item.segment.nodes) != 1 or node.op_type in TAKES_A_BIAS | MOVEMENT:
        return False
    if call is not None and same_operator(node.op_type, call.op_type):
        return False  # it is that call, and wrong: a step of its closed form is an accident
    found = _taken_apart(item, region=region, pairs=pairs)
    if found is None:
        return False
    index, prober = found
    output = index.group_of[item.pair.reference]
    fed = [index.group_of[pairs[name].reference] for name in item.segment.inputs]
    for group in index.between(fed, output):
        name = index.member(group, shape=computed.shape)
        if index.fingerprint(group).size == computed.size and index.fingerprint(group).distinct > 2:
            step = prober.reference(name).reshape(computed.shape)
            if scaled_gap(step, computed) <= item.judgement.threshold:
                return True
    return False


def _taken_apart(item: Judged, *, region: Region, pairs: Mapping[str, Pair]) -> tuple[ReferenceIndex, Prober] | None:
    """The reference's calls of the segment, decomposed; None when its ends are lost on the way."""
    given = [pairs[name].reference for name in item.segment.inputs]
    opened = region.prober.capture.open_up([item.pair.reference], given=given)
    index = ReferenceIndex(opened.graph, opened.fingerprints)
    if any(name not in index.group_of for name in (*given, item.pair.reference)):
        return None
    return index, Prober(region.prober.candidate, opened, region.prober.feeds)


def _opened(
    item: Judged,
    *,
    region: Region,
    pairs: Mapping[str, Pair],
    parameter_of: Mapping[str, str],
    cleared: frozenset[int],
) -> tuple[Judged, Region, Mapping[str, Pair]]:
    """The smallest part of the segment that is wrong against the opened-up reference."""
    if len(item.segment.nodes) == 1:
        return item, region, pairs
    found = _taken_apart(item, region=region, pairs=pairs)
    if found is None:
        return item, region, pairs
    index, prober = found
    entry = {name: pairs[name] for name in item.segment.inputs}
    values = {
        name: region.partner(pair)
        if name in region.plain
        else region.prober.feeds.get(name, region.entry_values.get(name))
        for name, pair in entry.items()
    }
    inner = Region(
        subgraph(region.graph, item.segment),
        index,
        prober,
        entry=entry,
        entry_values={name: array for name, array in values.items() if array is not None},
    )
    settled = Settling(
        inner,
        outputs={item.pair.candidate: item.pair},
        parameter_of=parameter_of,
        narrow=False,
    ).settle()
    parts = [
        part
        for part in settled.accused
        if any(
            node.index not in cleared and node.op_type not in PASS_THROUGH - {"Identity"} for node in part.segment.nodes
        )
    ]
    return (parts[0], inner, settled.pairs) if parts else (item, region, pairs)


def _suspects(
    item: Judged,
    *,
    region: Region,
    pairs: Mapping[str, Pair],
    parameter_of: Mapping[str, str],
    cleared: frozenset[int],
    whole: Graph,
) -> list[Node]:
    """The segment's nodes, likeliest first."""
    nodes = list(item.segment.nodes)
    if len(nodes) == 1:
        return nodes
    moved = _only_rearranged(item, region=region, pairs=pairs)
    differs = _unlike_siblings(nodes, whole)

    def suspicion(place: int, node: Node) -> tuple[bool, bool, bool, bool, bool, int]:
        movement = node.op_type in MOVEMENT
        return (
            node.index in cleared,
            movement != moved,
            not _narrows(node, region),
            node.index not in differs,
            not _free(node, region, parameter_of),
            -place,
        )

    order = sorted(range(len(nodes)), key=lambda place: suspicion(place, nodes[place]))
    return [nodes[place] for place in order]


def _only_rearranged(item: Judged, *, region: Region, pairs: Mapping[str, Pair]) -> bool:
    """Whether the computed elements are the reference's in another order."""
    cuts = {**region.entry_values} | {
        name: region.partner(pairs[name]) for name in item.segment.inputs if name in region.plain
    }
    computed = region.prober.forced(cuts, [item.pair.candidate])[item.pair.candidate]
    reference = region.prober.reference(item.pair.reference)
    if computed.size != reference.size or computed.dtype.kind not in "fiub":
        return False
    return scaled_gap(np.sort(reference.reshape(-1)), np.sort(computed.reshape(-1))) <= item.judgement.threshold


def _harmless(node: Node, item: Judged, *, region: Region, right_shape: bool) -> bool:
    """Whether the node cannot introduce an error: it widens its input, or shapes it as the reference does."""
    if node.op_type == "Cast":
        before, after = (FLOAT_BITS.get(_dtype(region, name), 0) for name in (node.inputs[0], node.outputs[0]))
        return 0 < before <= after
    return right_shape and node.op_type in KEEPS_ALL - {"Cast"} and item.pair.candidate in node.outputs


def _narrows(node: Node, region: Region) -> bool:
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


def _free(node: Node, region: Region, parameter_of: Mapping[str, str]) -> bool:
    """Whether something about the node could be wrong: an attribute, or a constant that is no parameter."""
    if node.op_type in PASS_THROUGH:
        return False
    constants = [name for name in node.real_inputs() if name in region.prober.candidate.parameters]
    return bool(node.attributes) or any(name not in parameter_of for name in constants)


def _unlike_siblings(nodes: Sequence[Node], whole: Graph) -> frozenset[int]:
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
