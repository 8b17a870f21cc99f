"""Find the pairs of a region, and the segments that go wrong on the reference's own inputs.

Values are paired by a plain run first. Then every pair is cut at once and fed with the reference's value:
each segment shows the error it introduces, and values below a fault, now computed from right inputs, find
their partners as well. What still mismatches is divided until no reference value inside it fits, and a
pair that makes its own segment and all that follows wrong is taken back.
"""

import dataclasses
import logging
from collections.abc import Mapping

from bisect_onnx.align.by_value import acceptable, choose, pair_by_value
from bisect_onnx.align.distance import NEAR
from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array
from bisect_onnx.core.graph import Graph
from bisect_onnx.core.segments import Segment
from bisect_onnx.pipeline.dividing import Dividing
from bisect_onnx.pipeline.forced_runs import ForcedRuns
from bisect_onnx.pipeline.judge import CLOSE
from bisect_onnx.pipeline.knowledge import Gap, Knowledge
from bisect_onnx.pipeline.region import Judged, Region
from bisect_onnx.pipeline.rerouting import Rerouting

__all__ = ["Settled", "Settling"]

logger = logging.getLogger(__name__)

# Each round pairs at least one more value or takes one back for good; a region that has not settled by then
# is reported with what stands.
MOST_ROUNDS = 40


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settled:
    """The pairs of a region and each segment's judgement, in topological order."""

    pairs: Mapping[str, Pair]
    judged: Mapping[str, Judged]
    forced: Mapping[str, Array]  # all values of the last run on the reference's inputs
    missing: tuple[Gap, ...]

    @property
    def accused(self) -> list[Judged]:
        return [item for item in self.judged.values() if item.mismatch]


