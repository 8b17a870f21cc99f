"""The search that looks at few values: bisect the graph by accumulated error, then test the one segment left.

Used when asked for. Nothing is cut while it asks, and each question exposes one value, so what it sees is
as close to the untouched run as a probe can be. The segment it ends at is settled and proven as in a scan.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping

from bisect_onnx.align.by_value import pair_by_value
from bisect_onnx.align.operators import MASKING
from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array, Verdict
from bisect_onnx.core.report import Step
from bisect_onnx.core.search import Found, bisect
from bisect_onnx.core.segments import frontiers
from bisect_onnx.core.tolerance import FACTOR, unit_roundoff
from bisect_onnx.pipeline.judge import exact_floor, scaled_gap
from bisect_onnx.pipeline.knowledge import Gap, Knowledge
from bisect_onnx.pipeline.region import Judged, Region
from bisect_onnx.pipeline.rerouting import Rerouting
from bisect_onnx.pipeline.settle import Settled, Settling, subgraph

__all__ = ["Bisected", "bisect_region"]

# After a culprit its value is put right and the search goes on; nobody mends more than this at once.
MOST_CULPRITS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bisected:
    """What was settled, and the questions that led there."""

    settled: Settled
    steps: tuple[Step, ...]


def bisect_region(
    region: Region,
    *,
    outputs: Mapping[str, Pair],
    parameter_of: Mapping[str, str],
    on_probe: Callable[[str, Verdict, int], None],
) -> Bisected:
    """Find culprits of the failing ``outputs`` one after the other."""
    return _Bisecting(region, outputs=outputs, parameter_of=parameter_of, on_probe=on_probe).run()


class _Bisecting:
    def __init__(
        self,
        region: Region,
        *,
        outputs: Mapping[str, Pair],
        parameter_of: Mapping[str, str],
        on_probe: Callable[[str, Verdict, int], None],
    ) -> None:
        self.region = region
        self.outputs = outputs
        self.parameter_of = parameter_of
        self._on_probe = on_probe
        walked = pair_by_value(
            region.graph, region.index, observed=region.prints(region.plain), fixed=dict(region.entry)
        )
        self.pairs: dict[str, Pair] = walked | dict(outputs)
        self.mended: dict[str, Array] = {}
        self.judged: dict[str, Judged] = {}
        self.forced: dict[str, Array] = {}
        self.gaps: list[Gap] = []
        self.steps: list[Step] = []

    def run(self) -> Bisected:
        for _ in range(MOST_CULPRITS):
            failing = self._worst_output()
            if failing is None or not self._one_culprit(failing):
                break
        settled = Settled(pairs=self.pairs, judged=self.judged, forced=self.forced, missing=tuple(self.gaps))
        return Bisected(settled=settled, steps=tuple(self.steps))

    def _worst_output(self) -> str | None:
        values = self.region.prober.forced(self.mended, list(self.outputs))
        gaps = {
            name: self._gap(pair, values[name])
            for name, pair in self.outputs.items()
            if name in values and self._verdict(pair, values[name]) is Verdict.MISMATCH
        }
        return max(gaps, key=lambda name: gaps[name], default=None)

    def _gap(self, pair: Pair, observed: Array) -> float:
        reference = self.region.prober.reference(pair.reference)
        return scaled_gap(
            reference.reshape(observed.shape) if reference.size == observed.size else reference,
            observed,
            masks_alike=True,
        )

    def _verdict(self, pair: Pair, observed: Array) -> Verdict:
        """Accumulated error against the accumulated floor: the arithmetic bound first, then float64."""
        gap = self._gap(pair, observed)
        reference = self.region.prober.reference(pair.reference)
        depth = self.region.index.ancestors[self.region.index.group_of[pair.reference]].bit_count()
        floor = unit_roundoff(str(reference.dtype), str(observed.dtype)) * math.sqrt(depth)
        if gap > FACTOR * floor and math.isfinite(gap):
            floor = max(floor, exact_floor(self.region.prober.capture, pair.reference, None))
        return Verdict.MATCH if gap <= FACTOR * floor else Verdict.MISMATCH

    def _one_culprit(self, failing: str) -> bool:
        found, names = self._bisect(failing)
        name = names[found.suspects[-1]]
        pair = self.pairs[name]
        if name not in self.region.plain:
            return False
        segment = self.region.segment(name, self.pairs)
        cuts = [self.pairs[value] for value in segment.inputs if value in self.region.plain]
        computed = self.region.run(cuts, [name])[name]
        item = self.region.judged(pair, self.pairs, computed)
        if not item.mismatch:
            return False
        parts = self._settle(item)
        if not self.gaps and all(not part.mismatch or part.segment.nodes == item.segment.nodes for part in parts):
            # Nothing inside it was told apart: it may be right, and what it reads something else.
            above = self._rerouted(item)
            if self.gaps:
                return False
            parts = parts if above is item else self._settle(above)
        for part in parts:
            self.judged[part.pair.candidate] = part
            if (
                part.mismatch
                and self.region.plain[part.pair.candidate].size
                == self.region.prober.reference(part.pair.reference).size
            ):
                self.mended[part.pair.candidate] = self.region.partner(part.pair)
        return not self.gaps

    def _rerouted(self, item: Judged) -> Judged:
        """The segment, or the one above it when this one is right with another value at its input."""
        known = Knowledge(self.region, outputs=self.outputs, parameter_of=self.parameter_of, narrow=False)
        better = Rerouting(known).other_input(item, self.pairs)
        self.gaps += known.gaps
        if known.gaps:
            self.judged[item.pair.candidate] = item
        if better is None:
            return item
        changed = next(name for name in better if better.get(name) != self.pairs.get(name))
        self.pairs = better
        segment = self.region.segment(changed, better)
        cuts = [better[value] for value in segment.inputs if value in self.region.plain]
        above = self.region.judged(better[changed], better, self.region.run(cuts, [changed])[changed])
        return above if above.mismatch else item

    def _bisect(self, failing: str) -> tuple[Found, list[str]]:
        """Bisect over the paired values above ``failing``."""
        graph = self.region.graph
        above = frontiers(graph, self.pairs.keys())
        wanted = graph.ancestors([failing])
        order = [name for node in graph.nodes for name in node.real_outputs()]
        names = [name for name in order if name in self.pairs and name in wanted and name in self.region.plain]
        number = {name: place for place, name in enumerate(names)}
        sources = [sorted(number[source] for source in above[name] if source in number) for name in names]
        masking = {
            place
            for name, place in number.items()
            if (node := graph.producer(name)) is not None and node.op_type in MASKING
        }

        def judge(value: int) -> Verdict:
            name = names[value]
            got = self.region.prober.forced(self.mended, [name])
            verdict = self._verdict(self.pairs[name], got[name]) if name in got else Verdict.UNTESTABLE
            self._on_probe(name, verdict, len(names))
            return verdict

        found = bisect(sources, failing=number[failing], judge=judge, masking=masking)
        self.steps += [
            Step(
                probe=names[probe.value],
                verdict=probe.verdict,
                suspects_before=probe.suspects_before,
                suspects_after=probe.suspects_after,
            )
            for probe in found.probes
        ]
        return found, names

    def _settle(self, item: Judged) -> list[Judged]:
        """Divide the segment that is left, and judge its parts from outside."""
        region = self.region
        if len(item.segment.nodes) == 1:
            self.forced[item.pair.candidate] = region.run(self._fed(item), [item.pair.candidate])[item.pair.candidate]
            return [item]
        entry = {name: self.pairs[name] for name in item.segment.inputs}
        inner = Region(
            subgraph(region.graph, item.segment),
            region.index,
            region.prober,
            entry=entry,
            entry_values={name: region.partner(pair) for name, pair in entry.items() if name in region.plain},
        )
        settling = Settling(
            inner,
            outputs={item.pair.candidate: item.pair},
            parameter_of=self.parameter_of,
            narrow=False,
        )
        settling.known.as_observed = region.read_rightly(item, self.pairs)
        settled = settling.settle()
        self.pairs |= settled.pairs
        end = item.pair.candidate
        self.gaps += [gap for gap in settled.missing if not region.computes(gap.reference, beside=end)]
        self.forced |= settled.forced
        return list(settled.judged.values())

    def _fed(self, item: Judged) -> list[Pair]:
        return [self.pairs[name] for name in item.segment.inputs if name in self.region.plain]
