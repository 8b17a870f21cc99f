"""From an accused If, Loop, Scan or function call to the node inside it.

The segment is written out: the branch that was taken, each iteration, the function's nodes, one behind the other,
on the reference's values. That is a model without bodies, and it is searched like any other.
"""

import dataclasses
import functools
import logging
from collections.abc import Iterable, Mapping, Sequence

from bisect_onnx.align.by_parameter import ParameterMatcher
from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array, ErrorStats, compare_arrays
from bisect_onnx.core.graph import Graph, Node, PathStep
from bisect_onnx.core.report import Culprit, CulpritError
from bisect_onnx.errors import RuntimeFailedError
from bisect_onnx.pipeline.experiments import calls_between
from bisect_onnx.pipeline.impact import impact_of
from bisect_onnx.pipeline.judge import scaled_gap
from bisect_onnx.pipeline.knowledge import Gap
from bisect_onnx.pipeline.narrow import Decision, Narrowed
from bisect_onnx.pipeline.prober import Prober
from bisect_onnx.pipeline.region import Judged, Region
from bisect_onnx.pipeline.settle import Settled, Settling
from bisect_onnx.runtimes.base import Choice, Origin, Place, WrittenOut

__all__ = ["Opened", "gaps_in_the_file", "has_bodies", "in_the_file", "merged", "open_bodies", "reopened"]

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opened:
    """A segment with its bodies written out, settled against the reference."""

    item: Judged
    region: Region
    settled: Settled
    written: WrittenOut
    parameter_of: Mapping[str, str]


def has_bodies(item: Judged, graph: Graph) -> bool:
    """Whether a node of the segment has a body, or calls a function of the model."""
    functions = {function.name for function in graph.functions}
    return any(node.subgraphs or f"{node.domain}:{node.op_type}" in functions for node in item.segment.nodes)


def open_bodies(item: Judged, *, region: Region, pairs: Mapping[str, Pair]) -> Opened | Narrowed | None:
    """Write the segment out and settle it.

    Args:
        item: The accused segment.
        region: The whole candidate.
        pairs: All pairs.

    Returns:
        What decides how a Loop goes when that is the fault; None when there is nothing to see inside.
    """
    entry = {name: pairs[name] for name in item.segment.inputs}
    values = {
        name: region.partner(pair) if name in region.plain else region.given(name) for name, pair in entry.items()
    }
    feeds = {name: array for name, array in values.items() if array is not None}
    try:
        written = region.prober.candidate.written_out(feeds, output=item.pair.candidate, choices={})
        if written is None:
            return None
        astray = _goes_astray(item, written, region=region, feeds=feeds)
        if astray is not None:
            return _decided(written, astray)
        return _settled(
            item,
            written,
            region=region,
            entry=entry,
            feeds=feeds,
            parameters=_parameters(item, region=region, pairs=pairs),
        )
    except RuntimeFailedError as error:
        logger.info("bodies of %s stay closed: %s", item.segment.nodes[-1].name, error)
        return None


def reopened(region: Region, settled: Settled) -> Settled:
    """The same without gaps that are none: behind a loop that ended early everything after it seems to be missing."""
    for gap in settled.missing:
        producer = region.graph.producer(gap.value)
        if producer is None or not producer.subgraphs or gap.reader not in settled.pairs:
            continue
        pairs = {name: pair for name, pair in settled.pairs.items() if name != gap.value}
        fed = [pairs[name] for name in region.segment(gap.reader, pairs).inputs if name in region.plain]
        again = region.run(fed, [gap.reader])
        item = region.judged(pairs[gap.reader], pairs, again[gap.reader])
        if item.mismatch and isinstance(open_bodies(item, region=region, pairs=pairs), Narrowed):
            judged = {name: each for name, each in settled.judged.items() if name != gap.value}
            settled = dataclasses.replace(
                settled,
                pairs=pairs,
                judged={**judged, gap.reader: item},
                forced={**settled.forced, **again},
                missing=tuple(other for other in settled.missing if other != gap),
            )
    return settled


def _settled(
    item: Judged,
    written: WrittenOut,
    *,
    region: Region,
    entry: Mapping[str, Pair],
    feeds: Mapping[str, Array],
    parameters: Mapping[str, Array],
) -> Opened:
    parameter_of = _parameter_names(written, parameters)
    inner = _region(written, region=region, entry=entry, feeds=feeds)
    outputs = {item.pair.candidate: item.pair}
    settled = Settling(inner, outputs=outputs, parameter_of=parameter_of, narrow=False).settle()
    settled = dataclasses.replace(settled, judged=_each_once(settled, written))
    return Opened(item=item, region=inner, settled=settled, written=written, parameter_of=parameter_of)


def _each_once(settled: Settled, written: WrittenOut) -> dict[str, Judged]:
    """The judgements without those of later iterations on what went wrong in an earlier one already."""
    seen: set[frozenset[object]] = set()
    kept = {}
    for name, item in settled.judged.items():
        places = frozenset(_anywhere(written.origins[node.index]) for node in item.segment.nodes)
        if not item.mismatch or places not in seen:
            kept[name] = item
        if item.mismatch:
            seen.add(places)
    return kept


def _region(written: WrittenOut, *, region: Region, entry: Mapping[str, Pair], feeds: Mapping[str, Array]) -> Region:
    prober = Prober(written.candidate, region.prober.capture, feeds)
    known = {name: pair for name, pair in entry.items() if name in written.candidate.graph.inputs}
    return Region(written.candidate.graph, region.index, prober, entry=known, entry_values={})


