"""The report's rows about nodes and alignment, from what a search left behind."""

from collections import Counter
from collections.abc import Iterable, Mapping

from bisect_onnx.core.alignment import Basis, Pair
from bisect_onnx.core.compare import Verdict
from bisect_onnx.core.graph import Graph, Node, ValueKind
from bisect_onnx.core.report import AlignmentSummary, Culprit, NodeRow, PairRow, ReasonCode
from bisect_onnx.pipeline.judge import scaled_gap
from bisect_onnx.pipeline.region import Judged, Region

__all__ = ["EMPTY_ALIGNMENT", "alignment_summary", "labelled", "node_rows", "with_inner_rows"]

EMPTY_ALIGNMENT = AlignmentSummary(pairs=0, values=0, coverage=None, coverage_all=None, by_basis={}, unmatched=())


def labelled(pairs: Mapping[str, Pair], region: Region) -> dict[str, Pair]:
    """The pairs with the strongest basis that speaks for each, not only the one it was found by."""
    return {name: _labelled(pair, region) for name, pair in pairs.items()}


def _labelled(pair: Pair, region: Region) -> Pair:
    import dataclasses

    node = region.graph.producer(pair.candidate)
    if node is None or node.module is None:
        return pair
    calls = [region.index.graph.producer(name) for name in region.index.members[region.index.group_of[pair.reference]]]
    if not any(call is not None and call.module == node.module for call in calls):
        return pair
    return dataclasses.replace(pair, basis=Basis.EXPORTER if node.torch_op is not None else Basis.SCOPE_NAME)


def node_rows(
    region: Region,
    *,
    pairs: Mapping[str, Pair],
    judged: Mapping[str, Judged],
    shapes_only: frozenset[str],
    impacts: Mapping[int, float | None],
) -> tuple[NodeRow, ...]:
    """One row per node of the file, in its order."""
    accumulated = {
        name: scaled_gap(region.partner(pair), region.plain[name], masks_alike=True)
        for name, pair in pairs.items()
        if name in region.plain and region.prober.reference(pair.reference).size == region.plain[name].size
    }
    inside = {node.index for item in judged.values() for node in item.segment.nodes}
    return tuple(
        _row(
            node,
            region,
            pairs=pairs,
            judged=judged,
            accumulated=accumulated,
            inside=inside,
            shapes_only=shapes_only,
            impact=impacts.get(node.index),
        )
        for node in region.graph.nodes
    )


def _row(
    node: Node,
    region: Region,
    *,
    pairs: Mapping[str, Pair],
    judged: Mapping[str, Judged],
    accumulated: Mapping[str, float],
    inside: set[int],
    shapes_only: frozenset[str],
    impact: float | None,
) -> NodeRow:
    found = [judged[name] for name in node.real_outputs() if name in judged]
    item = max(found, key=lambda each: (each.mismatch, each.judgement.scaled), default=None)
    module = node.module
    paired = next((pairs[name] for name in node.real_outputs() if name in pairs), None)
    if item is None and paired is not None:
        return _unasked(node, paired, accumulated=accumulated.get(paired.candidate), impact=impact)
    if item is None:
        code, reason = _silence(node, region, inside=inside, shapes_only=shapes_only)
        return NodeRow(
            index=node.index, node=node.name, op_type=node.op_type, path=node.path, module=module, pair=None,
            verdict=Verdict.UNTESTABLE, inherited=None, introduced=None, accumulated=None, noise=None, threshold=None,
            impact=impact, reason_code=code, reason=reason,
        )  # fmt: skip
    if module is None:
        call = region.index.origin(item.pair.reference)
        module = call.module if call is not None else None
    above = [accumulated[name] for name in item.segment.inputs if name in accumulated]
    return NodeRow(
        index=node.index,
        node=node.name,
        op_type=node.op_type,
        path=node.path,
        module=module,
        pair=PairRow(reference=item.pair.reference, basis=item.pair.basis, transform=item.pair.transform),
        verdict=item.judgement.verdict,
        inherited=max(above, default=0.0),
        introduced=item.judgement.scaled,
        accumulated=accumulated.get(item.pair.candidate),
        noise=item.judgement.floor,
        threshold=item.judgement.threshold,
        impact=impact,
        reason_code=None,
        reason=None,
    )


