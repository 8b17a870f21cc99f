"""A part of the candidate held against a reference capture, and what running it told."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from bisect_onnx.align.by_structure import same_family
from bisect_onnx.align.by_value import INDISTINCT
from bisect_onnx.align.operators import MASKING
from bisect_onnx.align.reference_index import ReferenceIndex
from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array, Verdict
from bisect_onnx.core.graph import Graph, ValueKind
from bisect_onnx.core.segments import Segment, segment_of
from bisect_onnx.core.tensor import Fingerprint, fingerprint
from bisect_onnx.errors import RuntimeFailedError
from bisect_onnx.pipeline.judge import CLOSE, Judge, Judgement, scaled_gap
from bisect_onnx.pipeline.prober import Prober

__all__ = ["Judged", "Region"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A segment's result on the reference's inputs."""

    segment: Segment
    pair: Pair
    judgement: Judgement

    @property
    def mismatch(self) -> bool:
        return self.judgement.verdict is Verdict.MISMATCH


class Region:
    """The whole candidate, or one segment of it, with the reference values it is compared with.

    ``entry`` are the pairs of the region's inputs. ``entry_values`` are the arrays that stand there in
    every run: none for the whole candidate (its inputs are the feeds), the reference's for a segment.
    """

    def __init__(
        self,
        graph: Graph,
        index: ReferenceIndex,
        prober: Prober,
        *,
        entry: Mapping[str, Pair],
        entry_values: Mapping[str, Array],
    ) -> None:
        self.graph = graph
        self.index = index
        self.prober = prober
        self.entry = entry
        self.entry_values = entry_values
        self.exposable = [name for node in graph.nodes for name in node.real_outputs() if self._worth_a_look(name)]
        self._followed = frozenset(self.exposable)
        self.plain: dict[str, Array] = prober.forced(entry_values, self.exposable)
        self.judge = Judge(prober.capture, self._shape_of)

    def _worth_a_look(self, name: str) -> bool:
        """Activations, and what is computed from no input in floating point: learned queries, rotary tables."""
        kind = self.graph.kind(name)
        producer = self.graph.producer(name)
        if kind is ValueKind.ACTIVATION or producer is None or producer.op_type == "Constant":
            return kind is ValueKind.ACTIVATION
        return kind is ValueKind.CONSTANT and (self.graph.values[name].dtype or "").startswith(("float", "bfloat"))

    def given(self, name: str) -> Array | None:
        """What stands at a value in the plain run: computed here, or what the region's input was given."""
        return self.plain.get(name, self.entry_values.get(name, self.prober.feeds.get(name)))

    def _shape_of(self, name: str) -> tuple[int, ...] | None:
        array = self.given(name)
        if array is None:
            array = self.prober.candidate.parameters.get(name)
        if array is not None:
            return tuple(array.shape)
        known = self.graph.values.get(name)
        if known is None or known.shape is None or None in known.shape:
            return None
        return tuple(size for size in known.shape if size is not None)

    def partner(self, pair: Pair) -> Array:
        """The reference's array for a paired candidate value, in the candidate's shape and dtype."""
        like = self.given(pair.candidate)
        if like is None:
            return self.prober.reference(pair.reference)
        return self.prober.partner(pair, like=like)

    def computes(self, reference: str, *, beside: str, prober: Prober | None = None) -> bool:
        """Whether the plain run gives a reference value somewhere that does not depend on ``beside``.

        ``prober`` knows the value when it is one of an opened-up reference.
        """
        wanted = (prober or self.prober).reference(reference)
        alike = [
            name
            for name, array in self.plain.items()
            if array.size == wanted.size
            and same_family(str(array.dtype), str(wanted.dtype))
            and scaled_gap(wanted.reshape(array.shape), array) <= INDISTINCT
        ]
        return any(beside not in self.graph.ancestors([name]) for name in alike)

    def read_rightly(self, item: Judged, pairs: Mapping[str, Pair]) -> frozenset[str]:
        """Values inside a segment that a node outside reads in the real run and gives what the reference gives."""
        found = set()
        for value in item.segment.interior:
            readers = [n for n in self.graph.consumers(value) if n not in item.segment.nodes]
            results = [name for n in readers if n.op_type not in MASKING for name in n.real_outputs() if name in pairs]
            if any(self.as_in_the_reference(pairs[name]) for name in results):
                found.add(value)
        return frozenset(found)

    def as_in_the_reference(self, pair: Pair, *, within: float = CLOSE) -> bool:
        """Whether the real run gave the paired value; ``within`` is one segment's threshold, and errors add up."""
        observed = self.plain.get(pair.candidate)
        if observed is None or self.prober.reference(pair.reference).size != observed.size:
            return False
        return scaled_gap(self.partner(pair), observed, masks_alike=True) <= max(within, CLOSE)

    def run(self, cuts: Collection[Pair], fetch: Sequence[str] | None = None) -> dict[str, Array]:
        """Candidate values when each value in ``cuts`` is replaced by the reference's for its consumers."""
        self.prober.preload(pair.reference for pair in cuts)
        arrays = dict(self.entry_values) | {pair.candidate: self.partner(pair) for pair in cuts}
        return self.prober.forced(arrays, self.exposable if fetch is None else fetch)

    def tried(self, cuts: Collection[Pair], fetch: Sequence[str]) -> dict[str, Array]:
        """`run` for a guess: empty when the runtime cannot run on it (an index that is none)."""
        try:
            return self.run(cuts, fetch)
        except RuntimeFailedError:
            return {}

    def prints(self, values: Mapping[str, Array]) -> dict[str, Fingerprint]:
        return {name: fingerprint(array) for name, array in values.items() if array.dtype.kind not in "OUS"}

    def segment(self, output: str, pairs: Mapping[str, Pair]) -> Segment:
        return segment_of(self.graph, output, cut=pairs.keys(), followed=self._followed)

    def judged(self, pair: Pair, pairs: Mapping[str, Pair], computed: Array) -> Judged:
        """Judge the segment that ends in ``pair``, given its result on the reference's values of ``pairs``."""
        segment = self.segment(pair.candidate, pairs)
        judgement = self.judge.segment(
            segment,
            given=[pairs[name].reference for name in segment.inputs],
            name=pair.reference,
            reference=self._expected(pair, computed),
            computed=computed,
        )
        return Judged(segment=segment, pair=pair, judgement=judgement)

    def _expected(self, pair: Pair, computed: Array) -> Array:
        array = self.prober.reference(pair.reference)
        return array.reshape(computed.shape) if array.size == computed.size else array
