"""Is a value that depends on no input to blame: a scale from a shape, a mask, a start value, a prepared parameter?

A segment test cannot acquit these. They are no inputs of the segment, have seldom a partner, and go wrong with
every other value right. So the reference's own operands are put in their place.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from bisect_onnx.align.by_structure import same_family
from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array
from bisect_onnx.core.graph import Graph, Node, ValueKind
from bisect_onnx.core.segments import fixed_ancestors
from bisect_onnx.pipeline.experiments import numbers_of, right_with
from bisect_onnx.pipeline.region import Judged, Region

__all__ = ["FixedSuspects", "acquitted_values", "fixed_proof", "fixed_suspects", "in_question", "unlike_the_reference"]

# The input that says which shape the result has: a result of the right shape had the right one.
SHAPE_INPUT = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0, "Tile": 1, "Resize": 3}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FixedSuspects:
    """Uncleared nodes that depend on no input, in topological order, and the values that a segment reads of them.

    The last values come first: what makes the segment right in the place of a late one may be wrong in itself or
    anywhere above, while a number in the place of an early one may only make up for what follows.
    """

    nodes: tuple[Node, ...]
    read: tuple[str, ...]


def fixed_suspects(
    item: Judged, *, graph: Graph, pairs: Mapping[str, Pair], cleared: frozenset[int], acquitted: Collection[str]
) -> FixedSuspects:
    """What the segment reads that depends on no input and that no right segment reads too.

    Args:
        item: The segment.
        graph: The whole candidate.
        pairs: All pairs; a paired value has a segment of its own.
        cleared: Indices of nodes that a right segment holds or reads.
        acquitted: Values that are known to be right.
    """
    found: dict[int, Node] = {}
    read: dict[str, int] = {}
    for node in in_question(item, acquitted):
        for name in node.reads:
            producer = graph.producer(name)
            if name in acquitted or name in pairs or producer is None or producer.op_type == "Constant":
                continue
            if graph.kind(name) is ValueKind.ACTIVATION:
                continue
            above = (*fixed_ancestors(graph, [producer], cut={*pairs, *acquitted}), producer)
            if suspects := [node for node in above if node.index not in cleared]:
                found.update((node.index, node) for node in suspects)
                read[name] = graph.place(producer)
    return FixedSuspects(
        nodes=tuple(sorted(found.values(), key=graph.place)),
        read=tuple(sorted(read, key=lambda name: -read[name])),
    )


def in_question(item: Judged, acquitted: Collection[str]) -> list[Node]:
    """The segment's nodes without those that only lead to an acquitted value."""
    wanted = {item.segment.output}
    nodes = []
    for node in reversed(item.segment.nodes):
        if wanted & set(node.outputs):
            nodes.append(node)
            wanted.update(name for name in node.reads if name not in acquitted)
    return nodes[::-1]


def acquitted_values(item: Judged, *, region: Region, calls: Sequence[Node], right_shape: bool) -> frozenset[str]:
    """Values that depend on no input and are right: the shape of a right shape, and what the reference reads as well.

    Args:
        item: The segment.
        region: The whole candidate.
        calls: The reference's calls from the segment's inputs to its output.
        right_shape: The segment's result has the reference's shape.
    """
    graph, last = region.graph, item.segment.nodes[-1]
    place = SHAPE_INPUT.get(last.op_type)
    shape = {last.inputs[place]} if right_shape and place is not None and place < len(last.inputs) else set()
    fixed = [
        name
        for node in item.segment.nodes
        for name in node.reads
        if graph.kind(name) is not ValueKind.ACTIVATION and graph.producer(name) is not None
    ]
    operands = dict.fromkeys(name for call in calls for name in call.real_inputs())
    theirs = [name for name in operands if name in region.index.fingerprints]
    values = region.prober.plain(list(dict.fromkeys(fixed)))
    return frozenset(shape | {name for name, value in values.items() if _among(value, theirs, region=region)})


def _among(value: Array, theirs: Sequence[str], *, region: Region) -> bool:
    """Whether one of the reference's values has the same elements; start values of all layers are one on one side."""
    if value.dtype.kind not in "fiub" or value.size < 2:
        return False
    prints = {name: region.index.fingerprints[name] for name in theirs}
    prints = {name: p for name, p in prints.items() if same_family(p.dtype, str(value.dtype))}
    if (value == value.flat[0]).all():
        number = float(value.flat[0])
        return any(p.minimum == p.maximum == number and p.size and value.size % p.size == 0 for p in prints.values())
    alike = [name for name, p in prints.items() if p.size == value.size]
    return any(np.array_equal(value.reshape(-1), region.prober.reference(name).reshape(-1)) for name in alike)


def fixed_proof(
    item: Judged,
    suspects: FixedSuspects,
    *,
    region: Region,
    pairs: Mapping[str, Pair],
    calls: Sequence[Node],
) -> str | None:
    """The value that makes the segment right when an operand of the reference's calls stands in its place."""
    values = region.prober.plain(list(suspects.read))
    for name in suspects.read:
        like = values.get(name)
        if like is None or like.dtype.kind not in "fiub":
            continue
        for form in _forms(like, region=region, calls=calls):
            if right_with(item, {name: form}, region=region, pairs=pairs):
                return name
    return None


def unlike_the_reference(
    source: Node, *, region: Region, cut: frozenset[str], calls: Sequence[Node]
) -> tuple[Node, ...]:
    """``source`` and what it is computed from, without what leads to a value that the reference has as well.

    Args:
        source: Computes a value that was found wrong and depends on no input.
        region: The whole candidate.
        cut: Paired values.
        calls: The reference's calls that read the right value.
    """
    chain = fixed_ancestors(region.graph, [source], cut=cut)
    values = region.prober.plain([name for node in chain for name in node.real_outputs()])
    operands = region.index.graph.ancestors(name for call in calls for name in call.real_inputs())
    theirs = [name for name in sorted(operands) if name in region.index.fingerprints]
    known = [node for node in chain if any(_known(values.get(n), theirs, region=region) for n in node.real_outputs())]
    right = {node.index for node in (*known, *fixed_ancestors(region.graph, known, cut=cut))}
    return tuple(node for node in (*chain, source) if node.index not in right)


def _known(value: Array | None, theirs: Sequence[str], *, region: Region) -> bool:
    """Whether the reference has the same elements (or the opposite ones, of bool); one number says nothing."""
    if value is None or value.size < 2 or value.dtype.kind not in "fiub" or (value == value.flat[0]).all():
        return False
    return _among(value, theirs, region=region) or (value.dtype.kind == "b" and _among(~value, theirs, region=region))


def _forms(like: Array, *, region: Region, calls: Sequence[Node]) -> Iterator[Array]:
    if like.size == 1 and like.dtype.kind != "b":
        for number in numbers_of(calls, ()):
            form = np.full(like.shape, number).astype(like.dtype)
            if form != like:
                yield form
    names = dict.fromkeys(name for call in calls for name in call.real_inputs())
    known = [name for name in names if name in region.index.fingerprints]
    for name in known:
        print_ = region.index.fingerprints[name]
        if print_.size != like.size or not same_family(print_.dtype, str(like.dtype)):
            continue
        form = region.prober.reference(name).reshape(like.shape).astype(like.dtype)
        if not np.array_equal(form, like):
            yield form
