"""From an accused segment to a culprit of the report: node, errors, certificate, impact."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from bisect_onnx.align.operators import MASKING, MOVEMENT, PASS_THROUGH
from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array, ErrorStats, compare_arrays
from bisect_onnx.core.report import Certificate, Culprit, CulpritError
from bisect_onnx.core.segments import fixed_ancestors
from bisect_onnx.pipeline.bodies import has_bodies, open_bodies, reopened
from bisect_onnx.pipeline.impact import impact_of
from bisect_onnx.pipeline.inner_culprits import gaps_in_the_file, in_the_file, merged
from bisect_onnx.pipeline.judge import scaled_gap
from bisect_onnx.pipeline.knowledge import Gap
from bisect_onnx.pipeline.narrow import Decision, Narrowed, narrow
from bisect_onnx.pipeline.region import Judged, Region
from bisect_onnx.pipeline.second_opinion import second_opinion
from bisect_onnx.pipeline.settle import Settled
from bisect_onnx.pipeline.taken_apart import falls_short, lost_transposition, passed_on

__all__ = ["Accusations", "accuse_all", "ranked"]


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
    settled = reopened(region, settled)
    explained = {gap.reader for gap in settled.missing}
    cases: list[_Case] = []
    inner: list[tuple[Culprit, Narrowed]] = []
    gaps = list(settled.missing)
    for accused in settled.accused:
        if accused.pair.candidate in explained:
            continue
        item, pairs, computed = _to_the_end(accused, region=region, settled=settled)
        cleared = _cleared(
            region, settled, but={node.index for node in item.segment.nodes if node not in accused.segment.nodes}
        )
        opened = open_bodies(item, region=region, pairs=pairs) if has_bodies(item, region.graph) else None
        if isinstance(opened, Narrowed):
            cases.append(_Case(item=item, pairs=pairs, computed=computed, narrowed=opened))
            continue
        if opened is not None:
            inside = accuse_all(opened.region, opened.settled, parameter_of=opened.parameter_of, truth={})
            gaps += gaps_in_the_file(opened, inside.gaps)
            inner += in_the_file(opened, inside.culprits, narrowed=inside.narrowed, region=region, truth=truth)
            continue
        spoken_for = region.read_rightly(item, pairs)
        cleared |= {node.index for node in item.segment.nodes if spoken_for & set(node.outputs)}
        unchanged = passed_on(item, region=region, pairs=pairs, computed=computed)
        if unchanged is not None:
            first = item.segment.nodes[0].outputs[0]
            gaps.append(Gap(value=unchanged, before=first, reader=first, reference=item.pair.reference))
            continue
        lost = lost_transposition(item, region=region, pairs=pairs, computed=computed)
        if lost is not None:
            value, before = lost
            gaps.append(Gap(value=value, before=before, reader=before, reference=item.pair.reference))
            continue
        if falls_short(item, region=region, pairs=pairs, computed=computed):
            readers = region.graph.consumers(item.pair.candidate)
            reader = readers[0].outputs[0] if readers else item.pair.candidate
            gaps.append(Gap(value=item.pair.candidate, before=reader, reader=reader, reference=item.pair.reference))
            continue
        closed = item.segment.nodes[-1]
        if len(item.segment.nodes) == 1 and closed.subgraphs:
            # Taken apart, the reference's calls would have nothing to be held against: no value inside can be seen.
            found = Narrowed(node=closed, suspects=(closed,), decision=Decision.ALONE)
            cases.append(_Case(item=item, pairs=pairs, computed=computed, narrowed=found))
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
        cases += [_Case(item=item, pairs=pairs, computed=computed, narrowed=found) for found in result.found]
    cases = [_in_common(case, cases) for case in cases]
    culprits = [
        accuse(case.item, case.narrowed, region=region, pairs=case.pairs, computed=case.computed, truth=truth)
        for case in cases
    ]
    inner = merged(inner)
    culprits += [culprit for culprit, _ in inner]
    narrowed = {culprit.index: found for culprit, found in reversed(inner)}
    narrowed |= {case.narrowed.node.index: case.narrowed for case in reversed(cases)}
    return Accusations(culprits=ranked(culprits), narrowed=narrowed, gaps=tuple(gaps))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Case:
    """A wrong segment, the pairs it was judged with, its result on the reference's inputs, and one node of it."""

    item: Judged
    pairs: Mapping[str, Pair]
    computed: Array
    narrowed: Narrowed


def _in_common(case: _Case, cases: Sequence[_Case]) -> _Case:
    """The case with the suspects that it shares with another one, if it has such: one fault explains both.

    Two segments read one scale or one mask; each alone could as well be wrong in a node of its own.
    """
    own = case.narrowed
    others = [other.narrowed for other in cases if other is not case and other.narrowed.decision is Decision.RANKED]
    shared = [node for node in own.suspects if any(node in other.suspects for other in others)]
    if own.decision is not Decision.RANKED or not shared:
        return case
    shared.sort(key=lambda node: node.op_type in MOVEMENT | PASS_THROUGH)
    return dataclasses.replace(case, narrowed=dataclasses.replace(own, node=shared[0], suspects=tuple(shared)))


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
        second_judge=second_opinion(item, region=region, pairs=pairs, computed=computed),
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
    """That of the reference's value at the segment's end."""
    reference = region.prober.reference(item.pair.reference)
    if reference.size != region.plain[item.pair.candidate].size:
        return None
    return impact_of(region, {item.pair.candidate: region.partner(item.pair)}, truth=truth)


def ranked(culprits: Sequence[Culprit]) -> tuple[Culprit, ...]:
    """Those at ten times their threshold or more in topological order, then the rest by that ratio."""

    def ratio(culprit: Culprit) -> float:
        introduced = culprit.error.introduced
        if introduced is None or introduced.scaled is None:
            return float("inf")
        return introduced.scaled / culprit.threshold if culprit.threshold else float("inf")

    seen: dict[object, Culprit] = {}
    for culprit in culprits:
        seen.setdefault((culprit.path, culprit.index, culprit.node), culprit)
    return tuple(sorted(seen.values(), key=lambda c: (ratio(c) < 10, c.index if ratio(c) >= 10 else 0, -ratio(c))))
