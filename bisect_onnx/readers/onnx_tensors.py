"""Tensors of an ONNX file, decoded only when somebody asks for them.

Weights may be larger than memory, so nothing here copies one until it is read: external data is mapped,
inline data stays inside the proto. `Slim` is the same model with every large tensor replaced by a
reference to a file, which is what shape inference and probes work on.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

from bisect_onnx.errors import ExternalDataError

__all__ = [
    "INLINE_LOCATION",
    "Slim",
    "TensorMap",
    "TensorSource",
    "byte_length",
    "check_external",
    "each_tensor",
    "element_count",
    "external_entries",
    "point_at",
    "raw_bytes",
    "slim",
    "tensor_array",
    "tensor_dtype_name",
]

Array = np.ndarray[Any, np.dtype[Any]]
TensorSource = onnx.TensorProto | onnx.SparseTensorProto | Array

# Marks, in a slim model, a tensor whose bytes lie inside the user's own proto and not in a file.
INLINE_LOCATION = "<inline>"

# ONNX Runtime reads shape inputs while it builds a session, and wants them inline; none is this large.
SLIM_BYTES = 1024

# Cache lines: what vector loads like best.
ALIGNMENT = 64


def tensor_dtype_name(kind: int) -> str:
    """Name of an element type: numpy's, bfloat16, the float8 names of ml_dtypes, or str."""
    if kind == onnx.TensorProto.STRING:
        return "str"
    return str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind)).name)


