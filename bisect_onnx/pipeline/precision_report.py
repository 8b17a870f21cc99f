"""What a report says of a lower-precision candidate: status, stage, ranking, and what to do next."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from bisect_onnx.core.compare import Array, ErrorStats, Verdict, compare_arrays
from bisect_onnx.core.finding import Confidence, Finding
from bisect_onnx.core.report import Culprit, SearchSummary, Stage, Status, Strategy, WeightRow
from bisect_onnx.pipeline.comparing import Comparison
from bisect_onnx.pipeline.precision import Weighed, ranking, with_reasons
from bisect_onnx.pipeline.precision_format import QUANTIZING, LowerPrecision
from bisect_onnx.pipeline.precision_keep import Kept, NotKept, nodes_to_keep, working_nodes
from bisect_onnx.pipeline.precision_keep_file import write_keep_list
from bisect_onnx.pipeline.precision_kept_run import Unit
from bisect_onnx.pipeline.region import Region
from bisect_onnx.pipeline.request import LocateRequest
from bisect_onnx.pipeline.rows import alignment_summary, labelled, node_rows
from bisect_onnx.pipeline.sides import Sides
from bisect_onnx.pipeline.verdicts import Answer, answer

__all__ = ["Told", "told", "with_keep_list", "written_keep_list"]


NO_KEEP_LIST = "PR002"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told:
    """The answer, and the fields of the report beside it."""

    verdict: Answer
    fields: Mapping[str, object]


def told(
    weighed: Weighed,
    lower: LowerPrecision,
    *,
    region: Region,
    compared: Comparison,
    sides: Sides,
    request: LocateRequest,
) -> Told:
    """Word what weighing found."""
    culprits = weighed.accusations.culprits
    status = _status(culprits)
    findings: tuple[Finding, ...] = (ranking(lower, weighed, region=region),)
    unpaired = compared.unpaired()
    if status is Status.ACCUMULATION and unpaired is not None:
        status, findings = Status.INCONCLUSIVE, (unpaired, *findings)
    verdict = answer(
        status=status,
        outputs=compared.rows,
        stage=_stage(weighed, region),
        culprits=culprits,
        findings=findings,
        request=request,
    )
    if status is Status.ACCUMULATION:
        verdict = dataclasses.replace(verdict, summary=_summary(weighed, lower, compared=compared))
    return Told(verdict=verdict, fields=_fields(weighed, region=region, sides=sides))


def with_keep_list(
    found: Told, weighed: Weighed, lower: LowerPrecision, *, region: Region, compared: Comparison, sides: Sides
) -> Told:
    """The same with the nodes to keep in the higher precision, or the reason why none are named."""
    if found.verdict.stage is not Stage.PRECISION:
        kept: Kept | NotKept = NotKept(
            reason="one node is wrong whatever its precision is: mend it first, then ask again"
        )
    else:
        with np.errstate(all="ignore"):
            kept = nodes_to_keep(
                region,
                weighed,
                lower,
                agrees=compared.would_agree,
                distance=lambda outputs: _distance(outputs, compared.truth),
                names=lambda unit: _names(unit, lower, weighed, region=region, sides=sides),
            )
    if isinstance(kept, NotKept):
        finding = _nothing_kept(kept.reason)
        verdict = dataclasses.replace(found.verdict, findings=(*found.verdict.findings, finding))
        return dataclasses.replace(found, verdict=verdict)
    step = (
        f"Convert again with these {len(kept.names)} of {len(lower.nodes)} nodes in the higher precision: the outputs "
        "came inside the tolerance when that was run at level 0 on the CPU."
    )
    return Told(
        verdict=dataclasses.replace(found.verdict, next_steps=(step,)), fields={**found.fields, "keep_list": kept.names}
    )


def written_keep_list(verdict: Answer, fields: Mapping[str, object], request: LocateRequest) -> Answer:
    """Write the list that was asked for, an empty one when the outputs agree as they are; say why it is not written."""
    if request.keep_list is None or any(finding.code == NO_KEEP_LIST for finding in verdict.findings):
        return verdict
    names = fields.get("keep_list", () if verdict.status is Status.PARITY else None)
    if isinstance(names, tuple):
        write_keep_list(request.keep_list, names)
        return verdict
    finding = _nothing_kept("the candidate does not compute in a lower precision than the reference")
    return dataclasses.replace(verdict, findings=(*verdict.findings, finding))


def _nothing_kept(reason: str) -> Finding:
    return Finding(
        code=NO_KEEP_LIST,
        name="no-keep-list",
        cause=None,
        confidence=Confidence.PROVEN,
        subject=None,
        message=f"no list of nodes to keep was written: {reason}",
    )


def _distance(outputs: Mapping[str, Array], truth: Mapping[str, Array]) -> float:
    """The largest relative distance of an output."""
    worst = 0.0
    for name, array in outputs.items():
        error = compare_arrays(truth[name], array, check_dtype=False) if name in truth else None
        if isinstance(error, ErrorStats) and error.relative_l2 is not None:
            worst = max(worst, error.relative_l2)
    return worst


def _names(unit: Unit, lower: LowerPrecision, weighed: Weighed, *, region: Region, sides: Sides) -> list[str]:
    """The candidate's names, or the reference's where a quantiser made several nodes of one that it renamed."""
    own = [node.name for node in working_nodes(unit, lower)]
    calls = region.index.graph
    if sides.reference_runtime is None or {node.name for node in calls.nodes} & set(own):
        return own
    call = calls.producer(weighed.settled.pairs[unit.output].reference)
    return own if call is None else [call.name]


def _status(culprits: tuple[Culprit, ...]) -> Status:
    if not culprits:
        return Status.ACCUMULATION
    return Status.LOCATED if culprits[0].confidence == "certified" else Status.SUSPECTED


def _stage(weighed: Weighed, region: Region) -> Stage:
    """Precision, unless the first culprit is another operation, or reads another weight, than the reference's."""
    if not weighed.accusations.culprits:
        return Stage.PRECISION
    first = weighed.accusations.culprits[0]
    if weighed.accusations.narrowed[first.index].weight is not None:
        return Stage.WEIGHTS
    if first.op_type in QUANTIZING:
        return Stage.PRECISION
    return Stage.PRECISION if _same_call(first, weighed, region) else Stage.EXPORT


