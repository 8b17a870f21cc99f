"""From an accused segment to a culprit of the report: node, errors, certificate, impact."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from bisect_onnx.align.operators import MASKING, MOVEMENT, PASS_THROUGH
from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array, ErrorStats, compare_arrays
from bisect_onnx.core.report import Certificate, Culprit, CulpritError
from bisect_onnx.core.segments import fixed_ancestors
from bisect_onnx.pipeline.judge import scaled_gap
from bisect_onnx.pipeline.knowledge import Gap
from bisect_onnx.pipeline.narrow import Decision, Narrowed, falls_short, narrow
from bisect_onnx.pipeline.region import Judged, Region
from bisect_onnx.pipeline.settle import Settled

__all__ = ["Accusations", "accuse_all"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accusations:
    """Culprits, the first one first; how each was narrowed, by node index; operations that no node computes."""

    culprits: tuple[Culprit, ...]
    narrowed: Mapping[int, Narrowed]
    gaps: tuple[Gap, ...]


def accuse_all(
    region: Region, settled: Settled, *, parameter_of: Mapping[str, str], truth: Mapping[str, Array]
) -> Accusations:
    """All culprits of a settled region, and the operations it lacks.

    Args:
        region: The whole candidate.
        settled: Its pairs and judgements.
        parameter_of: Reference parameter by candidate initializer.
        truth: The reference's outputs by candidate output name.
    """
    explained = {gap.reader for gap in settled.missing}
    culprits: list[Culprit] = []
    narrowed: dict[int, Narrowed] = {}
    gaps = list(settled.missing)
    for accused in settled.accused:
        if accused.pair.candidate in explained:
            continue
        item, pairs, computed = _to_the_end(accused, region=region, settled=settled)
        cleared = _cleared(
            region, settled, but={node.index for node in item.segment.nodes if node not in accused.segment.nodes}
        )
        spoken_for = region.read_rightly(item, pairs)
        cleared |= {node.index for node in item.segment.nodes if spoken_for & set(node.outputs)}
        if falls_short(item, region=region, pairs=pairs, computed=computed):
            readers = region.graph.consumers(item.pair.candidate)
            reader = readers[0].outputs[0] if readers else item.pair.candidate
            gaps.append(Gap(value=item.pair.candidate, before=reader, reader=reader, reference=item.pair.reference))
            continue
        result = narrow(
            item,
            region=region,
            pairs=pairs,
            parameter_of=parameter_of,
            cleared=cleared,
            right_shape=region.prober.reference(item.pair.reference).shape == computed.shape,
        )
        gaps += [result.gap] if result.gap is not None else []
        for found in result.found:
            narrowed.setdefault(found.node.index, found)
            culprits.append(accuse(item, found, region=region, pairs=pairs, computed=computed, truth=truth))
    return Accusations(culprits=_ranked(culprits), narrowed=narrowed, gaps=tuple(gaps))


def _cleared(region: Region, settled: Settled, *, but: set[int]) -> frozenset[int]:
    """Nodes that a right segment holds or reads; not those ``but``, whose rightness was only to pass a value on.

    A segment with an operator that can hide an error clears nothing.
    """
    right = [
        node
        for item in settled.judged.values()
        if not item.mismatch and not any(node.op_type in MASKING for node in item.segment.nodes)
        for node in item.segment.nodes
    ]
    read = fixed_ancestors(region.graph, right, cut=settled.pairs.keys())
    return frozenset({node.index for node in (*right, *read)} - but)


def _to_the_end(item: Judged, *, region: Region, settled: Settled) -> tuple[Judged, Mapping[str, Pair], Array]:
    """The segment, lengthened by operators that only passed the reference's value on.

    Feeding the reference's value to an Add of zero gives the reference's value, so both the Add and what
    is above it end in the same pair; the error may be in either, and the segment has to hold both.
    """
    pairs, computed = dict(settled.pairs), settled.forced[item.pair.candidate]
    while (following := _passing_on(item, region=region, pairs=pairs, settled=settled)) is not None:
        del pairs[item.pair.candidate]
        fed = [pairs[name] for name in region.segment(following.pair.candidate, pairs).inputs if name in region.plain]
        again = region.run(fed, [following.pair.candidate])[following.pair.candidate]
        longer = region.judged(following.pair, pairs, again)
        if not longer.mismatch:
            break
        item, computed = longer, again
    return item, pairs, computed


def _passing_on(item: Judged, *, region: Region, pairs: Mapping[str, Pair], settled: Settled) -> Judged | None:
    """The one segment that reads the accused value, if it gives the same reference value and could compute."""
    readers = [
        other
        for name, other in settled.judged.items()
        if name in pairs and item.pair.candidate in region.segment(name, pairs).inputs
    ]
    if len(readers) != 1 or readers[0].mismatch or item.pair.candidate in region.graph.outputs:
        return None
    group_of = region.index.group_of
    same = group_of[readers[0].pair.reference] == group_of[item.pair.reference]
    computes = any(node.op_type not in MOVEMENT | PASS_THROUGH for node in readers[0].segment.nodes)
    return readers[0] if same and computes else None


def accuse(
    item: Judged,
    narrowed: Narrowed,
    *,
    region: Region,
    pairs: Mapping[str, Pair],
    computed: Array,
    truth: Mapping[str, Array],
) -> Culprit:
    """State the accusation and prove it.

    Args:
        item: The segment.
        narrowed: The node in it.
        region: The whole candidate.
        pairs: All pairs.
        computed: The segment's result on the reference's inputs.
        truth: The reference's outputs by candidate output name.
    """
    node = narrowed.node
    call = region.index.origin(item.pair.reference, module=node.module)
    rest = [other for other in (*narrowed.suspects[1:], *item.segment.nodes) if other.index != node.index]
    group = tuple(dict.fromkeys([node.name, *(other.name for other in rest)]))
    certificate = _certificate(item, region=region, pairs=pairs, computed=computed)
    introduced = _stats(item, region=region, computed=computed)
    # Values of unequal element counts may be two quantities: that nothing was measured proves nothing.
    certified = certificate.complete and introduced is not None and narrowed.decision is not Decision.RANKED
    return Culprit(
        node=node.name,
        op_type=node.op_type,
        domain=node.domain,
        index=node.index,
        path=node.path,
        inputs=node.inputs,
        outputs=node.outputs,
        attributes=node.attributes,
        group=group,
        module=node.module if node.module is not None else (call.module if call else None),
        module_class=node.module_class or (call.module_class if call else None),
        torch_op=(call.torch_op if call else None) or node.torch_op,
        source=(call.source if call else None) or node.source,
        error=CulpritError(
            inherited=_inherited(item, region=region, pairs=pairs),
            introduced=introduced,
            accumulated=_stats(item, region=region, computed=region.plain.get(item.pair.candidate, computed)),
        ),
        noise=item.judgement.floor,
        threshold=item.judgement.threshold,
        certificate=certificate,
        impact=_impact(item, region=region, truth=truth),
        confidence="certified" if certified else "suspected",
    )


def _stats(item: Judged, *, region: Region, computed: Array) -> ErrorStats | None:
    reference = region.prober.reference(item.pair.reference)
    if reference.size == computed.size:
        reference = reference.reshape(computed.shape)
    error = compare_arrays(reference, computed, check_dtype=False)
    return error if isinstance(error, ErrorStats) else None


def _inherited(item: Judged, *, region: Region, pairs: Mapping[str, Pair]) -> ErrorStats | None:
    worst: ErrorStats | None = None
    for name in item.segment.inputs:
        observed = region.plain.get(name, region.prober.feeds.get(name))
        if observed is None or observed.size != region.prober.reference(pairs[name].reference).size:
            continue
        error = compare_arrays(region.partner(pairs[name]), observed, check_dtype=False)
        if isinstance(error, ErrorStats) and (worst is None or (error.scaled or 0.0) > (worst.scaled or 0.0)):
            worst = dataclasses.replace(error, input=name)
    return worst


def _certificate(item: Judged, *, region: Region, pairs: Mapping[str, Pair], computed: Array) -> Certificate:
    """Run the segment alone, in a session of its own, on the reference's inputs.

    ``inputs_match``: everything the segment reads is paired and was fed with the reference's value, so
    no error can have come in with it.
    """
    cuts = {name: region.partner(pairs[name]) for name in item.segment.inputs if name in region.plain}
    fed = all(name in cuts or name in region.prober.feeds for name in item.segment.inputs)
    again = region.prober.forced(cuts, [item.pair.candidate]).get(item.pair.candidate)
    if again is None:
        return Certificate(inputs_match=fed, output_differs=item.mismatch, replay_reproduces=None)
    close = scaled_gap(computed, again) <= max(item.judgement.threshold, 0.5 * item.judgement.scaled)
    differs = region.judged(item.pair, pairs, again).mismatch
    return Certificate(
        inputs_match=fed,
        output_differs=item.mismatch,
        replay_reproduces=bool(differs and close) or _both_broken(computed, again),
    )


def _both_broken(first: Array, second: Array) -> bool:
    """Non-finite results repeat when they are the same elements."""
    if first.shape != second.shape or first.dtype.kind != "f":
        return False
    broken = ~np.isfinite(first)
    return bool(broken.any()) and np.array_equal(broken, ~np.isfinite(second))


def _impact(item: Judged, *, region: Region, truth: Mapping[str, Array]) -> float | None:
    """1 - rmse_after / rmse_before on the worst output when the reference's value stands at the segment's end."""
    outputs = [name for name in truth if name in region.plain and truth[name].shape == region.plain[name].shape]
    before = {name: _rmse(truth[name], region.plain[name]) for name in outputs}
    name = max(outputs, key=lambda output: before[output], default=None)
    if name is None or not before[name]:
        return None
    if name == item.pair.candidate:
        return 1.0
    reference = region.prober.reference(item.pair.reference)
    if reference.size != region.plain[item.pair.candidate].size:
        return None
    cut = {item.pair.candidate: region.partner(item.pair)}
    after = region.prober.forced(cut, [name]).get(name)
    if after is None:
        return None
    if not np.isfinite(before[name]):
        return 1.0 if np.isfinite(_rmse(truth[name], after)) else 0.0
    return float(min(1.0, max(0.0, 1 - _rmse(truth[name], after) / before[name])))


def _rmse(reference: Array, computed: Array) -> float:
    error = compare_arrays(reference, computed, check_dtype=False)
    if not isinstance(error, ErrorStats):
        return float("inf")
    return error.rmse if error.rmse is not None else float(error.mismatched or 0)


def _ranked(culprits: Sequence[Culprit]) -> tuple[Culprit, ...]:
    """Those at ten times their threshold or more in topological order, then the rest by that ratio."""

    def ratio(culprit: Culprit) -> float:
        introduced = culprit.error.introduced
        if introduced is None or introduced.scaled is None:
            return float("inf")
        return introduced.scaled / culprit.threshold if culprit.threshold else float("inf")

    seen: dict[int, Culprit] = {}
    for culprit in culprits:
        seen.setdefault(culprit.index, culprit)
    return tuple(sorted(seen.values(), key=lambda c: (ratio(c) < 10, c.index if ratio(c) >= 10 else 0, -ratio(c))))
