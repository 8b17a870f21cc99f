"""Is a segment right when its If or Loop goes another way? Then what decides is to blame, not what is inside."""

import dataclasses
import functools
import logging
from collections.abc import Mapping, Sequence

from bisect_onnx.core.compare import Array
from bisect_onnx.core.graph import Graph, Node, PathStep
from bisect_onnx.errors import RuntimeFailedError
from bisect_onnx.pipeline.judge import scaled_gap
from bisect_onnx.pipeline.narrow import Decision, Narrowed
from bisect_onnx.pipeline.region import Judged, Region
from bisect_onnx.runtimes.base import Choice, Place, WrittenOut

__all__ = ["decided", "goes_astray"]

logger = logging.getLogger(__name__)

# A loop that ended too early is run for this long to see whether it comes by the reference's result.
MOST_TURNS = 64


def goes_astray(item: Judged, written: WrittenOut, *, region: Region, feeds: Mapping[str, Array]) -> Place | None:
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


def decided(written: WrittenOut, place: Place) -> Narrowed | None:
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

    A loop that is the end of its segment shows on the way what fewer iterations give; a long run
    shows what it would have given later. Where something follows it, the nearest numbers are tried.
    """
    if choice.node.op_type == "If":
        return (1 - choice.taken,)
    if choice.node.op_type == "Loop":
        near = [choice.taken + step for step in (-1, 1, -2, 2) if choice.taken + step > 0]
        return (*near, MOST_TURNS)
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
