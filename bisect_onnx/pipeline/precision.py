"""Weigh a lower-precision candidate: every node differs a little, and the question is which ones matter.

The values are paired, each segment is judged on the reference's values by what its precision allows, and each is
weighed by its impact on the worst output. One node beyond what its precision allows that makes up half of the error
is a culprit like any other; without one the answer is the ranking.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from bisect_onnx.align.distance import NEAR
from bisect_onnx.align.operators import MOVEMENT, PASS_THROUGH
from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array, Verdict
from bisect_onnx.core.finding import Confidence, Finding
from bisect_onnx.core.graph import Node
from bisect_onnx.core.report import Culprit, NodeRow, ReasonCode
from bisect_onnx.core.tolerance import FACTOR
from bisect_onnx.pipeline.accusing import Accusations, accuse, accuse_all
from bisect_onnx.pipeline.experiments import weight_proof
from bisect_onnx.pipeline.impact import impact_of
from bisect_onnx.pipeline.judge import scaled_gap
from bisect_onnx.pipeline.narrow import Decision, Narrowed
from bisect_onnx.pipeline.precision_align import align_by_name_first, cuts, shared_names
from bisect_onnx.pipeline.precision_format import DEQUANTIZING, QUANTIZING, LowerPrecision
from bisect_onnx.pipeline.precision_judge import PrecisionJudge, movements
from bisect_onnx.pipeline.precision_prober import PrecisionProber, range_of, readable_ranges
from bisect_onnx.pipeline.precision_settle import PrecisionSettling
from bisect_onnx.pipeline.region import Judged, Region
from bisect_onnx.pipeline.settle import Settled

__all__ = ["DECISIVE", "Weighed", "ranking", "weigh", "with_reasons"]

# A culprit of a lower-precision candidate makes up at least this share of the worst output's error (the contract).
DECISIVE: Final = 0.5

# Each weight is one run of what lies below a value, tens of milliseconds on a net of this many nodes. Where there
# are more, those that introduce the largest errors are weighed.
MOST_WEIGHED: Final = 128

# Carry a value from one format to another, or from place to place.
CARRIES: Final = MOVEMENT | PASS_THROUGH | QUANTIZING | DEQUANTIZING

# Steps in the range of an 8-bit quantiser; a wider one has finer steps, and cuts off more of them.
_LEVELS: Final = 255

# Nodes that a sentence or a list of facts names.
_MOST_NAMED: Final = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Weighed:
    """What weighing found."""

    settled: Settled
    accusations: Accusations
    impacts: Mapping[str, float]  # by candidate value
    tap_only: Mapping[str, str]  # values that were not judged, and why


def weigh(
    region: Region,
    *,
    standing: Mapping[str, Pair],
    parameter_of: Mapping[str, str],
    truth: Mapping[str, Array],
) -> Weighed:
    """Pair, judge and weigh; ``region`` sees the candidate as it is executed from here on.

    Args:
        region: The whole candidate.
        standing: Pairs of the outputs.
        parameter_of: Reference parameter by candidate initializer.
        truth: The reference's outputs by candidate output name.
    """
    with np.errstate(all="ignore"):  # what float16 cannot hold becomes infinite, or zero
        _see_as_executed(region)
        settled = _settled(region, standing=standing, parameter_of=parameter_of)
        pairs, judged, forced = settled.pairs, settled.judged, settled.forced
        tap_only = _tap_only(region, judged, forced)
        judged = {name: _unjudged(item) if name in tap_only else item for name, item in judged.items()}
        impacts = _impacts(region, judged, truth=truth)
        heavy = {name: impact for name, impact in impacts.items() if judged[name].mismatch and impact >= DECISIVE}
        found = _accused(
            region,
            heavy,
            Settled(pairs=pairs, judged=judged, forced=forced, missing=()),
            parameter_of=parameter_of,
            truth=truth,
        )
    decisive = tuple(culprit for culprit in found.culprits if (culprit.impact or 0.0) >= DECISIVE)
    if not _paired_beyond_doubt(region):
        decisive = tuple(dataclasses.replace(culprit, confidence="suspected") for culprit in decisive)
    return Weighed(
        settled=Settled(pairs=pairs, judged=judged, forced=forced, missing=()),
        accusations=Accusations(culprits=decisive, narrowed=found.narrowed, gaps=()),
        impacts=impacts,
        tap_only=tap_only,
    )


def _settled(region: Region, *, standing: Mapping[str, Pair], parameter_of: Mapping[str, str]) -> Settled:
    """Pairs and judgements: by name where the two files share names, searched for where they do not."""
    named = shared_names(region)
    pairs = align_by_name_first(region, standing={**named, **standing})
    forced = region.run(cuts(region, pairs))
    region.judge = PrecisionJudge(region, movements(region, pairs, forced))
    judged = {name: region.judged(pair, pairs, forced[name]) for name, pair in pairs.items() if name in forced}
    if (
        not any(item.mismatch and len(item.segment.nodes) > 1 for item in judged.values())
        or len(named) > len(pairs) / 2
    ):
        return Settled(pairs=pairs, judged=judged, forced=forced, missing=())
    return PrecisionSettling(region, outputs=standing, parameter_of=parameter_of, narrow=True).settle()


def _paired_beyond_doubt(region: Region) -> bool:
    """Whether a certificate proves anything: steps of 8 bits are so coarse that values alone pair neighbours."""
    quantised = any(node.op_type in QUANTIZING for node in region.graph.nodes)
    return not quantised or len(shared_names(region)) > 1


def _accused(
    region: Region,
    heavy: Mapping[str, float],
    settled: Settled,
    *,
    parameter_of: Mapping[str, str],
    truth: Mapping[str, Array],
) -> Accusations:
    """The culprits among the values ``heavy``, by impact; what is wrong but decides nothing is ranked, not accused.

    A segment with one node that computes, the rest of it being Casts and quantisers, needs no narrowing: told apart,
    its parts would each be off by what their precision allows.
    """
    culprits: list[Culprit] = []
    narrowed: dict[int, Narrowed] = {}
    unclear = []
    for name in heavy:
        item = settled.judged[name]
        cutting = _cutting_quantiser(item, region=region, pairs=settled.pairs)
        working = [cutting] if cutting else [node for node in item.segment.nodes if node.op_type not in CARRIES]
        if len(working) != 1:
            unclear.append(name)
            continue
        weight = weight_proof(item, working, region=region, pairs=settled.pairs)
        decision = Decision.ALONE if weight is None else Decision.WEIGHT
        found = Narrowed(node=working[0], suspects=(working[0],), decision=decision, weight=weight)
        narrowed[working[0].index] = found
        culprit = accuse(item, found, region=region, pairs=settled.pairs, computed=settled.forced[name], truth=truth)
        culprits.append(dataclasses.replace(culprit, impact=heavy[name]))
    judged = {
        name: item if name in unclear or not item.mismatch else _unjudged(item) for name, item in settled.judged.items()
    }
    others = accuse_all(region, dataclasses.replace(settled, judged=judged), parameter_of=parameter_of, truth=truth)
    by_place = sorted([*culprits, *others.culprits], key=lambda culprit: culprit.index)
    return Accusations(culprits=tuple(by_place), narrowed={**others.narrowed, **narrowed}, gaps=())


def _cutting_quantiser(item: Judged, *, region: Region, pairs: Mapping[str, Pair]) -> Node | None:
    """The quantiser that cuts the reference's value off, by more than rounding could: in the segment, or at its end."""
    for node in (*item.segment.nodes, *region.graph.consumers(item.pair.candidate)):
        held = range_of(region, node) if node.op_type == "QuantizeLinear" and node.inputs[0] in pairs else None
        if held is None:
            continue
        low, high = held
        array = region.partner(pairs[node.inputs[0]]).astype(np.float64)
        excess = max(float(np.max(array, initial=high)) - high, low - float(np.min(array, initial=low)))
        if excess > FACTOR * (high - low) / _LEVELS:
            return node
    return None


