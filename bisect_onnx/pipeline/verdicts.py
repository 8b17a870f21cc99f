"""The answer in words: one sentence per outcome, and what to do next."""

import dataclasses
from collections.abc import Sequence

from bisect_onnx.core.compare import Verdict
from bisect_onnx.core.finding import Finding
from bisect_onnx.core.report import Culprit, OutputRow, Stage, Status
from bisect_onnx.pipeline.request import LocateRequest

__all__ = ["Answer", "answer"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the report's first lines say."""

    status: Status
    stage: Stage | None
    summary: str
    findings: tuple[Finding, ...]
    next_steps: tuple[str, ...]


def answer(
    *,
    status: Status,
    outputs: Sequence[OutputRow],
    stage: Stage | None = None,
    culprits: Sequence[Culprit] = (),
    findings: tuple[Finding, ...] = (),
    request: LocateRequest | None = None,
) -> Answer:
    """Word the outcome of a run."""
    if status is Status.HARNESS:
        stage = Stage.HARNESS
    return Answer(
        status=status,
        stage=stage,
        summary=_summary(status, outputs, stage=stage, culprits=culprits, findings=findings),
        findings=findings,
        next_steps=_next_steps(status, stage=stage, culprits=culprits, findings=findings, request=request),
    )


def _summary(
    status: Status,
    outputs: Sequence[OutputRow],
    *,
    stage: Stage | None,
    culprits: Sequence[Culprit],
    findings: Sequence[Finding],
) -> str:
    failing = [row.name for row in outputs if row.verdict is Verdict.MISMATCH]
    differs = f"{len(failing)} of {len(outputs)} outputs differ{'s' if len(outputs) == 1 else ''}"
    if status is Status.PARITY:
        return f"the outputs agree ({len(outputs)} compared)"
    if status is Status.HARNESS:
        return f"the graphs agree, the comparison was set up wrongly: {findings[0].message}"
    if status is Status.INCONCLUSIVE:
        found = f"{differs}, but no node" if failing else "no node"
        return f"{found} can be accused: {findings[0].message}"
    if status is Status.ACCUMULATION:
        return f"{differs} beyond tolerance, and every node stays within its noise floor: no single culprit"
    if culprits:
        first = culprits[0]
        where = f" in {first.module}" if first.module else ""
        others = f", and {len(culprits) - 1} more" if len(culprits) > 1 else ""
        verb = "introduces the error" if status is Status.LOCATED else "is suspected of the error"
        return f"{first.node} ({first.op_type}){where} {verb}{others}"
    if stage in (Stage.OPTIMIZER, Stage.PROVIDER):
        who = "ONNX Runtime's optimisers" if stage is Stage.OPTIMIZER else "the execution provider"
        return f"{differs} in the requested configuration, and agree at level 0 on the CPU: {who} introduce the error"
    return f"{differs}: an operation of the reference is missing in the ONNX graph"


def _next_steps(
    status: Status,
    *,
    stage: Stage | None,
    culprits: Sequence[Culprit],
    findings: Sequence[Finding],
    request: LocateRequest | None,
) -> tuple[str, ...]:
    steps = [finding.remedy for finding in findings if finding.remedy]
    if status is Status.ACCUMULATION:
        steps.append("Loosen the tolerance: --atol and --rtol, or --metric with --threshold.")
    if culprits:
        first = culprits[0]
        if stage is Stage.WEIGHTS:
            steps.append("Export again from the checkpoint that the reference uses.")
        elif first.source is not None:
            steps.append(f"Look at {first.source.file}:{first.source.line} and at how {first.op_type} was exported.")
        if len(culprits) > 1:
            steps.append("Mend the first culprit, export, and run locate again.")
    if stage is Stage.OPTIMIZER and request is not None:
        steps.append(f"Run with --level 0 to confirm; the fault appears at --level {request.level}.")
    if stage is Stage.PROVIDER:
        steps.append("Run with --provider cpu to confirm.")
    if not steps and status is Status.SUSPECTED:
        steps.append("Compare the export with the source line of the missing operation.")
    return tuple(dict.fromkeys(steps))
