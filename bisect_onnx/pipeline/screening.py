"""Run every sample on both sides and find the worst: the one that is located."""

import dataclasses
import math
from collections.abc import Sequence

from bisect_onnx.core.compare import Verdict, largest_excess
from bisect_onnx.core.report import OutputRow, Status
from bisect_onnx.core.tolerance import LARGER_IS_BETTER, Tolerance
from bisect_onnx.errors import RuntimeTroubleError, SampleFailedError
from bisect_onnx.pipeline.comparing import Comparison
from bisect_onnx.pipeline.samples import Samples
from bisect_onnx.pipeline.sides import Sides
from bisect_onnx.pipeline.verdicts import Answer

__all__ = ["Screened", "screen"]

# Noise is measured from the worst sample by the arithmetic bound downwards until one is beyond its measured floor.
# Measuring raises thresholds, so another may then be worse; this many more are measured to find it. Each costs
# about ten forward passes, and the answer is a failing sample with or without them.
MEASURED_AFTER_A_FAILURE = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Screened:
    """What running every sample told."""

    sides: Sides  # with the feeds of the worst sample
    label: str
    count: int
    beyond: int  # samples beyond their threshold, as far as those were measured
    unmeasured: bool  # whether noise was not measured for all of them

    def added_to(self, verdict: Answer) -> str:
        """The summary of the worst sample's verdict, with what there is to say of the others."""
        if verdict.status is Status.PARITY:
            return f"{verdict.summary} for each of {self.count:,} samples; {self.label} comes nearest to its limit"
        at_most = "at most " if self.unmeasured else ""
        others = f"of {self.count:,} samples {at_most}{self.beyond:,} differ, {self.label} most"
        return f"{verdict.summary}; {others}"


def screen(sides: Sides, samples: Samples, *, tolerance: Tolerance) -> Screened:
    """Run every sample on both sides, untouched, and find the one furthest beyond its threshold.

    Raises:
        SampleFailedError: A side failed on one of them; the text says which.
    """
    severities = []
    for place in range(len(samples)):
        with_sample = dataclasses.replace(sides, feeds=samples.feeds(place))
        comparison = Comparison(with_sample, tolerance)
        try:
            comparison.run()
        except RuntimeTroubleError as error:
            raise SampleFailedError(label=samples.label(place), detail=str(error)) from error
        severities.append(severity(comparison, tolerance))
    order = sorted(range(len(samples)), key=lambda place: (severities[place], -place), reverse=True)
    suspicious = [place for place in order if severities[place].beyond]
    worst, healthy, measured = order[0], 0, 0
    if not tolerance.given:
        found, healthy, measured = _measured(sides, samples, tolerance, [(p, severities[p]) for p in suspicious])
        worst = order[0] if found is None else found
    return Screened(
        sides=dataclasses.replace(sides, feeds=samples.feeds(worst)),
        label=samples.label(worst),
        count=len(samples),
        beyond=len(suspicious) - healthy,
        unmeasured=not tolerance.given and measured < len(suspicious),
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Severity:
    """How bad a sample is; the worse is the greater."""

    beyond: bool
    figure: float  # error over threshold; under a tolerance of the user's, what it judges


def severity(comparison: Comparison, tolerance: Tolerance) -> Severity:
    """That of the worst output of a comparison that was run."""
    mild = Severity(beyond=False, figure=-math.inf)
    return max((_of_row(row, comparison, tolerance) for row in comparison.rows), default=mild)


def _of_row(row: OutputRow, comparison: Comparison, tolerance: Tolerance) -> Severity:
    beyond = row.verdict is Verdict.MISMATCH
    if row.verdict is Verdict.UNTESTABLE:
        return Severity(beyond=False, figure=-math.inf)
    if row.error is None or row.error.nonfinite_mismatch:
        return Severity(beyond=beyond, figure=math.inf if beyond else 0.0)
    if tolerance.metric is not None:
        figure = getattr(row.error, tolerance.metric)
        figure = figure if figure is None or tolerance.metric not in LARGER_IS_BETTER else -figure
    elif tolerance.given:
        assert row.reference is not None
        truth, observed = comparison.answers[row.reference], comparison.observed[row.name]
        figure = largest_excess(truth, observed, rtol=tolerance.rtol or 0.0)
    else:
        figure = _share(row)
    unknown = figure is None or math.isnan(figure)
    return Severity(beyond=beyond, figure=(math.inf if beyond else 0.0) if unknown else float(figure))


def _share(row: OutputRow) -> float | None:
    if row.error is None or row.error.scaled is None or row.threshold is None:
        return None
    if row.threshold == 0.0:  # whole numbers: any difference is beyond every limit
        return math.inf if row.error.scaled else 0.0
    return row.error.scaled / row.threshold


def _measured(
    sides: Sides, samples: Samples, tolerance: Tolerance, suspicious: Sequence[tuple[int, Severity]]
) -> tuple[int | None, int, int]:
    """The worst sample once noise is measured, None if none is left; how many are healthy, and how many were measured.

    ``suspicious`` comes worst first, by a bound that measuring can only raise: what is left over cannot be worse
    than a sample that was found to be as bad as the bound of the next.
    """
    worst: tuple[int, Severity] | None = None
    healthy, measured, after = 0, 0, 0
    for place, bound in suspicious:
        if worst is not None and (bound <= worst[1] or after == MEASURED_AFTER_A_FAILURE):
            break
        after += worst is not None
        measured += 1
        found = bound
        if math.isfinite(bound.figure):
            comparison = Comparison(dataclasses.replace(sides, feeds=samples.feeds(place)), tolerance)
            comparison.run_with_floors()
            found = severity(comparison, tolerance)
        if not found.beyond:
            healthy += 1
        elif worst is None or found > worst[1]:
            worst = (place, found)
    return (None if worst is None else worst[0]), healthy, measured
