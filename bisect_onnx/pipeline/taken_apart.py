"""A segment held against the reference's own calls taken apart: a GELU into its erf, a linear layer into its product.

What is wrong inside shows there as smaller parts, as an operation that the segment lacks, or as an operand that a node
should not read.
"""

import dataclasses
import itertools
from collections.abc import Mapping

import numpy as np

from bisect_onnx.align.by_structure import rearranged
from bisect_onnx.align.operators import KEEPS_ALL, MOVEMENT, is_part, same_operator
from bisect_onnx.align.reference_index import ReferenceIndex
from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array
from bisect_onnx.core.graph import Node
from bisect_onnx.pipeline.experiments import right_with
from bisect_onnx.pipeline.judge import scaled_gap
from bisect_onnx.pipeline.knowledge import Gap
from bisect_onnx.pipeline.prober import Prober
from bisect_onnx.pipeline.region import Judged, Region
from bisect_onnx.pipeline.settle import Settling, subgraph

__all__ = ["TakenApart", "falls_short", "held", "lost_transposition", "passed_on", "take_apart", "wrong_operand"]

# Give another shape to the same elements in the same order.
RESHAPING = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
MOST_AXES = 5  # 120 orders
# Can put elements in wrong places; an Expand repeats them where they are.
REARRANGING = MOVEMENT - RESHAPING - {"Expand"}
# Change no whole number, and have no attribute or operand that could be wrong about it.
ROUNDINGS = frozenset({"Cast", "Ceil", "Floor", "Round"})

# Operators with a place for a bias or a scale of their own.
TAKES_A_BIAS = frozenset({
    "BatchNormalization", "Conv", "ConvTranspose", "Gemm", "GroupNormalization", "GRU", "InstanceNormalization",
    "LayerNormalization", "LSTM", "RNN",
})  # fmt: skip

# Values looked at on the way from what a node reads to what it should read.
MOST_OPERANDS = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class TakenApart:
    """Parts of a segment that are wrong against the opened-up reference, or an operation that the segment lacks."""

    parts: tuple[Judged, ...]
    region: Region
    pairs: Mapping[str, Pair]
    gap: Gap | None = None


