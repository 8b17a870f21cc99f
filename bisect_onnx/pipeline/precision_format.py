"""Does the candidate compute in a lower precision than the reference, and in which nodes?"""

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from bisect_onnx.align.operators import MOVEMENT, PASS_THROUGH
from bisect_onnx.align.reference_index import ReferenceIndex
from bisect_onnx.core.compare import Array
from bisect_onnx.core.graph import Graph, Node, ValueKind
from bisect_onnx.core.tolerance import unit_roundoff

__all__ = ["DEQUANTIZING", "QUANTIZING", "LowerPrecision", "lower_precision"]

QUANTIZING: Final = frozenset({"QuantizeLinear", "DynamicQuantizeLinear"})
DEQUANTIZING: Final = frozenset({"DequantizeLinear"})

# Operators that compute on quantised integers; the runtime's own have more, all of which are named alike.
_INTEGER_OPERATORS: Final = frozenset({"ConvInteger", "MatMulInteger", "DynamicQuantizeMatMul", "MatMulNBits", "QGemm"})
_INTEGER_PREFIXES: Final = ("QLinear", "MatMulInteger", "DynamicQuantize")

# One node in a lower precision is a fault like any other: only a model that computes so in several differs a little
# everywhere.
_FEWEST_NODES: Final = 2


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class LowerPrecision:
    """Which nodes of the candidate compute in a lower precision than the reference."""

    nodes: frozenset[int]  # by index
    formats: tuple[str, ...]  # "float16", "int8 (quantised)"


def lower_precision(graph: Graph, observed: Mapping[str, Array], index: ReferenceIndex) -> LowerPrecision | None:
    """The nodes that compute in a lower precision than any call of the reference; None when fewer than two do.

    A Cast alone computes nothing: a round trip through float16 in a float32 model is no model in float16.

    Args:
        graph: The candidate.
        observed: Values of one run of it.
        index: The reference.
    """
    found: dict[int, str] = {}
    coarsest = _coarsest(index)
    quantised = any(is_quantising(call) for call in index.graph.nodes)
    dequantized = {name for node in graph.nodes if node.op_type in DEQUANTIZING for name in node.real_outputs()}
    for node in graph.nodes:
        if node.op_type in MOVEMENT | PASS_THROUGH | QUANTIZING | DEQUANTIZING | {"Constant"}:
            continue
        if not any(graph.kind(name) is ValueKind.ACTIVATION for name in node.real_outputs()):
            continue
        if not quantised and (is_quantising(node) or any(name in dequantized for name in node.real_inputs())):
            found[node.index] = "quantised integers"
            continue
        dtypes = {str(observed[name].dtype) for name in node.real_outputs() if name in observed}
        narrow = [dtype for dtype in sorted(dtypes) if unit_roundoff(dtype) > coarsest > 0]
        if narrow:
            found[node.index] = narrow[0]
    if len(found) < _FEWEST_NODES:
        return None
    common = Counter(found.values())
    return LowerPrecision(nodes=frozenset(found), formats=tuple(sorted(common, key=lambda name: (-common[name], name))))


def is_quantising(node: Node) -> bool:
    """Whether the node makes or computes on quantised integers."""
    kind = node.op_type
    return kind in QUANTIZING | _INTEGER_OPERATORS or kind.startswith(_INTEGER_PREFIXES)


def _coarsest(index: ReferenceIndex) -> float:
    """The largest roundoff of any float that the reference computes; 0 when it computes none."""
    return max((unit_roundoff(dtype) for dtype in _dtypes(index)), default=0.0)


def _dtypes(index: ReferenceIndex) -> Collection[str]:
    return {index.fingerprints[name].dtype for name in index.group_of if name in index.fingerprints}
