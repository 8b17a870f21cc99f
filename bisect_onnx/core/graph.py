"""The graph model both sides share: named values, and the nodes that compute them.

A candidate graph holds ONNX nodes; a reference graph holds the ATen calls of one eager run (or the nodes
of a reference ONNX file). Search and alignment see only this.
"""

import dataclasses
import enum
from collections.abc import Iterable, Iterator, Mapping

__all__ = ["Graph", "Node", "PathStep", "Source", "Value", "ValueKind", "nested_label", "node_label"]


class ValueKind(enum.Enum):
    """Where a value comes from."""

    INPUT = "input"
    PARAMETER = "parameter"  # an initializer, a module parameter or a buffer
    CONSTANT = "constant"  # does not depend on any input: a constant node, shape arithmetic on static shapes
    ACTIVATION = "activation"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """A named tensor. ``shape`` is None when unknown; an entry of it is None when symbolic."""

    name: str
    kind: ValueKind
    dtype: str | None = None  # numpy's name, plus bfloat16 and the float8 names of ml_dtypes; None if unknown
    shape: tuple[int | None, ...] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The innermost frame of user code: absolute ``file``, 1-based ``line``, the ``code`` of that line."""

    file: str
    line: int
    code: str | None = None  # None when the file cannot be read

    def to_dict(self) -> dict[str, object]:
        return {"file": self.file, "line": self.line, "code": self.code}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PathStep:
    """One level of nesting on the way to a node in a body or a function."""

    node: str
    index: int
    graph: str  # attribute name of the body ("body", "then_branch") or the function's name
    iteration: int | None = None  # None outside Loop and Scan, or when the iteration is not known

    def to_dict(self) -> dict[str, object]:
        return {"node": self.node, "index": self.index, "graph": self.graph, "iteration": self.iteration}


def node_label(index: int, op_type: str, *, name: str = "") -> str:
    """The name shown for a node: its own, or ``#INDEX:OpType`` when it has none."""
    return name or f"#{index}:{op_type}"


def nested_label(path: Iterable[PathStep], label: str) -> str:
    """A node's label behind the way to it: ``loop[3]/body/Add``, in the fourth iteration."""
    steps = (f"{step.node}{'' if step.iteration is None else f'[{step.iteration}]'}/{step.graph}/" for step in path)
    return "".join(steps) + label


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One operator call: an ONNX node, or an ATen call of the reference.

    ``inputs`` and ``outputs`` are value names; an omitted optional one is the empty string.
    ``attributes`` holds plain data: numbers, strings, tuples, small tensors as nested tuples.
    """

    index: int  # position in the user's file, or in the order of calls
    name: str  # as `node_label` gives it, never empty
    op_type: str  # "Conv"; on the reference side "aten.convolution"
    domain: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: Mapping[str, object] = dataclasses.field(default_factory=dict)
    path: tuple[PathStep, ...] = ()
    module: str | None = None  # dotted module path; "" is the root module; None when unknown
    module_class: str | None = None
    torch_op: str | None = None  # "aten.silu.default" as the exporter recorded it; None when unknown
    fx_name: str | None = None  # the exporter's name of the torch node, e.g. "silu_1"
    source: Source | None = None
    subgraphs: tuple["Graph", ...] = ()
    reads: tuple[str, ...] = dataclasses.field(
        init=False, repr=False, compare=False
    )  # inside its bodies too, once each

    def __post_init__(self) -> None:
        object.__setattr__(self, "reads", tuple(dict.fromkeys((*self.real_inputs(), *captured_names(self)))))

    def real_inputs(self) -> tuple[str, ...]:
        return tuple(name for name in self.inputs if name)

    def real_outputs(self) -> tuple[str, ...]:
        return tuple(name for name in self.outputs if name)

    def inputs_key(self, numbering: Mapping[str, int]) -> tuple[int | str, ...]:
        """Inputs with numbered values replaced by their numbers: equal keys mean equal operands."""
        return tuple(numbering.get(name, name) for name in self.inputs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Graph:
    """Nodes in topological order and the values between them."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    values: Mapping[str, Value]
    functions: tuple["Graph", ...] = ()  # bodies of model-local functions; ``name`` is "domain:name"
    _producer: dict[str, Node] = dataclasses.field(init=False, repr=False, compare=False)
    _consumers: dict[str, tuple[Node, ...]] = dataclasses.field(init=False, repr=False, compare=False)
    _place: dict[int, int] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        producer: dict[str, Node] = {}
        consumers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.real_outputs():
                producer[name] = node
            for name in node.reads:
                consumers.setdefault(name, []).append(node)
        object.__setattr__(self, "_place", {node.index: place for place, node in enumerate(self.nodes)})
        object.__setattr__(self, "_producer", producer)
        object.__setattr__(self, "_consumers", {name: tuple(nodes) for name, nodes in consumers.items()})

    def place(self, node: Node) -> int:
        """Where ``node`` stands in `nodes`: another number than its index when the file is out of order."""
        return self._place[node.index]

    def producer(self, value: str) -> Node | None:
        """The node that computes ``value``; None for inputs and parameters."""
        return self._producer.get(value)

    def consumers(self, value: str) -> tuple[Node, ...]:
        """Nodes that read ``value``, also from inside a body, in topological order."""
        return self._consumers.get(value, ())

    def kind(self, value: str) -> ValueKind:
        known = self.values.get(value)
        return known.kind if known is not None else ValueKind.ACTIVATION

    def activations(self) -> Iterator[str]:
        """Values computed from an input, in topological order."""
        for node in self.nodes:
            for name in node.real_outputs():
                if self.kind(name) is ValueKind.ACTIVATION:
                    yield name

    def ancestors(self, values: Iterable[str]) -> set[str]:
        """``values`` and every value they are computed from."""
        seen: set[str] = set()
        stack = list(values)
        while stack:
            name = stack.pop()
            if name in seen:
                continue
            seen.add(name)
            node = self._producer.get(name)
            if node is not None:
                stack.extend(node.reads)
        return seen


def captured_names(node: Node) -> tuple[str, ...]:
    """Outer values that the bodies of ``node`` read, in order of first use."""
    names: dict[str, None] = {}
    for body in node.subgraphs:
        own = {name for inner in body.nodes for name in inner.outputs} | set(body.inputs)
        # A body may list the outer values it reads: as inputs that are not its own.
        own |= {name for name, value in body.values.items() if value.kind is not ValueKind.INPUT}
        read = [name for inner in body.nodes for name in (*inner.real_inputs(), *captured_names(inner))]
        names.update((name, None) for name in (*read, *body.outputs) if name and name not in own)
    return tuple(names)
