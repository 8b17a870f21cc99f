"""Is it you? What is asked of the comparison itself before a node is searched, and what the search may not forget."""

import contextlib
from collections.abc import Mapping, Sequence

from bisect_onnx.core.finding import Confidence, Finding
from bisect_onnx.core.report import Culprit, Status
from bisect_onnx.core.tolerance import Tolerance
from bisect_onnx.errors import BisectOnnxError
from bisect_onnx.pipeline import preflight
from bisect_onnx.pipeline.comparing import Comparison
from bisect_onnx.pipeline.feed_trials import FedOtherwise, a_node_explains, fed_otherwise
from bisect_onnx.pipeline.layout_trial import agreeing_layout
from bisect_onnx.pipeline.live_dropout import live_dropout
from bisect_onnx.pipeline.narrow import Narrowed
from bisect_onnx.pipeline.random_nodes import dropout_left_on, live_dropouts
from bisect_onnx.pipeline.request import LocateRequest
from bisect_onnx.pipeline.sides import Sides
from bisect_onnx.pipeline.verdicts import Answer, Told, answer
from bisect_onnx.pipeline.weight_audit import audited

__all__ = ["Harness", "in_another_layout"]


def in_another_layout(
    sides: Sides, tolerance: Tolerance, failure: BisectOnnxError, *, request: LocateRequest
) -> tuple[Comparison, Answer]:
    """The answer when a side takes an input in another layout.

    Raises:
        BisectOnnxError: ``failure``, when that is not it.
    """
    found = agreeing_layout(sides, tolerance)
    if found is None:
        raise failure
    compared, finding = found
    return compared, answer(status=Status.HARNESS, outputs=compared.rows, findings=(finding,), request=request)


class Harness:
    """The checks of one run; ``findings`` is the run's own list, and grows."""

    def __init__(self, sides: Sides, compared: Comparison, *, findings: list[Finding], request: LocateRequest) -> None:
        self._sides = sides
        self._compared = compared
        self._findings = findings
        self._request = request
        self.fed: FedOtherwise | None = None  # feeds of the candidate under which the outputs agree

    def note_changed_inputs(self) -> None:
        """What the two runs did to their inputs, whether or not the outputs agree."""
        changed = {"reference": self._sides.reference.changed_inputs, "candidate": self._compared.changed_inputs}
        self._findings += [preflight.inputs_changed(side, sorted(names)) for side, names in changed.items() if names]

    def parity(self) -> Answer:
        """The outputs agree; with what is worth saying all the same."""
        lacking = self._compared.lacking
        if lacking:
            self._findings.append(preflight.outputs_lacking(lacking, compared=len(self._compared.rows)))
        live = live_dropouts(self._sides.candidate)
        if live and self._request.level > 0:
            self._findings.append(dropout_left_on(live, level=self._request.level))
        return self._answer(Status.PARITY, *self._findings)

    def is_it_you(self, stack: contextlib.ExitStack) -> Told | None:
        """The answer when the comparison was set up wrongly, or nothing can be said; otherwise None.

        Asks for training mode, runs that do not repeat, outputs in other places, feeds that the sides take
        differently. Until ``stack`` closes, the reference is in evaluation mode.
        """
        told = self._training_mode(stack)
        if told is not None:
            return told
        compared = self._compared
        unsteady = preflight.unsteady_side(
            self._sides, rows=compared.rows, answers=compared.answers, observed=compared.observed
        )
        if unsteady is not None:
            dropout = live_dropout(self._sides, compared, request=self._request)
            return dropout or Told(verdict=self._answer(Status.INCONCLUSIVE, unsteady))
        before = compared.rows
        elsewhere = compared.look_elsewhere()
        if elsewhere is not None:
            self._findings.append(elsewhere)
            if compared.agrees:
                verdict = answer(
                    status=Status.HARNESS, outputs=before, findings=tuple(self._findings), request=self._request
                )
                return Told(verdict=verdict)
        self.fed = fed_otherwise(self._sides, compared)
        if self.fed is not None and self.fed.beyond_names(self._sides.feeds.pairs):
            return Told(verdict=self.fed_wrongly())
        return None

    def _training_mode(self, stack: contextlib.ExitStack) -> Told | None:
        compared = self._compared
        training = preflight.training_modules(self._sides.module)
        if not training.paths:
            return None
        before, given = compared.rows, compared.answers
        stack.enter_context(preflight.evaluation_mode(self._sides.module))
        agrees = compared.run_with_floors()
        if preflight.differ(given, compared.answers, rows=compared.rows):
            finding = preflight.left_in_training(training, before=before, after=compared.rows)
            self._findings.append(finding)
            if agrees:
                verdict = answer(status=Status.HARNESS, outputs=before, findings=(finding,), request=self._request)
                return Told(verdict=verdict)
        elif agrees:
            return Told(verdict=self.parity())
        return None

    def only_the_feeds(self, culprits: Sequence[Culprit], narrowed: Mapping[int, Narrowed]) -> bool:
        """Whether other feeds explain the difference, and no node that a search found does as well."""
        return self.fed is not None and not a_node_explains(
            self.fed, culprits, narrowed, graph=self._sides.candidate.graph, audited=audited(self._sides)
        )

    def fed_wrongly(self) -> Answer:
        """The answer when other feeds explain the difference."""
        assert self.fed is not None
        return self._answer(Status.HARNESS, self.fed.finding(confidence=Confidence.PROVEN), *self._findings)

    def all_findings(self) -> tuple[Finding, ...]:
        """The findings beside an accused node: other feeds would explain the difference as well."""
        if self.fed is None:
            return tuple(self._findings)
        return (*self._findings, self.fed.finding(confidence=Confidence.POSSIBLE))

    def _answer(self, status: Status, *findings: Finding) -> Answer:
        return answer(status=status, outputs=self._compared.rows, findings=findings, request=self._request)
