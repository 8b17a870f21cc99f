"""Do the outputs disagree? The untouched models on the same feeds, within the tolerance or the noise floor."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from bisect_onnx.core.compare import Array, ErrorStats, Objection, Verdict, compare_arrays, largest_excess
from bisect_onnx.core.report import OutputRow
from bisect_onnx.core.tolerance import FACTOR, Tolerance, unit_roundoff

__all__ = ["OutputPair", "pair_outputs", "settle_outputs", "with_floors"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class OutputPair:
    """A candidate output and the reference output it is compared with; None when there is none."""

    candidate: str
    reference: str | None


def pair_outputs(candidate: Sequence[str], reference: Sequence[str]) -> list[OutputPair]:
    """Match outputs by name when every name is known, otherwise in order."""
    if set(candidate) <= set(reference):
        return [OutputPair(candidate=name, reference=name) for name in candidate]
    padded = [*reference, *([None] * len(candidate))]
    return [OutputPair(candidate=name, reference=other) for name, other in zip(candidate, padded, strict=False)]


def settle_outputs(
    pairs: Sequence[OutputPair],
    *,
    truth: Mapping[str, Array],
    observed: Mapping[str, Array],
    tolerance: Tolerance,
    operators: int,
) -> list[OutputRow]:
    """Compare every output; without a tolerance the arithmetic bound of ``operators`` roundings is the threshold.

    Rounding errors of random sign grow with the root of their number (Higham, 2nd ed., section 2.8).
    """
    return [_row(pair, truth=truth, observed=observed, tolerance=tolerance, operators=operators) for pair in pairs]


def _row(
    pair: OutputPair, *, truth: Mapping[str, Array], observed: Mapping[str, Array], tolerance: Tolerance, operators: int
) -> OutputRow:
    if pair.reference is None:
        reason = "the reference has no output in this place"
        return _bare(pair, Verdict.UNTESTABLE, reason)
    ours = observed.get(pair.candidate)
    if ours is None:
        return _bare(pair, Verdict.UNTESTABLE, "the runtime returned no tensor for it")
    theirs = truth[pair.reference]
    if (ours.dtype.kind in "fV") != (theirs.dtype.kind in "fV"):
        return _bare(pair, Verdict.MISMATCH, f"dtype: reference {theirs.dtype}, candidate {ours.dtype}")
    error = compare_arrays(theirs, ours, check_dtype=False)
    if isinstance(error, Objection):
        return _bare(pair, Verdict.MISMATCH, error.reason)
    note = None if theirs.dtype == ours.dtype else f"dtype: reference {theirs.dtype}, candidate {ours.dtype}"
    if tolerance.given:
        excess = largest_excess(theirs, ours, rtol=tolerance.rtol or 0.0)
        verdict = Verdict.MISMATCH if tolerance.exceeded_by(error, largest_excess=excess) else Verdict.MATCH
        threshold = tolerance.threshold if tolerance.metric is not None else tolerance.atol
        return OutputRow(
            name=pair.candidate, reference=pair.reference, verdict=verdict, reason=note, error=error,
            noise=None, threshold=threshold,
        )  # fmt: skip
    floor = unit_roundoff(str(theirs.dtype), str(ours.dtype)) * math.sqrt(max(operators, 1))
    return OutputRow(
        name=pair.candidate, reference=pair.reference, verdict=_verdict(error, FACTOR * floor), reason=note,
        error=error, noise=floor, threshold=FACTOR * floor,
    )  # fmt: skip


def with_floors(rows: Sequence[OutputRow], floors: Mapping[str, float]) -> list[OutputRow]:
    """The rows judged again with measured accumulated floors, by output name."""
    judged = []
    for row in rows:
        measured = floors.get(row.name)
        if measured is None or row.error is None or row.noise is None:
            judged.append(row)
            continue
        floor = max(row.noise, measured)
        verdict = _verdict(row.error, FACTOR * floor)
        judged.append(dataclasses.replace(row, noise=floor, threshold=FACTOR * floor, verdict=verdict))
    return judged


def _verdict(error: ErrorStats, threshold: float) -> Verdict:
    if error.nonfinite_mismatch:
        return Verdict.MISMATCH
    if error.scaled is None:
        return Verdict.MISMATCH if error.mismatched else Verdict.MATCH
    return Verdict.MATCH if error.scaled <= threshold else Verdict.MISMATCH


def _bare(pair: OutputPair, verdict: Verdict, reason: str) -> OutputRow:
    return OutputRow(
        name=pair.candidate,
        reference=pair.reference,
        verdict=verdict,
        reason=reason,
        error=None,
        noise=None,
        threshold=None,
    )
