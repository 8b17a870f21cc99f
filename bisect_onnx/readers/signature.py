"""The declared inputs of an ONNX model, with the names of their symbolic axes."""

import onnx

from bisect_onnx.core.feeds import InputSignature

__all__ = ["read_signature"]


def read_signature(model: onnx.ModelProto) -> tuple[InputSignature, ...]:
    """Graph inputs that a caller must feed: those with an initializer (a default) are left out."""
    defaults = {tensor.name for tensor in model.graph.initializer}
    defaults |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    return tuple(_declared(value) for value in model.graph.input if value.name not in defaults)


def _declared(value: onnx.ValueInfoProto) -> InputSignature:
    if not value.type.HasField("tensor_type"):
        return InputSignature(name=value.name, dtype=None, dims=None)
    tensor = value.type.tensor_type
    dims = tuple(_dim(dim) for dim in tensor.shape.dim) if tensor.HasField("shape") else None
    return InputSignature(name=value.name, dtype=_dtype_name(tensor.elem_type), dims=dims)


def _dim(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        # Some converters write 0 or -1 for "unknown"; no input of length 0 could be compared anyway.
        return dim.dim_value if dim.dim_value > 0 else None
    return dim.dim_param or None if kind == "dim_param" else None


def _dtype_name(elem_type: int) -> str | None:
    if elem_type == onnx.TensorProto.STRING:
        return "string"
    if elem_type == onnx.TensorProto.UNDEFINED:
        return None
    return str(onnx.helper.tensor_dtype_to_np_dtype(elem_type))