def _same_call(culprit: Culprit, weighed: Weighed, region: Region) -> bool:
    """Whether the reference's file has the very node, in its own precision."""
    names = [name for name in culprit.outputs if name in weighed.settled.pairs]
    for name in names:
        call = region.index.graph.producer(weighed.settled.pairs[name].reference)
        if call is not None and call.op_type == culprit.op_type and dict(call.attributes) == dict(culprit.attributes):
            return True
    return False


def _summary(weighed: Weighed, lower: LowerPrecision, *, compared: Comparison) -> str:
    failing = sum(row.verdict is Verdict.MISMATCH for row in compared.rows)
    beyond = sum(item.mismatch for item in weighed.settled.judged.values())
    within = "every node stays within what that allows" if not beyond else f"{beyond} of them beyond what that allows"
    return (
        f"{failing} of {len(compared.rows)} outputs differ{'s' if len(compared.rows) == 1 else ''} beyond tolerance: "
        f"{len(lower.nodes)} nodes compute in {' and '.join(lower.formats)}, and {within}: no single culprit"
    )


def _fields(weighed: Weighed, *, region: Region, sides: Sides) -> dict[str, object]:
    settled, found = weighed.settled, weighed.accusations
    pairs = labelled(settled.pairs, region)
    judged = {name: dataclasses.replace(item, pair=pairs[name]) for name, item in settled.judged.items()}
    impacts: dict[int, float | None] = {}
    for name, impact in weighed.impacts.items():
        producer = region.graph.producer(name)
        if producer is not None:
            impacts[producer.index] = max(impact, impacts.get(producer.index) or 0.0)
    impacts |= {culprit.index: culprit.impact for culprit in found.culprits}
    rows = node_rows(region, pairs=pairs, judged=judged, shapes_only=sides.shapes_only, impacts=impacts)
    rows = with_reasons(rows, weighed, region=region)
    return {
        "culprits": found.culprits,
        "nodes": rows,
        "alignment": alignment_summary(region.graph, region, pairs, rows),
        "search": SearchSummary(strategy=Strategy.SCAN, probes=len(judged), runs=sides.candidate.runs),
        "weights": tuple(
            WeightRow(initializer=w.initializer, parameter=w.parameter, transform=w.transform, error=w.error)
            for narrowed in found.narrowed.values()
            if (w := narrowed.weight) is not None
        ),
    }
