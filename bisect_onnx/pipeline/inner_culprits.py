"""What was found in a written-out piece, in terms of the user's file: names, positions, errors of the real run."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array, ErrorStats, compare_arrays
from bisect_onnx.core.graph import Node
from bisect_onnx.core.report import Culprit, CulpritError
from bisect_onnx.pipeline.bodies import Opened
from bisect_onnx.pipeline.impact import impact_of
from bisect_onnx.pipeline.judge import scaled_gap
from bisect_onnx.pipeline.knowledge import Gap
from bisect_onnx.pipeline.narrow import Decision, Narrowed
from bisect_onnx.pipeline.region import Region
from bisect_onnx.runtimes.base import Origin

__all__ = ["gaps_in_the_file", "in_the_file", "merged"]


def in_the_file(
    opened: Opened,
    culprits: Sequence[Culprit],
    *,
    narrowed: Mapping[int, Narrowed],
    region: Region,
    truth: Mapping[str, Array],
) -> list[tuple[Culprit, Narrowed]]:
    """What was found in the written-out piece, each node of a body once: where it goes wrong first.

    Args:
        opened: The piece.
        culprits: Its culprits; an index is one of the piece.
        narrowed: How each was narrowed, by that index.
        region: The whole candidate.
        truth: The reference's outputs by candidate output name.
    """
    found: dict[object, tuple[Culprit, Narrowed]] = {}
    for culprit in sorted(culprits, key=lambda each: each.index):
        origin, how = opened.written.origins[culprit.index], narrowed[culprit.index]
        inside = [other for other in how.suspects if opened.written.origins[other.index].path]
        places = {each.anywhere for each in _members(opened, culprit)}
        if how.decision is Decision.RANKED and inside and len(places) > 1:
            return [_closed(opened, culprit, how, first=inside[0], region=region, truth=truth)]
        key = origin.anywhere
        if key not in found:
            found[key] = _translated(opened, culprit, how, region=region, truth=truth)
    return list(found.values())


def _closed(
    opened: Opened,
    culprit: Culprit,
    how: Narrowed,
    *,
    first: Node,
    region: Region,
    truth: Mapping[str, Array],
) -> tuple[Culprit, Narrowed]:
    """The node of the main graph that holds ``first``, one of several nodes that cannot be told apart."""
    index = opened.written.origins[first.index].path[0].index
    node = next(each for each in region.graph.nodes if each.index == index)
    inner, _ = _translated(opened, culprit, how, region=region, truth=truth)
    outer = dataclasses.replace(
        inner,
        node=node.name,
        op_type=node.op_type,
        domain=node.domain,
        index=node.index,
        path=(),
        inputs=node.inputs,
        outputs=node.outputs,
        attributes=node.attributes,
        group=tuple(dict.fromkeys([node.name, *inner.group])),
        confidence="suspected",
    )
    return outer, dataclasses.replace(how, node=node)


def _translated(
    opened: Opened, culprit: Culprit, how: Narrowed, *, region: Region, truth: Mapping[str, Array]
) -> tuple[Culprit, Narrowed]:
    """The culprit in terms of the user's file, with the errors of the real run."""
    written = opened.written
    origin = _earliest(opened, culprit)
    node = origin.node
    real = _RealRun(opened, region=region)
    weight = how.weight
    if weight is not None:
        initializer = written.original.get(weight.initializer, weight.initializer)
        weight = dataclasses.replace(weight, initializer=initializer)
    translated = dataclasses.replace(
        culprit,
        node=node.name,
        op_type=node.op_type,
        domain=node.domain,
        index=origin.path[0].index if origin.path else node.index,
        path=origin.path,
        inputs=node.inputs,
        outputs=node.outputs,
        attributes=node.attributes,
        group=tuple(dict.fromkeys([node.name, *(each.node.name for each in _members(opened, culprit))])),
        error=real.error(culprit),
        impact=real.impact(origin, truth=truth),
    )
    return translated, dataclasses.replace(how, node=node, weight=weight)


def _members(opened: Opened, culprit: Culprit) -> list[Origin]:
    """The nodes of the culprit's segment."""
    named = {each.name: opened.written.origins[each.index] for each in opened.region.graph.nodes}
    return [named[name] for name in culprit.group]


def _earliest(opened: Opened, culprit: Culprit) -> Origin:
    """The accused node in the first iteration that its segment holds: a segment may reach over several."""
    origins = opened.written.origins
    accused = origins[culprit.index]
    copies = [each for each in _members(opened, culprit) if each.anywhere == accused.anywhere]
    return min((accused, *copies), key=lambda origin: [step.iteration or 0 for step in origin.path])


