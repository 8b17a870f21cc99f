"""An ONNX model as a `core.graph.Graph`: edges from onnx-graphsurgeon, all else from the proto."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from bisect_onnx.core.graph import Graph, Node, PathStep, Value, ValueKind, node_label
from bisect_onnx.readers.onnx_kinds import SMALL_CONSTANT, classify, in_order
from bisect_onnx.readers.onnx_metadata import origin_of
from bisect_onnx.readers.onnx_structure import import_bare
from bisect_onnx.readers.onnx_tensors import TensorSource, byte_length, element_count, tensor_dtype_name

__all__ = ["build_graph", "constant_tensors", "stored_tensors"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class TensorType:
    dtype: str | None
    shape: tuple[int | None, ...] | None


UNKNOWN = TensorType(dtype=None, shape=None)


def build_graph(model: onnx.ModelProto, *, inferred: onnx.GraphProto, opset: int) -> Graph:
    """Translate ``model``.

    Args:
        model: As loaded; its metadata is read, its weights are not.
        inferred: The same graph after shape inference, for types of values.
        opset: Version of the default domain.
    """
    structure = import_bare(model.graph, model.graph.node, opset=opset)
    functions = tuple(_function(function) for function in model.functions)
    return _graph(structure, model.graph, inferred=inferred, name=model.graph.name, functions=functions)


def _graph(
    structure: gs.Graph,
    proto: onnx.GraphProto,
    *,
    inferred: onnx.GraphProto,
    name: str,
    path: tuple[PathStep, ...] = (),
    functions: tuple[Graph, ...] = (),
) -> Graph:
    """One graph: the main one, with ``functions``, or a body, with the ``path`` that leads to it."""
    nodes = in_order(_nodes(structure, proto.node, inferred=inferred.node, path=path))
    stored = stored_tensors(proto)
    constants = constant_tensors(proto.node)
    inputs = tuple(tensor.name for tensor in structure.inputs)
    kinds = classify(nodes, inputs=inputs, parameters=stored, tables=_tables(constants))
    types = _types(inferred)
    types.update({name: _constant_type(tensor) for name, tensor in {**constants, **stored}.items()})
    return Graph(
        name=name,
        inputs=inputs,
        outputs=tuple(tensor.name for tensor in structure.outputs),
        nodes=nodes,
        values={value: _value(value, kind, known=types.get(value, UNKNOWN)) for value, kind in kinds.items()},
        functions=functions,
    )


def stored_tensors(graph: onnx.GraphProto) -> dict[str, TensorSource]:
    """Initializers by name, sparse ones too."""
    dense = {tensor.name: tensor for tensor in graph.initializer}
    return {**dense, **{tensor.values.name: tensor for tensor in graph.sparse_initializer}}


def _value(name: str, kind: ValueKind, *, known: TensorType) -> Value:
    return Value(name=name, kind=kind, dtype=known.dtype, shape=known.shape)


def _nodes(
    structure: gs.Graph,
    protos: Sequence[onnx.NodeProto],
    *,
    inferred: Sequence[onnx.NodeProto],
    path: tuple[PathStep, ...],
) -> tuple[Node, ...]:
    return tuple(
        _node(index, node, proto=proto, inferred=typed, path=path)
        for index, (node, proto, typed) in enumerate(zip(structure.nodes, protos, inferred, strict=True))
    )


def _node(
    index: int, node: gs.Node, *, proto: onnx.NodeProto, inferred: onnx.NodeProto, path: tuple[PathStep, ...]
) -> Node:
    name = node_label(index, node.op, name=node.name or "")
    origin = origin_of(proto)
    typed = {attribute.name: attribute.g for attribute in inferred.attribute}
    bodies = []
    for attribute in proto.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH and attribute.name in node.attrs:
            step = PathStep(node=name, index=index, graph=attribute.name)
            body = _graph(
                node.attrs[attribute.name],
                attribute.g,
                inferred=typed.get(attribute.name, attribute.g),
                name=attribute.name,
                path=(*path, step),
            )
            bodies.append(body)
    return Node(
        index=index,
        name=name,
        op_type=node.op,
        domain=node.domain or "",
        inputs=tuple(tensor.name for tensor in node.inputs),
        outputs=tuple(tensor.name for tensor in node.outputs),
        attributes={a.name: _plain(a) for a in proto.attribute if a.type != onnx.AttributeProto.GRAPH},
        path=path,
        module=origin.module,
        module_class=origin.module_class,
        torch_op=origin.torch_op,
        fx_name=origin.fx_name,
        source=origin.source,
        subgraphs=tuple(bodies),
    )


def _function(function: onnx.FunctionProto) -> Graph:
    """The body of a model-local function; types inside it depend on the call and stay unknown."""
    holder = onnx.GraphProto(name=f"{function.domain}:{function.name}")
    holder.input.extend(onnx.ValueInfoProto(name=name) for name in function.input)
    holder.output.extend(onnx.ValueInfoProto(name=name) for name in function.output)
    versions = [entry.version for entry in function.opset_import if entry.domain in ("", "ai.onnx")]
    structure = import_bare(holder, function.node, opset=max(versions, default=1))
    nodes = in_order(_nodes(structure, function.node, inferred=function.node, path=()))
    kinds = classify(nodes, inputs=function.input, parameters=(), tables=_tables(constant_tensors(function.node)))
    return Graph(
        name=holder.name,
        inputs=tuple(function.input),
        outputs=tuple(function.output),
        nodes=nodes,
        values={name: _value(name, kind, known=UNKNOWN) for name, kind in kinds.items()},
    )


def _types(graph: onnx.GraphProto) -> dict[str, TensorType]:
    """Declared tensor types by value name; sequences, optionals and maps are left out."""
    types: dict[str, TensorType] = {}
    for value in (*graph.value_info, *graph.input, *graph.output):
        if value.type.HasField("tensor_type") and value.type.tensor_type.elem_type:
            tensor = value.type.tensor_type
            shape = None
            if tensor.HasField("shape"):
                shape = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
            types[value.name] = TensorType(dtype=tensor_dtype_name(tensor.elem_type), shape=shape)
    return types


def constant_tensors(nodes: Sequence[onnx.NodeProto]) -> dict[str, TensorSource]:
    """What Constant nodes hold, by output name: a tensor proto, or a small array."""
    found: dict[str, TensorSource] = {}
    for node in nodes:
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx") and node.attribute and node.output:
            attribute = node.attribute[0]
            if not attribute.ref_attr_name:
                found[node.output[0]] = _CONSTANT_FORMS[attribute.name](attribute)
    return found


_CONSTANT_FORMS: Mapping[str, Any] = {
    "value": lambda attribute: attribute.t,
    "sparse_value": lambda attribute: attribute.sparse_tensor,
    "value_float": lambda attribute: np.array(attribute.f, dtype=np.float32),
    "value_floats": lambda attribute: np.array(list(attribute.floats), dtype=np.float32),
    "value_int": lambda attribute: np.array(attribute.i, dtype=np.int64),
    "value_ints": lambda attribute: np.array(list(attribute.ints), dtype=np.int64),
    "value_string": lambda attribute: np.array(attribute.s.decode(errors="replace"), dtype=object),
    "value_strings": lambda attribute: np.array([s.decode(errors="replace") for s in attribute.strings], dtype=object),
}


def _constant_type(constant: TensorSource) -> TensorType:
    if isinstance(constant, np.ndarray):
        return TensorType(dtype="str" if constant.dtype == object else constant.dtype.name, shape=constant.shape)
    values = constant.values if isinstance(constant, onnx.SparseTensorProto) else constant
    return TensorType(dtype=tensor_dtype_name(values.data_type), shape=tuple(constant.dims))


def _tables(constants: Mapping[str, TensorSource]) -> dict[str, bool]:
    """For each Constant node's output whether it holds floating numbers, or more elements than a shape has."""
    tables: dict[str, bool] = {}
    for name, constant in constants.items():
        floating = (_constant_type(constant).dtype or "").startswith(("float", "bfloat", "complex"))
        tables[name] = floating or element_count(constant) > SMALL_CONSTANT
    return tables


