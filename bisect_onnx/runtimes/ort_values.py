"""Arrays to and from ONNX Runtime, with the element types that numpy does not know."""

import ctypes
from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np
import onnxruntime as ort
from onnx import TensorProto

from bisect_onnx.runtimes.base import Array

__all__ = ["ELEMENT_TYPES", "element_type", "flattened", "in_memory_order", "is_exposable", "run_session"]

# ONNX Runtime's Python binding has no numpy type for these: they travel as bits.
BIT_TYPES: Mapping[np.dtype[np.generic], tuple[int, str]] = {
    np.dtype(ml_dtypes.bfloat16): (TensorProto.BFLOAT16, "bfloat16"),
    np.dtype(ml_dtypes.float8_e4m3fn): (TensorProto.FLOAT8E4M3FN, "float8e4m3fn"),
    np.dtype(ml_dtypes.float8_e4m3fnuz): (TensorProto.FLOAT8E4M3FNUZ, "float8e4m3fnuz"),
    np.dtype(ml_dtypes.float8_e5m2): (TensorProto.FLOAT8E5M2, "float8e5m2"),
    np.dtype(ml_dtypes.float8_e5m2fnuz): (TensorProto.FLOAT8E5M2FNUZ, "float8e5m2fnuz"),
}

# The runtime's name of an element type, and numpy's.
ELEMENT_TYPES: Mapping[str, np.dtype[np.generic]] = {
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "float16": np.dtype(np.float16),
    "bool": np.dtype(np.bool_),
    "string": np.dtype(object),
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{name: dtype for dtype, (_, name) in BIT_TYPES.items()},
}


def element_type(ort_type: str) -> np.dtype[np.generic] | None:
    """Numpy's name for "tensor(float)"; None for sequences, maps, optionals and four-bit types."""
    return ELEMENT_TYPES.get(ort_type[len("tensor(") : -1]) if ort_type.startswith("tensor(") else None


def is_exposable(ort_type: str) -> bool:
    """Whether a value of this type can be handed over as one array."""
    return element_type(ort_type) is not None


def in_memory_order(array: Array) -> Array:
    """The same array, row-major; unlike `numpy.ascontiguousarray` it leaves a scalar without axes."""
    return array if array.flags.c_contiguous else array.copy(order="C")


def run_session(
    session: ort.InferenceSession, feeds: Mapping[str, Array], *, fetch: Sequence[str], options: ort.RunOptions
) -> dict[str, Array]:
    """Run and return the arrays of ``fetch``; what is no tensor comes back as the runtime gives it."""
    types = {output.name: output.type for output in session.get_outputs()}
    ordered = {name: in_memory_order(array) for name, array in feeds.items()}
    by_bits = any(array.dtype in BIT_TYPES for array in ordered.values()) or any(
        element_type(types[name]) in BIT_TYPES for name in fetch
    )
    if not by_bits:
        return dict(zip(fetch, session.run(list(fetch), ordered, options), strict=True))
    values = session.run_with_ort_values(list(fetch), {n: _to_runtime(a) for n, a in ordered.items()}, options)
    return {name: _from_runtime(value, types[name]) for name, value in zip(fetch, values, strict=True)}


def flattened(outputs: Mapping[str, Array], tensors: set[str]) -> dict[str, Array]:
    """Arrays by name; what is no tensor becomes one entry per item."""
    flat: dict[str, Array] = {}
    for name, value in outputs.items():
        if name in tensors:
            flat[name] = value
        else:
            flat.update({f"{name}[{position}]": np.asarray(item) for position, item in enumerate(value)})
    return flat


def _to_runtime(array: Array) -> ort.OrtValue:
    if array.dtype not in BIT_TYPES:
        return ort.OrtValue.ortvalue_from_numpy(array)
    bits = array.view(np.dtype(f"uint{8 * array.dtype.itemsize}"))
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, BIT_TYPES[array.dtype][0])


def _from_runtime(value: ort.OrtValue, ort_type: str) -> Array:
    dtype = element_type(ort_type)
    if dtype is None or dtype not in BIT_TYPES:
        return np.asarray(value.numpy())
    buffer = (ctypes.c_uint8 * value.tensor_size_in_bytes()).from_address(value.data_ptr())
    return np.frombuffer(bytes(buffer), dtype=np.uint8).view(dtype).reshape(tuple(value.shape()))
