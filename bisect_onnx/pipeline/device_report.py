"""What is said of a candidate that ran elsewhere: the machine there against the one here, and which node it errs in."""

from collections.abc import Mapping, Sequence
from typing import Final

from bisect_onnx.core.alignment import Basis
from bisect_onnx.core.compare import Verdict
from bisect_onnx.core.finding import Confidence, Finding
from bisect_onnx.core.graph import Node, ValueKind
from bisect_onnx.core.recording import Recording
from bisect_onnx.core.report import (
    AlignmentSummary,
    Culprit,
    NodeRow,
    PairRow,
    ReasonCode,
    SearchSummary,
    Stage,
    Status,
    Strategy,
)
from bisect_onnx.errors import listing
from bisect_onnx.pipeline.device_accusing import EXPLAINS
from bisect_onnx.pipeline.device_search import DeviceSearch, Tested
from bisect_onnx.pipeline.environment import describe_environment
from bisect_onnx.pipeline.verdicts import Answer

__all__ = [
    "alignment_of",
    "also_wrong_there",
    "device_answer",
    "is_spread_out",
    "reproduced",
    "rows_of",
    "search_of",
    "told_apart",
]

CPU: Final = "CPUExecutionProvider"

# What of an environment may change a result, and is worth a line.
TELLING: Final = ("onnxruntime", "platform", "machine", "cpu", "threads", "variables")


def where(recording: Recording) -> str:
    return f"{', '.join(recording.providers)}, level {recording.level}"


def cause_of(recording: Recording) -> str | None:
    """A provider, a version of the runtime, or its optimisers, where one of them is not as it is here."""
    runtime = describe_environment(providers=(CPU,), level=0)["onnxruntime"]
    if any(provider != CPU for provider in recording.providers):
        return "K21"
    if _versions(recording.environment.get("onnxruntime")) != _versions(runtime):
        return "K28"
    return "K20" if recording.level > 0 else "K21"


def _versions(runtime: object) -> set[str]:
    """Of the runtime, whatever the distribution that brought it is called."""
    return {str(version) for version in runtime.values()} if isinstance(runtime, Mapping) else set()


def told_apart(recording: Recording) -> Finding:
    """The file agrees here and not there."""
    here = describe_environment(providers=(CPU,), level=0)
    there = recording.environment
    facts: dict[str, object] = {"providers": list(recording.providers), "level": recording.level}
    facts |= {f"{name}, there": there.get(name) for name in TELLING if there.get(name) != here.get(name)}
    facts |= {f"{name}, here": here.get(name) for name in TELLING if there.get(name) != here.get(name)}
    return Finding(
        code="DV001",
        name="right-here-and-wrong-there",
        cause=cause_of(recording),
        confidence=Confidence.PROVEN,
        subject=None,
        message=f"on the recorded inputs the file agrees with the reference here (CPU, level 0), and not where it was "
        f"recorded ({where(recording)}): the export is right",
        facts=facts,
    )


def reproduced(recording: Recording) -> Finding:
    """The file gives here what was recorded."""
    return Finding(
        code="DV002",
        name="same-error-here",
        cause=None,
        confidence=Confidence.PROVEN,
        subject=None,
        message=f"run here (CPU, level 0) the file gives the outputs that were recorded ({where(recording)}): the "
        "error is in the file, and what is said of it here holds there",
        facts={"providers": list(recording.providers), "level": recording.level},
    )


def also_wrong_there(recording: Recording, culprits: Sequence[Culprit]) -> Finding:
    """The file errs here as well, but not in the same way."""
    if culprits:
        first = culprits[0]
        own = f"{first.node} ({first.op_type}) is the first node that gives something else there on the same inputs"
    else:
        own = "no node there gives anything else on the inputs that it had"
    return Finding(
        code="DV003",
        name="another-error-there",
        cause=cause_of(recording) if culprits else None,
        confidence=Confidence.PROVEN if culprits and culprits[0].confidence == "certified" else Confidence.LIKELY,
        subject=culprits[0].node if culprits else None,
        message=f"the recorded outputs ({where(recording)}) differ from the reference, and from what the file gives "
        f"here; the report is about the error that shows here, and {own}",
        facts={"nodes": [culprit.node for culprit in culprits]},
        remedy="Mend the error that shows here first, then capture the new file there." if culprits else None,
    )


