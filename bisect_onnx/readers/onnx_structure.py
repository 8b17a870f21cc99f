"""An onnx-graphsurgeon graph of names and edges only.

onnx-graphsurgeon drops what it does not know (metadata, optional types, overloads) and refuses attributes that
are not UTF-8. So it is given nodes without attributes and values without types, and whoever writes a model
from its graph puts the originals back.
"""

from collections.abc import Sequence

import onnx
import onnx_graphsurgeon as gs

__all__ = ["bare_graph", "import_bare"]


def import_bare(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], *, opset: int) -> gs.Graph:
    """Import ``nodes`` of ``graph``: edges, nesting and names.

    Initializers appear as variables without a producer, so that no weight is touched.
    """
    model = onnx.ModelProto(ir_version=onnx.IR_VERSION)
    model.opset_import.add(domain="", version=opset)
    bare_graph(graph, nodes, target=model.graph)
    with gs.logger.G_LOGGER.suppress(gs.logger.G_LOGGER.ERROR):
        return gs.import_onnx(model)


def bare_graph(source: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], *, target: onnx.GraphProto) -> None:
    """Fill ``target`` with the edges among ``nodes``, which belong to ``source``."""
    initialized = {tensor.name for tensor in source.initializer}
    target.name = source.name or "graph"
    for value in source.input:
        if value.name not in initialized:
            target.input.add(name=value.name)
    for value in source.output:
        target.output.add(name=value.name)
    for node in nodes:
        bare = target.node.add(op_type=node.op_type, domain=node.domain, name=node.name)
        bare.input.extend(node.input)
        bare.output.extend(node.output)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH and not attribute.ref_attr_name:
                copy = bare.attribute.add(name=attribute.name, type=attribute.type)
                bare_graph(attribute.g, attribute.g.node, target=copy.g)
