"""The smallest set of nodes to keep in the higher precision so that the outputs come inside a tolerance.

The nodes are ranked by what keeping each alone does for the worst output; a bisection finds how many of the best are
needed; then each is left out again that is not needed after all. What is returned was run as it is returned.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bisect_onnx.core.compare import Array
from bisect_onnx.core.graph import Node
from bisect_onnx.pipeline.precision import Weighed
from bisect_onnx.pipeline.precision_format import LowerPrecision
from bisect_onnx.pipeline.precision_kept_run import KeptRun, Unit
from bisect_onnx.pipeline.region import Region

__all__ = ["Kept", "NotKept", "nodes_to_keep", "working_nodes"]

# Sets that are run for the ranking, and for leaving out; each costs about a run of the model. A larger model is
# ranked by what its nodes introduce where it was not run, and what is left out last is not tried.
_MOST_ALONE: Final = 96
_MOST_LEFT_OUT: Final = 64

Outputs = Mapping[str, Array]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """Names of the nodes, in topological order, with which the outputs are inside the tolerance."""

    names: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NotKept:
    """Why no set is given."""

    reason: str


def nodes_to_keep(
    region: Region,
    weighed: Weighed,
    lower: LowerPrecision,
    *,
    agrees: Callable[[Outputs], bool],
    distance: Callable[[Outputs], float],
    names: Callable[[Unit], Sequence[str]],
) -> Kept | NotKept:
    """Find the set.

    Args:
        region: The whole candidate.
        weighed: What `weigh` found.
        lower: Its nodes of a lower precision.
        agrees: Whether outputs are inside the tolerance.
        distance: How far outputs are from the reference's; smaller is better.
        names: How the nodes of a unit are called.
    """
    run = KeptRun(region, weighed.settled, lower)
    if not run.units:
        return NotKept(reason="no value of a node in the lower precision can be computed in the reference's")
    everything = list(run.units)
    if not agrees(run.outputs(everything)):
        return NotKept(
            reason=f"not even with all {len(everything)} of them in the higher precision are the outputs inside the "
            "tolerance: what is left comes from the formats of inputs and outputs, or from nodes without a "
            "counterpart in the reference"
        )
    ranked = _ranked(run, everything, weighed=weighed, distance=distance)
    enough = _fewest_of_the_best(ranked, lambda units: agrees(run.outputs(units)))
    needed = _without_the_needless(enough, lambda units: agrees(run.outputs(units)))
    chosen = [unit for unit in everything if unit in needed]
    return Kept(names=tuple(dict.fromkeys(name for unit in chosen for name in names(unit))))


def _ranked(
    run: KeptRun, units: Sequence[Unit], *, weighed: Weighed, distance: Callable[[Outputs], float]
) -> list[Unit]:
    """The units, that one first which does most when it alone is kept."""
    judged = weighed.settled.judged
    by_error = sorted(units, key=lambda unit: -judged[unit.output].judgement.scaled)
    alone = {unit.output: distance(run.outputs([unit])) for unit in by_error[:_MOST_ALONE]}
    place = {unit.output: number for number, unit in enumerate(by_error)}
    return sorted(units, key=lambda unit: (alone.get(unit.output, float("inf")), place[unit.output]))


def _fewest_of_the_best(ranked: Sequence[Unit], agrees: Callable[[Sequence[Unit]], bool]) -> list[Unit]:
    """The shortest beginning of ``ranked`` that agrees, where all of it does."""
    too_few, enough = -1, len(ranked)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if agrees(ranked[:middle]):
            enough = middle
        else:
            too_few = middle
    return list(ranked[:enough])


def _without_the_needless(units: Sequence[Unit], agrees: Callable[[Sequence[Unit]], bool]) -> list[Unit]:
    """The units without those that are not needed, the least of them tried first."""
    kept = list(units)
    for unit in list(reversed(units))[:_MOST_LEFT_OUT]:
        fewer = [other for other in kept if other is not unit]
        if agrees(fewer):
            kept = fewer
    return kept


def working_nodes(unit: Unit, lower: LowerPrecision) -> list[Node]:
    """The nodes of a unit that compute in the lower precision."""
    return [node for node in unit.nodes if node.index in lower.nodes]
