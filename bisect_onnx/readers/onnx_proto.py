"""Parse an ONNX file and check that all it refers to is there; nothing is executed, and no weight is copied.

Only onnx is needed here, so that this also works where a model is merely run.
"""

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from bisect_onnx.errors import ModelNotFoundError, NotAnOnnxFileError
from bisect_onnx.readers.onnx_tensors import check_external, each_tensor

__all__ = ["read_proto"]

# First bytes of files that people take for ONNX files, and what to do with them instead.
FOREIGN = (
    (b"PK\x03\x04", "a zip archive, as torch.save and torch.export.save write", "export it with torch.onnx.export"),
    (b"\x80\x02", "a Python pickle, as old torch.save writes", "export it with torch.onnx.export"),
    (b"\x89HDF", "an HDF5 file, as Keras writes", "convert it with tf2onnx"),
    (b"version https://git-lfs", "a Git LFS pointer, not the model", "fetch the model with: git lfs pull"),
    (b"ORTM", "an ORT-format model", "use the .onnx file it was made from"),
)
AGAIN = "export or copy the file again"
SPLIT = "save it with external data: no protobuf message can be larger than 2 GiB"
PROTOBUF_LIMIT = 2**31 - 1


def read_proto(path: Path) -> onnx.ModelProto:
    """The file as parsed, external data not loaded.

    Raises:
        ModelNotFoundError: No file there.
        NotAnOnnxFileError: The bytes are no ONNX model.
        ExternalDataError: The file with the weights is missing or too short.
    """
    model = _parse(path)
    for tensor in each_tensor(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            check_external(tensor, folder=path.parent, model=path)
    return model


def _parse(path: Path) -> onnx.ModelProto:
    data = _read_bytes(path)
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        got = f"{len(data)} bytes that do not parse (cut short, or another format)"
        too_large = len(data) > PROTOBUF_LIMIT
        raise NotAnOnnxFileError(path=path, got=got, next_step=SPLIT if too_large else AGAIN) from error
    if not model.graph.output:
        raise NotAnOnnxFileError(path=path, got="a message without a graph that has outputs", next_step=AGAIN)
    if not model.opset_import:
        raise NotAnOnnxFileError(path=path, got="a model without an opset (cut short?)", next_step=AGAIN)
    kinds = onnx.TensorProto.DataType.values()
    for tensor in each_tensor(model):
        if tensor.data_type not in kinds or tensor.data_type == onnx.TensorProto.UNDEFINED:
            got = f"element type {tensor.data_type} in tensor {tensor.name!r}"
            raise NotAnOnnxFileError(path=path, got=got, next_step="update the onnx package, or export the file again")
    return model


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise ModelNotFoundError(path=path, got="a folder")
    if not path.exists():
        raise ModelNotFoundError(path=path, got="no such file")
    try:
        data = path.read_bytes()
    except OSError as error:
        got = error.strerror or str(error)
        raise NotAnOnnxFileError(path=path, got=got, next_step="check its permissions") from error
    if not data:
        raise NotAnOnnxFileError(path=path, got="an empty file", next_step=AGAIN)
    for magic, what, next_step in FOREIGN:
        # ORT-format files carry their mark behind a four-byte offset.
        if data.startswith(magic) or (magic == b"ORTM" and data[4:8] == magic):
            raise NotAnOnnxFileError(path=path, got=what, next_step=next_step)
    return data
