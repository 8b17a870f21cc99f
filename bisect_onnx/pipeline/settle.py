"""Find the pairs of a region, and the segments that go wrong on the reference's own inputs.

Values are paired by a plain run first. Then every pair is cut at once and fed with the reference's value:
each segment shows the error it introduces, and values below a fault, now computed from right inputs, find
their partners as well. What still mismatches is divided until no reference value inside it fits, and a
pair that makes its own segment and all that follows wrong is taken back.
"""

import dataclasses
import enum
import logging
from collections.abc import Mapping

from bisect_onnx.align.by_structure import Hypothesis, hypotheses, same_family
from bisect_onnx.align.by_value import acceptable, choose, pair_by_value
from bisect_onnx.align.distance import NEAR
from bisect_onnx.align.operators import PASS_THROUGH
from bisect_onnx.core.alignment import Basis, Pair
from bisect_onnx.core.compare import Array
from bisect_onnx.core.graph import Graph
from bisect_onnx.core.segments import Segment, depends_on
from bisect_onnx.core.tensor import Fingerprint
from bisect_onnx.pipeline.region import Judged, Region

__all__ = ["Settled", "Settling"]

logger = logging.getLogger(__name__)

# Hypotheses tried per segment and round. Each is one run of a few nodes (milliseconds).
MOST_TRIALS = 48
# On the reference's own inputs a right value is as near as float32 noise of one segment, badly conditioned
# ones included; what a plain run gave may be further off, because errors add up.
CLOSE = 1e-4
# Each round pairs at least one more value or takes one back for good; a region that has not settled by then
# is reported with what stands.
MOST_ROUNDS = 40


