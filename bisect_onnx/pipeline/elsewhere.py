"""`locate` for a candidate that ran elsewhere: is the file wrong, or what runs it there?

The recorded outputs are held against the reference. When they differ, the same file runs here, at level 0 on the CPU.
If it agrees here, the other machine is at fault, and its first wrong node is sought among the recorded values. If it
differs here as well, the file is searched as usual, and the report says whether it is the same error.
"""

import contextlib
import dataclasses
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from bisect_onnx.core.compare import Array, Verdict
from bisect_onnx.core.finding import Finding
from bisect_onnx.core.report import OutputRow, Report, Status
from bisect_onnx.core.tolerance import FACTOR, Tolerance
from bisect_onnx.pipeline.comparing import Comparison
from bisect_onnx.pipeline.confirming import rounding_of_outputs
from bisect_onnx.pipeline.device_accusing import accuse_device
from bisect_onnx.pipeline.device_report import (
    alignment_of,
    also_wrong_there,
    device_answer,
    is_spread_out,
    reproduced,
    rows_of,
    search_of,
)
from bisect_onnx.pipeline.device_search import DeviceSearch
from bisect_onnx.pipeline.finishing import finished
from bisect_onnx.pipeline.harness import Harness
from bisect_onnx.pipeline.judge import scaled_gap
from bisect_onnx.pipeline.recorded_sides import here, open_recorded
from bisect_onnx.pipeline.request import LocateRequest
from bisect_onnx.pipeline.sides import Sides
from bisect_onnx.pipeline.stages import StageClock
from bisect_onnx.pipeline.verdicts import Answer
from bisect_onnx.runtimes.recorded_candidate import RecordedCandidate

__all__ = ["locate_elsewhere"]

# The share of an error that must be another's when values are exposed for the values to say nothing about it.
MOVED = 0.5


def locate_elsewhere(
    request: LocateRequest, path: Path, *, run: StageClock, locate_here: Callable[[LocateRequest, Sides], Report],
    tolerance: Tolerance,
) -> Report:  # fmt: skip
    """The report.

    Args:
        request: What was asked.
        path: The capture.
        run: The clock of the run.
        locate_here: The ordinary search, of the file on this machine.
        tolerance: Of the outputs.
    """
    with run.stage("open", "Opening both sides and the recorded values"):
        sides, candidate = open_recorded(request, path)
    there = dataclasses.replace(sides, candidate=candidate)
    elsewhere = _Elsewhere(request, sides, there, candidate=candidate, run=run, tolerance=tolerance)
    with contextlib.ExitStack() as stack:
        with run.stage("confirm", "Comparing the recorded outputs, and running the file here"):
            told = elsewhere.confirm(stack)
        if told is not None:
            return told
        if elsewhere.here.agrees:
            return elsewhere.device()
        report = locate_here(here(request), sides)
        return elsewhere.beside(report)


