"""The onnx reference evaluator: slow, in Python, and a third opinion about what a node of a file means."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from bisect_onnx.core.graph import Node
from bisect_onnx.readers.onnx_file import OnnxFile
from bisect_onnx.runtimes.base import Array
from bisect_onnx.runtimes.piece_file import write_piece

__all__ = ["NotEvaluatedError", "evaluate"]

MOST_SECONDS = 2.0
# Seconds for each element that an operator computes. Measured with onnx 1.23.2 on 2**15 elements, on 2**20 for the
# default (Erf, Gelu, ScatterElements, GatherND); a window operator that is not listed counts as the slowest.
SECONDS: Final[Mapping[str, float]] = {
    "AveragePool": 3e-5,
    "Conv": 3e-6,
    "MaxPool": 2e-5,
    "Resize": 1e-6,
}
SLOWEST = 3e-4
WINDOWED: Final = frozenset({
    "ConvInteger", "ConvTranspose", "DeformConv", "GridSample", "LpPool", "MaxUnpool", "NonMaxSuppression",
    "QLinearConv", "RoiAlign", "Upsample",
})  # fmt: skip
OTHERS = 1e-6


class NotEvaluatedError(Exception):
    """The evaluator cannot run the segment; the text says why. Never leaves the package."""


def evaluate(
    file: OnnxFile,
    nodes: Sequence[Node],
    *,
    inputs: Mapping[str, Array],
    output: str,
    shapes: Mapping[str, tuple[int, ...]],
) -> Array:
    """What the evaluator makes of ``nodes``.

    Args:
        file: The whole.
        nodes: In the order of the file; what they read is computed by them, an initializer, or in ``inputs``.
        inputs: Arrays of the shape and dtype that the inputs are declared with.
        output: Value that the nodes compute.
        shapes: Of the values that the nodes compute, as far as they are known.

    Raises:
        NotEvaluatedError: The segment is too slow, or holds something that the evaluator does not know.
    """
    _require_quick(nodes, shapes)
    from onnx.reference import ReferenceEvaluator

    owner = _Owner()
    try:
        path = write_piece(file, nodes, inputs=inputs, outputs=[output], owner=owner)
        with np.errstate(all="ignore"):
            (found,) = ReferenceEvaluator(str(path)).run([output], dict(inputs))
    except Exception as error:  # what an operator written in Python may raise is not listed anywhere
        first_line = str(error).partition("\n")[0]
        raise NotEvaluatedError(f"{type(error).__name__}: {first_line}") from error
    if not isinstance(found, np.ndarray | np.generic):
        raise NotEvaluatedError(f"it gave a {type(found).__name__}, not a tensor")
    return np.asarray(found)


class _Owner:
    """What the temporary file lives as long as."""


def _require_quick(nodes: Sequence[Node], shapes: Mapping[str, tuple[int, ...]]) -> None:
    seconds = {node.name: _seconds(node, shapes) for node in nodes}
    slowest = max(seconds, key=lambda name: seconds[name], default="")
    if sum(seconds.values()) > MOST_SECONDS:
        raise NotEvaluatedError(
            f"it is written in Python, and would take about {sum(seconds.values()):.0f} s, most of it for {slowest}"
        )


def _seconds(node: Node, shapes: Mapping[str, tuple[int, ...]]) -> float:
    each = SECONDS.get(node.op_type, SLOWEST if node.op_type in WINDOWED else OTHERS)
    return each * sum(math.prod(shapes[name]) for name in node.real_outputs() if name in shapes)