def _see_as_executed(region: Region) -> None:
    ranges = readable_ranges(region)
    prober = PrecisionProber(region.prober, ranges)
    region.prober = prober
    if ranges:
        region.plain = {name: prober.seen(name, array) for name, array in region.plain.items()}


def _tap_only(region: Region, judged: Mapping[str, Judged], forced: Mapping[str, Array]) -> dict[str, str]:
    """Values whose judgement says nothing about their node, and the reason.

    The runtime computes float16 on the CPU in float32 behind Casts that it inserts, so a value that overflows where
    it is cut or exposed may be right where it is read: it counts only when what becomes of it in the real run is not
    finite at an output, or wrong.
    """
    found: dict[str, str] = {}
    for name, item in judged.items():
        if not item.mismatch:
            continue
        lost = [value for value in item.segment.inputs if _out_of_reach(region, value, judged)]
        if lost:
            found[name] = f"the candidate's format cannot hold the reference's value of {lost[0]}, which it reads"
        elif _gone(forced[name]) and not _ends_badly(region, name, judged):
            found[name] = "not finite where it is exposed, and right where it is read"
    return found


def _out_of_reach(region: Region, name: str, judged: Mapping[str, Judged]) -> bool:
    """Whether feeding the reference's value made it infinite."""
    item = judged.get(name)
    if item is None or name not in region.plain:
        return False
    fed, reference = region.partner(item.pair), region.prober.reference(item.pair.reference)
    return _gone(fed) and not _gone(reference)