def each_tensor(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a model: initializers and tensor attributes, in bodies and functions too."""
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        yield from _node_tensors(function.node)


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graph_tensors(attribute.g)


def external_entries(tensor: onnx.TensorProto) -> dict[str, str]:
    """The external-data record of ``tensor``: location, offset, length."""
    return {entry.key: entry.value for entry in tensor.external_data}


def tensor_array(tensor: onnx.TensorProto, *, folder: Path, model: Path) -> Array:
    """The numbers of ``tensor``; a read-only map of the file when they are external.

    Args:
        tensor: Inline or external.
        folder: What external locations are relative to.
        model: The file named in errors.
    """
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return numpy_helper.to_array(tensor)
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    path, offset, length = check_external(tensor, folder=folder, model=model)
    if length == 0:
        return np.zeros(tuple(tensor.dims), dtype=dtype)
    if dtype in _PACKED:
        inline = onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims)
        inline.raw_data = np.memmap(path, dtype=np.uint8, mode="r", offset=offset, shape=(length,)).tobytes()
        return numpy_helper.to_array(inline)
    raw = np.memmap(path, dtype=np.uint8, mode="r", offset=offset, shape=(length,))
    return np.asarray(raw).view(dtype).reshape(tuple(tensor.dims))


_PACKED = frozenset(np.dtype(kind) for kind in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float4_e2m1fn))


def element_count(tensor: TensorSource) -> int:
    """Number of elements, without reading them."""
    if isinstance(tensor, np.ndarray):
        return int(tensor.size)
    return int(np.prod(tensor.dims, dtype=np.int64)) if tensor.dims else 1


def byte_length(tensor: onnx.TensorProto) -> int | None:
    """Bytes that the elements take in a raw file; None for strings."""
    if tensor.data_type == onnx.TensorProto.STRING:
        return None
    count = element_count(tensor)
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    return (count + 1) // 2 if dtype in _PACKED else count * dtype.itemsize


def check_external(tensor: onnx.TensorProto, *, folder: Path, model: Path) -> tuple[Path, int, int]:
    """Find the bytes of an external tensor: file, offset and length.

    Raises:
        ExternalDataError: The file is missing, ends before the tensor does, or lies outside the model's folder:
            a model from a stranger must not make us read other files.
    """
    entries = external_entries(tensor)
    location = entries.get("location", "")
    path = folder / location
    wanted = byte_length(tensor)
    offset = int(entries.get("offset", "0"))
    length = int(entries.get("length", wanted or 0))
    problem = None
    if not location or Path(location).is_absolute() or ".." in Path(location).parts:
        problem = f"the location {location!r}, which does not lie in the model's folder"
    elif not path.is_file():
        problem = "the file does not exist"
    elif path.stat().st_size < offset + max(length, wanted or 0):
        problem = f"the file has {path.stat().st_size} bytes"
    elif wanted is not None and wanted != length:
        problem = f"the model records {length} bytes for it"
    if problem is not None:
        raise ExternalDataError(
            model=model, tensor=tensor.name, data=path, needed=offset + (wanted or length), problem=problem
        )
    return path, offset, length


class TensorMap(Mapping[str, Array]):
    """Arrays by name, read when asked for."""

    def __init__(self, tensors: Mapping[str, TensorSource], *, model: Path) -> None:
        self._tensors = tensors
        self._model = model

    def __getitem__(self, name: str) -> Array:
        source = self._tensors[name]
        if isinstance(source, onnx.TensorProto):
            return tensor_array(source, folder=self._model.parent, model=self._model)
        if isinstance(source, onnx.SparseTensorProto):
            return dense_array(source, folder=self._model.parent, model=self._model)
        return source

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors


def dense_array(sparse: onnx.SparseTensorProto, *, folder: Path, model: Path) -> Array:
    """Elements of a sparse tensor in their places, zeros elsewhere."""
    values = tensor_array(sparse.values, folder=folder, model=model)
    indices = tensor_array(sparse.indices, folder=folder, model=model)
    dense = np.zeros(tuple(sparse.dims), dtype=values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slim:
    """A model without the bytes of its large tensors.

    ``inline`` lists the tensors whose bytes lie in the user's proto, each with its offset in a file that
    holds them all one behind the other; nobody has written that file yet.
    """

    proto: onnx.ModelProto
    inline: tuple[tuple[int, onnx.TensorProto], ...]


def slim(model: onnx.ModelProto) -> Slim:
    """Copy the structure of ``model``, its small tensors, and references in place of large ones.

    Doc strings and metadata stay behind: they have been read by then. Functions are copied as they are.
    """
    builder = _Slimmer()
    copy = onnx.ModelProto(ir_version=model.ir_version, producer_name=model.producer_name)
    copy.opset_import.extend(model.opset_import)
    copy.functions.extend(model.functions)
    builder.graph(model.graph, copy.graph)
    return Slim(proto=copy, inline=tuple(builder.inline))


class _Slimmer:
    """One pass over a model that hands out offsets."""

    def __init__(self) -> None:
        self.inline: list[tuple[int, onnx.TensorProto]] = []
        self._end = 0

    def graph(self, source: onnx.GraphProto, target: onnx.GraphProto) -> None:
        target.name = source.name
        target.input.extend(source.input)
        target.output.extend(source.output)
        target.value_info.extend(source.value_info)
        target.sparse_initializer.extend(source.sparse_initializer)
        for tensor in source.initializer:
            self.tensor(tensor, target.initializer.add())
        for node in source.node:
            self.node(node, target.node.add())

    def node(self, source: onnx.NodeProto, target: onnx.NodeProto) -> None:
        target.op_type, target.domain, target.name = source.op_type, source.domain, source.name
        if source.overload:
            target.overload = source.overload
        target.input.extend(source.input)
        target.output.extend(source.output)
        for attribute in source.attribute:
            copy = target.attribute.add()
            if attribute.type == onnx.AttributeProto.GRAPH and not attribute.ref_attr_name:
                copy.name, copy.type = attribute.name, attribute.type
                self.graph(attribute.g, copy.g)
            elif attribute.type == onnx.AttributeProto.TENSOR and not attribute.ref_attr_name:
                copy.name, copy.type = attribute.name, attribute.type
                self.tensor(attribute.t, copy.t)
            else:
                copy.CopyFrom(attribute)

    def tensor(self, source: onnx.TensorProto, target: onnx.TensorProto) -> None:
        length = byte_length(source)
        if source.data_location == onnx.TensorProto.EXTERNAL or length is None or length <= SLIM_BYTES:
            target.CopyFrom(source)
            return
        target.name, target.data_type = source.name, source.data_type
        target.dims.extend(source.dims)
        self._end += -self._end % ALIGNMENT
        point_at(target, location=INLINE_LOCATION, offset=self._end, length=length)
        self.inline.append((self._end, source))
        self._end += length


def point_at(tensor: onnx.TensorProto, *, location: str, offset: int, length: int) -> None:
    """Make ``tensor`` refer to bytes in a file."""
    tensor.data_location = onnx.TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)


def raw_bytes(tensor: onnx.TensorProto) -> bytes:
    """Elements of an inline tensor as they lie in a raw file (little-endian)."""
    if tensor.HasField("raw_data"):
        return tensor.raw_data
    array = numpy_helper.to_array(tensor)
    return numpy_helper.from_array(array).raw_data
