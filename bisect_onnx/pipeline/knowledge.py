"""What a settling knows besides its pairs, and the questions that all its parts ask."""

import collections
import dataclasses
import functools
from collections.abc import Mapping

from bisect_onnx.core.alignment import Basis, Pair
from bisect_onnx.core.compare import Array
from bisect_onnx.core.graph import Node
from bisect_onnx.core.segments import Segment
from bisect_onnx.pipeline.judge import CLOSE, scaled_gap
from bisect_onnx.pipeline.region import Judged, Region

__all__ = ["Gap", "Knowledge"]

# Hypotheses tried per segment and round. Each is one run of a few nodes (milliseconds).
MOST_TRIALS = 48


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """An operation that the candidate lacks.

    ``before`` is computed from ``value`` where the reference has ``reference``; the segment that ends in ``reader``
    is wrong for that reason alone.
    """

    value: str
    before: str
    reader: str
    reference: str


class Knowledge:
    """Grows while a region settles; the pairs themselves are passed along, so that trials cost nothing.

    ``outputs`` are the pairs of the region's outputs, which stand. ``barred`` are pairs (candidate value,
    reference class) that were found wrong, ``contradicted`` those that the real run rules out, ``exhausted``
    searches that found nothing, ``confirmed`` values whose pair something below them speaks for. ``as_observed``
    are values that somebody outside the region reads and is right with: they stand for nothing that they are not.
    """

    def __init__(
        self, region: Region, *, outputs: Mapping[str, Pair], parameter_of: Mapping[str, str], narrow: bool
    ) -> None:
        self.region = region
        self.outputs = outputs
        self.parameter_of = parameter_of
        self.narrow = narrow
        self.barred: set[tuple[str, int]] = set()
        self.contradicted: set[tuple[str, int]] = set()
        self.as_observed: frozenset[str] = frozenset()
        self.exhausted: set[tuple[str, tuple[str, ...]]] = set()
        self.confirmed: set[str] = set()
        self.gaps: list[Gap] = []

    def anew(self) -> "Knowledge":
        """What was known at the beginning."""
        fresh = Knowledge(self.region, outputs=self.outputs, parameter_of=self.parameter_of, narrow=self.narrow)
        fresh.as_observed = self.as_observed
        return fresh

    def rules_out(self, value: str, group: int) -> bool:
        """Whether ``value`` is known not to stand for a class."""
        if (value, group) in self.contradicted:
            return True
        observed = self.region.plain.get(value)
        if value not in self.as_observed or observed is None:
            return False
        reference = self.region.prober.reference(self.region.index.member(group, shape=observed.shape))
        alike = reference.size == observed.size and scaled_gap(reference.reshape(observed.shape), observed) <= CLOSE
        return not alike

    def cuts(self, pairs: Mapping[str, Pair]) -> list[Pair]:
        """Pairs that can be fed: computed here, observable, and of as many elements on both sides."""
        index = self.region.index
        return [
            pair
            for name, pair in pairs.items()
            if name in self.region.plain
            and self.region.plain[name].size == index.fingerprint(index.group_of[pair.reference]).size
        ]

    def fed(self, item: Judged, pairs: Mapping[str, Pair]) -> list[int]:
        index = self.region.index
        return sorted({index.group_of[pairs[value].reference] for value in item.segment.inputs})

    def between(self, item: Judged, pairs: Mapping[str, Pair]) -> list[int]:
        index = self.region.index
        return index.between(self.fed(item, pairs), index.group_of[item.pair.reference])

    def anchored(self, name: str) -> bool:
        return name in self.outputs or name in self.confirmed

    def reads_own_parameter(self, segment: Segment) -> bool:
        """Whether the segment reads a parameter that one call of the reference reads, and no other is equal to.

        Shared weights, and norms that nobody trained, speak for a place in any layer.
        """
        return any(self.reads_own(node) for node in segment.nodes)

    def reads_own(self, node: Node) -> bool:
        return any(self.parameter_of.get(name) in self._read_once for name in node.real_inputs())

    @functools.cached_property
    def _read_once(self) -> frozenset[str]:
        index = self.region.index
        read = collections.Counter(name for call in index.graph.nodes for name in index.parameters(call))
        prints = {name: index.fingerprints[name] for name in read if name in index.fingerprints}
        content = {name: (p.size, p.mean, p.rms, p.probes.tobytes()) for name, p in prints.items()}
        alike = collections.Counter(content.values())
        return frozenset(name for name in prints if read[name] == 1 and alike[content[name]] == 1)

    def output_mismatches(self, item: Judged, pairs: Mapping[str, Pair], computed: Array) -> bool:
        return self.region.judged(item.pair, pairs, computed).mismatch

    def stands_for(self, value: str, group: int) -> Pair:
        like = self.region.given(value)
        assert like is not None
        shape = like.shape
        reference = self.region.index.member(group, shape=shape)
        same = self.region.index.fingerprints[reference].shape == shape
        return Pair(
            candidate=value,
            reference=reference,
            basis=Basis.STRUCTURE,
            transform="identity" if same else "reshape",
        )