class _Elsewhere:
    """One run; ``there`` compares the recorded outputs, ``here`` those of the file on this machine."""

    def __init__(
        self,
        request: LocateRequest,
        sides: Sides,
        recorded: Sides,
        *,
        candidate: RecordedCandidate,
        run: StageClock,
        tolerance: Tolerance,
    ) -> None:
        self.request = request
        self.sides = sides
        self.recorded = recorded
        self.candidate = candidate
        self.run = run
        self.there = Comparison(recorded, tolerance)
        self.here = Comparison(sides, tolerance)
        self._findings: list[Finding] = []
        self._harness = Harness(recorded, self.there, findings=self._findings, request=request)

    def confirm(self, stack: contextlib.ExitStack) -> Report | None:
        """The report when it ends with the outputs, or when the comparison was set up wrongly."""
        if self.there.run_with_floors() and self.there.anything_compared:
            return self._finish(self._harness.parity())
        if self.here.run_with_floors():
            return None  # a comparison in which the file agrees is set up rightly
        told = self._harness.is_it_you(stack)
        if told is not None:
            return self._finish(told.verdict, **told.fields)
        if self.there.run_with_floors() and self.there.anything_compared:  # in evaluation mode now
            return self._finish(self._harness.parity())
        self.here.run_with_floors()
        return None

    def device(self) -> Report:
        """The file is right here: what is wrong there?"""
        recording = self.candidate.recording
        failing = self._failing()
        moved = [row.name for row in failing if self._moved(row)]
        names = [row.name for row in failing]
        with self.run.stage("search", "Testing every node on the inputs that it had there"):
            search = DeviceSearch(self.sides, self.candidate)
            tested = search.run()
        with self.run.stage("certify", "Proving what was found by running it here alone"):
            culprits = () if moved else accuse_device(search, tested, failing=names)
        rows = rows_of(search, tested, shapes_only=self.sides.shapes_only, culprits=culprits)
        verdict = device_answer(
            recording,
            culprits,
            wrong=sum(each.mismatch for each in tested.values()),
            moved=moved,
            failing=names,
            outputs=len(self.there.rows),
            again=self._again(),
        )
        return self._finish(
            verdict,
            culprits=() if is_spread_out(culprits) else culprits,
            nodes=rows,
            alignment=alignment_of(search, tested, rows),
            search=search_of(tested, runs=self.candidate.runs),
        )

    def beside(self, report: Report) -> Report:
        """The report of the file here, with what was recorded as its outputs, and how the two errors compare."""
        if report.status in (Status.PARITY, Status.HARNESS, Status.INCONCLUSIVE):
            return report
        recording = self.candidate.recording
        outputs, environment = tuple(self.there.rows), {**report.environment, **self._environment()}
        if self._same_outputs():
            finding = reproduced(recording)
        else:
            with self.run.stage("search", "Testing every node on the inputs that it had there"):
                search = DeviceSearch(self.sides, self.candidate)
                names = [row.name for row in self._failing()]
                moved = [row.name for row in self._failing() if self._moved(row)]
                culprits = () if moved else accuse_device(search, search.run(), failing=names)
            finding = also_wrong_there(recording, culprits)
        return dataclasses.replace(
            report,
            findings=(finding, *report.findings),
            outputs=outputs,
            environment=environment,
            next_steps=(*([finding.remedy] if finding.remedy else []), *report.next_steps),
        )

    def _failing(self) -> list[OutputRow]:
        return [row for row in self.there.rows if row.verdict is Verdict.MISMATCH]

    def _moved(self, row: OutputRow) -> bool:
        """Whether an output's error was another one while the values were recorded."""
        distance = float(self.candidate.recording.moved.get(row.name, 0.0))
        if row.error is None or row.error.scaled is None:
            return distance > 0
        return distance >= MOVED * row.error.scaled

    def _same_outputs(self) -> bool:
        """Whether the file gives here what was recorded, as far as rounding allows."""
        here: Mapping[str, Array] = self.here.observed
        there: Mapping[str, Array] = self.there.observed
        for row in self._failing():
            ours, theirs = here.get(row.name), there.get(row.name)
            if ours is None or theirs is None:
                return False
            rounding = rounding_of_outputs(ours, theirs, operators=len(self.candidate.graph.nodes))
            if scaled_gap(ours, theirs) > FACTOR * max(rounding, row.noise or 0.0):
                return False
        return True

    def _again(self) -> tuple[str, ...]:
        """What tells more, on the other machine."""
        recording, values = self.candidate.recording, str(self.request.candidate_values)
        command = ["bisect-onnx", "capture", str(self.request.candidate), "--inputs", values]
        custom = [word for library in self.request.custom_ops for word in ("--custom-ops", str(library))]
        providers = [word for provider in recording.providers for word in ("--provider", provider)]
        steps: tuple[str, ...] = ()
        if recording.level > 0:
            steps += (
                "Capture again there without optimisers; if the outputs are right then, those are at fault:",
                shlex.join([*command, *custom, *providers, "--level", "0", "--output", "level0.npz"]),
            )
        if any(provider != "CPUExecutionProvider" for provider in recording.providers):
            steps += (
                "Capture again there on the CPU; if the outputs are right then, the provider is at fault:",
                shlex.join([*command, *custom, "--output", "cpu.npz"]),
            )
        return steps or ("Report the node, its recorded inputs and output, and both versions to ONNX Runtime.",)

    def _environment(self) -> dict[str, object]:
        return {"recorded": self.candidate.recording.environment}

    def _finish(self, verdict: Answer, **fields: object) -> Report:
        report = finished(
            verdict,
            compared=self.there,
            sides=self.recorded,
            request=here(self.request),
            run=self.run,
            fields=fields,
        )
        return dataclasses.replace(report, environment={**report.environment, **self._environment()})
