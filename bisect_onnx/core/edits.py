"""Other forms of a node: what an exporter, or a hand, confuses it with. Values; an engine tries them."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from bisect_onnx.core.graph import Node

__all__ = ["NodeEdit", "variants", "with_arguments"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NodeEdit:
    """One node in another form; what is None stays.

    ``order`` lists the positions of the old inputs in their new order. ``attributes`` are set; one whose
    value is None is removed.
    """

    index: int
    op_type: str | None = None
    order: tuple[int, ...] | None = None
    attributes: Mapping[str, int | float | str | tuple[int, ...] | None] | None = None

    def __hash__(self) -> int:
        return hash((self.index, self.op_type, self.order, repr(self.attributes)))


# Operators of equal signature that stand in for each other by mistake.
_FAMILIES: Final = (
    ("Floor", "Ceil", "Round"),
    ("Max", "Min"),
    ("Add", "Sub", "Mul", "Div"),
    ("And", "Or", "Xor"),
    ("Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
    ("ArgMax", "ArgMin"),
    ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"),
    ("Sin", "Cos"),
    ("Exp", "Log"),
    ("Sqrt", "Reciprocal"),
    ("AveragePool", "MaxPool"),
    ("Relu", "Elu", "LeakyRelu", "Sigmoid", "HardSigmoid", "Tanh", "Erf", "Softplus", "Softsign", "HardSwish", "Mish",
     "Gelu", "Abs", "Neg", "Identity"),
)  # fmt: skip
_ORDERED: Final = frozenset({"Sub", "Div", "Pow", "Mod", "MatMul", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"})
# Attributes that are on or off, with their defaults.
_SWITCHES: Final[Mapping[str, Mapping[str, int]]] = {
    "Mod": {"fmod": 0},
    "Trilu": {"upper": 1},
    "CumSum": {"exclusive": 0, "reverse": 0},
    "GridSample": {"align_corners": 0},
    "TopK": {"largest": 1},
    "AveragePool": {"count_include_pad": 0},
    "MaxPool": {"ceil_mode": 0},
    "GRU": {"linear_before_reset": 0},
}
_FLOAT: Final = 1  # TensorProto.FLOAT
# Concat of more parts has too many orders to try.
_MOST_PARTS = 3
# So has a Transpose of more axes.
_MOST_AXES = 4


def variants(node: Node) -> Iterator[NodeEdit]:
    """Every other form of ``node`` worth trying, the likeliest first."""
    for order in _orders(node):
        yield NodeEdit(index=node.index, order=order)
    for attributes in _attributes(node):
        yield NodeEdit(index=node.index, attributes=attributes)
    if node.domain in ("", "ai.onnx"):
        for other in (other for family in _FAMILIES if node.op_type in family for other in family):
            if other != node.op_type:
                yield NodeEdit(index=node.index, op_type=other, attributes=_kept_attributes(node, other))


def _attributes(node: Node) -> Iterator[Mapping[str, int | str | tuple[int, ...]]]:
    """Settings that are mistaken for one another."""
    for name, default in _SWITCHES.get(node.op_type, {}).items():
        yield {name: 1 - int(bool(node.attributes.get(name, default)))}
    perm = node.attributes.get("perm")
    if node.op_type == "Transpose" and isinstance(perm, tuple) and len(perm) <= _MOST_AXES:
        yield from ({"perm": axes} for axes in itertools.permutations(range(len(perm))) if axes != perm)
    if node.op_type == "Cast" and node.attributes.get("to") != _FLOAT:
        yield {"to": _FLOAT}  # there and back again loses what is between
    if node.op_type == "Gelu":
        yield {"approximate": "none" if node.attributes.get("approximate") == "tanh" else "tanh"}


def with_arguments(node: Node, arguments: Iterable[object]) -> Iterator[NodeEdit]:
    """``node`` with each number or tuple of numbers of ``arguments`` in the place of an attribute of that type."""
    for name, own in node.attributes.items():
        for value in arguments:
            if _fits(value, own) and value != own:
                assert isinstance(value, int | float | tuple)
                yield NodeEdit(index=node.index, attributes={name: value})


def _fits(value: object, own: object) -> bool:
    if isinstance(own, tuple) and isinstance(value, tuple):
        return len(own) == len(value) and all(_fits(*both) for both in zip(value, own, strict=True))
    if isinstance(own, bool) or isinstance(value, bool):
        return False
    return isinstance(own, int | float) and type(value) is type(own)


def _orders(node: Node) -> list[tuple[int, ...]]:
    """Other orders of the inputs that mean something else."""
    count = len(node.inputs)
    if node.op_type in _ORDERED and count == 2:
        return [(1, 0)]
    if node.op_type == "Where":
        return [(0, 2, 1)]
    if node.op_type == "Concat" and 1 < count <= _MOST_PARTS:
        return [order for order in itertools.permutations(range(count)) if order != tuple(range(count))]
    return []


def _kept_attributes(node: Node, other: str) -> dict[str, None]:
    """Removes what only the old operator knows; reductions, arg and pool operators keep theirs."""
    if other.startswith(("Reduce", "Arg")):
        return {}
    return dict.fromkeys(node.attributes) if node.attributes else {}
