"""Divide a segment that went wrong: find a value inside that stands for a reference value."""

import enum
import itertools
from collections.abc import Mapping

from bisect_onnx.align.by_structure import Hypothesis, hypotheses
from bisect_onnx.align.by_value import acceptable, choose
from bisect_onnx.align.operators import same_operator
from bisect_onnx.core.alignment import Basis, Pair
from bisect_onnx.core.compare import Array
from bisect_onnx.core.segments import Segment, depends_on
from bisect_onnx.core.tensor import Fingerprint
from bisect_onnx.pipeline.knowledge import MOST_TRIALS, Knowledge
from bisect_onnx.pipeline.region import Judged

__all__ = ["Dividing", "Evidence"]

# Operands of one node that are tried in every order.
MOST_OPERANDS = 3


class Evidence(enum.Enum):
    """What a tried hypothesis showed."""

    NONE = enum.auto()
    WEAK = enum.auto()  # something agrees again, but through operators without parameters
    STRONG = enum.auto()  # the segment's end agrees again, or something behind a parameter does


class Dividing:
    """Tries hypotheses inside segments."""

    def __init__(self, known: Knowledge) -> None:
        self.known = known
        self.region = known.region

    def divided(self, item: Judged, pairs: dict[str, Pair], forced: Mapping[str, Array]) -> dict[str, Pair] | None:
        """A value inside the segment stands for a reference value: feeding it makes what follows agree."""
        key = (item.pair.candidate, tuple(node.name for node in item.segment.nodes))
        if len(item.segment.nodes) < 2 or key in self.known.exhausted:
            return None
        interior = {name: forced[name] for name in item.segment.interior if name in forced}
        ranked = hypotheses(
            item.segment,
            graph=self.region.graph,
            index=self.region.index,
            # A value inside may also only pass one of the inputs on: a Where that picks it everywhere.
            groups=[*self.known.fed(item, pairs), *self.known.between(item, pairs)],
            observed=self.region.prints(interior),
            parameter_of=self.known.parameter_of,
            fed={name: self.region.index.group_of[pairs[name].reference] for name in item.segment.inputs},
        )
        ranked = [each for each in ranked if not self.known.rules_out(each.value, each.group)]
        fallback: Pair | None = None
        for hypothesis in ranked[:MOST_TRIALS]:
            pair = self._pair(hypothesis, interior[hypothesis.value])
            evidence = self._heals(item, pair, pairs, forced)
            if evidence is Evidence.STRONG:
                self.known.confirmed.add(pair.candidate)
                return pairs | {pair.candidate: pair}
            if evidence is Evidence.WEAK and hypothesis.in_sequence and fallback is None:
                fallback = pair
        if fallback is not None:
            self.known.confirmed.add(fallback.candidate)
            return pairs | {fallback.candidate: fallback}
        self.known.exhausted.add(key)
        in_sequence = [self._pair(h, interior[h.value]) for h in ranked if h.in_sequence]
        return self._together(item, in_sequence, pairs) or self._operands(item, pairs)

    def _operands(self, item: Judged, pairs: dict[str, Pair]) -> dict[str, Pair] | None:
        """The pairs with each operand of the last node standing for one of the last call's, if that makes it right."""
        index = self.region.index
        node, call = item.segment.nodes[-1], index.origin(item.pair.reference)
        ours = [name for name in dict.fromkeys(node.reads) if name in item.segment.interior]
        if call is None or not same_operator(node.op_type, call.op_type) or not 1 < len(ours) <= MOST_OPERANDS:
            return None
        known = {index.group_of[pairs[name].reference] for name in node.reads if name in pairs}
        theirs = [group for group in index.operands(index.group_of[item.pair.reference]) if group not in known]
        for order in itertools.permutations(theirs, len(ours)):
            if all(self._could_be(name, group, item, pairs) for name, group in zip(ours, order, strict=True)):
                joint = [self.known.stands_for(name, group) for name, group in zip(ours, order, strict=True)]
                if (better := self._right_with(item, joint, pairs)) is not None:
                    return better
        return None

    def _could_be(self, name: str, group: int, item: Judged, pairs: Mapping[str, Pair]) -> bool:
        """Whether a value inside has the size of a class, and the class depends on all that the value depends on."""
        index = self.region.index
        above = self.region.graph.ancestors([name])
        fed = [index.group_of[pairs[value].reference] for value in item.segment.inputs if value in above]
        return self.region.plain[name].size == index.fingerprint(group).size and index.descends(group, fed)

    def _together(self, item: Judged, found: list[Pair], pairs: dict[str, Pair]) -> dict[str, Pair] | None:
        """The pairs with every hypothesis in sequence at once, if that makes the segment's end right.

        With two faults in one segment no single value puts right what follows. None of these is confirmed: those
        that are wrong make their own parts and what follows mismatch, and go.
        """
        return self._right_with(
            item, [pair for pair in found if (pair.candidate, self._class(pair)) not in self.known.barred], pairs
        )

    def _right_with(self, item: Judged, joint: list[Pair], pairs: dict[str, Pair]) -> dict[str, Pair] | None:
        if not joint or not self.known.anchored(item.pair.candidate):
            return None
        added = {pair.candidate: pair for pair in joint}
        trial = pairs | added
        inside = {*item.segment.inputs, *added}
        got = self.region.tried([p for p in self.known.cuts(trial) if p.candidate in inside], [item.pair.candidate])
        if not got or self.known.output_mismatches(item, trial, got[item.pair.candidate]):
            return None
        return trial

    def _class(self, pair: Pair) -> int:
        return self.region.index.group_of[pair.reference]

    def _pair(self, hypothesis: Hypothesis, like: Array) -> Pair:
        basis = Basis.STRUCTURE
        if hypothesis.by_exporter:
            basis = Basis.EXPORTER
        elif hypothesis.by_parameter:
            basis = Basis.PARAMETER
        same = self.region.index.fingerprints[hypothesis.reference].shape == like.shape
        return Pair(
            candidate=hypothesis.value,
            reference=hypothesis.reference,
            basis=basis,
            transform="identity" if same else "reshape",
        )

    def _heals(self, item: Judged, pair: Pair, pairs: Mapping[str, Pair], forced: Mapping[str, Array]) -> "Evidence":
        """What agrees with the reference once the value is the reference's, and did not before."""
        segment = item.segment
        start = next(place for place, node in enumerate(segment.nodes) if pair.candidate in node.outputs)
        below = depends_on(segment.nodes[start:], pair.candidate)
        names = [name for name in (*segment.interior, segment.output) if name in below and name in forced]
        if not names:
            return Evidence.NONE
        trial = dict(pairs) | {pair.candidate: pair}
        got = self.region.tried(
            [p for p in self.known.cuts(trial) if p.candidate in {*segment.inputs, pair.candidate}], names
        )
        weak = False
        for name, print_ in self.region.prints(got).items():
            if name == segment.output:
                if self.known.output_mismatches(item, trial, got[name]):
                    continue
                if self.known.anchored(name):
                    return Evidence.STRONG
            elif print_.distinct <= 2 or not self._agrees_now(
                name, print_, pair=pair, trial=trial, pairs=pairs, got=got, forced=forced
            ):
                continue
            if self._weighted(segment, pair.candidate, name):
                return Evidence.STRONG
            weak = True
        return Evidence.WEAK if weak else Evidence.NONE

    def _agrees_now(
        self,
        name: str,
        print_: Fingerprint,
        *,
        pair: Pair,
        trial: Mapping[str, Pair],
        pairs: Mapping[str, Pair],
        got: Mapping[str, Array],
        forced: Mapping[str, Array],
    ) -> bool:
        index = self.region.index
        producer = self.region.graph.producer(name)
        group = index.group_of[pair.reference]
        above = frozenset({group})
        found = [m for m in acceptable(index, print_, ancestors=above, narrow=self.known.narrow) if m.group != group]
        match = None if producer is None else choose(
            index, found[:1], node=producer, name=name, shape=print_.shape, ancestors=above
        )  # fmt: skip
        if match is None or self.region.judged(match, trial, got[name]).mismatch:
            return False
        return self.region.judged(match, pairs, forced[name]).mismatch

    def _weighted(self, segment: Segment, start: str, end: str) -> bool:
        """Whether a parameter that belongs to one place is read on the way: then an agreement is no accident.

        Without one, feeding any reference value to any operator makes it give what the reference's own
        operator of that kind gave.
        """
        below = depends_on(segment.nodes, start)
        above = self.region.graph.ancestors([end])
        return any(
            self.known.reads_own(node) and any(name in below and name in above for name in node.real_outputs())
            for node in segment.nodes
        )
