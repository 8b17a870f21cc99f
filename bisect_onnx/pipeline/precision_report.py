"""What a report says of a lower-precision candidate: status, stage, ranking, and what to do next."""

import dataclasses
from collections.abc import Mapping

from bisect_onnx.core.compare import Verdict
from bisect_onnx.core.finding import Finding
from bisect_onnx.core.report import Culprit, SearchSummary, Stage, Status, Strategy, WeightRow
from bisect_onnx.pipeline.comparing import Comparison
from bisect_onnx.pipeline.precision import Weighed, ranking, with_reasons
from bisect_onnx.pipeline.precision_format import LowerPrecision
from bisect_onnx.pipeline.region import Region
from bisect_onnx.pipeline.request import LocateRequest
from bisect_onnx.pipeline.rows import alignment_summary, labelled, node_rows
from bisect_onnx.pipeline.sides import Sides
from bisect_onnx.pipeline.verdicts import Answer, answer

__all__ = ["Told", "told"]


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
