"""Both sides, open and fed: what every later step works on."""

import dataclasses
from pathlib import Path
from typing import Any

from bisect_onnx.pipeline.inputs import Feeds, resolve_feeds
from bisect_onnx.pipeline.opening import open_reference
from bisect_onnx.pipeline.request import LocateRequest
from bisect_onnx.runtimes.base import Candidate, Reference

__all__ = ["Sides", "open_sides"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sides:
    """The two models and the feeds of one run."""

    reference: Reference
    candidate: Candidate
    module: Any  # an nn.Module; None when the reference is no module of this process
    feeds: Feeds
    shapes_only: frozenset[str]  # candidate values that are shape arithmetic
    max_bytes: int  # for the reference's kept values
    notes: tuple[str, ...]
    reference_runtime: Candidate | None = None  # probes the reference, when it is an ONNX file
    recorded: bool = False  # the reference is a file of values: they have names, and no order


def open_sides(request: LocateRequest) -> Sides:
    """Open the candidate, the reference and the feeds, in the order in which errors are cheapest to find."""
    from bisect_onnx.readers import onnx_file
    from bisect_onnx.readers.onnx_kinds import shape_arithmetic
    from bisect_onnx.readers.signature import read_signature

    file = onnx_file.read(Path(request.candidate))
    opened = open_reference(
        request.reference, weights=request.weights, unsafe_load=request.unsafe_load, inputs=request.inputs
    )
    feeds = resolve_feeds(
        request.inputs,
        signature=read_signature(file.proto),
        graph=file.graph,
        opened=opened,
        seed=request.seed,
        shapes=request.shapes,
    )
    from bisect_onnx.runtimes.ort import OrtCandidate

    candidate = OrtCandidate(
        file,
        providers=request.providers,
        level=request.level,
        session_options=request.session_options,
        custom_ops=request.custom_ops,
    )
    return Sides(
        reference=opened.reference,
        candidate=candidate,
        module=opened.module,
        feeds=feeds,
        shapes_only=frozenset(shape_arithmetic(file.graph)),
        max_bytes=request.max_memory if request.max_memory is not None else _free_memory() // 2,
        notes=(*opened.notes, *feeds.notes),
        reference_runtime=opened.runtime,
        recorded=opened.recording is not None,
    )


def _free_memory() -> int:
    import psutil

    return int(psutil.virtual_memory().available)
