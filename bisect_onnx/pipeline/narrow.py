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

from bisect_onnx.align.by_structure import rearranged
from bisect_onnx.align.operators import MOVEMENT, PASS_THROUGH, is_part, same_operator
from bisect_onnx.align.reference_index import ReferenceIndex
from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array
from bisect_onnx.core.graph import Graph, Node
from bisect_onnx.pipeline.experiments import (
    WeightProof,
    calls_between,
    cured_by_an_edit,
    reads_another,
    right_with,
    weight_proof,
)
from bisect_onnx.pipeline.fixed_values import (
    acquitted_values,
    fixed_proof,
    fixed_suspects,
    in_question,
    unlike_the_reference,
)
from bisect_onnx.pipeline.judge import scaled_gap
from bisect_onnx.pipeline.knowledge import Gap
from bisect_onnx.pipeline.prober import Prober
from bisect_onnx.pipeline.region import Judged, Region
from bisect_onnx.pipeline.settle import Settling, subgraph

__all__ = ["Decision", "Narrowed", "Narrowing", "falls_short", "narrow"]

# Operators with a place for a bias or a scale of their own.
TAKES_A_BIAS = frozenset({
    "BatchNormalization", "Conv", "ConvTranspose", "Gemm", "GroupNormalization", "GRU", "InstanceNormalization",
    "LayerNormalization", "LSTM", "RNN",
})  # fmt: skip

# Give their input on; an Identity may stand where something should be computed.
KEEPS_ALL = PASS_THROUGH - {"Identity"}

# Keep every element, in another place.
REARRANGING = KEEPS_ALL - {"Cast"} | {"Transpose", "DepthToSpace", "SpaceToDepth", "Concat"}

# Values looked at on the way from what a node reads to what it should read.
MOST_OPERANDS = 16

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


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Narrowing:
    """What a wrong segment came down to: nodes, one for each fault in it, or an operation that it lacks."""

    found: tuple[Narrowed, ...]
    gap: Gap | None = None


def narrow(
    item: Judged,
    *,
    region: Region,
    pairs: Mapping[str, Pair],
    parameter_of: Mapping[str, str],
    cleared: frozenset[int],
    right_shape: bool,
) -> Narrowing:
    """Find the node that makes ``item`` wrong, or several.

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
        return Narrowing(found=(Narrowed(node=rewired, suspects=(rewired,), decision=Decision.REWIRED),))
    opened = _opened(item, region=region, pairs=pairs, parameter_of=parameter_of, cleared=cleared)
    gap = opened.gap
    narrowed = []
    if gap is not None and (
        _held(gap.reference, opened.region.index, pairs=pairs)
        or region.computes(gap.reference, beside=item.pair.candidate, prober=opened.region.prober)
    ):
        reader = region.graph.producer(gap.before)
        assert reader is not None
        narrowed.append(Narrowed(node=reader, suspects=(reader,), decision=Decision.REWIRED))
        gap = None
    for part in opened.parts:
        operand = _wrong_operand(part, opened.region, pairs=opened.pairs, elsewhere=pairs)
        gap = operand if isinstance(operand, Gap) else gap
        if isinstance(operand, Node):
            narrowed.append(Narrowed(node=operand, suspects=(operand,), decision=Decision.REWIRED))
        if operand is not None:
            continue
        asked = _Narrowing(
            item,
            part,
            region=region,
            inner=opened.region,
            pairs=pairs,
            inner_pairs=opened.pairs,
            parameter_of=parameter_of,
            cleared=cleared,
            shaped=right_shape and part.pair.candidate == item.pair.candidate,
        )
        narrowed.append(asked.answer())
    if gap is not None:
        # Values of the opened-up reference are known here only; the call that was opened stands for them.
        gap = dataclasses.replace(gap, reference=item.pair.reference)
    return Narrowing(found=tuple(narrowed), gap=gap)


class _Narrowing:
    """One part of a segment that is wrong against the opened-up reference: which of its nodes is to blame?"""

    def __init__(
        self,
        item: Judged,
        part: Judged,
        *,
        region: Region,
        inner: Region,
        pairs: Mapping[str, Pair],
        inner_pairs: Mapping[str, Pair],
        parameter_of: Mapping[str, str],
        cleared: frozenset[int],
        shaped: bool,
    ) -> None:
        self.part = part
        self.region, self.inner = region, inner
        self.inner_pairs = inner_pairs
        self.parameter_of, self.cleared = parameter_of, cleared
        self.known = {**pairs, **inner_pairs}
        self.outer = calls_between(item, region=region, pairs=pairs)
        right = acquitted_values(part, region=region, calls=self.outer, right_shape=shaped)
        self.fixed = fixed_suspects(part, graph=region.graph, pairs=self.known, cleared=cleared, acquitted=right)
        tail = _moving_tail(part) if not _only_rearranged(part, region=inner, pairs=inner_pairs) else frozenset()
        nodes = [
            node
            for node in in_question(part, right)
            if node.index not in tail and not _harmless(node, part, region=inner, right_shape=shaped)
        ]
        own = [node for node in nodes if node.index not in cleared] or nodes or list(part.segment.nodes)
        self.suspects = [*self.fixed.nodes, *(node for node in own if node not in self.fixed.nodes)]

    def answer(self) -> Narrowed:
        weight = weight_proof(self.part, self.suspects, region=self.inner, pairs=self.inner_pairs)
        if weight is not None:
            nodes = (*self.fixed.nodes, *self.part.segment.nodes)
            node = next(node for node in nodes if weight.initializer in node.inputs)
            return Narrowed(node=node, suspects=(node,), decision=Decision.WEIGHT, weight=weight)
        if len(self.suspects) == 1:
            return _alone(self.suspects[0])
        calls = (*self.outer, *calls_between(self.part, region=self.inner, pairs=self.inner_pairs))
        chain = self._wrong_chain(calls)
        if len(chain) == 1:
            return _alone(chain[0])
        cured = cured_by_an_edit(
            self.part, chain or self.suspects, region=self.inner, pairs=self.inner_pairs, calls=calls
        )
        if cured:
            decision = Decision.EDITED if len(cured) == 1 else Decision.RANKED
            return Narrowed(node=cured[0], suspects=tuple(cured), decision=decision)
        if chain:
            return Narrowed(node=chain[-1], suspects=tuple(reversed(chain)), decision=Decision.RANKED)
        ranked = self._ranked()
        return Narrowed(node=ranked[0], suspects=(*ranked, *self.fixed.nodes), decision=Decision.RANKED)

    def _wrong_chain(self, calls: Sequence[Node]) -> list[Node]:
        """The uncleared nodes that make a wrong value that depends on no input; empty when there is no such value."""
        wrong = fixed_proof(self.part, self.fixed, region=self.inner, pairs=self.inner_pairs, calls=calls)
        source = self.region.graph.producer(wrong) if wrong is not None else None
        if source is None:
            return []
        chain = unlike_the_reference(source, region=self.region, cut=frozenset(self.known), calls=self.outer)
        return [node for node in chain if node.index not in self.cleared] or [source]

    def _ranked(self) -> list[Node]:
        """The part's nodes, likeliest first."""
        nodes = list(self.part.segment.nodes)
        moved = _only_rearranged(self.part, region=self.inner, pairs=self.inner_pairs)
        differs = _unlike_siblings(nodes, self.region.graph)

        def suspicion(place: int, node: Node) -> tuple[bool, bool, bool, bool, bool, int]:
            movement = node.op_type in MOVEMENT
            return (
                node.index in self.cleared,
                movement != moved,
                not _narrows(node, self.inner),
                node.index not in differs,
                not _free(node, self.inner, self.parameter_of),
                -place,
            )

        order = sorted(range(len(nodes)), key=lambda place: suspicion(place, nodes[place]))
        return [nodes[place] for place in order]


