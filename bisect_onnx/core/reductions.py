"""How many terms an ONNX operator sums per output element: the length that rounding errors grow with."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from bisect_onnx.core.graph import Node

__all__ = ["terms_per_element"]

Shape = tuple[int, ...]
ShapeOf = Callable[[str], Shape | None]

_SUMMING: Final = frozenset({
    "ReduceMean", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceProd", "ReduceLogSumExp",
    "ReduceLogSum", "GlobalAveragePool", "Einsum",
})  # fmt: skip
_NORMALISING: Final = frozenset({
    "Softmax", "LogSoftmax", "LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization",
    "SimplifiedLayerNormalization", "SkipLayerNormalization", "LpNormalization", "CumSum", "MeanVarianceNormalization",
})  # fmt: skip
_GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}  # of the recurrent operators
_WHOLE: Final = frozenset({"Loop", "Scan", "If", "Attention", "MultiHeadAttention", "STFT", "DFT"})


def terms_per_element(node: Node, shape_of: ShapeOf) -> int:
    """Terms in the sum behind one output element; 1 for elementwise operators and unknown shapes."""
    shapes = [shape_of(name) if name else None for name in node.inputs]
    first = shapes[0] if shapes else None
    second = shapes[1] if len(shapes) > 1 else None
    if node.op_type in ("MatMul", "Gemm", "MatMulInteger") and first:
        transposed = node.op_type == "Gemm" and bool(node.attributes.get("transA"))
        return first[-2] if transposed else first[-1]
    if node.op_type in ("Conv", "ConvTranspose") and second:
        return math.prod(second[1:]) if node.op_type == "Conv" else second[0] * math.prod(second[2:])
    if node.op_type in _GATES and first and second:
        # Every step sums over the inputs and the hidden state, and errors pass on from step to step.
        steps = first[1] if node.attributes.get("layout") else first[0]
        return steps * (second[-1] + second[-2] // _GATES[node.op_type])
    if node.op_type in _NORMALISING and first:
        return math.prod(first[1:]) if len(first) > 3 else max(first)
    if node.op_type in _SUMMING and first:
        output = shape_of(node.outputs[0])
        return max(1, math.prod(first) // max(1, math.prod(output))) if output is not None else math.prod(first)
    if node.op_type == "AveragePool":
        kernel = node.attributes.get("kernel_shape")
        return math.prod(int(k) for k in kernel) if isinstance(kernel, Sequence) else 1
    if node.op_type in ("Resize", "GridSample"):
        return 16  # at most 4 x 4 taps (cubic), with the weights themselves rounded
    if node.op_type in _WHOLE or node.subgraphs:
        return max((math.prod(shape) for shape in shapes if shape), default=1)
    return 1
