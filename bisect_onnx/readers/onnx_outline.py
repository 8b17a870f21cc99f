"""The outline of an ONNX model, who reads what and known shapes: enough to draw inputs, and onnx alone reads it."""

from collections.abc import Iterable

import onnx
from google.protobuf.message import DecodeError

from bisect_onnx.core.graph import Graph, Node, Value, ValueKind, node_label

__all__ = ["outline"]


def outline(model: onnx.ModelProto) -> Graph:
    """The main graph with its bodies and functions. Of attributes only whole numbers are read, of values only shapes.

    Args:
        model: Structure only, so that inferring its shapes is cheap.
    """
    try:
        graph = onnx.shape_inference.infer_shapes(model, strict_mode=False, data_prop=True).graph
    except (onnx.shape_inference.InferenceError, DecodeError, RuntimeError, ValueError):
        graph = model.graph  # fewer shapes are known
    functions = tuple(
        Graph(
            name=f"{function.domain}:{function.name}",
            inputs=tuple(function.input),
            outputs=tuple(function.output),
            nodes=_nodes(function.node),
            values={},
        )
        for function in model.functions
    )
    return _graph(graph, functions=functions)


def _graph(graph: onnx.GraphProto, *, functions: tuple[Graph, ...] = ()) -> Graph:
    shapes: dict[str, tuple[int | None, ...]] = {}
    for value in (*graph.value_info, *graph.input, *graph.output):
        if value.type.HasField("tensor_type") and value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            shapes[value.name] = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in dims)
    shapes |= {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    return Graph(
        name=graph.name,
        inputs=tuple(value.name for value in graph.input),
        outputs=tuple(value.name for value in graph.output),
        nodes=_nodes(graph.node),
        values={name: Value(name=name, kind=ValueKind.ACTIVATION, shape=shape) for name, shape in shapes.items()},
        functions=functions,
    )


def _nodes(nodes: Iterable[onnx.NodeProto]) -> tuple[Node, ...]:
    kinds = onnx.AttributeProto
    return tuple(
        Node(
            index=index,
            name=node_label(index, node.op_type, name=node.name),
            op_type=node.op_type,
            domain=node.domain,
            inputs=tuple(node.input),
            outputs=tuple(node.output),
            attributes={a.name: int(a.i) for a in node.attribute if a.type == kinds.INT and not a.ref_attr_name},
            subgraphs=tuple(_graph(a.g) for a in node.attribute if a.type == kinds.GRAPH and not a.ref_attr_name),
        )
        for index, node in enumerate(nodes)
    )
