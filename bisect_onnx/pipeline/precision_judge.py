"""How far a correct lower-precision run of a segment may be from the reference.

Two figures, of which the larger counts. The arithmetic bound takes the coarsest precision of all values in the
segment, not of its ends alone. The movement is measured: every value that is fed and every stored weight is moved
at random by half a step of the precision that the candidate holds it in, and the run shows how far each segment
goes; that counts in what cancels in a sum, and the steps of quantised integers.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array, ErrorStats, Verdict, compare_arrays, dtype_tiny, root_mean_square
from bisect_onnx.core.reductions import terms_per_element
from bisect_onnx.core.segments import Segment
from bisect_onnx.core.tolerance import FACTOR, arithmetic_floor, unit_roundoff
from bisect_onnx.pipeline.judge import Judge, Judgement
from bisect_onnx.pipeline.output_floor import one_step
from bisect_onnx.pipeline.precision_align import cuts
from bisect_onnx.pipeline.precision_prober import masks_met
from bisect_onnx.pipeline.region import Region

__all__ = ["PrecisionJudge", "movements"]

# A uniform error of a rounding to whole steps has a variance of 1/12 step squared; a whole number that goes up or
# down by one with this probability each has the same.
_STEP_PROBABILITY: Final = 1 / 24

# Of a value with few elements one draw may leave every rounding as it was.
_DRAWS: Final = 2


class PrecisionJudge(Judge):
    """Judges the segments of a lower-precision candidate; ``moved`` by the candidate value that ends each."""

    def __init__(self, region: Region, moved: Mapping[str, float]) -> None:
        super().__init__(region.prober.capture, self._shape)
        self._region = region
        self._moved = moved

    def segment(
        self, segment: Segment, *, given: Sequence[str], name: str, reference: Array, computed: Array
    ) -> Judgement:
        """See `Judge.segment`; the reference's own float64 repetition says nothing about a lower precision."""
        reference = masks_met(reference, computed)
        found = super().segment(segment, given=given, name=name, reference=reference, computed=computed)
        if found.verdict is not Verdict.MISMATCH or not np.isfinite(found.scaled):
            return found
        floor = max(found.floor, self._moved.get(segment.output, 0.0))
        verdict = Verdict.MATCH if found.scaled <= FACTOR * floor else Verdict.MISMATCH
        return Judgement(verdict=verdict, scaled=found.scaled, floor=floor, threshold=FACTOR * floor)

    def arithmetic(self, segment: Segment, reference: Array, computed: Array) -> float:
        """The bound at the coarsest float of the segment.

        The roundings of several nodes add up by squares, as they are independent (Higham, 2nd ed., section 2.8): their
        sum is so wide at this precision that a wrong weight fits in.
        """
        values = [*segment.inputs, *segment.interior]
        known = [array for name in values if (array := self._region.given(name)) is not None]
        roundoff = unit_roundoff(*(str(array.dtype) for array in (reference, computed, *known)))
        terms = [terms_per_element(node, self._shape) for node in segment.nodes]
        return math.sqrt(sum(arithmetic_floor(roundoff, [each]) ** 2 for each in terms))

    def _shape(self, name: str) -> tuple[int, ...] | None:
        array = self._region.given(name)
        array = stored(self._region, name) if array is None else array
        return None if array is None else tuple(array.shape)


def movements(region: Region, pairs: Mapping[str, Pair], forced: Mapping[str, Array]) -> dict[str, float]:
    """How far each paired value goes, relative to its rms, when what is fed and stored moves by half a step.

    A value that is itself rounded to the steps of a quantiser goes at least half such a step.

    Args:
        region: The whole candidate.
        pairs: Its pairs.
        forced: Values of the run on the reference's values.
    """
    found = _own_steps(region, forced)
    for seed in range(_DRAWS):
        for name, distance in _shaken(region, pairs, forced, seed=seed):
            found[name] = max(distance, found.get(name, 0.0))
    return found


def _shaken(
    region: Region, pairs: Mapping[str, Pair], forced: Mapping[str, Array], *, seed: int
) -> Iterator[tuple[str, float]]:
    generator = np.random.default_rng(seed)
    fed: dict[str, Array] = {pair.candidate: region.partner(pair) for pair in cuts(region, pairs)}
    moved = {name: _moved(array, step=_quantum(region, name), generator=generator) for name, array in fed.items()}
    moved |= dict(_moved_weights(region, generator=generator))
    for name, array in region.prober.forced(moved, [name for name in pairs if name in forced]).items():
        error = compare_arrays(forced[name], array, masks_alike=True)
        if isinstance(error, ErrorStats) and error.scaled is not None and np.isfinite(error.scaled):
            yield name, error.scaled


def _own_steps(region: Region, forced: Mapping[str, Array]) -> dict[str, float]:
    """Half a step of the quantiser that made a value, or that reads it, relative to its rms."""
    found = {}
    for name, array in forced.items():
        producer = region.graph.producer(name)
        made = None
        if producer is not None and producer.op_type == "DequantizeLinear":
            made = _largest(stored(region, producer.inputs[1]))
        steps = [step for step in (made, _quantum(region, name)) if step is not None]
        if steps and array.dtype.kind == "f":
            found[name] = max(steps) / 2 / max(root_mean_square(array), dtype_tiny(array.dtype))
    return found


def _moved(array: Array, *, step: float | None, generator: np.random.Generator) -> Array:
    if array.dtype.kind != "f":
        return array
    if step is None:
        return one_step(array, seed=int(generator.integers(2**32)))
    noise = generator.uniform(-step / 2, step / 2, array.shape)
    return (array + noise).astype(array.dtype)


def _quantum(region: Region, name: str) -> float | None:
    """The step to which a value is quantised where it is read; None when no reader quantises it."""
    steps = []
    for node in region.graph.consumers(name):
        if node.op_type == "QuantizeLinear":
            steps.append(_largest(stored(region, node.inputs[1])))
        elif node.op_type == "DynamicQuantizeLinear":
            steps.append(_largest(region.given(node.outputs[1])))
    return max((step for step in steps if step is not None), default=None)


def _largest(scale: Array | None) -> float | None:
    return None if scale is None or scale.size == 0 else float(np.max(np.abs(scale.astype(np.float64))))


def stored(region: Region, name: str) -> Array | None:
    """An initializer, or what a node computes of some without any input."""
    array = region.prober.candidate.parameters.get(name)
    return region.plain.get(name) if array is None else np.asarray(array)


def _moved_weights(region: Region, *, generator: np.random.Generator) -> Iterator[tuple[str, Array]]:
    """Stored numbers of a lower precision, each moved by half a step at random."""
    graph = region.graph
    for name in dict.fromkeys(name for node in graph.nodes for name in node.real_inputs()):
        if graph.producer(name) is not None or name in graph.inputs:
            continue
        array = stored(region, name)
        if array is None or array.size < 2 or array.dtype in {np.dtype(np.float32), np.dtype(np.float64)}:
            continue
        if array.dtype.kind == "f":
            yield name, one_step(array, seed=int(generator.integers(2**32)))
        elif array.dtype.kind in "iu" and array.dtype.itemsize == 1:
            yield name, _whole_steps(array, generator=generator)


def _whole_steps(array: Array, *, generator: np.random.Generator) -> Array:
    limits = np.iinfo(array.dtype)
    draw = generator.random(array.shape)
    change = np.where(draw < _STEP_PROBABILITY, 1, 0) - np.where(draw > 1 - _STEP_PROBABILITY, 1, 0)
    moved: Array = np.clip(array.astype(np.int64) + change, limits.min, limits.max).astype(array.dtype)
    return moved
