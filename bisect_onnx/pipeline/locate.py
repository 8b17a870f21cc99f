"""Find the node that introduces the error: the order of steps, from a request to a report."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from bisect_onnx.align.by_parameter import ParameterMatcher
from bisect_onnx.align.reference_index import ReferenceIndex
from bisect_onnx.core.alignment import Basis, Pair
from bisect_onnx.core.compare import Verdict
from bisect_onnx.core.events import Listener, ProbeDone, ignore
from bisect_onnx.core.finding import Finding
from bisect_onnx.core.report import (
    Culprit,
    MissingOperation,
    Report,
    SearchSummary,
    Stage,
    Status,
    Step,
    Strategy,
)
from bisect_onnx.core.tolerance import Tolerance
from bisect_onnx.errors import FeedShapeError, ReferenceFailedError, RuntimeFailedError
from bisect_onnx.pipeline import preflight
from bisect_onnx.pipeline.accusing import Accusations, accuse_all
from bisect_onnx.pipeline.bisecting import bisect_region
from bisect_onnx.pipeline.comparing import Comparison
from bisect_onnx.pipeline.finishing import finished
from bisect_onnx.pipeline.harness import Harness, in_another_layout
from bisect_onnx.pipeline.knowledge import Gap
from bisect_onnx.pipeline.narrow import Narrowed
from bisect_onnx.pipeline.optimizer_stage import configuration_at_fault, rounded_elsewhere
from bisect_onnx.pipeline.precision import weigh
from bisect_onnx.pipeline.precision_format import LowerPrecision, lower_precision
from bisect_onnx.pipeline.precision_keep_file import check_keep_list
from bisect_onnx.pipeline.precision_overflow import reference_overflow
from bisect_onnx.pipeline.precision_report import told, with_keep_list
from bisect_onnx.pipeline.prober import Prober
from bisect_onnx.pipeline.refused import unbroken
from bisect_onnx.pipeline.region import Region
from bisect_onnx.pipeline.request import LocateRequest
from bisect_onnx.pipeline.rows import alignment_summary, labelled, node_rows, with_inner_rows
from bisect_onnx.pipeline.screening import Screened, screen
from bisect_onnx.pipeline.second_opinion import runtime_doubted
from bisect_onnx.pipeline.settle import Settled, Settling
from bisect_onnx.pipeline.sides import Sides, open_sides
from bisect_onnx.pipeline.stages import StageClock
from bisect_onnx.pipeline.verdicts import Answer, answer
from bisect_onnx.pipeline.weight_audit import stale_weights, weight_rows
from bisect_onnx.runtimes.base import Capture

__all__ = ["locate"]


def locate(request: LocateRequest, *, on_event: Listener = ignore) -> Report:
    """Find the node of the candidate that introduces the error.

    Raises:
        BisectOnnxError: Something could not be opened, or a runtime failed.
    """
    check_keep_list(request)
    run = StageClock(on_event)
    if request.candidate_values is not None:
        return _locate_elsewhere(request, request.candidate_values, run)
    if request.module is not None:
        return _locate_submodule(request, run)
    with run.stage("open", "Opening both sides"):
        sides = open_sides(request)
    screened = None
    if sides.samples is not None:
        with run.stage("samples", "Running every sample on both sides"):
            screened = screen(sides, sides.samples, tolerance=_tolerance(request))
        sides = screened.sides

    def located(sides: Sides) -> Report:
        return _Locating(request, sides, run, screened=screened).report()

    return unbroken(located, sides=sides, request=request, run=run)


def _locate_elsewhere(request: LocateRequest, path: Path, run: StageClock) -> Report:
    from bisect_onnx.pipeline.elsewhere import locate_elsewhere

    def locate_here(ours: LocateRequest, sides: Sides) -> Report:
        return _Locating(ours, sides, run, screened=None).report()

    return locate_elsewhere(request, path, run=run, locate_here=locate_here, tolerance=_tolerance(request))


def _locate_submodule(request: LocateRequest, run: StageClock) -> Report:
    from bisect_onnx.pipeline import submodule
    from bisect_onnx.readers import onnx_file

    with run.stage("open", "Opening both sides"):
        file = onnx_file.read(request.candidate)
        opened = submodule.require_module(request)
        of_whole = submodule.is_file_of_whole(file, opened, str(request.module))
        whole = submodule.opened_whole(request) if of_whole else None
    stage = run.stage("submodule", "Running the whole for the submodule's inputs")
    with stage, preflight.evaluation_mode(opened.module if whole is None else whole.module):
        if whole is None:
            part = submodule.exported_alone(request, file, opened)
        else:
            region, settled = _Locating(request, whole, run, screened=None).aligned()
            part = submodule.cut_out(request, file, whole, region=region, settled=settled)
    return part.told(_Locating(request, part.sides, run, screened=None).report())


def _tolerance(request: LocateRequest) -> Tolerance:
    return Tolerance(atol=request.atol, rtol=request.rtol, metric=request.metric, threshold=request.threshold)


class _Locating:
    """One run of `locate`; every step adds to what the report is made of."""

    def __init__(self, request: LocateRequest, sides: Sides, run: StageClock, *, screened: Screened | None) -> None:
        self.request = request
        self.sides = sides
        self.run = run
        self.screened = screened
        self.tolerance = _tolerance(request)
        self.findings: list[Finding] = []
        self.compared = Comparison(sides, self.tolerance)
        self.harness = Harness(sides, self.compared, findings=self.findings, request=request)

    def aligned(self) -> tuple[Region, Settled]:
        """The pairs of all values, whether or not the outputs agree."""
        self.compared.run_as_given()
        region = self._region(self.sides.reference.capture(self.sides.feeds.reference, max_bytes=self.sides.max_bytes))
        return region, self._scan(region, self._parameter_names())

    def report(self) -> Report:
        with self.run.stage("confirm", "Running both sides as they are"):
            try:
                agrees = self.compared.run_as_given()
            except (FeedShapeError, ReferenceFailedError, RuntimeFailedError) as failure:
                self.compared, verdict = in_another_layout(self.sides, self.tolerance, failure, request=self.request)
                return self._finish(verdict)
            self.harness.note_changed_inputs()
        if agrees and self.compared.anything_compared:
            return self._parity()
        with contextlib.ExitStack() as stack:
            with self.run.stage("preflight", "Checking the comparison itself"):
                told = self.harness.is_it_you(stack)
            return self._finish(told.verdict, **told.fields) if told is not None else self._search()

    def _parity(self) -> Report:
        return self._finish(self.harness.parity())

    def _search(self) -> Report:
        with self.run.stage("capture", "Recording every call of the reference"):
            capture = self.sides.reference.capture(self.sides.feeds.reference, max_bytes=self.sides.max_bytes)
        if not self.tolerance.given:
            elsewhere = rounded_elsewhere(self.sides, self.compared, self.request)
            if elsewhere is not None:
                return self._finish(elsewhere.verdict, **elsewhere.fields)
            with self.run.stage("noise", "Measuring the noise of the outputs in float64"):
                self.compared.measure_floors(capture)
            if self.compared.agrees and self.compared.anything_compared:
                return self._parity()
        with self.run.stage("weights", "Holding the file's weights against the reference's"):
            stale = stale_weights(self.sides, self.compared, findings=self.findings, request=self.request)
        if stale is not None:
            return self._finish(stale.verdict, **stale.fields)
        with self.run.stage("align", "Looking at every value of the candidate"):
            region = self._region(capture)
        with self.run.stage("optimizers", "Asking whether the configuration is at fault"):
            elsewhere = configuration_at_fault(region, self.sides, compared=self.compared, request=self.request)
        if elsewhere is not None:
            return self._finish(elsewhere.verdict, **elsewhere.fields)
        overflow = reference_overflow(region, self.compared)
        if overflow is not None:
            self.findings.append(overflow)
            return self._finish(
                answer(
                    status=Status.INCONCLUSIVE,
                    stage=Stage.PRECISION,
                    outputs=self.compared.rows,
                    findings=tuple(self.findings),
                    request=self.request,
                )
            )
        lower = lower_precision(region.graph, region.plain, region.index)
        if lower is not None and self.harness.fed is not None:
            return self._finish(self.harness.fed_wrongly())
        if lower is not None:
            return self._weighed(region, lower)
        with self.run.stage("search", "Testing every segment on the reference's values"):
            parameter_of = self._parameter_names()
            settled, steps = self._settle(region, parameter_of)
        with self.run.stage("certify", "Narrowing to the node and proving it"):
            accusations = accuse_all(region, settled, parameter_of=parameter_of, truth=self.compared.truth)
        return self._assemble(region, settled, accusations=accusations, steps=steps)

    def _weighed(self, region: Region, lower: LowerPrecision) -> Report:
        """The answer for a candidate in a lower precision than the reference."""
        with self.run.stage("search", "Weighing every node of the lower precision"):
            weighed = weigh(
                region,
                standing=self._output_pairs(region),
                parameter_of=self._parameter_names(),
                truth=self.compared.truth,
            )
        found = told(weighed, lower, region=region, compared=self.compared, sides=self.sides, request=self.request)
        if self.request.keep_list is not None:
            with self.run.stage("keep", "Finding the nodes to keep in the higher precision"):
                found = with_keep_list(found, weighed, lower, region=region, compared=self.compared, sides=self.sides)
        return self._finish(found.verdict, **found.fields)

    def _settle(self, region: Region, parameter_of: Mapping[str, str]) -> tuple[Settled, tuple[Step, ...] | None]:
        """The segments with their judgements; steps when they came by bisection, otherwise None."""
        outputs = self._output_pairs(region)
        if self.request.strategy == Strategy.BISECT.value:
            failing = {row.name for row in self.compared.rows if row.verdict is Verdict.MISMATCH}
            bisected = bisect_region(
                region,
                outputs={n: p for n, p in outputs.items() if n in failing},
                parameter_of=parameter_of,
                on_probe=self._probed,
            )
            if bisected.settled.accused or bisected.settled.missing:
                return bisected.settled, bisected.steps
        settled = self._scan(region, parameter_of)
        if not settled.accused and any(
            row.error is not None and row.error.nonfinite_mismatch for row in self.compared.rows
        ):
            # Every segment is right as long as -inf and the smallest number count as one mask. Here they do not.
            region.judge.masks_alike = False
            settled = self._scan(region, parameter_of)
        return settled, None

    def _scan(self, region: Region, parameter_of: Mapping[str, str]) -> Settled:
        return Settling(
            region,
            outputs=self._output_pairs(region),
            parameter_of=parameter_of,
            narrow=False,
        ).settle()

    def _probed(self, probe: str, verdict: Verdict, suspects: int) -> None:
        self.run.tell(ProbeDone(probe=probe, verdict=verdict.value, suspects=suspects))

    def _region(self, capture: Capture) -> Region:
        index = ReferenceIndex(capture.graph, capture.fingerprints)
        entry = {
            ours: Pair(candidate=ours, reference=theirs, basis=Basis.NAME)
            for ours, theirs in self.sides.feeds.pairs.items()
            if theirs in index.group_of and ours in self.sides.candidate.graph.inputs
        }
        prober = Prober(self.sides.candidate, capture, self.sides.feeds.arrays)
        return Region(self.sides.candidate.graph, index, prober, entry=entry, entry_values={})

    def _output_pairs(self, region: Region) -> dict[str, Pair]:
        """Pairs that stand whatever the values are: outputs that belong together, and values recorded by name."""
        belonging = self.compared.belonging
        names = self.compared.captured(region.prober.capture)
        standing = {ours: theirs for ours, theirs in names.items() if ours in belonging}
        if self.sides.recorded:
            recorded = region.prober.capture.graph.values
            standing |= {name: name for name in region.exposable if name in recorded}
        return {
            ours: Pair(candidate=ours, reference=theirs, basis=Basis.NAME)
            for ours, theirs in standing.items()
            if theirs in region.index.group_of and region.graph.producer(ours) is not None
        }

    def _parameter_names(self) -> dict[str, str]:
        """Reference parameter by candidate initializer, equal or nearest."""
        parameters = self.sides.reference.parameters
        if not parameters:
            return {}
        matcher = ParameterMatcher(parameters)
        graph = self.sides.candidate.graph
        read = dict.fromkeys(name for node in graph.nodes for name in node.real_inputs())
        found = {}
        for name in read:
            array = self.sides.candidate.parameters.get(name)
            match = matcher.match(name, array) if array is not None else None
            if match is not None and match.plausible:
                found[name] = match.parameter
        return found

    def _assemble(
        self,
        region: Region,
        settled: Settled,
        *,
        accusations: Accusations,
        steps: tuple[Step, ...] | None,
    ) -> Report:
        culprits, narrowed = accusations.culprits, accusations.narrowed
        pairs = labelled(settled.pairs, region)
        judged = {name: dataclasses.replace(item, pair=pairs[name]) for name, item in settled.judged.items()}
        rows = node_rows(
            region,
            pairs=pairs,
            judged=judged,
            shapes_only=self.sides.shapes_only,
            impacts={culprit.index: culprit.impact for culprit in culprits},
        )
        gap = accusations.gaps[0] if accusations.gaps else None
        first = narrowed[culprits[0].index] if culprits else None
        status, findings = _status(culprits, gap), self.harness.all_findings()
        findings += tuple(doubt for culprit in culprits if (doubt := runtime_doubted(culprit)) is not None)
        unpaired = self.compared.unpaired()
        if status is Status.ACCUMULATION and unpaired is not None:
            status, findings = Status.INCONCLUSIVE, (unpaired, *findings)
        if self.harness.only_the_feeds(culprits, narrowed):
            return self._finish(self.harness.fed_wrongly())
        verdict = answer(
            status=status,
            outputs=self.compared.rows,
            stage=_stage(first, gap),
            culprits=culprits,
            findings=findings,
            request=self.request,
        )
        return self._finish(
            verdict,
            culprits=tuple(culprits),
            nodes=with_inner_rows(rows, culprits),
            alignment=alignment_summary(region.graph, region, pairs, rows),
            search=SearchSummary(
                strategy=Strategy.SCAN if steps is None else Strategy.BISECT,
                probes=len(settled.judged) if steps is None else len(steps),
                runs=self.sides.candidate.runs,
                steps=steps or (),
            ),
            missing_operation=None if gap is None else _missing(gap, region),
            weights=weight_rows(narrowed.values()),
        )

    def _finish(self, verdict: Answer, **fields: object) -> Report:
        return finished(
            verdict,
            compared=self.compared,
            sides=self.sides,
            request=self.request,
            run=self.run,
            screened=self.screened,
            fields=fields,
        )


def _status(culprits: Sequence[Culprit], gap: Gap | None) -> Status:
    if culprits:
        return Status.LOCATED if culprits[0].confidence == "certified" else Status.SUSPECTED
    return Status.SUSPECTED if gap is not None else Status.ACCUMULATION


def _stage(first: Narrowed | None, gap: Gap | None) -> Stage | None:
    if first is not None:
        return Stage.WEIGHTS if first.weight is not None else Stage.EXPORT
    return Stage.EXPORT if gap is not None else None


def _missing(gap: Gap, region: Region) -> MissingOperation:
    call = region.index.origin(gap.reference)
    return MissingOperation(after=gap.value, before=gap.before, source=call.source if call is not None else None)