def _unasked(node: Node, pair: Pair, *, accumulated: float | None, impact: float | None) -> NodeRow:
    """A node with a partner that a bisection had no need to test."""
    return NodeRow(
        index=node.index, node=node.name, op_type=node.op_type, path=node.path, module=node.module,
        pair=PairRow(reference=pair.reference, basis=pair.basis, transform=pair.transform),
        verdict=Verdict.UNTESTABLE, inherited=None, introduced=None, accumulated=accumulated, noise=None,
        threshold=None, impact=impact, reason_code=None, reason="the bisection needed no test of it",
    )  # fmt: skip


def _silence(node: Node, region: Region, *, inside: set[int], shapes_only: frozenset[str]) -> tuple[ReasonCode, str]:
    outputs = node.real_outputs()
    if any(name in shapes_only for name in outputs):
        return ReasonCode.SHAPE_ARITHMETIC, "computes a shape, which the reference does outside its tensors"
    if outputs and all(region.graph.kind(name) is not ValueKind.ACTIVATION for name in outputs):
        return ReasonCode.CONSTANT, "does not depend on any input"
    if not any(name in region.plain for name in outputs):
        return ReasonCode.UNSUPPORTED_DTYPE, "its value cannot be exposed by the runtime"
    if node.index in inside:
        return ReasonCode.INSIDE_SEGMENT, "inside a segment: the reference computes this in one call"
    return ReasonCode.UNPAIRED, "no value of the reference was found for it"


def alignment_summary(
    graph: Graph, region: Region, pairs: Mapping[str, Pair], rows: tuple[NodeRow, ...]
) -> AlignmentSummary:
    """Coverage and reasons; ``rows`` are those of `node_rows`."""
    reasons = {row.index: row.reason or "another output of its node is paired" for row in rows}
    values = [name for node in graph.nodes for name in node.real_outputs()]
    active = [name for name in values if graph.kind(name) is ValueKind.ACTIVATION]
    floats = [name for name in active if name in region.plain and region.plain[name].dtype.kind in "fV"]
    unmatched = []
    for node in graph.nodes:
        unmatched += [(name, reasons[node.index]) for name in node.real_outputs() if name not in pairs]
    paired = [name for name in values if name in pairs]
    return AlignmentSummary(
        pairs=len(paired),
        values=len(values),
        coverage=sum(name in pairs for name in floats) / len(floats) if floats else None,
        coverage_all=len(paired) / len(values) if values else None,
        by_basis=dict(sorted(Counter(pairs[name].basis.value for name in paired).items())),
        unmatched=tuple(unmatched),
    )


def with_inner_rows(rows: Iterable[NodeRow], culprits: Iterable[Culprit]) -> tuple[NodeRow, ...]:
    """The rows, with one for each accused node of a body behind the node that holds it."""
    inner: dict[int, list[Culprit]] = {}
    for culprit in culprits:
        if culprit.path:
            inner.setdefault(culprit.index, []).append(culprit)
    return tuple(each for row in rows for each in (row, *map(_inner_row, inner.get(row.index, ()))))


def _inner_row(culprit: Culprit) -> NodeRow:
    error = culprit.error
    return NodeRow(
        index=culprit.index,
        node=culprit.node,
        op_type=culprit.op_type,
        path=culprit.path,
        module=culprit.module,
        pair=None,
        verdict=Verdict.MISMATCH,
        inherited=error.inherited.scaled if error.inherited is not None else None,
        introduced=error.introduced.scaled if error.introduced is not None else None,
        accumulated=error.accumulated.scaled if error.accumulated is not None else None,
        noise=culprit.noise,
        threshold=culprit.threshold,
        impact=culprit.impact,
        reason_code=None,
        reason=None,
    )
