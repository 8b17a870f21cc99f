"""Where a recorded run parts from the file as it runs here: each node, fed here what it was fed there.

Both runs are of one file, so every recorded value has its partner by name and nothing needs to be aligned. A node is
tested on the inputs that were recorded; what comes out here is held against what was recorded as its output. So an
error that came in with the inputs accuses nobody.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from bisect_onnx.core.compare import Array
from bisect_onnx.core.graph import ValueKind
from bisect_onnx.core.reductions import terms_per_element
from bisect_onnx.core.segments import Segment, segment_of
from bisect_onnx.core.tolerance import FACTOR, arithmetic_floor, unit_roundoff
from bisect_onnx.errors import RuntimeFailedError
from bisect_onnx.pipeline.judge import scaled_gap
from bisect_onnx.pipeline.output_floor import one_step
from bisect_onnx.pipeline.random_nodes import random_nodes
from bisect_onnx.pipeline.sides import Sides
from bisect_onnx.runtimes.recorded_candidate import RecordedCandidate

__all__ = ["DeviceSearch", "Tested"]

# As many values per session as the runtime cuts without a session becoming slow to start; see `pipeline.prober`.
MOST_AT_ONCE: Final = 2_000

# What stands in memory of a value while it is tested: recorded, computed here from the recorded inputs, in the run
# here, and with the inputs moved; and its recorded inputs.
COPIES: Final = 5


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Tested:
    """One recorded value; figures as `ErrorStats.scaled`, with what is computed here as the measure."""

    segment: Segment
    introduced: float
    accumulated: float  # against the run here
    floor: float

    @property
    def value(self) -> str:
        return self.segment.output

    @property
    def threshold(self) -> float:
        return FACTOR * self.floor

    @property
    def mismatch(self) -> bool:
        return self.introduced > self.threshold


class DeviceSearch:
    """The test of every recorded value. ``untested`` has the reason for each node that was left out."""

    def __init__(self, sides: Sides, candidate: RecordedCandidate) -> None:
        self.graph = sides.candidate.graph
        self.candidate = candidate
        self.feeds = sides.feeds.arrays
        self.shapes: dict[str, tuple[int, ...]] = {name: array.shape for name, array in self.feeds.items()}
        self.untested: dict[int, str] = {}
        self._max_bytes = sides.max_bytes
        self._random = {node.index for node in random_nodes(candidate) if not node.path}
        self._values = [
            name
            for node in self.graph.nodes
            for name in node.real_outputs()
            if name in candidate.names and name not in sides.shapes_only and self._worth_a_test(name)
        ]
        self._cut = {*self._values, *self.graph.inputs}

    def _worth_a_test(self, name: str) -> bool:
        """Activations, and floats that depend on no input; what counts sizes is part of what reads it."""
        kind = self.graph.kind(name)
        floating = (self.graph.values[name].dtype or "").startswith(("float", "bfloat"))
        return kind is ValueKind.ACTIVATION or (kind is ValueKind.CONSTANT and floating)

    def run(self) -> dict[str, Tested]:
        """By value, in topological order."""
        found: dict[str, Tested] = {}
        for group in self._groups():
            self._test(group, found)
        return found

    def segment(self, value: str) -> Segment:
        return segment_of(self.graph, value, cut=self._cut)

    def inputs_of(self, segments: Sequence[Segment]) -> dict[str, Array]:
        """What the segments read, as it was recorded; graph inputs are fed anyway."""
        names = dict.fromkeys(name for segment in segments for name in segment.inputs if name not in self.feeds)
        return self.candidate.recorded(list(names))

    def computed(self, segments: Sequence[Segment], given: Mapping[str, Array]) -> dict[str, Array]:
        """What the segments give here on ``given``."""
        return self.candidate.probe(self.feeds, fetch=[segment.output for segment in segments], cuts=given)

    def _groups(self) -> Iterator[list[str]]:
        """Values in order, as many as fit the memory; sizes are those of the run here."""
        plain_bytes = {name: self._known_bytes(name) for name in self._values}
        group: list[str] = []
        held = 0
        for name in self._values:
            size = COPIES * plain_bytes[name]
            if group and (held + size > self._max_bytes or len(group) >= MOST_AT_ONCE):
                yield group
                group, held = [], 0
            group.append(name)
            held += size
        if group:
            yield group

    def _known_bytes(self, name: str) -> int:
        value = self.graph.values[name]
        if value.shape is None or value.dtype is None or value.dtype == "str":
            return 0
        count = int(np.prod([length or 1 for length in value.shape], dtype=np.int64))
        return count * np.dtype(value.dtype).itemsize

    def _test(self, group: Sequence[str], found: dict[str, Tested]) -> None:
        segments = [self.segment(name) for name in group]
        try:
            given = self.inputs_of(segments)
            computed = self.computed(segments, given)
        except RuntimeFailedError as error:  # an index that is none on the recorded inputs: which node, halving tells
            if len(group) > 1:
                self._test(group[: len(group) // 2], found)
                self._test(group[len(group) // 2 :], found)
                return
            self.untested[segments[0].nodes[-1].index] = f"it fails here on the recorded inputs: {error.detail}"
            return
        here = self.candidate.probe(self.feeds, fetch=list(group), cuts={})
        recorded = self.candidate.recorded(list(group))
        self.shapes.update({name: array.shape for name, array in computed.items()})
        found.update(
            {
                segment.output: self._judged(
                    segment, computed=computed[segment.output], here=here[segment.output],
                    recorded=recorded[segment.output],
                )
                for segment in segments
                if segment.output in computed and segment.output in here and not self._draws(segment)
            }
        )  # fmt: skip
        self._measure([name for name in group if name in found and found[name].mismatch], given, computed, found)

    def _draws(self, segment: Segment) -> bool:
        drawing = [node for node in segment.nodes if node.index in self._random]
        self.untested.update({node.index: "it draws random numbers" for node in drawing})
        return bool(drawing)

    def _judged(self, segment: Segment, *, computed: Array, here: Array, recorded: Array) -> Tested:
        roundoff = unit_roundoff(str(computed.dtype), str(recorded.dtype))
        terms = [terms_per_element(node, self._shape_of) for node in segment.nodes]
        return Tested(
            segment=segment,
            introduced=scaled_gap(computed, recorded),
            accumulated=scaled_gap(here, recorded),
            floor=arithmetic_floor(roundoff, terms),
        )

    def _measure(
        self,
        names: Sequence[str],
        given: Mapping[str, Array],
        computed: Mapping[str, Array],
        found: dict[str, Tested],
    ) -> None:
        """For what the arithmetic does not explain: how far a result goes when its inputs move by their last bits.

        A node that amplifies rounding amplifies that of the other machine too; and where a rounding tie decides, as
        in a quantiser, moved inputs show the step.
        """
        if not names:
            return
        moved = {name: one_step(array, seed=place) for place, (name, array) in enumerate(given.items())}
        fed = {name: one_step(array, seed=len(moved) + place) for place, (name, array) in enumerate(self.feeds.items())}
        try:
            again = self.candidate.probe(fed, fetch=list(names), cuts=moved)
        except RuntimeFailedError:
            return  # moved inputs that the runtime refuses measure nothing
        for name in names:
            gap = scaled_gap(computed[name], again[name])
            if np.isfinite(gap):  # a jump into infinity is no noise that could excuse anything
                found[name] = dataclasses.replace(found[name], floor=max(found[name].floor, gap))

    def _shape_of(self, name: str) -> tuple[int, ...] | None:
        if name in self.shapes:
            return self.shapes[name]
        array = self.candidate.parameters.get(name)
        return None if array is None else tuple(array.shape)
