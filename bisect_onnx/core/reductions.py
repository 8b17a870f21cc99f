"""How many terms an ONNX operator sums per output element: the length that rounding errors grow with.

Counts follow the newest meaning of each operator. Where an old one sums over more (Softmax before opset 13 over
all axes from the given one), the bound is low, and the float64 repetition of the reference tells the noise.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bisect_onnx.core.graph import Node

__all__ = ["terms_per_element"]

Shape = tuple[int, ...]
ShapeOf = Callable[[str], Shape | None]


def terms_per_element(node: Node, shape_of: ShapeOf) -> int:
    """Terms in the sum behind one output element; 1 for elementwise operators and unknown shapes."""
    count = _everything if node.subgraphs else _COUNTS.get(node.op_type)
    return 1 if count is None else count(_Call(node=node, shape_of=shape_of))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Call:
    """An operator with what its count depends on; shapes are looked up only where they are needed."""

    node: Node
    shape_of: ShapeOf

    def input(self, place: int) -> Shape:
        """Shape of an input; () when omitted or unknown."""
        name = self.node.inputs[place] if place < len(self.node.inputs) else ""
        return (self.shape_of(name) or ()) if name else ()

    def output(self) -> Shape | None:
        return self.shape_of(self.node.outputs[0])

    def number(self, name: str, default: int) -> int:
        value = self.node.attributes.get(name)
        return value if isinstance(value, int) else default

    def numbers(self, name: str) -> Shape:
        value = self.node.attributes.get(name)
        return tuple(int(item) for item in value) if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _product(call: _Call) -> int:
    """The inner axis of a matrix product; further axes are batches."""
    shape = call.input(0)
    transposed = call.number("transA", 0) and len(shape) > 1
    return shape[-2 if transposed else -1] if shape else 1


def _convolution(call: _Call) -> int:
    """One filter: its input channels (those of one group) and its window."""
    return math.prod(call.input(1)[1:])


def _transposed_convolution(call: _Call) -> int:
    """The input channels of one group, and the places of the window that meet in one output element."""
    weight = call.input(1)
    if not weight:
        return 1
    strides = call.numbers("strides") or (1,) * len(weight[2:])
    meeting = (-(-size // max(stride, 1)) for size, stride in zip(weight[2:], strides, strict=False))
    return weight[0] // max(call.number("group", 1), 1) * math.prod(meeting)


def _recurrent(gates: int) -> Callable[[_Call], int]:
    def count(call: _Call) -> int:
        """Every step sums over the inputs and the hidden state, and errors pass on from step to step."""
        sequence, weight = call.input(0), call.input(1)
        if not sequence or not weight:
            return 1
        steps = sequence[1 if call.number("layout", 0) else 0]
        return steps * (weight[-1] + weight[-2] // gates)

    return count


def _one_axis(call: _Call) -> int:
    shape, axis = call.input(0), call.number("axis", -1)
    return shape[axis] if -len(shape) <= axis < len(shape) else 1


def _axes_from(call: _Call) -> int:
    return math.prod(call.input(0)[call.number("axis", -1) :])


def _space(call: _Call) -> int:
    """All axes behind batch and channel."""
    return math.prod(call.input(0)[2:])


def _group(call: _Call) -> int:
    """The channels of one group and their space."""
    groups = max(call.number("num_groups", call.number("groups", 1)), 1)
    return math.prod(call.input(0)[1:]) // groups


def _mean_and_variance(call: _Call) -> int:
    shape = call.input(0)
    axes = call.numbers("axes") or (0, 2, 3)
    return math.prod(shape[axis] for axis in axes if -len(shape) <= axis < len(shape))


def _reduction(call: _Call) -> int:
    """What the output lacks; so it does not matter whether the axes are an attribute or an input."""
    output = call.output()
    whole = math.prod(call.input(0))
    return whole if output is None else max(1, whole // max(1, math.prod(output)))


def _window(call: _Call) -> int:
    return math.prod(call.numbers("kernel_shape"))


def _longest_axis(call: _Call) -> int:
    """The axis is an input, whose value is not known here."""
    return max(call.input(0), default=1)


def _attention(call: _Call) -> int:
    """A product over the head, the softmax over the keys, and a product over the keys."""
    queries, keys = call.input(0), call.input(1)
    if len(queries) < 2:
        return 1
    return queries[-1] + 2 * max(queries[-2], keys[-2] if len(keys) > 1 else 1)


def _einsum(call: _Call) -> int:
    """The axes whose letters the result lacks; without an arrow it has each letter that occurs once, in order."""
    equation = call.node.attributes.get("equation")
    text = (equation if isinstance(equation, str) else "").replace(" ", "")
    left, arrow, right = text.partition("->")
    letters = left.replace("...", "").replace(",", "")
    kept = right if arrow else {letter for letter in letters if letters.count(letter) == 1}
    sizes: dict[str, int] = {}
    for place, term in enumerate(left.split(",")):
        shape = call.input(place)
        before, ellipsis, after = term.partition("...")
        sizes.update(zip(before, shape, strict=False))
        if ellipsis and after:
            sizes.update(zip(reversed(after), reversed(shape), strict=False))
    return math.prod(size for letter, size in sizes.items() if letter not in kept)


def _everything(call: _Call) -> int:
    return max((math.prod(call.input(place)) for place in range(len(call.node.inputs))), default=1)


def _constantly(terms: int) -> Callable[[_Call], int]:
    return lambda _: terms


def _inputs(call: _Call) -> int:
    return len(call.node.real_inputs())


_COUNTS: Final[Mapping[str, Callable[[_Call], int]]] = {
    **dict.fromkeys(("MatMul", "Gemm", "MatMulInteger", "FusedMatMul", "FusedGemm", "MatMulNBits"), _product),
    **dict.fromkeys(("Conv", "ConvInteger", "DeformConv", "FusedConv"), _convolution),
    "ConvTranspose": _transposed_convolution,
    "LSTM": _recurrent(4),
    "GRU": _recurrent(3),
    "RNN": _recurrent(1),
    **dict.fromkeys(("Softmax", "LogSoftmax", "LpNormalization"), _one_axis),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"), _axes_from),
    # Of com.microsoft; they always take the last axis.
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _one_axis),
    **dict.fromkeys(("InstanceNormalization", "GlobalAveragePool", "GlobalLpPool"), _space),
    **dict.fromkeys(("GroupNormalization", "GroupNorm"), _group),
    "MeanVarianceNormalization": _mean_and_variance,
    **dict.fromkeys(
        ("ReduceMean", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceProd", "ReduceLogSumExp",
         "ReduceLogSum"),
        _reduction,
    ),
    **dict.fromkeys(("AveragePool", "LpPool"), _window),
    "LRN": lambda call: call.number("size", 1),
    **dict.fromkeys(("CumSum", "CumProd", "DFT", "STFT"), _longest_axis),
    **dict.fromkeys(("Sum", "Mean"), _inputs),
    "Einsum": _einsum,
    # At most 4 x 4 taps (cubic), with the weights themselves rounded.
    **dict.fromkeys(("Resize", "Upsample", "GridSample"), _constantly(16)),
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention"), _attention),
    **dict.fromkeys(("Loop", "Scan", "If"), _everything),
}  # fmt: skip
