"""The answer when the file does not repeat because a Dropout in it is told to train: the Dropout, and the proof."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from bisect_onnx.core.compare import Array, ErrorStats, Verdict, compare_arrays
from bisect_onnx.core.finding import Confidence, Counterfactual, Finding
from bisect_onnx.core.graph import Node
from bisect_onnx.core.report import (
    Certificate,
    Culprit,
    CulpritError,
    OutputRow,
    SearchSummary,
    Stage,
    Status,
    Strategy,
)
from bisect_onnx.core.tolerance import FACTOR, unit_roundoff
from bisect_onnx.errors import RuntimeFailedError, listing
from bisect_onnx.pipeline.comparing import Comparison
from bisect_onnx.pipeline.judge import scaled_gap
from bisect_onnx.pipeline.preflight import worst_scaled
from bisect_onnx.pipeline.random_nodes import live_dropouts
from bisect_onnx.pipeline.request import LocateRequest
from bisect_onnx.pipeline.sides import Sides
from bisect_onnx.pipeline.verdicts import Told, answer
from bisect_onnx.runtimes.base import Capture

__all__ = ["live_dropout"]


def live_dropout(sides: Sides, compared: Comparison, *, request: LocateRequest) -> Told | None:
    """The Dropouts, when every output agrees once they are told not to train; otherwise None."""
    nodes = live_dropouts(sides.candidate)
    outputs = [row.name for row in compared.rows]
    if not nodes or not set(outputs) <= set(sides.candidate.graph.outputs):
        return None
    off = {node.inputs[2]: np.zeros((), np.bool_) for node in nodes}
    read = dict.fromkeys(node.inputs[0] for node in nodes)
    try:
        found = sides.candidate.probe(sides.feeds.arrays, fetch=[*outputs, *_computed(read, sides)], cuts=off)
    except RuntimeFailedError:
        return None
    before = tuple(compared.rows)
    after = compared.would_agree_with_floors({name: found[name] for name in outputs if name in found})
    if after is None:
        return None
    capture = sides.reference.capture(sides.feeds.reference, max_bytes=sides.max_bytes)
    culprits = tuple(
        _culprit(node, found.get(node.inputs[0], sides.feeds.arrays.get(node.inputs[0])), off=off, sides=sides,
                 capture=capture, impact=_impact(before, after) if len(nodes) == 1 else None)
        for node in nodes
    )  # fmt: skip
    certified = culprits[0].confidence == "certified"
    return Told(
        verdict=answer(
            status=Status.LOCATED if certified else Status.SUSPECTED,
            stage=Stage.EXPORT,
            outputs=compared.rows,
            culprits=culprits,
            findings=(_finding(nodes, before=before, after=after),),
            request=request,
        ),
        fields={"culprits": culprits, "search": SearchSummary(strategy=Strategy.NONE, runs=sides.candidate.runs)},
    )


def _computed(names: Mapping[str, None], sides: Sides) -> list[str]:
    return [name for name in names if sides.candidate.graph.producer(name) is not None]


def _culprit(
    node: Node, right: Array | None, *, off: Mapping[str, Array], sides: Sides, capture: Capture, impact: float | None
) -> Culprit:
    """The accusation; certified when the reference has what the node reads, and the node alone changes that.

    Args:
        node: The Dropout.
        right: What it reads when no Dropout trains.
        off: The switches of all Dropouts.
        sides: Both sides.
        capture: The reference, opened up.
        impact: Of all Dropouts together.
    """
    floor = unit_roundoff("float32") * math.sqrt(len(sides.candidate.graph.nodes))
    theirs = None if right is None else _same_value(right, capture, threshold=FACTOR * floor)
    first = second = None
    if theirs is not None and right is not None:
        others = {name: array for name, array in off.items() if name != node.inputs[2]}
        fed = others if node.inputs[0] in sides.feeds.arrays else others | {node.inputs[0]: theirs}
        first, second = (
            sides.candidate.probe(sides.feeds.arrays, fetch=[node.outputs[0]], cuts=fed)[node.outputs[0]]
            for _ in range(2)
        )
    introduced = None if theirs is None or first is None else _stats(theirs, first)
    differs = _beyond(theirs, first, threshold=FACTOR * floor)
    certificate = Certificate(
        inputs_match=theirs is not None,
        output_differs=differs,
        replay_reproduces=_beyond(theirs, second, threshold=FACTOR * floor),
    )
    return Culprit(
        node=node.name,
        op_type=node.op_type,
        domain=node.domain,
        index=node.index,
        path=node.path,
        inputs=node.inputs,
        outputs=node.outputs,
        attributes=node.attributes,
        group=(node.name,),
        module=node.module,
        module_class=node.module_class,
        torch_op=node.torch_op,
        source=node.source,
        error=CulpritError(
            inherited=None if theirs is None or right is None else _stats(theirs, right),
            introduced=introduced,
            accumulated=introduced,
        ),
        noise=floor,
        threshold=FACTOR * floor,
        certificate=certificate,
        impact=impact,
        confidence="certified" if certificate.complete else "suspected",
    )


def _same_value(array: Array, capture: Capture, *, threshold: float) -> Array | None:
    """The reference's value that equals ``array``, in its shape."""
    for name, known in capture.fingerprints.items():
        if known.size == array.size and known.dtype == str(array.dtype):
            theirs = capture.fetch([name])[name].reshape(array.shape)
            if scaled_gap(theirs, array) <= threshold:
                return theirs
    return None


def _stats(reference: Array, computed: Array) -> ErrorStats | None:
    error = compare_arrays(reference, computed, check_dtype=False)
    return error if isinstance(error, ErrorStats) else None


def _beyond(reference: Array | None, computed: Array | None, *, threshold: float) -> bool | None:
    if reference is None or computed is None:
        return None
    return scaled_gap(reference, computed) > threshold


def _impact(before: Sequence[OutputRow], after: Sequence[OutputRow]) -> float | None:
    """As `pipeline.impact.impact_of`, from the rows."""
    mended = {row.name: row.error.rmse for row in after if row.error is not None}
    failing = [
        (row.error.rmse, row.name)
        for row in before
        if row.verdict is Verdict.MISMATCH and row.error is not None and row.error.rmse
    ]
    if not failing:
        return None
    worst, name = max(failing)
    return min(1.0, max(0.0, 1 - (mended.get(name) or 0.0) / worst))


def _finding(nodes: Sequence[Node], *, before: Sequence[OutputRow], after: Sequence[OutputRow]) -> Finding:
    named = listing([node.name for node in nodes], limit=5)
    return Finding(
        code="NM002",
        name="dropout-trains",
        cause="K05",
        confidence=Confidence.PROVEN,
        subject=nodes[0].name,
        message=f"Dropout is told to train ({named}), so the file draws random numbers; "
        "told not to, every output agrees",
        facts={"nodes": [node.index for node in nodes]},
        remedy="Export in evaluation mode (module.eval(), and no training=TrainingMode.TRAINING). From optimisation "
        "level 1 on ONNX Runtime removes the node; other runtimes may not.",
        counterfactual=Counterfactual(
            edit="training_mode = false",
            local_before=None,
            local_after=None,
            output_before=worst_scaled(before),
            output_after=worst_scaled(after),
        ),
        references=("https://onnx.ai/onnx/operators/onnx__Dropout.html",),
    )