class Evidence(enum.Enum):
    """What a tried hypothesis showed."""

    NONE = enum.auto()
    WEAK = enum.auto()  # something agrees again, but through operators without parameters
    STRONG = enum.auto()  # the segment's end agrees again, or something behind a parameter does


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settled:
    """The pairs of a region and each segment's judgement, in topological order."""

    pairs: Mapping[str, Pair]
    judged: Mapping[str, Judged]
    forced: Mapping[str, Array]  # all values of the last run on the reference's inputs
    missing: tuple["Gap", ...]

    @property
    def accused(self) -> list[Judged]:
        return [item for item in self.judged.values() if item.mismatch]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """An operation of the reference that the candidate lacks: ``reader`` needs ``reference`` where it gets ``value``."""

    value: str
    reader: str
    reference: str


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
        self.outputs = outputs
        self.parameter_of = parameter_of
        self.narrow = narrow
        self._barred: set[tuple[str, int]] = set()
        self._exhausted: set[tuple[str, tuple[str, ...]]] = set()
        self._confirmed: set[str] = set()
        self._verdicts: dict[tuple[Pair, tuple[Pair, ...], int], Judged] = {}
        self.gaps: list[Gap] = []

    def settle(self) -> Settled:
        region = self.region
        pairs = self._walk(region.plain, dict(region.entry), nearest=NEAR)
        pairs = self._ordered({**pairs, **self.outputs})
        for round_number in range(MOST_ROUNDS):
            forced = region.run(self._cuts(pairs))
            judged = {name: self._judged(pair, pairs, forced[name]) for name, pair in pairs.items() if name in forced}
            improved = self._improve(pairs, judged, forced)
            logger.debug(
                "round %d: %d pairs, %d mismatch, then %s",
                round_number,
                len(pairs),
                sum(i.mismatch for i in judged.values()),
                {
                    n: (pairs.get(n), improved.get(n))
                    for n in {*pairs, *(improved or {})}
                    if improved is not None and pairs.get(n) != improved.get(n)
                },
            )
            if improved is None:
                break
            pairs = self._ordered(improved)
        return Settled(pairs=pairs, judged=judged, forced=forced, missing=tuple(self.gaps))

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
            observed=self.region.prints(values),
            fixed=fixed,
            barred=frozenset(self._barred),
            narrow=self.narrow,
            nearest=nearest,
        )

    def _ordered(self, pairs: Mapping[str, Pair]) -> dict[str, Pair]:
        graph = self.region.graph
        names = [*graph.inputs, *(name for node in graph.nodes for name in node.real_outputs())]
        return {name: pairs[name] for name in dict.fromkeys(names) if name in pairs}

    def _cuts(self, pairs: Mapping[str, Pair]) -> list[Pair]:
        """Pairs that can be fed: computed here, observable, and of as many elements on both sides."""
        index = self.region.index
        return [
            pair
            for name, pair in pairs.items()
            if name in self.region.plain
            and self.region.plain[name].size == index.fingerprint(index.group_of[pair.reference]).size
        ]

    def _improve(
        self, pairs: dict[str, Pair], judged: Mapping[str, Judged], forced: Mapping[str, Array]
    ) -> dict[str, Pair] | None:
        """Better pairs, or None when these stand."""
        wider = self._walk(forced, pairs, nearest=CLOSE)
        if len(wider) > len(pairs):
            return wider
        kept = self._cleared(pairs, judged, forced)
        if kept != pairs:
            return kept
        touched: set[str] = set()
        improved = pairs
        for item in judged.values():
            # What was found for one segment holds for another as long as they share no pair that changed.
            if not item.mismatch or touched & {item.pair.candidate, *item.segment.inputs}:
                continue
            better = self._divided(item, improved, forced) or self._other_input(item, improved)
            if better is not None:
                touched |= {name for name in {*better, *improved} if better.get(name) != improved.get(name)}
                touched |= {item.pair.candidate, *item.segment.inputs}
                improved = better
        return improved if touched else None

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
            if not item.mismatch or name in self.outputs or name in self._confirmed:
                continue
            if name in borne_out:
                self._confirmed.add(name)
                continue
            self._barred.add((name, self.region.index.group_of[item.pair.reference]))
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
            if not item.mismatch and (name in found or self._anchored(name) or self._reads_parameter(item.segment)):
                found.update(item.segment.inputs)
        return found

    def _anchored(self, name: str) -> bool:
        return name in self.outputs or name in self._confirmed

    def _reads_parameter(self, segment: Segment) -> bool:
        return any(name in self.parameter_of for node in segment.nodes for name in node.real_inputs())

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
            for match in acceptable(index, print_, ancestors=ancestors, narrow=self.narrow)
            if match.group not in ancestors and (name, match.group) not in self._barred
        ]
        pair = choose(index, found[:1], node=producer, name=name, shape=print_.shape, ancestors=ancestors)
        return None if pair is None or self.region.judged(pair, pairs, forced[name]).mismatch else pair

    def _between(self, item: Judged, pairs: Mapping[str, Pair]) -> list[int]:
        index = self.region.index
        return index.between(self._fed(item, pairs), index.group_of[item.pair.reference])

    def _fed(self, item: Judged, pairs: Mapping[str, Pair]) -> list[int]:
        index = self.region.index
        return sorted({index.group_of[pairs[value].reference] for value in item.segment.inputs})

    def _divided(self, item: Judged, pairs: dict[str, Pair], forced: Mapping[str, Array]) -> dict[str, Pair] | None:
        """A value inside the segment stands for a reference value: feeding it makes what follows agree."""
        key = (item.pair.candidate, tuple(node.name for node in item.segment.nodes))
        if len(item.segment.nodes) < 2 or key in self._exhausted:
            return None
        interior = {name: forced[name] for name in item.segment.interior if name in forced}
        ranked = hypotheses(
            item.segment,
            graph=self.region.graph,
            index=self.region.index,
            # A value inside may also only pass one of the inputs on: a Where that picks it everywhere.
            groups=[*self._fed(item, pairs), *self._between(item, pairs)],
            observed=self.region.prints(interior),
            parameter_of=self.parameter_of,
            fed={name: self.region.index.group_of[pairs[name].reference] for name in item.segment.inputs},
        )
        fallback: Pair | None = None
        for hypothesis in ranked[:MOST_TRIALS]:
            pair = self._pair(hypothesis, interior[hypothesis.value])
            evidence = self._heals(item, pair, pairs, forced)
            if evidence is Evidence.STRONG:
                self._confirmed.add(pair.candidate)
                return pairs | {pair.candidate: pair}
            if evidence is Evidence.WEAK and hypothesis.in_sequence and fallback is None:
                fallback = pair
        if fallback is not None:
            self._confirmed.add(fallback.candidate)
            return pairs | {fallback.candidate: fallback}
        self._exhausted.add(key)
        return None

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
        got = self.region.run([p for p in self._cuts(trial) if p.candidate in {*segment.inputs, pair.candidate}], names)
        weak = False
        for name, print_ in self.region.prints(got).items():
            if name == segment.output:
                if self._judge_output(item, trial, got[name]):
                    continue
                if self._anchored(name):
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
        found = [m for m in acceptable(index, print_, ancestors=above, narrow=self.narrow) if m.group != group]
        match = None if producer is None else choose(
            index, found[:1], node=producer, name=name, shape=print_.shape, ancestors=above
        )  # fmt: skip
        if match is None or self.region.judged(match, trial, got[name]).mismatch:
            return False
        return self.region.judged(match, pairs, forced[name]).mismatch

    def _weighted(self, segment: Segment, start: str, end: str) -> bool:
        """Whether a parameter of the model is read on the way: then an agreement is no accident.

        Without one, feeding any reference value to any operator makes it give what the reference's own
        operator of that kind gave.
        """
        below = depends_on(segment.nodes, start)
        above = self.region.graph.ancestors([end])
        return any(
            any(name in self.parameter_of for name in node.real_inputs())
            and any(name in below and name in above for name in node.real_outputs())
            for node in segment.nodes
        )

    def _judge_output(self, item: Judged, pairs: Mapping[str, Pair], computed: Array) -> bool:
        return self.region.judged(item.pair, pairs, computed).mismatch

    def _other_input(self, item: Judged, pairs: dict[str, Pair]) -> dict[str, Pair] | None:
        """The segment is right when one of its inputs stands for a later reference value: the fault is above it.

        Four ways that can be: the reader takes a wrong value while the right one exists (the reader is to
        blame); the input passes a value through where the reference computes; the input was paired with a
        value that another one stands for already, because a wrong operator computes that again (a node
        above to accuse, both times); nothing computes the right value (an operation is missing).
        """
        index = self.region.index
        key = (item.pair.candidate, ("input", *item.segment.inputs))
        if key in self._exhausted:
            return None
        self._exhausted.add(key)
        output = index.group_of[item.pair.reference]
        groups = list(dict.fromkeys((*index.upstream(output, most=MOST_TRIALS), *self._between(item, pairs))))
        for value in item.segment.inputs:
            if value not in self.region.plain:
                continue
            for group in groups:
                trial = self._right_with_input(item, value, group, pairs)
                if trial is None:
                    continue
                chain = self._chain_to_blame(value, pairs)
                if chain:
                    ours = index.group_of[pairs[value].reference]
                    top = chain[-1]
                    self._confirmed.add(top)
                    self._barred.update((name, ours) for name in chain)
                    kept = {name: pair for name, pair in pairs.items() if name not in chain}
                    return kept | {top: self._stands_for(top, group)}
                self.gaps.append(Gap(value=value, reader=item.pair.candidate, reference=trial[value].reference))
                return None
        return None

    def _right_with_input(self, item: Judged, value: str, group: int, pairs: dict[str, Pair]) -> dict[str, Pair] | None:
        """The pairs with ``value`` standing for ``group``, if that makes the segment right."""
        index = self.region.index
        like = self.region.plain[value]
        print_ = index.fingerprint(group)
        taken = any(index.group_of[pair.reference] == group for pair in pairs.values())
        if taken or print_.size != like.size or not same_family(str(like.dtype), print_.dtype):
            return None
        trial = pairs | {value: self._stands_for(value, group)}
        cuts = [p for p in self._cuts(trial) if p.candidate in item.segment.inputs]
        got = self.region.run(cuts, [item.pair.candidate])
        return None if self._judge_output(item, trial, got[item.pair.candidate]) else trial

    def _stands_for(self, value: str, group: int) -> Pair:
        shape = self.region.plain[value].shape
        reference = self.region.index.member(group, shape=shape)
        same = self.region.index.fingerprints[reference].shape == shape
        return Pair(
            candidate=value,
            reference=reference,
            basis=Basis.STRUCTURE,
            transform="identity" if same else "reshape",
        )

    def _chain_to_blame(self, value: str, pairs: Mapping[str, Pair]) -> list[str]:
        """``value`` and what it is a mere reshape of, up to the value whose operator should have done otherwise.

        That operator left its input as it was, or computes what another one computes already, or is a
        reshape into a shape that the reference does not have. Empty when no operator is to blame.
        """
        index, region = self.region.index, self.region
        group = index.group_of[pairs[value].reference]
        chain = [value]
        while (above := self._reshaped_from(chain[-1], group, pairs)) is not None:
            chain.append(above)
        others = [name for name, pair in pairs.items() if index.group_of[pair.reference] == group and name not in chain]
        segment = region.segment(chain[-1], {name: pair for name, pair in pairs.items() if name != chain[-1]})
        if region.graph.producer(chain[-1]) is not None and others:
            natural = all(node.op_type in PASS_THROUGH - {"Identity"} for node in segment.nodes)
            return [] if natural and set(segment.inputs) & set(others) else chain
        shapes = {index.fingerprints[member].shape for member in index.members[group]}
        return [value] if len(chain) > 1 and region.plain[value].shape not in shapes else []

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


def subgraph(graph: Graph, segment: Segment) -> Graph:
    """The segment as a graph of its own: its inputs are graph inputs, everything else keeps its name."""
    return Graph(
        name=segment.output,
        inputs=segment.inputs,
        outputs=(segment.output,),
        nodes=segment.nodes,
        values=graph.values,
    )