def merged(found: Iterable[tuple[Culprit, Narrowed]]) -> list[tuple[Culprit, Narrowed]]:
    """Each node once: one of a loop with two outputs is found from both, one of a function in every call.

    Not so what is wrong with the weights that a function is called with.
    """
    kept: dict[object, tuple[Culprit, Narrowed]] = {}
    for culprit, how in found:
        steps = [dataclasses.replace(step, iteration=None) for step in culprit.path]
        called = max((place for place, step in enumerate(steps) if ":" in step.graph), default=None)
        if called is None or how.decision is Decision.WEIGHT:
            key: object = (tuple(steps), culprit.index, culprit.node)
        else:
            key = (steps[called].graph, tuple(steps[called + 1 :]), how.node.index)
        other = kept.setdefault(key, (culprit, how))[0]
        first = min(other, culprit, key=lambda each: [step.iteration or 0 for step in each.path])
        impacts = [each.impact for each in (culprit, other) if each.impact is not None]
        kept[key] = (dataclasses.replace(first, impact=max(impacts, default=None)), how)
    return list(kept.values())


def gaps_in_the_file(opened: Opened, gaps: Sequence[Gap]) -> list[Gap]:
    """Operations that the piece lacks, by the names of the user's file."""
    names = opened.written.original
    return [
        dataclasses.replace(
            gap,
            value=names.get(gap.value, gap.value),
            before=names.get(gap.before, gap.before),
            reader=names.get(gap.reader, gap.reader),
        )
        for gap in gaps
    ]


class _RealRun:
    """The piece on what the model computes by itself, not on the reference's values."""

    def __init__(self, opened: Opened, *, region: Region) -> None:
        self._opened = opened
        self._region = region
        given = {name: region.given(name) for name in opened.region.prober.feeds}
        self._feeds = {name: array for name, array in given.items() if array is not None}

    @functools.cached_property
    def _follows(self) -> bool:
        """Whether the model goes the same way on its own values as on the reference's."""
        end = self._opened.item.pair.candidate
        alone = self._probe({}, [end]).get(end)
        return alone is not None and scaled_gap(self._region.plain[end], alone) <= self._opened.item.judgement.threshold

    def _probe(self, cuts: Mapping[str, Array], fetch: Sequence[str]) -> dict[str, Array]:
        return self._opened.written.candidate.probe(self._feeds, fetch=fetch, cuts=cuts)

    def error(self, culprit: Culprit) -> CulpritError:
        """The introduced error, and beside it those of the real run where that can be told."""
        unknown = dataclasses.replace(culprit.error, inherited=None, accumulated=None)
        node = self._opened.region.graph.nodes
        produced = next(each for each in node if each.index == culprit.index).real_outputs()
        judged = [self._opened.settled.judged[name] for name in produced if name in self._opened.settled.judged]
        if not judged or not self._follows:
            return unknown
        item, pairs = judged[0], self._opened.settled.pairs
        names = [name for name in item.segment.inputs if self._opened.region.graph.producer(name) is not None]
        values = self._probe({}, [item.pair.candidate, *names]) | self._feeds
        errors = {
            name: self._compared(pairs[name], values[name])
            for name in (*item.segment.inputs, item.pair.candidate)
            if name in values
        }
        accumulated = errors.pop(item.pair.candidate)
        worst = max(
            (name for name, error in errors.items() if error is not None),
            key=lambda name: getattr(errors[name], "scaled", None) or 0.0,
            default=None,
        )
        inherited = errors[worst] if worst is not None else None
        if inherited is not None and worst is not None:
            inherited = dataclasses.replace(inherited, input=self._opened.written.original.get(worst, worst))
        return dataclasses.replace(culprit.error, inherited=inherited, accumulated=accumulated)

    def _compared(self, pair: Pair, observed: Array) -> ErrorStats | None:
        reference = self._region.prober.reference(pair.reference)
        if reference.size != observed.size:
            return None
        error = compare_arrays(reference.reshape(observed.shape), observed, check_dtype=False)
        return error if isinstance(error, ErrorStats) else None

    def impact(self, origin: Origin, *, truth: Mapping[str, Array]) -> float | None:
        """As for any culprit; the reference's value is put in its place in every iteration."""
        opened, end = self._opened, self._opened.item.pair.candidate
        if not self._follows:
            return None
        copies = [n for n in opened.region.graph.nodes if opened.written.origins[n.index].anywhere == origin.anywhere]
        ends = [name for node in copies for name in node.real_outputs() if name in opened.settled.pairs]
        cuts = {name: opened.region.partner(opened.settled.pairs[name]) for name in ends}
        if not cuts:
            return None
        right = cuts[end] if end in cuts else self._probe(cuts, [end])[end]
        return impact_of(self._region, {end: right}, truth=truth)
