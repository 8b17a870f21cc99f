"""A file that the runtime refuses at every level: which nodes, why, and the comparison of a cured copy."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from bisect_onnx.core.finding import Confidence, Counterfactual, Finding
from bisect_onnx.core.graph import Graph, Node
from bisect_onnx.core.report import Certificate, Culprit, CulpritError, Report, Stage, Status
from bisect_onnx.errors import ModelNotLoadedError, RuntimeFailedError, listing
from bisect_onnx.pipeline.commands import as_command
from bisect_onnx.pipeline.optimizer_stage import tunable
from bisect_onnx.pipeline.request import LocateRequest
from bisect_onnx.pipeline.sides import Sides

if TYPE_CHECKING:
    from bisect_onnx.runtimes.loading_edits import LoadingEdit
    from bisect_onnx.runtimes.ort import OrtCandidate

__all__ = ["CuredCopy", "cured_copy"]

_MOST_NAMED: Final = 8
_NOT_TRIED: Final = Certificate(inputs_match=None, output_differs=None, replay_reproduces=None)
_NO_FIGURES: Final = CulpritError(inherited=None, introduced=None, accumulated=None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CuredCopy:
    """A copy of the file that loads, and what was done to it."""

    candidate: "OrtCandidate"
    findings: tuple[Finding, ...]
    culprits: tuple[Culprit, ...]

    def told(self, cured: Report, request: LocateRequest) -> Report:
        """The report of the copy, which says that it is one."""
        report = dataclasses.replace(cured, findings=(*self.findings, *cured.findings))
        why = "; ".join(finding.message for finding in self.findings)
        if cured.status is not Status.PARITY:
            return dataclasses.replace(report, summary=f"{cured.summary} (in a cured copy: as it is, {why})")
        nodes = listing([culprit.node for culprit in self.culprits], limit=_MOST_NAMED)
        because = f", because of {nodes}" if self.culprits else ""
        return dataclasses.replace(
            report,
            status=Status.LOAD_FAILED,
            stage=Stage.EXPORT,
            culprits=self.culprits,
            summary=f"the runtime cannot load the model{because}: {why}; "
            "in a copy where that is mended the outputs agree",
            next_steps=(
                *(finding.remedy for finding in self.findings if finding.remedy),
                "When that is mended, ask again:",
                as_command(request),
            ),
        )


def cured_copy(error: ModelNotLoadedError | RuntimeFailedError, *, sides: Sides) -> CuredCopy | None:
    """None when no edit known here lets the runtime load and run the file."""
    from bisect_onnx.runtimes.loading_edits import cure

    candidate = tunable(sides)
    if candidate is None or not isinstance(error, ModelNotLoadedError):
        return None
    model = candidate.editable()
    edits = [] if model is None else cure(model, detail=error.detail)
    if model is None or not edits:
        return None
    try:
        copy = candidate.edited(model)
        copy.run(sides.feeds.arrays)
    except (ModelNotLoadedError, RuntimeFailedError):
        return None
    graph = candidate.graph
    return CuredCopy(
        candidate=copy,
        findings=tuple(_finding(edit, graph, detail=error.detail) for edit in edits),
        culprits=tuple(_culprit(graph.nodes[place]) for edit in edits for place in edit.nodes),
    )


def _finding(edit: "LoadingEdit", graph: Graph, *, detail: str) -> Finding:
    names = [graph.nodes[place].name for place in edit.nodes]
    facts: dict[str, object] = {"runtime says": detail}
    if names:
        facts["nodes"] = names
    return Finding(
        code=edit.code,
        name=edit.name,
        cause=edit.cause,
        confidence=Confidence.PROVEN,
        subject=names[0] if names else None,
        message=edit.fault,
        facts=facts,
        remedy=edit.remedy,
        counterfactual=Counterfactual(
            edit=f"{_subject(names)}{edit.edit}: the model loads",
            local_before=None,
            local_after=None,
            output_before=None,
            output_after=None,
        ),
    )


def _subject(names: Sequence[str]) -> str:
    return f"{listing(names, limit=_MOST_NAMED)}: " if names else ""


def _culprit(node: Node) -> Culprit:
    """The node as it stands in the file: that a copy loads without its fault is the proof."""
    return Culprit(
        node=node.name, op_type=node.op_type, domain=node.domain, index=node.index, path=node.path,
        inputs=node.inputs, outputs=node.outputs, attributes=node.attributes, group=(node.name,), module=node.module,
        module_class=node.module_class, torch_op=node.torch_op, source=node.source, error=_NO_FIGURES, noise=None,
        threshold=None, certificate=_NOT_TRIED, impact=None, confidence="certified",
    )  # fmt: skip
