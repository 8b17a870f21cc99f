"""Is a segment's result within the noise of a correct run? The arithmetic bound first, float64 only where needed."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from bisect_onnx.core.compare import (
    MASK_CONSTANT,
    Array,
    ErrorStats,
    Verdict,
    compare_arrays,
    dtype_tiny,
    root_mean_square,
)
from bisect_onnx.core.reductions import terms_per_element
from bisect_onnx.core.segments import Segment
from bisect_onnx.core.tolerance import FACTOR, arithmetic_floor, unit_roundoff
from bisect_onnx.runtimes.base import Capture

__all__ = ["CLOSE", "Judge", "Judgement", "exact_floor", "scaled_gap"]

# On the reference's own inputs a right value is as near as float32 noise of one segment, badly conditioned
# ones included; what a plain run gave may be further off, because errors add up.
CLOSE = 1e-4

# A float32 segment this far off on right inputs could only be noise if it lost 14 of its 24 bits (a threshold is eight
# floors). While pairs are sought that is taken for wrong without a repetition in float64; what is accused is measured.
GROSS = 2.0**17

ShapeOf = Callable[[str], tuple[int, ...] | None]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """A computed value against the reference's; figures as `ErrorStats.scaled`."""

    verdict: Verdict
    scaled: float  # infinite when shapes or non-finite positions differ
    floor: float
    threshold: float
    gross: bool = False  # wrong by so much that the floor was not measured


def scaled_gap(reference: Array, computed: Array, *, masks_alike: bool = False) -> float:
    """`ErrorStats.scaled` without the other figures: one pass over the arrays; infinite for other shapes."""
    if reference.shape != computed.shape:
        return float("inf")
    if reference.size == 0:
        return 0.0
    if reference.dtype == computed.dtype and reference.dtype in (np.float32, np.float64):
        with np.errstate(all="ignore"):
            gap = float(np.max(np.abs(computed - reference)))
            top = float(np.max(np.abs(reference)))
            # Squares of float32 overflow beyond 1e19; such values, masks and NaN take the careful road.
            if np.isfinite(gap) and top < 1e18:
                flat = reference.reshape(-1)
                rms = float(np.sqrt(float(np.dot(flat, flat)) / flat.size))
                return gap / max(rms, dtype_tiny(reference.dtype))
    error = compare_arrays(reference, computed, check_dtype=False, masks_alike=masks_alike)
    if not isinstance(error, ErrorStats):
        return float("inf")
    if error.scaled is None:
        return 0.0 if not error.mismatched else float("inf")
    return error.scaled


def exact_floor(capture: Capture, name: str, given: Sequence[str] | None) -> float:
    """Distance of the reference from a float64 repetition of its own calls, in units of its rms.

    Two estimates, of which the larger counts: how far the reference lies from the float64 result, and how
    far the float64 result moves when each call rounds at random as the original precision does. 0 when
    the calls cannot be repeated.
    """
    plain = capture.exact([name], given=given, seed=None).get(name)
    if plain is None or plain.dtype.kind != "f":
        return 0.0
    reference = capture.fetch([name])[name]
    shaken = capture.exact([name], given=given, seed=1).get(name)
    scale = max(root_mean_square(reference), dtype_tiny(reference.dtype))
    largest = _largest(plain, reference.astype(np.float64)) / scale
    return largest if shaken is None else max(largest, _largest(plain, shaken) / scale)


def _largest(exact: Array, other: Array) -> float:
    """Largest difference over the elements that are numbers on both sides, masks left out."""
    with np.errstate(all="ignore"):
        usable = (
            np.isfinite(exact) & np.isfinite(other) & (np.abs(exact) < MASK_CONSTANT) & (np.abs(other) < MASK_CONSTANT)
        )
        return float(np.max(np.abs(exact - other)[usable], initial=0.0))


class Judge:
    """Judges segments of one region; remembers what it counted of a node and measured in float64.

    ``hasty``: a segment that is wrong by `GROSS` roundoffs is not measured.
    ``masks_alike``: see `compare_arrays`. Inside a model the two sides mask differently and both are right;
    only when non-finite outputs find no other explanation is that looked at.
    """

    def __init__(self, capture: Capture, shape_of: ShapeOf, *, masks_alike: bool = True) -> None:
        self._capture = capture
        self.masks_alike = masks_alike
        self.hasty = False
        self._shape_of = shape_of
        self._measured: dict[tuple[str, tuple[str, ...]], float] = {}
        self._terms: dict[int, int] = {}

    def segment(
        self, segment: Segment, *, given: Sequence[str], name: str, reference: Array, computed: Array
    ) -> Judgement:
        """Compare a segment's result on the reference's inputs with the reference.

        Args:
            segment: What was run.
            given: Reference values that were fed to it.
            name: Reference value it should have produced.
            reference: That value, in the candidate's shape.
            computed: What the candidate made.
        """
        scaled = scaled_gap(reference, computed, masks_alike=self.masks_alike)
        floor = self.arithmetic(segment, reference, computed)
        gross = False
        if scaled > FACTOR * floor and np.isfinite(scaled) and reference.dtype.kind in "fV":
            roundoff = unit_roundoff(str(reference.dtype), str(computed.dtype))
            gross = self.hasty and scaled > GROSS * roundoff and (name, tuple(given)) not in self._measured
            if not gross:
                floor = max(floor, self._measure(name, tuple(given)))
        threshold = FACTOR * floor
        verdict = Verdict.MATCH if scaled <= threshold else Verdict.MISMATCH
        return Judgement(verdict=verdict, scaled=scaled, floor=floor, threshold=threshold, gross=gross)

    def arithmetic(self, segment: Segment, reference: Array, computed: Array) -> float:
        roundoff = unit_roundoff(str(reference.dtype), str(computed.dtype))
        for node in segment.nodes:
            if node.index not in self._terms:
                self._terms[node.index] = terms_per_element(node, self._shape_of)
        return arithmetic_floor(roundoff, [self._terms[node.index] for node in segment.nodes])

    def _measure(self, name: str, given: tuple[str, ...]) -> float:
        key = (name, given)
        if key not in self._measured:
            self._measured[key] = exact_floor(self._capture, name, given)
        return self._measured[key]