def _parameters(item: Judged, *, region: Region, pairs: Mapping[str, Pair]) -> dict[str, Array]:
    """Those that the reference reads on the way."""
    calls = calls_between(item, region=region, pairs=pairs)
    return region.prober.capture.fetch(
        list(dict.fromkeys(name for call in calls for name in sorted(region.index.parameters(call))))
    )


def _parameter_names(written: WrittenOut, parameters: Mapping[str, Array]) -> dict[str, str]:
    """Reference parameter by initializer of the written-out piece."""
    matcher = ParameterMatcher(parameters)
    found = {}
    for name in dict.fromkeys(name for node in written.candidate.graph.nodes for name in node.real_inputs()):
        array = written.candidate.parameters.get(name)
        match = matcher.match(written.original.get(name, name), array) if array is not None else None
        if match is not None and match.plausible:
            found[name] = match.parameter
    return found


def _goes_astray(item: Judged, written: WrittenOut, *, region: Region, feeds: Mapping[str, Array]) -> Place | None:
    """The node that should go another way: on another branch, or after another number of iterations all is right.

    Then what is inside does what it should, and the fault is in what decides.
    """
    asked = functools.partial(_right, item, region=region, feeds=feeds)
    early = asked(written, fetch=sorted(written.states.keys() - {item.pair.candidate}))
    if early:
        return written.states[early[0]]
    for place, choice in written.choices.items():
        for other in _otherwise(choice):
            try:
                elsewhere = region.prober.candidate.written_out(
                    feeds, output=item.pair.candidate, choices={place: other}
                )
                if elsewhere is not None and asked(elsewhere, fetch=[item.pair.candidate, *sorted(elsewhere.states)]):
                    return place
            except RuntimeFailedError as error:
                logger.info("%s does not go another way: %s", choice.node.name, error)
    return None


def _decided(written: WrittenOut, place: Place) -> Narrowed | None:
    """What makes a Loop end when it does: a node of its body, or itself; None for an If, which is told elsewhere."""
    choice = written.choices[place]
    path, index = place
    outer = path[0].index if path else index
    loop = dataclasses.replace(choice.node, index=outer, path=path)
    if loop.op_type != "Loop":
        return None
    deciding = _deciding(loop.subgraphs[0])
    if len(deciding) == 1:
        step = PathStep(node=loop.name, index=index, graph="body", iteration=choice.taken - 1)
        node = dataclasses.replace(deciding[0], index=outer, path=(*path, step))
        return Narrowed(node=node, suspects=(node,), decision=Decision.EDITED)
    decision = Decision.RANKED if deciding else Decision.EDITED
    return Narrowed(node=loop, suspects=(loop, *deciding), decision=decision)


def _deciding(body: Graph) -> list[Node]:
    """The nodes of a body that the condition to go on is computed by, and nothing else."""
    condition, *rest = body.outputs
    ours, others = body.ancestors([condition]), body.ancestors(rest)
    return [
        node
        for node in body.nodes
        if node.op_type not in ("Cast", "Constant", "Identity")
        and ours.intersection(node.outputs)
        and not others.intersection(node.outputs)
    ]


def _otherwise(choice: Choice) -> tuple[int, ...]:
    """Other ways to go.

    A loop that is the end of its segment shows on the way what fewer iterations give; twice as many and some more
    show what it would have given later. Where something follows it, the nearest numbers are tried.
    """
    if choice.node.op_type == "If":
        return (1 - choice.taken,)
    if choice.node.op_type == "Loop":
        near = [choice.taken + step for step in (-1, 1, -2, 2) if choice.taken + step > 0]
        return (*near, 2 * choice.taken + 8)
    return ()


def _right(
    item: Judged, written: WrittenOut, *, fetch: Sequence[str], region: Region, feeds: Mapping[str, Array]
) -> list[str]:
    """Which of the values are the reference's result."""
    computed = [name for name in fetch if written.candidate.graph.producer(name) is not None]
    wanted = region.prober.reference(item.pair.reference)
    values = written.candidate.probe(feeds, fetch=computed, cuts={}) if computed else {}
    return [
        name
        for name, array in values.items()
        if array.size == wanted.size
        and array.dtype == wanted.dtype
        and scaled_gap(wanted.reshape(array.shape), array) <= item.judgement.threshold
    ]


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
        places = {_anywhere(each) for each in _members(opened, culprit)}
        if how.decision is Decision.RANKED and inside and len(places) > 1:
            return [_closed(opened, culprit, how, first=inside[0], region=region, truth=truth)]
        key = _anywhere(origin)
        if key not in found:
            found[key] = _translated(opened, culprit, how, region=region, truth=truth)
    return list(found.values())


def _anywhere(origin: Origin) -> tuple[object, ...]:
    """The place of a node without regard to iterations."""
    steps = tuple(dataclasses.replace(step, iteration=None) for step in origin.path)
    return (*steps, origin.node.index)


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
    copies = [each for each in _members(opened, culprit) if _anywhere(each) == _anywhere(accused)]
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
        copies = [
            n for n in opened.region.graph.nodes if _anywhere(opened.written.origins[n.index]) == _anywhere(origin)
        ]
        ends = [name for node in copies for name in node.real_outputs() if name in opened.settled.pairs]
        cuts = {name: opened.region.partner(opened.settled.pairs[name]) for name in ends}
        if not cuts:
            return None
        right = cuts[end] if end in cuts else self._probe(cuts, [end])[end]
        return impact_of(self._region, {end: right}, truth=truth)
