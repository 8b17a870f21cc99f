"""From an accused segment to the node in it.

The reference's own calls are opened up (a GELU into its erf, a linear layer into product and bias), and the
segment is settled against those like a model of its own. What is left is told apart by experiments: a
parameter of the module put in the place of an initializer, the order of the elements.
"""

import dataclasses
import enum
from collections.abc import Mapping, Sequence

from bisect_onnx.align.operators import MOVEMENT
from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.graph import Node
from bisect_onnx.pipeline.experiments import (
    WeightProof,
    calls_between,
    cured_by_an_edit,
    reads_another,
    weight_proof,
)
from bisect_onnx.pipeline.fixed_values import (
    acquitted_values,
    fixed_proof,
    fixed_suspects,
    in_question,
    unlike_the_reference,
)
from bisect_onnx.pipeline.knowledge import Gap
from bisect_onnx.pipeline.region import Judged, Region
from bisect_onnx.pipeline.suspects import harmless, is_free, moving_tail, narrows, only_rearranged, unlike_siblings
from bisect_onnx.pipeline.taken_apart import held, take_apart, wrong_operand
from bisect_onnx.pipeline.unread import reads_past

__all__ = ["Decision", "Narrowed", "Narrowing", "narrow"]


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
    rewired = rewired or reads_past(item, region=region, pairs=pairs, cleared=cleared)
    if rewired is not None:
        return Narrowing(found=(Narrowed(node=rewired, suspects=(rewired,), decision=Decision.REWIRED),))
    opened = take_apart(item, region=region, pairs=pairs, parameter_of=parameter_of, cleared=cleared)
    gap = opened.gap
    narrowed = []
    if gap is not None and (
        held(gap.reference, opened.region.index, pairs=pairs)
        or region.computes(gap.reference, beside=item.pair.candidate, prober=opened.region.prober)
    ):
        reader = region.graph.producer(gap.before)
        assert reader is not None
        narrowed.append(Narrowed(node=reader, suspects=(reader,), decision=Decision.REWIRED))
        gap = None
    for part in opened.parts:
        operand = wrong_operand(part, opened.region, pairs=opened.pairs, elsewhere=pairs)
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
        tail = moving_tail(part) if not only_rearranged(part, region=inner, pairs=inner_pairs) else frozenset()
        nodes = [
            node
            for node in in_question(part, right)
            if node.index not in tail and not harmless(node, part, region=inner, right_shape=shaped)
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
        moved = only_rearranged(self.part, region=self.inner, pairs=self.inner_pairs)
        differs = unlike_siblings(nodes, self.region.graph)

        def suspicion(place: int, node: Node) -> tuple[bool, bool, bool, bool, bool, int]:
            movement = node.op_type in MOVEMENT
            return (
                node.index in self.cleared,
                movement != moved,
                not narrows(node, self.inner),
                node.index not in differs,
                not is_free(node, self.inner, self.parameter_of),
                -place,
            )

        order = sorted(range(len(nodes)), key=lambda place: suspicion(place, nodes[place]))
        return [nodes[place] for place in order]


def _alone(node: Node) -> Narrowed:
    return Narrowed(node=node, suspects=(node,), decision=Decision.ALONE)