def _ends_badly(region: Region, name: str, judged: Mapping[str, Judged]) -> bool:
    """Whether the real run is not finite at an output below ``name``, or wrong where it is finite again."""
    seen, stack = {name}, [name]
    while stack:
        value = stack.pop()
        array = region.plain.get(value)
        if value in region.graph.outputs and _gone(array):
            return True
        if array is not None and not _gone(array) and value in judged:
            if scaled_gap(region.partner(judged[value].pair), array, masks_alike=True) > NEAR:
                return True
            continue
        below = {output for node in region.graph.consumers(value) for output in node.real_outputs()} - seen
        seen |= below
        stack.extend(sorted(below))
    return False


def _gone(array: Array | None) -> bool:
    return array is not None and array.dtype.kind in "fV" and not np.isfinite(array.astype(np.float64)).all()


def _unjudged(item: Judged) -> Judged:
    return dataclasses.replace(item, judgement=dataclasses.replace(item.judgement, verdict=Verdict.UNTESTABLE))


def _impacts(region: Region, judged: Mapping[str, Judged], *, truth: Mapping[str, Array]) -> dict[str, float]:
    """Impact of each judged value, of the ``MOST_WEIGHED`` that introduce most."""
    can_be_fed = {pair.candidate for pair in cuts(region, {name: item.pair for name, item in judged.items()})}
    names = [name for name in judged if name in can_be_fed]
    chosen = set(sorted(names, key=lambda name: -judged[name].judgement.scaled)[:MOST_WEIGHED])
    found = {}
    for name in (name for name in names if name in chosen):
        array = region.partner(judged[name].pair)
        # The reference's value stands at an output as it is: nothing of the candidate reads it there.
        held = not (name in truth and _gone(array) and not _gone(truth[name]))
        impact = impact_of(region, {name: array if held else truth[name]}, truth=truth)
        if impact is not None:
            found[name] = impact
    return found


def ranking(lower: LowerPrecision, weighed: Weighed, *, region: Region) -> Finding:
    """The finding that tells what the candidate computes in, and which nodes weigh most."""
    listed = _by_impact(weighed, region=region)[:_MOST_NAMED]
    formats = " and ".join(lower.formats)
    quantised = any("quantised" in name for name in lower.formats)
    over = [item.pair.candidate for item in weighed.settled.judged.values() if item.mismatch]
    facts: dict[str, object] = {
        "format": formats,
        "nodes": len(lower.nodes),
        "impact": {name: round(impact, 4) for name, impact in listed},
    }
    if over:
        facts["beyond their precision"] = [_node(region, name) for name in over[:_MOST_NAMED]]
    return Finding(
        code="PR001",
        name="lower-precision",
        cause="K22" if quantised else "K08",
        confidence=Confidence.LIKELY,
        subject=None,
        message=f"the candidate computes in {formats} in {len(lower.nodes)} of {len(region.graph.nodes)} nodes, the "
        "reference in a higher precision",
        facts=facts,
        remedy="Find the nodes to keep in the higher precision: give a tolerance, and --keep-list FILE.",
    )


def _by_impact(weighed: Weighed, *, region: Region) -> list[tuple[str, float]]:
    nodes: dict[str, float] = {}
    for name, impact in weighed.impacts.items():
        node = _node(region, name)
        nodes[node] = max(impact, nodes.get(node, 0.0))
    return sorted(nodes.items(), key=lambda item: -item[1])


def _node(region: Region, name: str) -> str:
    producer = region.graph.producer(name)
    return name if producer is None else producer.name


def with_reasons(rows: Sequence[NodeRow], weighed: Weighed, *, region: Region) -> tuple[NodeRow, ...]:
    """The rows of `node_rows`, with the reason of each node that was not judged."""
    why = {
        producer.index: reason
        for name, reason in weighed.tap_only.items()
        if (producer := region.graph.producer(name)) is not None
    }
    return tuple(
        dataclasses.replace(row, reason_code=ReasonCode.TAP_ONLY, reason=why[row.index]) if row.index in why else row
        for row in rows
    )
