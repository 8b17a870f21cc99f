"""Run a lower-precision candidate with some of its nodes in the higher precision.

A kept node gives what the reference's own calls make of the inputs that the node has in the candidate. Between two
kept nodes the value goes on as it is; where a node that is not kept reads it, it is rounded to the candidate's format.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array
from bisect_onnx.core.segments import Segment
from bisect_onnx.pipeline.precision_align import cuts
from bisect_onnx.pipeline.precision_format import LowerPrecision
from bisect_onnx.pipeline.region import Region
from bisect_onnx.pipeline.settle import Settled

__all__ = ["KeptRun", "Unit"]

# Results that are remembered; a search asks again for what it found.
_MOST_REMEMBERED: Final = 64

Unit = Segment  # from paired values to one paired value, with a node of the lower precision inside


class KeptRun:
    """``units`` in topological order: the smallest pieces that can be kept."""

    def __init__(self, region: Region, settled: Settled, lower: LowerPrecision) -> None:
        self._region = region
        self._pairs = settled.pairs
        self._segments = {name: item.segment for name, item in settled.judged.items()}
        self._above = {name: region.graph.ancestors([name]) for name in self._segments}
        self._remembered: dict[frozenset[str], dict[str, Array]] = {}
        fed = {pair.candidate for pair in cuts(region, settled.pairs)}
        self.units = [
            segment
            for name, segment in self._segments.items()
            if name in fed and any(node.index in lower.nodes for node in segment.nodes) and self._can_be_kept(segment)
        ]

    def outputs(self, kept: Iterable[Unit]) -> dict[str, Array]:
        """The candidate's outputs with exactly the ``kept`` units in the higher precision."""
        key = frozenset(unit.output for unit in kept)
        if key not in self._remembered:
            while len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.pop(next(iter(self._remembered)))
            self._remembered[key] = self._run(key)
        return self._remembered[key]

    def _run(self, kept: frozenset[str]) -> dict[str, Array]:
        region = self._region
        wide: dict[str, Array] = {}
        standing: dict[str, Array] = {}
        pending = [name for name in self._segments if name in kept]
        while pending:
            ready = [n for n in pending if not any(other != n and other in self._above[n] for other in pending)]
            self._pass_on(wide, standing, kept, until=pending)
            read = self._read(ready, wide=wide, standing=standing)
            for name in ready:
                like = self._region.plain[name]
                wide[name] = self._computed(name, read).reshape(like.shape)
                rounded = wide[name].astype(like.dtype)
                # A cut is a rounding of its own, in a run that keeps more digits between the nodes than their formats
                # do: a Relu that gives what it gave anyway must not seem to change the outputs.
                if name not in read or not np.array_equal(rounded, read[name], equal_nan=True):
                    standing[name] = rounded
            pending = [name for name in pending if name not in ready]
        self._pass_on(wide, standing, kept, until=())
        names = [name for name in region.graph.outputs if name in region.plain]
        found = region.prober.forced(standing, names) if standing else {name: region.plain[name] for name in names}
        return {name: standing.get(name, array) for name, array in found.items()}

    def _read(
        self, ready: Sequence[str], *, wide: Mapping[str, Array], standing: Mapping[str, Array]
    ) -> dict[str, Array]:
        """What the ready units read and give: in the higher precision where it is, else as the candidate computes."""
        wanted = dict.fromkeys(name for unit in ready for name in self._segments[unit].inputs)
        wanted |= dict.fromkeys(ready)
        computed = [name for name in wanted if name not in wide and name in self._region.plain]
        found = self._region.prober.forced(standing, computed) if computed else {}
        return {**found, **{name: wide[name] for name in wanted if name in wide}}

    def _computed(self, name: str, read: Mapping[str, Array]) -> Array:
        """The unit's value, as the reference's calls make it of what the unit reads."""
        reference = self._pairs[name].reference
        found = self._region.prober.capture.recompute([reference], given=self._given(self._segments[name], read))
        return found[reference]

    def _given(self, unit: Unit, read: Mapping[str, Array]) -> dict[str, Array]:
        """Every view of each quantity that the unit reads: a call may read another one than is paired."""
        index = self._region.index
        given = {}
        for name in unit.inputs:
            if name not in read:
                continue
            for member in index.members[index.group_of[self._pairs[name].reference]]:
                shape = index.fingerprints[member].shape
                if index.fingerprints[member].size == read[name].size:
                    given[member] = read[name].reshape(shape)
        return given

    def _pass_on(
        self, wide: dict[str, Array], standing: dict[str, Array], kept: frozenset[str], *, until: Sequence[str]
    ) -> None:
        """Casts and reshapes of a value in the higher precision are in it, too; not beyond ``until``."""
        group_of = self._region.index.group_of
        for name, segment in self._segments.items():
            if name in wide or name in kept or len(segment.inputs) != 1 or name not in self._region.plain:
                continue
            source = segment.inputs[0]
            same = group_of[self._pairs[name].reference] == group_of[self._pairs[source].reference]
            if not same or source not in wide or any(other in self._above[name] for other in until):
                continue
            if wide[source].size != self._region.plain[name].size:
                continue
            array = wide[source].reshape(self._region.plain[name].shape)
            wide[name] = array
            if source in standing:
                standing[name] = array.astype(self._region.plain[name].dtype)

    def _can_be_kept(self, unit: Unit) -> bool:
        """Whether the reference can repeat what the unit stands for."""
        region = self._region
        pair: Pair = self._pairs[unit.output]
        if region.plain[unit.output].dtype.kind not in "fV" or not unit.inputs:
            return False
        read = {name: region.partner(self._pairs[name]) for name in unit.inputs}
        found = region.prober.capture.recompute([pair.reference], given=self._given(unit, read))
        return pair.reference in found and found[pair.reference].size == region.plain[unit.output].size
