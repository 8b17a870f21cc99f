"""Write control flow out: the nodes of a taken branch, of each iteration, of a called function, in one flat list.

What is inside a body cannot be exposed by name: a value has one instance for each iteration, and the graph
around it sees only what the body returns. Written out, each instance is a value of its own.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

from bisect_onnx.core.graph import Graph, Node, PathStep
from bisect_onnx.runtimes.base import Origin, Place
from bisect_onnx.runtimes.expose import bodies, own_names

__all__ = ["BRANCHES", "FlatNode", "Unfolding", "is_control", "renamed"]

BRANCHES = ("else_branch", "then_branch")
CONTROL = frozenset({"If", "Loop", "Scan"})

# Since this version of the default domain Unsqueeze reads its axes from an input.
UNSQUEEZE_BY_INPUT = 13


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FlatNode:
    """A node as it stands in the flat list, and the node of the user's file that it is a copy of."""

    proto: NodeProto
    origin: Origin


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Block:
    """Nodes with one scope: a body, or what a function holds."""

    protos: Sequence[NodeProto]
    nodes: Mapping[int, Node]  # the same, as read
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def is_control(proto: NodeProto) -> bool:
    return proto.op_type in CONTROL and proto.domain in ("", "ai.onnx")


class Unfolding:
    """Writes out one node at a time; the names that it makes are new, `original` tells the old ones."""

    def __init__(self, *, prefix: str, opset: int, functions: Mapping[str, tuple[onnx.FunctionProto, Graph]]) -> None:
        self.initializers: dict[str, TensorProto] = {}
        self.original: dict[str, str] = {}
        self.states: dict[str, Place] = {}  # what iterations of a Loop hand on
        self.functions = functions
        self.prefix = prefix
        self._opset = opset
        self._numbers = itertools.count()

    def branch(self, flat: FlatNode, *, taken: bool) -> list[FlatNode]:
        """The nodes of one branch of an If."""
        attribute = BRANCHES[taken]
        block, names = self._body(flat, attribute)
        nodes, _ = self._inlined(
            flat, block, names, graph=attribute, iteration=None, targets=dict(enumerate(flat.proto.output))
        )
        return nodes

    def call(self, flat: FlatNode) -> list[FlatNode]:
        """The nodes of a function, with the attributes of the call."""
        function, graph = self.functions[function_key(flat.proto)]
        given = {a.name: a for a in (*function.attribute_proto, *flat.proto.attribute)}
        block = _Block(
            protos=[_with_attributes(node, given) for node in function.node],
            nodes={node.index: node for node in graph.nodes},
            inputs=tuple(function.input),
            outputs=tuple(function.output),
        )
        padded = [*flat.proto.input, *[""] * (len(function.input) - len(flat.proto.input))]
        nodes, _ = self._inlined(
            flat,
            block,
            dict(zip(function.input, padded, strict=True)),
            graph=graph.name,
            iteration=None,
            targets=dict(enumerate(flat.proto.output)),
        )
        return nodes

    def loop(self, flat: FlatNode, *, count: int) -> list[FlatNode]:
        """The nodes of each of ``count`` iterations of a Loop."""
        block, names = self._body(flat, "body")
        states = list(flat.proto.input[2:])
        outputs = [*flat.proto.output, *[""] * (len(block.outputs) - 1 - len(flat.proto.output))]
        condition = flat.proto.input[1] if len(flat.proto.input) > 1 else ""
        condition = condition or self._constant(np.ones((), dtype=np.bool_), "cond")
        found: list[FlatNode] = []
        stacked: list[list[str]] = [[] for _ in outputs[len(states) :]]
        for iteration in range(count):
            number = self._constant(np.array(iteration, dtype=np.int64), "iteration")
            bound = dict(zip(block.inputs, [number, condition, *states], strict=True))
            last = enumerate(outputs[: len(states)], 1) if iteration == count - 1 else ()
            nodes, results = self._inlined(
                flat, block, names | bound, graph="body", iteration=iteration, targets=dict(last)
            )
            found += nodes
            condition, states = results[0], results[1 : 1 + len(states)]
            self.states.update(dict.fromkeys(states, flat.origin.place))
            for items, item in zip(stacked, results[1 + len(states) :], strict=True):
                items.append(item)
        for items, output in zip(stacked, outputs[len(states) :], strict=True):
            found += self._stack(flat, items, axis=0, output=output)
        return found

    def scan(self, flat: FlatNode, *, count: int) -> list[FlatNode]:
        """The nodes of each of ``count`` iterations of a Scan (since version 9)."""
        block, names = self._body(flat, "body")
        read = _attribute(flat.proto, "num_scan_inputs", 0)
        assert isinstance(read, int)
        states, sequences = list(flat.proto.input[:-read]), list(flat.proto.input[-read:])
        rest = len(block.outputs) - len(states)
        axes_in = _numbers(flat.proto, "scan_input_axes", read)
        backwards_in = _numbers(flat.proto, "scan_input_directions", read)
        axes_out = _numbers(flat.proto, "scan_output_axes", rest)
        backwards_out = _numbers(flat.proto, "scan_output_directions", rest)
        outputs = [*flat.proto.output, *[""] * (len(block.outputs) - len(flat.proto.output))]
        found: list[FlatNode] = []
        stacked: list[list[str]] = [[] for _ in range(rest)]
        for iteration in range(count):
            items = []
            for name, axis, backwards in zip(sequences, axes_in, backwards_in, strict=True):
                place = count - 1 - iteration if backwards else iteration
                index = self._constant(np.array(place, dtype=np.int64), "place")
                items.append(self._fresh(name))
                found.append(self._made(flat, helper.make_node("Gather", [name, index], [items[-1]], axis=axis)))
            bound = dict(zip(block.inputs, [*states, *items], strict=True))
            last = enumerate(outputs[: len(states)]) if iteration == count - 1 else ()
            nodes, results = self._inlined(
                flat, block, names | bound, graph="body", iteration=iteration, targets=dict(last)
            )
            found += nodes
            states = results[: len(states)]
            for made, item in zip(stacked, results[len(states) :], strict=True):
                made.append(item)
        for made, axis, backwards, output in zip(stacked, axes_out, backwards_out, outputs[len(states) :], strict=True):
            found += self._stack(flat, made[::-1] if backwards else made, axis=axis, output=output)
        return found

    def _body(self, flat: FlatNode, attribute: str) -> tuple[_Block, dict[str, str]]:
        """A body, and the names of its initializers and constants, which all iterations share."""
        graph = bodies(flat.proto)[attribute]
        as_read = next(body for body in flat.origin.node.subgraphs if body.name == attribute)
        names: dict[str, str] = {}
        for tensor in graph.initializer:
            names[tensor.name] = self._fresh(tensor.name)
            copy = self.initializers[names[tensor.name]] = TensorProto()
            copy.CopyFrom(tensor)
            copy.name = names[tensor.name]
        listed = {tensor.name for tensor in graph.initializer}
        block = _Block(
            protos=graph.node,
            nodes={node.index: node for node in as_read.nodes},
            inputs=tuple(value.name for value in graph.input if value.name not in listed),
            outputs=tuple(value.name for value in graph.output),
        )
        for node in graph.node:
            if node.op_type == "Constant":
                names.update({name: self._fresh(name) for name in node.output})
        return block, names

    def _inlined(
        self,
        flat: FlatNode,
        block: _Block,
        bound: Mapping[str, str],
        *,
        graph: str,
        iteration: int | None,
        targets: Mapping[int, str],
    ) -> tuple[list[FlatNode], list[str]]:
        """Copies of the nodes of a block, and the names of what it returns.

        Args:
            flat: The node that the block belongs to.
            block: What is copied.
            bound: Names that stand for the block's inputs and for what is shared.
            graph: What the block is called in a path.
            iteration: None outside Loop and Scan.
            targets: Names that returned values, by position, must have.
        """
        names = dict(bound)
        computed = [name for node in block.protos for name in node.output if name and name not in names]
        names.update({name: self._fresh(name) for name in computed})
        passed: list[tuple[str, str]] = []
        free = set(computed)
        for position, target in targets.items():
            inner = block.outputs[position]
            if target and inner in free:
                free.remove(inner)
                names[inner] = target
            elif target:
                passed.append((inner, target))
        step = PathStep(node=flat.origin.node.name, index=flat.origin.node.index, graph=graph, iteration=iteration)
        path = (*flat.origin.path, step)
        nodes = [
            FlatNode(proto=renamed(proto, names), origin=Origin(node=block.nodes[index], path=path))
            for index, proto in enumerate(block.protos)
            if not (iteration and proto.op_type == "Constant")
        ]
        results = [names.get(name, name) for name in block.outputs]
        for inner, target in passed:
            nodes.append(self._made(flat, helper.make_node("Identity", [names.get(inner, inner)], [target])))
        return nodes, results

    def _stack(self, flat: FlatNode, items: Sequence[str], *, axis: int, output: str) -> list[FlatNode]:
        """What collects a value of each iteration along a new axis."""
        if not output:
            return []
        found, slices = [], []
        for item in items:
            slices.append(self._fresh(item))
            if self._opset >= UNSQUEEZE_BY_INPUT:
                where = self._constant(np.array([axis], dtype=np.int64), "axis")
                node = helper.make_node("Unsqueeze", [item, where], [slices[-1]])
            else:
                node = helper.make_node("Unsqueeze", [item], [slices[-1]], axes=[axis])
            found.append(self._made(flat, node))
        return [*found, self._made(flat, helper.make_node("Concat", slices, [output], axis=axis))]

    def _made(self, flat: FlatNode, proto: NodeProto) -> FlatNode:
        """A node that stands for something the control flow node itself does."""
        return FlatNode(proto=proto, origin=dataclasses.replace(flat.origin, made=True))

    def _constant(self, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], name: str) -> str:
        fresh = self._fresh(name)
        self.initializers[fresh] = numpy_helper.from_array(array, name=fresh)
        return fresh

    def _fresh(self, name: str) -> str:
        original = self.original.get(name, name)
        fresh = f"{self.prefix}{next(self._numbers)}/{original}"
        self.original[fresh] = original
        return fresh


