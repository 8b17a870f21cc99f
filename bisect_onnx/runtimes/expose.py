"""Cut an ONNX model at some values and expose others, through onnx-graphsurgeon.

A cut value keeps its producer, which still writes it, while its consumers read a new graph input. So one run
tells for each piece between cuts what it makes of the values it was given.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from bisect_onnx.core.edits import NodeEdit
from bisect_onnx.core.graph import Graph
from bisect_onnx.readers.onnx_structure import import_bare

__all__ = ["CUT_PREFIX", "CutType", "Exposable", "ExposedModel", "expose"]

CUT_PREFIX = "bisect_onnx_cut_"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CutType:
    """Type of a cut value. Sizes stay open, so that one session serves arrays of any size."""

    dtype: np.dtype[np.generic]
    rank: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExposedModel:
    """A model whose outputs are the values fetched. ``inputs`` gives the graph input that stands for each cut."""

    proto: onnx.ModelProto
    inputs: Mapping[str, str]


class Exposable:
    """A model, its large tensors in files, with what every cutting of it looks up; ``graph`` is the same as read."""

    def __init__(self, model: onnx.ModelProto, *, graph: Graph) -> None:
        self.model = model
        self.graph = graph
        self.opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1)
        self.prefix = fresh_prefix(model.graph, CUT_PREFIX)
        self.inputs = {value.name: value for value in model.graph.input}
        self.initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self.sparse_initializers = {tensor.values.name: tensor for tensor in model.graph.sparse_initializer}
        self._reads: dict[int, list[str]] = {}

    def piece(self, *, fetch: Sequence[str], cuts: Collection[str]) -> "Piece":
        """The nodes between ``cuts`` and ``fetch``."""
        nodes = _needed_nodes(self.graph, fetch=fetch, cuts=cuts)
        for index in nodes:
            if index not in self._reads:
                self._reads[index] = sorted(outer_names(self.model.graph.node[index]))
        return Piece(nodes=nodes, read=dict.fromkeys(name for index in nodes for name in self._reads[index]))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Nodes of the main graph by position, and the values that they read."""

    nodes: Sequence[int]
    read: Collection[str]


def expose(
    whole: Exposable, *, fetch: Sequence[str], cuts: Mapping[str, CutType], edits: Sequence[NodeEdit] = ()
) -> ExposedModel:
    """Build the part of a model that computes ``fetch`` from graph inputs and ``cuts``.

    The work grows with that part, not with the model.

    Args:
        whole: The model.
        fetch: Values that a node of the main graph computes.
        cuts: Values, graph inputs or initializers of the main graph; their consumers, those inside bodies
            too, read a graph input instead.
        edits: Other forms of some nodes.
    """
    edited = {edit.index: edit for edit in edits}
    piece = whole.piece(fetch=fetch, cuts=cuts)
    nodes = whole.model.graph.node
    originals = [_edited(nodes[i], edited[i]) if i in edited else nodes[i] for i in piece.nodes]
    names = {value: f"{whole.prefix}{number}" for number, value in enumerate(cuts) if value in piece.read}
    structure = import_bare(_bare_header(whole, piece.read), originals, opset=whole.opset)
    variables = {value: _variable(name, cuts[value]) for value, name in names.items()}
    for node, original in zip(structure.nodes, originals, strict=True):
        _rewire(node, original, replaced=variables)
    computed = {tensor.name: tensor for node in structure.nodes for tensor in node.outputs}
    structure.outputs = [computed[name] for name in fetch]
    structure.inputs = [*(tensor for tensor in structure.inputs if tensor.name not in cuts), *variables.values()]
    exported = gs.export_onnx(structure, do_type_check=False, opset_imports=list(whole.model.opset_import))
    proto = _restored(exported.graph, whole, originals=originals, initializers=[n for n in piece.read if n not in cuts])
    return ExposedModel(proto=proto, inputs=names)


def _bare_header(whole: Exposable, read: Collection[str]) -> onnx.GraphProto:
    """The graph without nodes, and with those inputs alone that are ``read``."""
    header = onnx.GraphProto(name=whole.model.graph.name)
    header.input.extend(
        onnx.ValueInfoProto(name=name) for name in whole.inputs if name in read and name not in whole.initializers
    )
    return header


def _edited(node: onnx.NodeProto, edit: NodeEdit) -> onnx.NodeProto:
    """A copy of ``node`` in its other form."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.op_type = edit.op_type or node.op_type
    if edit.order:
        copy.input[:] = [node.input[place] for place in edit.order]
    if edit.attributes is not None:
        del copy.attribute[:]
        copy.attribute.extend(a for a in node.attribute if a.name not in edit.attributes)
        copy.attribute.extend(
            onnx.helper.make_attribute(name, value) for name, value in edit.attributes.items() if value is not None
        )
    return copy


def _needed_nodes(graph: Graph, *, fetch: Sequence[str], cuts: Collection[str]) -> list[int]:
    """Positions of the nodes between ``cuts`` and ``fetch``, in the file's order."""
    needed: set[int] = set()
    producers = [graph.producer(name) for name in fetch]
    stack = [node for node in producers if node is not None]
    if len(stack) != len(fetch):
        computed_by_none = [name for name, node in zip(fetch, producers, strict=True) if node is None]
        raise ValueError(f"no node of the main graph computes {computed_by_none[0]!r}")
    while stack:
        node = stack.pop()
        if node.index in needed:
            continue
        needed.add(node.index)
        above = (graph.producer(name) for name in node.reads if name not in cuts)
        stack.extend(producer for producer in above if producer is not None)
    return sorted(needed)


