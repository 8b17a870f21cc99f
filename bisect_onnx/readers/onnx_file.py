"""Read an ONNX file: its graph, its metadata and, when asked for, its numbers. Nothing is executed."""

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from bisect_onnx.core.graph import Graph
from bisect_onnx.readers.onnx_graph import build_graph, constant_tensors, stored_tensors
from bisect_onnx.readers.onnx_proto import read_proto
from bisect_onnx.readers.onnx_tensors import Slim, TensorMap, slim

__all__ = ["OnnxFile", "from_proto", "read"]

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class OnnxFile:
    """An ONNX model on disk.

    ``proto`` is the file as parsed, external data not loaded. ``initializers`` gives arrays on demand, of
    the initializers and of Constant nodes. ``slim`` is the model without the bytes of its large tensors.
    """

    path: Path
    graph: Graph
    proto: onnx.ModelProto
    opsets: Mapping[str, int]
    producer: str
    initializers: TensorMap
    slim: Slim


def read(path: str | Path) -> OnnxFile:
    """Open ``path`` without copying a weight.

    Raises:
        ModelNotFoundError: No file there.
        NotAnOnnxFileError: The bytes are no ONNX model.
        ExternalDataError: The file with the weights is missing or too short.
    """
    path = Path(path)
    return from_proto(read_proto(path), path=path)


def from_proto(proto: onnx.ModelProto, *, path: Path) -> OnnxFile:
    """A model in memory; ``path`` is what messages name, and external data lies beside it."""
    opsets = {_domain(entry.domain): entry.version for entry in proto.opset_import}
    reduced = slim(proto)
    tensors = {**constant_tensors(proto.graph.node), **stored_tensors(proto.graph)}
    return OnnxFile(
        path=path,
        graph=build_graph(proto, inferred=_inferred(reduced.proto), opset=opsets.get("", 1)),
        proto=proto,
        opsets=opsets,
        producer=f"{proto.producer_name} {proto.producer_version}".strip(),
        initializers=TensorMap(tensors, model=path),
        slim=reduced,
    )


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _inferred(model: onnx.ModelProto) -> onnx.GraphProto:
    """The graph with as many types as shape inference can tell; a failure only means fewer."""
    try:
        return onnx.shape_inference.infer_shapes(model, strict_mode=False, data_prop=True).graph
    except (onnx.shape_inference.InferenceError, DecodeError, RuntimeError, ValueError) as error:
        logger.info("no shape inference: %s", error)
        return model.graph