def _plain(attribute: onnx.AttributeProto) -> object:
    """An attribute as numbers, strings and tuples; large tensors as text such as "float32[3, 64]"."""
    if attribute.ref_attr_name:
        return f"@{attribute.ref_attr_name}"
    kinds = onnx.AttributeProto
    if attribute.type == kinds.TENSOR:
        return _plain_tensor(attribute.t)
    if attribute.type == kinds.TENSORS:
        return tuple(_plain_tensor(tensor) for tensor in attribute.tensors)
    reader = _PLAIN_FORMS.get(attribute.type)
    return reader(attribute) if reader is not None else kinds.AttributeType.Name(attribute.type).lower()


def _shortest(number: float) -> float:
    """1e-05 rather than the 9.999999747378752e-06 that a float32 attribute widens to; equal as float32."""
    return float(str(np.float32(number)))


_PLAIN_FORMS: Mapping[int, Any] = {
    onnx.AttributeProto.FLOAT: lambda attribute: _shortest(attribute.f),
    onnx.AttributeProto.INT: lambda attribute: int(attribute.i),
    onnx.AttributeProto.STRING: lambda attribute: attribute.s.decode(errors="replace"),
    onnx.AttributeProto.FLOATS: lambda attribute: tuple(_shortest(number) for number in attribute.floats),
    onnx.AttributeProto.INTS: lambda attribute: tuple(attribute.ints),
    onnx.AttributeProto.STRINGS: lambda attribute: tuple(text.decode(errors="replace") for text in attribute.strings),
}


def _plain_tensor(tensor: onnx.TensorProto) -> object:
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    if element_count(tensor) > SMALL_CONSTANT or external or byte_length(tensor) is None:
        return f"{tensor_dtype_name(tensor.data_type)}{list(tensor.dims)}"
    return _nested(onnx.numpy_helper.to_array(tensor).tolist())


def _nested(value: object) -> object:
    return tuple(_nested(item) for item in value) if isinstance(value, list) else value
