"""The answer in words: one sentence per outcome, and what to do next."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from bisect_onnx.core.compare import Verdict
from bisect_onnx.core.finding import Finding
from bisect_onnx.core.graph import nested_label
from bisect_onnx.core.report import Culprit, OutputRow, Stage, Status
from bisect_onnx.pipeline.commands import as_command
from bisect_onnx.pipeline.request import LocateRequest

__all__ = ["Answer", "Told", "answer"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the report's first lines say."""

    status: Status
    stage: Stage | None
    summary: str
    findings: tuple[Finding, ...]
    next_steps: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told:
    """An answer that ends the run, and what the report says besides."""

    verdict: Answer
    fields: Mapping[str, object] = dataclasses.field(default_factory=dict)


def answer(
    *,
    status: Status,
    outputs: Sequence[OutputRow],
    stage: Stage | None = None,
    culprits: Sequence[Culprit] = (),
    findings: tuple[Finding, ...] = (),
    request: LocateRequest,
) -> Answer:
    """Word the outcome of a run."""
    if status is Status.HARNESS:
        stage = Stage.HARNESS
    return Answer(
        status=status,
        stage=stage,
        summary=_summary(status, outputs, stage=stage, culprits=culprits, findings=findings),
        findings=findings,
        next_steps=_next_steps(status, outputs, stage=stage, culprits=culprits, findings=findings, request=request),
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
        return f"{nested_label(first.path, first.node)} ({first.op_type}){where} {verb}{others}"
    if stage in (Stage.OPTIMIZER, Stage.PROVIDER):
        who = "ONNX Runtime's optimisers" if stage is Stage.OPTIMIZER else "the execution provider"
        return f"{differs} in the requested configuration, and agree at level 0 on the CPU: {who} introduce the error"
    if stage is Stage.WEIGHTS:
        return f"{differs}, because the file has other weights than the reference: {findings[0].message}"
    return f"{differs}: an operation of the reference is missing in the ONNX graph"


def _next_steps(
    status: Status,
    outputs: Sequence[OutputRow],
    *,
    stage: Stage | None,
    culprits: Sequence[Culprit],
    findings: Sequence[Finding],
    request: LocateRequest,
) -> tuple[str, ...]:
    """Words, each followed by the command they speak of, where there is one."""
    steps = [finding.remedy for finding in findings if finding.remedy]
    again = as_command(request)
    if culprits:
        steps += _about(culprits[0], stage=stage)
        after = "the first culprit is mended" if len(culprits) > 1 else "that is mended"
        steps += [f"When {after} and the model exported, ask again:", again]
    elif status is Status.ACCUMULATION:
        steps += _looser(outputs, request)
    elif stage is Stage.OPTIMIZER:
        steps += ["Confirm that the file is right without the optimisers:", as_command(request, level=0)]
    elif stage is Stage.PROVIDER:
        steps += [
            "Confirm that the file is right on the CPU, without optimisers:",
            as_command(request, providers=("cpu",), level=0),
        ]
    elif stage is Stage.WEIGHTS:
        steps += ["Then compare again:", again]
    elif status is Status.SUSPECTED:
        steps += [
            "Compare the export with the source line of the missing operation; when it is there, ask again:",
            again,
        ]
    elif status in (Status.HARNESS, Status.INCONCLUSIVE):
        steps += ["Then compare again:", again]
    return tuple(dict.fromkeys(steps))


def _about(culprit: Culprit, *, stage: Stage | None) -> list[str]:
    if stage is Stage.WEIGHTS:
        return ["Export again from the checkpoint that the reference uses."]
    if culprit.source is None:
        return []
    return [f"Look at {culprit.source.file}:{culprit.source.line} and at how {culprit.op_type} was exported."]


def _looser(outputs: Sequence[OutputRow], request: LocateRequest) -> list[str]:
    """Allow what was measured, if it can be allowed at all."""
    figures = [row.error.max_abs if row.error is not None else None for row in outputs]
    largest = max((figure for figure in figures if figure is not None), default=None)
    if largest is None or not math.isfinite(largest) or any(figure is None for figure in figures):
        return []
    atol = _rounded_up(largest)
    command = as_command(request, atol=atol, metric=None, threshold=None)
    return ["No node is at fault. If differences of this size do not matter to you, allow them:", command]


def _rounded_up(figure: float) -> float:
    """To two digits, upwards."""
    digits = 10.0 ** (math.floor(math.log10(figure)) - 1) if figure > 0 else 1.0
    return float(f"{math.ceil(figure / digits) * digits:.1e}")
