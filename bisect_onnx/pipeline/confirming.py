"""Do the outputs disagree? The untouched models on the same feeds, within the tolerance or the noise floor."""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence

from bisect_onnx.core.compare import Array, ErrorStats, Objection, Verdict, compare_arrays, largest_excess
from bisect_onnx.core.report import OutputRow
from bisect_onnx.core.tolerance import FACTOR, Tolerance, unit_roundoff
from bisect_onnx.pipeline.output_pairing import OutputPair, PairedBy

__all__ = ["rounding_of_outputs", "settle_outputs", "with_floors"]


def settle_outputs(
    pairs: Sequence[OutputPair],
    *,
    truth: Mapping[str, Array],
    observed: Mapping[str, Array],
    tolerance: Tolerance,
    operators: int,
    belonging: Collection[str] | None = None,
) -> list[OutputRow]:
    """Compare every output; without a tolerance the arithmetic bound of ``operators`` roundings is the threshold.

    ``belonging`` are the outputs whose partner is theirs beyond doubt; None: all. The reason of another one that
    differs says so.

    Rounding errors of random sign grow with the root of their number (Higham, 2nd ed., section 2.8).
    """
    rows = [_row(pair, truth=truth, observed=observed, tolerance=tolerance, operators=operators) for pair in pairs]
    return [row if belonging is None or row.name in belonging else _in_doubt(row) for row in rows]


def _in_doubt(row: OutputRow) -> OutputRow:
    if row.verdict is not Verdict.MISMATCH:
        return row
    doubt = "neither names nor shapes say that the two belong together, so no node is sought from here"
    return dataclasses.replace(row, reason=doubt if row.reason is None else f"{row.reason}; {doubt}")


def _row(
    pair: OutputPair, *, truth: Mapping[str, Array], observed: Mapping[str, Array], tolerance: Tolerance, operators: int
) -> OutputRow:
    if pair.reference is None:
        which = "of this name" if pair.by is PairedBy.NAME else "in this place"
        return _bare(pair, Verdict.UNTESTABLE, f"the reference has no output {which}")
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
        metric, threshold = _limit(tolerance)
        return OutputRow(
            name=pair.candidate, reference=pair.reference, verdict=verdict, reason=_with_share(note, tolerance),
            error=error, noise=None, threshold=threshold, metric=metric,
        )  # fmt: skip
    floor = rounding_of_outputs(theirs, ours, operators=operators)
    return OutputRow(
        name=pair.candidate, reference=pair.reference, verdict=_verdict(error, FACTOR * floor), reason=note,
        error=error, noise=floor, threshold=FACTOR * floor,
    )  # fmt: skip


def rounding_of_outputs(first: Array, second: Array, *, operators: int) -> float:
    """The arithmetic bound of two outputs behind so many operators; see `settle_outputs`."""
    return unit_roundoff(str(first.dtype), str(second.dtype)) * math.sqrt(max(operators, 1))


def _limit(tolerance: Tolerance) -> tuple[str, float | None]:
    """The figure that the user's tolerance is about and its limit; no one number is the limit under an rtol."""
    if tolerance.metric is not None:
        return tolerance.metric, tolerance.threshold
    return "max_abs", None if tolerance.rtol else tolerance.atol or 0.0


def _with_share(note: str | None, tolerance: Tolerance) -> str | None:
    if tolerance.metric is not None or not tolerance.rtol:
        return note
    share = f"allowed for each element: {tolerance.atol or 0.0:g} + {tolerance.rtol:g} x |reference|"
    return share if note is None else f"{note}; {share}"


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
