"""A wrong segment, computed by the onnx reference evaluator as well: does the file ask for what the runtime does?"""

from collections.abc import Mapping

import numpy as np

from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array
from bisect_onnx.core.finding import Confidence, Finding
from bisect_onnx.core.graph import Node
from bisect_onnx.core.report import Culprit
from bisect_onnx.core.second_judge import Agreement, SecondJudge
from bisect_onnx.core.segments import fixed_ancestors
from bisect_onnx.pipeline.judge import scaled_gap
from bisect_onnx.pipeline.region import Judged, Region

__all__ = ["agreement", "runtime_doubted", "second_opinion"]


def second_opinion(item: Judged, *, region: Region, pairs: Mapping[str, Pair], computed: Array) -> SecondJudge:
    """Ask the evaluator about a wrong segment.

    Args:
        item: The segment.
        region: The whole candidate.
        pairs: All pairs.
        computed: What the runtime made of it on the reference's inputs.
    """
    from bisect_onnx.runtimes.onnx_evaluator import NotEvaluatedError

    inputs = {}
    for name in item.segment.inputs:
        array = region.partner(pairs[name]) if name in region.plain else region.given(name)
        if array is None:
            return SecondJudge(agrees_with=Agreement.SILENT, reason=f"what stands at {name!r} is not known")
        inputs[name] = array
    fixed = fixed_ancestors(region.graph, item.segment.nodes, cut=inputs)
    asked = {node.index: node for node in (*_constants(item, fixed, region), *fixed, *item.segment.nodes)}
    nodes = sorted(asked.values(), key=region.graph.place)
    shapes = {name: array.shape for name, array in region.plain.items()} | {item.pair.candidate: computed.shape}
    try:
        again = region.prober.candidate.evaluated(nodes, inputs=inputs, output=item.pair.candidate, shapes=shapes)
    except NotEvaluatedError as error:
        return SecondJudge(agrees_with=Agreement.SILENT, reason=str(error))
    expected = region.prober.reference(item.pair.reference)
    expected = expected.reshape(computed.shape) if expected.size == computed.size else expected
    return SecondJudge(agrees_with=agreement(again, expected, computed, threshold=item.judgement.threshold))


def _constants(item: Judged, fixed: tuple[Node, ...], region: Region) -> list[Node]:
    """Constant nodes that the segment reads; they are data to the search, and nodes of the file."""
    read = [region.graph.producer(name) for node in (*fixed, *item.segment.nodes) for name in node.reads]
    return [node for node in read if node is not None and node.op_type == "Constant"]


def agreement(third: Array, reference: Array, computed: Array, *, threshold: float) -> Agreement:
    """With whom ``third`` agrees within ``threshold``, a figure of `ErrorStats.scaled`.

    The three are what the evaluator, the reference and the runtime make of one segment; the last two differ.
    """
    if third.shape == computed.shape and _gap(computed, third) <= threshold:
        return Agreement.RUNTIME
    if third.shape == reference.shape and _gap(reference, third) <= threshold:
        return Agreement.REFERENCE
    return Agreement.NEITHER


def _gap(first: Array, second: Array) -> float:
    """NaN and infinities in the same places count as equal, as the runtime's own would on a second run."""
    broken = ~np.isfinite(first) if first.dtype.kind == "f" else np.zeros(first.shape, np.bool_)
    if broken.any():
        if second.dtype.kind != "f" or not np.array_equal(broken, ~np.isfinite(second)):
            return float("inf")
        first, second = np.where(broken, 0, first), np.where(broken, 0, second)
    return scaled_gap(first, second)


def runtime_doubted(culprit: Culprit) -> Finding | None:
    """The file may be right: the evaluator computes what the reference does, and the runtime something else."""
    if culprit.second_judge is None or culprit.second_judge.agrees_with is not Agreement.REFERENCE:
        return None
    return Finding(
        code="SJ001",
        name="runtime-against-two",
        cause="K28",
        confidence=Confidence.LIKELY,
        subject=culprit.node,
        message=f"the onnx reference evaluator makes of {culprit.node} what the reference does, and ONNX Runtime "
        "something else: the file may be right, and the runtime's kernel wrong",
        remedy="Try another version of ONNX Runtime, and report the node with its inputs there.",
        references=("https://onnx.ai/onnx/api/reference.html",),
    )