def moved_away(recording: Recording, outputs: Sequence[str]) -> Finding:
    """Exposing the values made the error another one, so they say nothing about it."""
    return Finding(
        code="DV004",
        name="seen-only-when-not-looked-at",
        cause="K20",
        confidence=Confidence.PROVEN,
        subject=outputs[0],
        message=f"while its values were recorded, the run there gave other numbers for {listing(outputs)} than "
        "untouched: the runtime merges nodes, and looking at the values keeps it from that. What was recorded of "
        "the nodes says nothing about the error",
        facts={"moved": dict(recording.moved)},
    )


def is_spread_out(culprits: Sequence[Culprit]) -> bool:
    """Whether several nodes err, and none of them explains the outputs."""
    impacts = [culprit.impact for culprit in culprits]
    return len(impacts) > 1 and all(impact is not None and impact < EXPLAINS for impact in impacts)


def _spread_out(culprits: Sequence[Culprit], *, wrong: int) -> Finding:
    kinds = sorted({culprit.op_type for culprit in culprits})
    return Finding(
        code="DV005",
        name="no-node-explains-it",
        cause="K21",
        confidence=Confidence.LIKELY,
        subject=culprits[0].node,
        message=f"{wrong} nodes give something else there on the same inputs ({', '.join(kinds)}), and no one of them "
        f"makes half of the outputs' error: that is how a lower precision there (TensorFloat-32, float16, bfloat16) "
        "shows",
        facts={"impact": {culprit.node: culprit.impact for culprit in culprits}, "counts as the source from": EXPLAINS},
        remedy="Forbid lower precisions there (for CUDA: set NVIDIA_TF32_OVERRIDE=0), and capture again.",
    )


def device_answer(
    recording: Recording,
    culprits: Sequence[Culprit],
    *,
    wrong: int,
    moved: Sequence[str],
    failing: Sequence[str],
    outputs: int,
    again: Sequence[str],
) -> Answer:
    """The answer when the file is right here.

    Args:
        recording: The recorded run.
        culprits: As `accuse_device` gives them; none when the values say nothing.
        wrong: How many values differ from what their nodes give here.
        moved: Outputs whose error went away, or became another, while values were exposed.
        failing: Outputs that differ from the reference.
        outputs: How many outputs there are.
        again: Commands that tell more, each with the words before it.
    """
    findings = [told_apart(recording)]
    differs = f"{len(failing)} of {outputs} outputs differ{'s' if outputs == 1 else ''}"
    stage = Stage.PROVIDER
    there = f"where the file ran ({where(recording)})"
    if moved:
        findings.append(moved_away(recording, moved))
        status, summary = Status.SUSPECTED, f"{differs} {there} and agree here; no node can be named from there"
    elif not culprits:
        status = Status.ACCUMULATION
        summary = f"{differs} {there} and agree here, and every node there stays within its noise floor"
    elif is_spread_out(culprits):
        findings.append(_spread_out(culprits, wrong=wrong))
        status, stage = Status.ACCUMULATION, Stage.PRECISION
        summary = f"{differs} {there} and agree here: {wrong} nodes err there, and none makes half of the difference"
    else:
        first = culprits[0]
        more = f", and {len(culprits) - 1} more err" if len(culprits) > 1 else ""
        status = Status.LOCATED if first.confidence == "certified" else Status.SUSPECTED
        verb = "introduces the error" if status is Status.LOCATED else "is suspected of the error"
        summary = f"{first.node} ({first.op_type}) {verb} {there}{more}; here the file is right"
    steps = [finding.remedy for finding in findings if finding.remedy]
    return Answer(
        status=status,
        stage=stage,
        summary=summary,
        findings=tuple(findings),
        next_steps=(*steps, *again),
    )