def function_key(proto: NodeProto) -> str:
    """As `core.graph.Graph.functions` are named."""
    return f"{proto.domain}:{proto.op_type}"


def renamed(proto: NodeProto, names: Mapping[str, str]) -> NodeProto:
    """A copy that reads and writes other names, inside its bodies too where they see them."""
    copy = NodeProto()
    copy.CopyFrom(proto)
    _rename(copy, names)
    return copy


def _rename(node: NodeProto, names: Mapping[str, str]) -> None:
    node.input[:] = [names.get(name, name) for name in node.input]
    node.output[:] = [names.get(name, name) for name in node.output]
    for body in bodies(node).values():
        hidden = own_names(body)
        visible = {name: other for name, other in names.items() if name not in hidden}
        for value in body.output:
            value.name = visible.get(value.name, value.name)
        for inner in body.node:
            _rename(inner, visible)


def _with_attributes(node: NodeProto, given: Mapping[str, AttributeProto]) -> NodeProto:
    """A copy of a function's node in which attributes of the call stand where it refers to them."""
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            own = copy.attribute.add()
            own.CopyFrom(attribute)
            if own.type == AttributeProto.GRAPH:
                inner = [_with_attributes(child, given) for child in own.g.node]
                del own.g.node[:]
                own.g.node.extend(inner)
        elif attribute.ref_attr_name in given:
            own = copy.attribute.add()
            own.CopyFrom(given[attribute.ref_attr_name])
            own.name = attribute.name
    return copy


def _attribute(proto: NodeProto, name: str, default: object) -> object:
    found: Iterable[AttributeProto] = (a for a in proto.attribute if a.name == name)
    return next((helper.get_attribute_value(a) for a in found), default)


def _numbers(proto: NodeProto, name: str, count: int) -> list[int]:
    values = _attribute(proto, name, None)
    return [int(value) for value in values] if isinstance(values, (list, tuple)) else [0] * count