def take_apart(
    item: Judged,
    *,
    region: Region,
    pairs: Mapping[str, Pair],
    parameter_of: Mapping[str, str],
    cleared: frozenset[int],
) -> TakenApart:
    """The smallest parts of the segment that are wrong against the opened-up reference."""
    whole = TakenApart(parts=(item,), region=region, pairs=pairs)
    call = region.index.origin(item.pair.reference)
    node = item.segment.nodes[-1]
    does_all = (
        call is not None and same_operator(node.op_type, call.op_type) and not is_part(node.op_type, call.op_type)
    )
    if len(item.segment.nodes) == 1 and does_all:
        return whole
    found = _calls_apart(item, region=region, pairs=pairs)
    if found is None:
        return whole
    index, prober = found
    entry = {name: pairs[name] for name in item.segment.inputs}
    values = {
        name: region.partner(pair) if name in region.plain else region.given(name) for name, pair in entry.items()
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
    explained = {gap.reader for gap in settled.missing}
    parts = [
        part
        for part in settled.accused
        if part.pair.candidate not in explained
        and any(node.index not in cleared and node.op_type not in KEEPS_ALL for node in part.segment.nodes)
    ]
    if not parts:
        gap = next(iter(settled.missing), None)
        return whole if gap is None else TakenApart(parts=(), region=inner, pairs=settled.pairs, gap=gap)
    if len(parts) > 1 and _right_without(parts[0], item, inner=inner, entry=entry):
        del parts[1:]
    return TakenApart(parts=tuple(parts), region=inner, pairs=settled.pairs)


def _right_without(part: Judged, item: Judged, *, inner: Region, entry: Mapping[str, Pair]) -> bool:
    """Whether the segment is right once the reference's value stands at the end of one part."""
    got = inner.run([part.pair], [item.pair.candidate])
    if item.pair.candidate not in got:
        return False
    return not inner.judged(item.pair, {**entry, part.pair.candidate: part.pair}, got[item.pair.candidate]).mismatch


def held(reference: str, index: ReferenceIndex, *, pairs: Mapping[str, Pair]) -> bool:
    """Whether some paired value of the candidate is what ``reference`` is."""
    return any(index.group_of.get(pair.reference) == index.group_of[reference] for pair in pairs.values())


def wrong_operand(
    part: Judged, region: Region, *, pairs: Mapping[str, Pair], elsewhere: Mapping[str, Pair]
) -> Gap | Node | None:
    """What is wrong when one node does as the reference does, on the same values but for one operand.

    The node, if the candidate has the right operand ``elsewhere``; otherwise the operation that is missing between
    what the node reads and what the reference makes of it.
    """
    index = region.index
    node, call = part.segment.nodes[-1], index.graph.producer(part.pair.reference)
    if len(part.segment.nodes) > 1 or call is None or not same_operator(node.op_type, call.op_type):
        return None
    read = [name for name in node.real_inputs() if name in pairs]
    ours = [index.group_of[pairs[name].reference] for name in read]
    theirs = [index.group_of[name] for name in call.real_inputs() if name in index.group_of]
    differ = [(name, a, b) for name, a, b in zip(read, ours, theirs, strict=False) if a != b]
    if len(ours) != len(theirs) or len(differ) != 1:
        return None
    value, own, wanted = differ[0]
    first, second = index.fingerprint(own), index.fingerprint(wanted)
    # What is only moved elsewhere proves nothing: exporters merge movements.
    if first.size != second.size or rearranged(first, second) or own not in index.upstream(wanted, most=MOST_OPERANDS):
        return None
    end = part.pair.candidate
    others = {name: pair for name, pair in (*elsewhere.items(), *pairs.items()) if name != end}
    if not held(index.members[wanted][0], index, pairs=others):
        return Gap(value=value, before=end, reader=end, reference=part.pair.reference)
    like = region.given(value)
    if like is None:
        return None
    form = region.prober.reference(index.member(wanted, shape=like.shape)).reshape(like.shape).astype(like.dtype)
    return node if right_with(part, {value: form}, region=region, pairs=pairs) else None


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
    found = _calls_apart(item, region=region, pairs=pairs)
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


def passed_on(item: Judged, *, region: Region, pairs: Mapping[str, Pair], computed: Array) -> str | None:
    """The input that a segment of roundings and casts gives on unchanged, where the reference changes it.

    Such nodes have nothing that could be wrong about them when they change no number: what they should have rounded
    is missing, as the quotient in a floor division whose Div was lost.
    """
    if len(item.segment.inputs) != 1 or any(node.op_type not in ROUNDINGS for node in item.segment.nodes):
        return None
    (name,) = item.segment.inputs
    given = region.partner(pairs[name])
    if given.shape != computed.shape or computed.dtype.kind not in "fiu" or given.dtype.kind not in "fiu":
        return None
    alike = np.array_equal(given.astype(np.float64), computed.astype(np.float64))
    return name if alike and len(np.unique(given)) > 2 else None


def lost_transposition(
    item: Judged, *, region: Region, pairs: Mapping[str, Pair], computed: Array
) -> tuple[str, str] | None:
    """The value whose axes were not exchanged before it was reshaped, and the value that came of it.

    The segment gives the reference's elements in other places, and in the right ones once the axes of what its last
    reshaping nodes read are exchanged. Not when that alone gives the shape: then a reshaping stands for a Transpose;
    and not beside a node that moves elements, which could move them wrongly.
    """
    reshaping = None
    node = item.segment.nodes[-1]
    while node.op_type in RESHAPING:
        reshaping = node
        above = region.graph.producer(node.inputs[0])
        if above is None or above not in item.segment.nodes:
            return None
        node = above
    if reshaping is None or any(node.op_type in REARRANGING for node in item.segment.nodes):
        return None
    name = reshaping.inputs[0]
    fed = [pairs[each] for each in item.segment.inputs if each in region.plain]
    before = region.tried(fed, [name]).get(name)
    reference = region.prober.reference(item.pair.reference)
    if before is None or reference.size != computed.size or not 1 < before.ndim <= MOST_AXES:
        return None
    for axes in itertools.permutations(range(before.ndim)):
        moved = before.transpose(axes)
        if moved.shape == computed.shape or np.array_equal(moved.reshape(computed.shape), computed):
            continue
        gap = scaled_gap(reference.reshape(computed.shape), moved.reshape(computed.shape))
        if gap <= item.judgement.threshold:
            return name, reshaping.outputs[0]
    return None


def _calls_apart(item: Judged, *, region: Region, pairs: Mapping[str, Pair]) -> tuple[ReferenceIndex, Prober] | None:
    """The reference's calls of the segment, decomposed; None when its ends are lost on the way."""
    given = [pairs[name].reference for name in item.segment.inputs]
    opened = region.prober.capture.open_up([item.pair.reference], given=given)
    index = ReferenceIndex(opened.graph, opened.fingerprints)
    if any(name not in index.group_of for name in (*given, item.pair.reference)):
        return None
    return index, Prober(region.prober.candidate, opened, region.prober.feeds)
