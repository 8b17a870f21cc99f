"""How many bytes each value of a model takes on given inputs, as far as shape inference can tell without a run."""

from collections.abc import Mapping

import ml_dtypes  # noqa: F401  # teaches numpy the names bfloat16 and float8
import numpy as np
import onnx
from google.protobuf.message import DecodeError

from bisect_onnx.runtimes.base import Array

__all__ = ["value_sizes"]


def value_sizes(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, int]:
    """Bytes by value name; values whose shape stays open are absent.

    Args:
        model: Structure only: large tensors are references.
        feeds: Graph inputs, whose shapes take the place of symbolic ones.
    """
    fed = onnx.ModelProto()
    fed.CopyFrom(model)
    for value in fed.graph.input:
        if value.name in feeds and value.type.HasField("tensor_type"):
            del value.type.tensor_type.shape.dim[:]
            for length in feeds[value.name].shape:
                value.type.tensor_type.shape.dim.add(dim_value=length)
    # Declared sizes may be symbolic; those are inferred anew.
    del fed.graph.value_info[:]
    try:
        inferred = onnx.shape_inference.infer_shapes(fed, strict_mode=False, data_prop=True).graph
    except (onnx.shape_inference.InferenceError, DecodeError, RuntimeError, ValueError):
        return {}
    sizes = {}
    for value in (*inferred.value_info, *inferred.output):
        size = _bytes(value)
        if size is not None:
            sizes[value.name] = size
    return sizes


def _bytes(value: onnx.ValueInfoProto) -> int | None:
    tensor = value.type.tensor_type
    known = value.type.HasField("tensor_type") and tensor.HasField("shape") and tensor.elem_type
    if not known or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        return None
    count = 1
    for dim in tensor.shape.dim:
        count *= dim.dim_value
    return count * np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)).itemsize