class Settling:
    """One settling of one region; call `settle` once."""

    def __init__(
        self,
        region: Region,
        *,
        outputs: Mapping[str, Pair],
        parameter_of: Mapping[str, str],
        narrow: bool,
    ) -> None:
        self.region = region
        self.known = Knowledge(region, outputs=outputs, parameter_of=parameter_of, narrow=narrow)
        self._begin()

    def _begin(self) -> None:
        self._dividing = Dividing(self.known)
        self._rerouting = Rerouting(self.known)
        self._runs = ForcedRuns(self.region)
        self._verdicts: dict[tuple[Pair, tuple[Pair, ...], int], Judged] = {}

    def settle(self) -> Settled:
        """Settle without measuring what is grossly wrong; once more with it where something accused was noise."""
        judge = self.region.judge
        judge.hasty = True
        try:
            settled = self._settled()
        finally:
            judge.hasty = False
        measured = {
            name: self.region.judged(item.pair, settled.pairs, settled.forced[name]) if item.judgement.gross else item
            for name, item in settled.judged.items()
        }
        if all(item.mismatch for name, item in measured.items() if settled.judged[name].mismatch):
            return dataclasses.replace(settled, judged=measured)
        self.known = self.known.anew()
        self._begin()
        return self._settled()

    def _settled(self) -> Settled:
        region = self.region
        pairs = self._walk(region.plain, dict(region.entry), nearest=NEAR)
        pairs = self._ordered({**pairs, **self.known.outputs})
        for round_number in range(MOST_ROUNDS + 1):
            forced = self._runs.run(self.known.cuts(pairs))
            judged = {name: self._judged(pair, pairs, forced[name]) for name, pair in pairs.items() if name in forced}
            improved = self._improve(pairs, judged, forced)
            logger.debug("round %d: %d pairs, changed %s", round_number, len(pairs), _changed(pairs, improved))
            if improved is None or round_number == MOST_ROUNDS:
                break
            pairs = self._ordered(improved)
        return Settled(pairs=pairs, judged=judged, forced=forced, missing=tuple(self.known.gaps))

    def _judged(self, pair: Pair, pairs: Mapping[str, Pair], computed: Array) -> Judged:
        """`Region.judged`, once for each segment: on the same inputs it gives the same result."""
        segment = self.region.segment(pair.candidate, pairs)
        key = (pair, tuple(pairs[name] for name in segment.inputs), len(segment.nodes))
        if key not in self._verdicts:
            self._verdicts[key] = self.region.judged(pair, pairs, computed)
        return self._verdicts[key]

    def _walk(self, values: Mapping[str, Array], fixed: Mapping[str, Pair], *, nearest: float) -> dict[str, Pair]:
        return pair_by_value(
            self.region.graph,
            self.region.index,
            observed=self._runs.prints(values),
            fixed=fixed,
            barred=frozenset(self.known.barred),
            narrow=self.known.narrow,
            nearest=nearest,
        )

    def _ordered(self, pairs: Mapping[str, Pair]) -> dict[str, Pair]:
        graph = self.region.graph
        names = [*graph.inputs, *(name for node in graph.nodes for name in node.real_outputs())]
        return {name: pairs[name] for name in dict.fromkeys(names) if name in pairs}

    def _improve(
        self, pairs: dict[str, Pair], judged: Mapping[str, Judged], forced: Mapping[str, Array]
    ) -> dict[str, Pair] | None:
        """Better pairs, or None when these stand."""
        wider = self._walk(forced, pairs, nearest=CLOSE)
        if len(wider) > len(pairs):
            return wider
        kept = self._consistent(pairs, judged)
        if kept == pairs:
            kept = self._cleared(pairs, judged, forced)
        if kept != pairs:
            return kept
        touched: set[str] = set()
        improved = pairs
        for item in judged.values():
            # What was found for one segment holds for another as long as they share no pair that changed.
            if not item.mismatch or touched & {item.pair.candidate, *item.segment.inputs}:
                continue
            better = self._dividing.divided(item, improved, forced) or self._rerouting.other_input(item, improved)
            if better is not None:
                touched |= {name for name in {*better, *improved} if better.get(name) != improved.get(name)}
                touched |= {item.pair.candidate, *item.segment.inputs}
                improved = better
        return improved if touched else None

    def _consistent(self, pairs: dict[str, Pair], judged: Mapping[str, Judged]) -> dict[str, Pair]:
        """The pairs without those that the real run contradicts.

        A segment that gives the reference's value in the real run and another one on the reference's inputs is not
        wrong: an input of it was something else in the real run, and is not what it is taken for.
        """
        kept = dict(pairs)
        for item in judged.values():
            within = item.judgement.threshold
            if not item.mismatch or not self.region.as_in_the_reference(item.pair, within=within):
                continue
            for value in item.segment.inputs:
                pair = pairs[value]
                if value in self.region.plain and not self.region.as_in_the_reference(pair, within=within):
                    impossible = (value, self.region.index.group_of[pair.reference])
                    self.known.barred.add(impossible)
                    self.known.contradicted.add(impossible)
                    self.known.confirmed.discard(value)
                    kept.pop(value, None)
        return {name: pair for name, pair in pairs.items() if name in kept or name in self.known.outputs}

    def _cleared(
        self, pairs: dict[str, Pair], judged: Mapping[str, Judged], forced: Mapping[str, Array]
    ) -> dict[str, Pair]:
        """The pairs without those that nothing speaks for.

        A pair whose segment mismatches is either the culprit's or wrong. It stays when what follows agrees
        on the reference's value; when the computed value is another reference value it is given that one;
        otherwise it goes, and comes back only as a hypothesis that holds.
        """
        kept = dict(pairs)
        borne_out = self._borne_out(judged)
        for name, item in judged.items():
            if not item.mismatch or name in self.known.outputs or name in self.known.confirmed:
                continue
            if name in borne_out:
                self.known.confirmed.add(name)
                continue
            self.known.barred.add((name, self.region.index.group_of[item.pair.reference]))
            other = self._rematched(item, pairs, forced)
            if other is not None:
                kept[name] = other
            else:
                del kept[name]
        return kept

    def _borne_out(self, judged: Mapping[str, Judged]) -> set[str]:
        """Values that something below speaks for: a segment that agrees and reads a parameter, or ends an output."""
        found: set[str] = set()
        for name, item in reversed(list(judged.items())):
            if not item.mismatch and (
                name in found or self.known.anchored(name) or self.known.reads_own_parameter(item.segment)
            ):
                found.update(item.segment.inputs)
        return found

    def _rematched(self, item: Judged, pairs: Mapping[str, Pair], forced: Mapping[str, Array]) -> Pair | None:
        """Another reference value that the computed value is, exactly: the pair was wrong, not the node."""
        name = item.pair.candidate
        index = self.region.index
        print_ = self.region.prints({name: forced[name]}).get(name)
        producer = self.region.graph.producer(name)
        if print_ is None or producer is None:
            return None
        ancestors = frozenset(index.group_of[pairs[value].reference] for value in item.segment.inputs)
        found = [
            match
            for match in acceptable(index, print_, ancestors=ancestors, narrow=self.known.narrow)
            if match.group not in ancestors and (name, match.group) not in self.known.barred
        ]
        pair = choose(index, found[:1], node=producer, name=name, shape=print_.shape, ancestors=ancestors)
        return None if pair is None or self.region.judged(pair, pairs, forced[name]).mismatch else pair


def _changed(before: Mapping[str, Pair], after: Mapping[str, Pair] | None) -> list[str]:
    names = dict.fromkeys((*before, *(after or before)))
    return [name for name in names if after is not None and before.get(name) != after.get(name)]


def subgraph(graph: Graph, segment: Segment) -> Graph:
    """The segment as a graph of its own: its inputs are graph inputs, everything else keeps its name."""
    return Graph(
        name=segment.output,
        inputs=segment.inputs,
        outputs=(segment.output,),
        nodes=segment.nodes,
        values=graph.values,
    )
