"""Digests that tell a model from every other: of its file, and of the files that hold its weights."""

import hashlib
from pathlib import Path

import onnx

from bisect_onnx.core.recording import ModelFile
from bisect_onnx.readers.onnx_tensors import each_tensor, external_entries

__all__ = ["digest_model"]


def digest_model(path: Path, model: onnx.ModelProto) -> ModelFile:
    """The identity of the model at ``path``, which was read as ``model``."""
    external = (tensor for tensor in each_tensor(model) if tensor.data_location == onnx.TensorProto.EXTERNAL)
    locations = sorted({external_entries(tensor).get("location", "") for tensor in external})
    return ModelFile(
        name=path.name,
        sha256=_digest(path),
        weights={location: _digest(path.parent / location) for location in locations},
    )


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
