"""Write a part of an ONNX file as a file of its own, whose nodes keep the names that the report gives them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from onnx import external_data_helper, helper

from bisect_onnx.core.graph import Node
from bisect_onnx.readers.onnx_file import OnnxFile
from bisect_onnx.runtimes.base import Array
from bisect_onnx.runtimes.scratch import make_scratch

__all__ = ["INLINE_BYTES", "write_piece"]

# Beyond this weights lie beside the model: a protobuf message ends at 2 GiB.
INLINE_BYTES = 1 << 30


def write_piece(
    file: OnnxFile, nodes: Sequence[Node], *, inputs: Mapping[str, Array], outputs: Sequence[str], owner: object
) -> Path:
    """Write ``nodes`` of the main graph to a temporary file that lives as long as ``owner``.

    Args:
        file: The whole.
        nodes: In the order of the file; what they read is computed by them, an initializer, or in ``inputs``.
        inputs: Arrays of the shape and dtype that the inputs are declared with.
        outputs: Values that the nodes compute.
        owner: See `make_scratch`.
    """
    source = file.proto.graph
    model = onnx.ModelProto(ir_version=file.proto.ir_version, producer_name=file.proto.producer_name)
    model.opset_import.extend(file.proto.opset_import)
    model.functions.extend(file.proto.functions)
    model.graph.name = source.name or "graph"
    for name, array in inputs.items():
        text = array.dtype.kind in "OUS"
        kind = onnx.TensorProto.STRING if text else helper.np_dtype_to_tensor_dtype(array.dtype)
        model.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
    for name in outputs:
        model.graph.output.add(name=name)
    for node in nodes:
        copy = model.graph.node.add()
        copy.CopyFrom(source.node[node.index])
        copy.name = node.name  # a nameless one would be called by its place in this file
    read = {name for node in nodes for name in node.reads} - set(inputs)
    for tensor in source.initializer:
        if tensor.name in read:
            _add_with_data(model.graph.initializer.add(), tensor, folder=file.path.parent)
    model.graph.sparse_initializer.extend(each for each in source.sparse_initializer if each.values.name in read)
    model.graph.value_info.extend(
        value for value in source.value_info if any(value.name in node.outputs for node in nodes)
    )
    path = make_scratch(owner) / file.path.name
    aside = sum(tensor.ByteSize() for tensor in model.graph.initializer) > INLINE_BYTES
    onnx.save_model(model, path, save_as_external_data=aside, location=f"{path.name}.data" if aside else None)
    return path


def _add_with_data(target: onnx.TensorProto, source: onnx.TensorProto, *, folder: Path) -> None:
    target.CopyFrom(source)
    if target.data_location == onnx.TensorProto.EXTERNAL:
        external_data_helper.load_external_data_for_tensor(target, str(folder))
        target.data_location = onnx.TensorProto.DEFAULT
        del target.external_data[:]
