"""Find out that a segment is right and one of its inputs is not what it was taken for."""

from collections.abc import Mapping

import numpy as np

from bisect_onnx.align.by_structure import rearranged, same_family
from bisect_onnx.align.operators import MOVEMENT, PASS_THROUGH
from bisect_onnx.core.alignment import Pair
from bisect_onnx.pipeline.knowledge import MOST_TRIALS, Gap, Knowledge
from bisect_onnx.pipeline.region import Judged

__all__ = ["Rerouting"]


class Rerouting:
    """Tries other reference values in the place of a segment's inputs."""

    def __init__(self, known: Knowledge) -> None:
        self.known = known
        self.region = known.region

    def other_input(self, item: Judged, pairs: dict[str, Pair]) -> dict[str, Pair] | None:
        """The segment is right when one of its inputs stands for a later reference value: the fault is above it.

        Four ways that can be: the reader takes a wrong value while the right one exists (the reader is to
        blame); the input passes a value through where the reference computes; the input was paired with a
        value that another one stands for already, because a wrong operator computes that again (a node
        above to accuse, both times); nothing computes the right value (an operation is missing).
        """
        index = self.region.index
        key = (item.pair.candidate, ("input", *item.segment.inputs))
        if key in self.known.exhausted:
            return None
        self.known.exhausted.add(key)
        output = index.group_of[item.pair.reference]
        groups = list(dict.fromkeys((*index.upstream(output, most=MOST_TRIALS), *self.known.between(item, pairs))))
        for value in item.segment.inputs:
            for group in groups:
                if self.known.rules_out(value, group):
                    continue
                trial = self._right_with_input(item, value, group, pairs)
                if trial is None:
                    continue
                chain = self._chain_to_blame(value, group, pairs)
                if chain and not self._read_rightly(value, item, pairs):
                    ours = index.group_of[pairs[value].reference]
                    top = chain[-1]
                    self.known.confirmed.add(top)
                    self.known.barred.update((name, ours) for name in chain)
                    kept = {name: pair for name, pair in pairs.items() if name not in chain}
                    return kept | {top: self.known.stands_for(top, group)}
                if self.region.computes(trial[value].reference, beside=item.pair.candidate):
                    return None  # nothing is missing: the segment reads another value than it should
                before = next(node.outputs[0] for node in item.segment.nodes if value in node.reads)
                self.known.gaps.append(
                    Gap(value=value, before=before, reader=item.pair.candidate, reference=trial[value].reference)
                )
                return None
        return None

    def _right_with_input(self, item: Judged, value: str, group: int, pairs: dict[str, Pair]) -> dict[str, Pair] | None:
        """The pairs with ``value`` standing for ``group``, if that makes the segment right."""
        index = self.region.index
        like = self.region.given(value)
        print_ = index.fingerprint(group)
        taken = any(index.group_of[pair.reference] == group for pair in pairs.values())
        if like is None or taken or print_.size != like.size or not same_family(str(like.dtype), print_.dtype):
            return None
        result = index.fingerprint(index.group_of[item.pair.reference])
        if print_.distinct <= 1 and print_.size > 1 and result.distinct <= 1:
            return None  # zeros from zeros: any operator does that
        trial = pairs | {value: self.known.stands_for(value, group)}
        cuts = [p for p in self.known.cuts(trial) if p.candidate in item.segment.inputs and p.candidate != value]
        cuts.append(trial[value])
        got = self.region.tried(cuts, [item.pair.candidate])
        if not got or self.known.output_mismatches(item, trial, got[item.pair.candidate]):
            return None
        return trial

    def _read_rightly(self, value: str, item: Judged, pairs: Mapping[str, Pair]) -> bool:
        """Whether another operator that reads ``value`` is right with what it stands for: then it does stand for it."""
        for node in self.region.graph.consumers(value):
            for name in node.real_outputs():
                if node.op_type in MOVEMENT or name == item.pair.candidate or name not in pairs:
                    continue
                cuts = [p for p in self.known.cuts(pairs) if p.candidate in self.region.segment(name, pairs).inputs]
                got = self.region.tried(cuts, [name])
                if name in got and not self.region.judged(pairs[name], pairs, got[name]).mismatch:
                    return True
        return False

    def _chain_to_blame(self, value: str, right: int, pairs: Mapping[str, Pair]) -> list[str]:
        """``value`` and what it is a mere reshape of, up to the value whose operator should have done otherwise.

        That operator left its input as it was, or computes what another one computes already, or is a
        reshape where the ``right`` class is no reshape of the same thing. Empty when no operator is to blame.
        """
        index, region = self.region.index, self.region
        group = index.group_of[pairs[value].reference]
        chain = [value]
        while (above := self._reshaped_from(chain[-1], group, pairs)) is not None:
            chain.append(above)
        others = [name for name, pair in pairs.items() if index.group_of[pair.reference] == group and name not in chain]
        others += self._twins(chain[-1])
        segment = region.segment(chain[-1], {name: pair for name, pair in pairs.items() if name != chain[-1]})
        if region.graph.producer(chain[-1]) is not None and others:
            natural = all(node.op_type in PASS_THROUGH - {"Identity"} for node in segment.nodes)
            return [] if natural and set(segment.inputs) & set(others) else chain
        top = region.graph.producer(chain[-1])
        moved = rearranged(index.fingerprint(group), index.fingerprint(right))
        if moved and top is not None and top.op_type in MOVEMENT - PASS_THROUGH:
            return chain  # it would have made the right order itself: exporters merge movements
        # A Transpose exported as a Reshape has its shape from the right class and never the shape above it; an
        # operation that is missing above a Reshape leaves both shapes in the right class.
        shapes = {index.fingerprints[member].shape for member in index.members[right]}
        return [value] if moved and len(chain) > 1 and region.plain[chain[-1]].shape not in shapes else []

    def _twins(self, value: str) -> list[str]:
        """Values of the same elements that are not computed from each other: one operator does another's work."""
        region = self.region
        own = region.given(value)
        if own is None:
            return []
        alike = [
            name
            for name, array in region.plain.items()
            if name != value and array.shape == own.shape and array.dtype == own.dtype and np.array_equal(array, own)
        ]
        above = region.graph.ancestors([value])
        return [name for name in alike if name not in above and value not in region.graph.ancestors([name])]

    def _reshaped_from(self, value: str, group: int, pairs: Mapping[str, Pair]) -> str | None:
        """The paired value that ``value`` is a reshape or cast of, when both stand for ``group``."""
        node = self.region.graph.producer(value)
        if node is None or node.op_type not in PASS_THROUGH - {"Identity"}:
            return None
        source = node.inputs[0]
        pair = pairs.get(source)
        if pair is None or source not in self.region.plain or self.region.index.group_of[pair.reference] != group:
            return None
        return source
