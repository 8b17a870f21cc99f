"""From an accused If, Loop, Scan or function call to the node inside it.

The segment is written out: the branch that was taken, each iteration, the function's nodes, one behind the other,
on the reference's values. That is a model without bodies, and it is searched like any other.
"""

import dataclasses
import logging
from collections.abc import Mapping

from bisect_onnx.align.by_parameter import ParameterMatcher
from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array
from bisect_onnx.core.graph import Graph
from bisect_onnx.errors import RuntimeFailedError
from bisect_onnx.pipeline.deciding import decided, goes_astray
from bisect_onnx.pipeline.experiments import calls_between
from bisect_onnx.pipeline.narrow import Narrowed
from bisect_onnx.pipeline.prober import Prober
from bisect_onnx.pipeline.region import Judged, Region
from bisect_onnx.pipeline.settle import Settled, Settling
from bisect_onnx.runtimes.base import WrittenOut

__all__ = ["Opened", "has_bodies", "open_bodies", "reopened"]

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
        astray = goes_astray(item, written, region=region, feeds=feeds)
        if astray is not None:
            return decided(written, astray)
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
        places = frozenset(written.origins[node.index].anywhere for node in item.segment.nodes)
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
