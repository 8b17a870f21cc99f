"""Nodes and calls that draw random numbers: the file says which, without a run."""

from collections.abc import Iterator, Mapping

from bisect_onnx.core.compare import Array
from bisect_onnx.core.finding import Confidence, Finding
from bisect_onnx.core.graph import Graph, Node, nested_label
from bisect_onnx.errors import listing
from bisect_onnx.runtimes.base import Candidate, Reference

__all__ = ["dropout_left_on", "live_dropouts", "random_calls", "random_nodes"]

# ONNX operators that draw, https://onnx.ai/onnx/operators/; Dropout does when it is told that it trains.
DRAWING = frozenset({
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
})  # fmt: skip
# ATen operators that draw, without the underscore of those that write to their input.
DRAWING_CALLS = frozenset({
    "bernoulli", "cauchy", "dropout", "exponential", "geometric", "log_normal", "multinomial", "native_dropout",
    "normal", "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "random", "randperm",
    "rrelu_with_noise", "uniform",
})  # fmt: skip


def random_nodes(candidate: Candidate) -> tuple[Node, ...]:
    """Nodes that draw random numbers when they are run, inside bodies and functions too."""
    graph = candidate.graph
    found = [node for each in (graph, *graph.functions) for node in _everywhere(each) if node.op_type in DRAWING]
    return (*found, *live_dropouts(candidate))


def live_dropouts(candidate: Candidate) -> tuple[Node, ...]:
    """Dropouts of the main graph that are told to train, by a constant."""
    return tuple(node for node in candidate.graph.nodes if _is_live(node, candidate.parameters))


def _is_live(node: Node, constants: Mapping[str, Array]) -> bool:
    if node.op_type != "Dropout" or node.domain not in ("", "ai.onnx") or len(node.inputs) < 3:
        return False
    training, ratio = constants.get(node.inputs[2]), constants.get(node.inputs[1])
    return training is not None and bool(training.any()) and (ratio is None or bool(ratio.any()))


def _everywhere(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for body in node.subgraphs:
            yield from _everywhere(body)


def random_calls(reference: Reference, feeds: Mapping[str, Array], *, max_bytes: int) -> list[str]:
    """The calls of the reference that draw random numbers, with their source lines; those of ATen only."""
    calls = reference.capture(feeds, max_bytes=max_bytes).graph.nodes
    drawing = [call for call in calls if _bare(call.op_type) in DRAWING_CALLS]
    return [
        f"{call.op_type} at {call.source.file}:{call.source.line}" if call.source is not None else call.op_type
        for call in drawing
    ]


def _bare(op_type: str) -> str:
    return op_type.removeprefix("aten.").rstrip("_")


def dropout_left_on(nodes: tuple[Node, ...], *, level: int) -> Finding:
    """Dropouts are told to train, and the runtime took them out before that could show."""
    named = listing([nested_label(node.path, node.name) for node in nodes], limit=5)
    return Finding(
        code="NM001",
        name="dropout-left-on",
        cause="K05",
        confidence=Confidence.LIKELY,
        subject=nodes[0].name,
        message=f"Dropout is told to train: {named}. ONNX Runtime removes it at level {level}; at level 0, and in "
        "another runtime, the file draws random numbers",
        facts={"nodes": [node.index for node in nodes]},
        remedy="Export in evaluation mode (module.eval(), and no training=TrainingMode.TRAINING).",
        references=("https://onnx.ai/onnx/operators/onnx__Dropout.html",),
    )