def fresh_prefix(graph: onnx.GraphProto, prefix: str) -> str:
    """``prefix``, longer where a name in the model begins with it."""
    while any(name.startswith(prefix) for name in _all_names(graph)):
        prefix += "_"
    return prefix


def _all_names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    for node in graph.node:
        yield from node.output
        for body in bodies(node).values():
            yield from _all_names(body)


def bodies(node: onnx.NodeProto) -> dict[str, onnx.GraphProto]:
    """Graphs inside ``node`` by attribute name."""
    return {a.name: a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH and not a.ref_attr_name}


def own_names(graph: onnx.GraphProto) -> set[str]:
    """Values that belong to ``graph`` and hide outer ones of the same name."""
    names = {value.name for value in graph.input}
    names.update(tensor.name for tensor in graph.initializer)
    names.update(tensor.values.name for tensor in graph.sparse_initializer)
    names.update(name for node in graph.node for name in node.output)
    return names


def outer_names(node: onnx.NodeProto) -> set[str]:
    """Values of the surrounding graph that ``node`` reads, from inside its bodies too."""
    names = {name for name in node.input if name}
    for body in bodies(node).values():
        inner = {value.name for value in body.output}
        for child in body.node:
            inner |= outer_names(child)
        names |= inner - own_names(body)
    return names


def _variable(name: str, kind: CutType) -> gs.Variable:
    element = onnx.helper.np_dtype_to_tensor_dtype(kind.dtype)
    return gs.Variable(name, dtype=element, shape=[None] * kind.rank)


def _rewire(node: gs.Node, original: onnx.NodeProto, *, replaced: Mapping[str, gs.Variable]) -> None:
    """Let ``node``, and everything inside it, read the replacements."""
    for position, tensor in enumerate(node.inputs):
        if tensor.name in replaced:
            node.inputs[position] = replaced[tensor.name]
    for name, proto in bodies(original).items():
        hidden = own_names(proto)
        visible = {value: tensor for value, tensor in replaced.items() if value not in hidden}
        body = node.attrs[name]
        body.outputs = [visible.get(tensor.name, tensor) for tensor in body.outputs]
        for child, child_proto in zip(body.nodes, proto.node, strict=True):
            _rewire(child, child_proto, replaced=visible)


def _restored(
    exported: onnx.GraphProto,
    whole: Exposable,
    *,
    originals: Sequence[onnx.NodeProto],
    initializers: Collection[str],
) -> onnx.ModelProto:
    """Give the bare export what onnx-graphsurgeon never saw: attributes, weights, types of inputs, functions."""
    result = onnx.ModelProto(ir_version=whole.model.ir_version, producer_name="bisect-onnx")
    result.opset_import.extend(whole.model.opset_import)
    result.functions.extend(whole.model.functions)
    graph = result.graph
    graph.name = exported.name
    graph.input.extend(whole.inputs.get(value.name, value) for value in exported.input)
    # Without a declared type: the runtime infers it, and a stale declaration in the file cannot contradict.
    graph.output.extend(onnx.ValueInfoProto(name=value.name) for value in exported.output)
    graph.initializer.extend(whole.initializers[n] for n in initializers if n in whole.initializers)
    graph.sparse_initializer.extend(
        whole.sparse_initializers[n] for n in initializers if n in whole.sparse_initializers
    )
    for bare, original in zip(exported.node, originals, strict=True):
        _restore_node(bare, original, target=graph.node.add())
    return result


def _restore_node(bare: onnx.NodeProto, original: onnx.NodeProto, *, target: onnx.NodeProto) -> None:
    target.CopyFrom(original)
    target.input[:] = bare.input
    rewired = bodies(bare)
    for attribute in target.attribute:
        if attribute.name in rewired:
            _restore_body(rewired[attribute.name], attribute.g)


def _restore_body(bare: onnx.GraphProto, target: onnx.GraphProto) -> None:
    """``target`` holds a copy of the original; only the names that it reads change."""
    for output, rewired in zip(target.output, bare.output, strict=True):
        output.name = rewired.name
    for node, rewired_node in zip(target.node, bare.node, strict=True):
        node.input[:] = rewired_node.input
        inner = bodies(rewired_node)
        for attribute in node.attribute:
            if attribute.name in inner:
                _restore_body(inner[attribute.name], attribute.g)