def _alone(node: Node) -> Narrowed:
    return Narrowed(node=node, suspects=(node,), decision=Decision.ALONE)


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


def _held(reference: str, index: ReferenceIndex, *, pairs: Mapping[str, Pair]) -> bool:
    """Whether some paired value of the candidate is what ``reference`` is."""
    return any(index.group_of.get(pair.reference) == index.group_of[reference] for pair in pairs.values())


def _wrong_operand(
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
    if not _held(index.members[wanted][0], index, pairs=others):
        return Gap(value=value, before=end, reader=end, reference=part.pair.reference)
    like = region.given(value)
    if like is None:
        return None
    form = region.prober.reference(index.member(wanted, shape=like.shape)).reshape(like.shape).astype(like.dtype)
    return node if right_with(part, {value: form}, region=region, pairs=pairs) else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Opened:
    """Parts of a segment that are wrong against the opened-up reference, or an operation that the segment lacks."""

    parts: tuple[Judged, ...]
    region: Region
    pairs: Mapping[str, Pair]
    gap: Gap | None = None


def _opened(
    item: Judged,
    *,
    region: Region,
    pairs: Mapping[str, Pair],
    parameter_of: Mapping[str, str],
    cleared: frozenset[int],
) -> _Opened:
    """The smallest parts of the segment that are wrong against the opened-up reference."""
    whole = _Opened(parts=(item,), region=region, pairs=pairs)
    call = region.index.origin(item.pair.reference)
    node = item.segment.nodes[-1]
    does_all = (
        call is not None and same_operator(node.op_type, call.op_type) and not is_part(node.op_type, call.op_type)
    )
    if len(item.segment.nodes) == 1 and does_all:
        return whole
    found = _taken_apart(item, region=region, pairs=pairs)
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
        return whole if gap is None else _Opened(parts=(), region=inner, pairs=settled.pairs, gap=gap)
    if len(parts) > 1 and _right_without(parts[0], item, inner=inner, entry=entry):
        del parts[1:]
    return _Opened(parts=tuple(parts), region=inner, pairs=settled.pairs)


def _right_without(part: Judged, item: Judged, *, inner: Region, entry: Mapping[str, Pair]) -> bool:
    """Whether the segment is right once the reference's value stands at the end of one part."""
    got = inner.run([part.pair], [item.pair.candidate])
    if item.pair.candidate not in got:
        return False
    return not inner.judged(item.pair, {**entry, part.pair.candidate: part.pair}, got[item.pair.candidate]).mismatch


def _moving_tail(part: Judged) -> frozenset[int]:
    """Indices of the last nodes, as long as they only put all elements in another place."""
    found: set[int] = set()
    for node in reversed(part.segment.nodes):
        readers = [other for other in part.segment.nodes if set(node.outputs) & set(other.reads)]
        if node.op_type in REARRANGING and all(reader.index in found for reader in readers):
            found.add(node.index)
    return frozenset(found)


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