def search_of(tested: Mapping[str, Tested], *, runs: int) -> SearchSummary:
    return SearchSummary(strategy=Strategy.SCAN, probes=len(tested), runs=runs)


def rows_of(
    search: DeviceSearch,
    tested: Mapping[str, Tested],
    *,
    shapes_only: frozenset[str],
    culprits: Sequence[Culprit],
) -> tuple[NodeRow, ...]:
    """One row per node of the file; the recorded values stand where a report has the candidate's."""
    impacts = {culprit.index: culprit.impact for culprit in culprits}
    inside = {node.index for each in tested.values() for node in each.segment.nodes}
    rows = []
    for node in search.graph.nodes:
        found = [tested[name] for name in node.real_outputs() if name in tested]
        each = max(found, key=lambda item: (item.mismatch, item.introduced), default=None)
        code, reason = (None, None) if each is not None else _silence(node, search, inside, shapes_only)
        above = [] if each is None else [tested[n].accumulated for n in each.segment.inputs if n in tested]
        rows.append(
            NodeRow(
                index=node.index,
                node=node.name,
                op_type=node.op_type,
                path=node.path,
                module=node.module,
                pair=None if each is None else PairRow(reference=each.value, basis=Basis.NAME, transform="identity"),
                verdict=_verdict(each),
                inherited=None if each is None else max(above, default=0.0),
                introduced=None if each is None else each.introduced,
                accumulated=None if each is None else each.accumulated,
                noise=None if each is None else each.floor,
                threshold=None if each is None else each.threshold,
                impact=impacts.get(node.index),
                reason_code=code,
                reason=reason,
            )
        )
    return tuple(rows)


def _verdict(tested: Tested | None) -> Verdict:
    if tested is None:
        return Verdict.UNTESTABLE
    return Verdict.MISMATCH if tested.mismatch else Verdict.MATCH


def _silence(
    node: Node, search: DeviceSearch, inside: set[int], shapes_only: frozenset[str]
) -> tuple[ReasonCode | None, str]:
    outputs = node.real_outputs()
    if node.index in search.untested:
        return None, search.untested[node.index]
    if any(name in shapes_only for name in outputs):
        return ReasonCode.SHAPE_ARITHMETIC, "computes a shape; it is part of what reads it"
    if outputs and all(search.graph.kind(name) is not ValueKind.ACTIVATION for name in outputs):
        return ReasonCode.CONSTANT, "does not depend on any input"
    skipped = search.candidate.recording.skipped
    if node.index in inside:
        why = next((skipped[name] for name in outputs if name in skipped), "it was not recorded")
        return ReasonCode.INSIDE_SEGMENT, f"inside a segment: {why}"
    return ReasonCode.UNPAIRED, next((skipped[name] for name in outputs if name in skipped), "it was not recorded")


def alignment_of(search: DeviceSearch, tested: Mapping[str, Tested], rows: Sequence[NodeRow]) -> AlignmentSummary:
    """How many values could be held against the recording."""
    reasons = {row.index: row.reason or "another output of its node was tested" for row in rows}
    values = [name for node in search.graph.nodes for name in node.real_outputs()]
    floats = [
        name
        for name in search.graph.activations()
        if (search.graph.values[name].dtype or "").startswith(("float", "bfloat"))
    ]
    return AlignmentSummary(
        pairs=len(tested),
        values=len(values),
        coverage=sum(name in tested for name in floats) / len(floats) if floats else None,
        coverage_all=len(tested) / len(values) if values else None,
        by_basis={Basis.NAME.value: len(tested)} if tested else {},
        unmatched=tuple(
            (name, reasons[node.index])
            for node in search.graph.nodes
            for name in node.real_outputs()
            if name not in tested
        ),
    )
