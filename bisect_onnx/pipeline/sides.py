"""Both sides, open and fed: what every later step works on."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bisect_onnx.core.feeds import GivenFeeds, InputSignature
from bisect_onnx.core.graph import Graph
from bisect_onnx.errors import SamplesError
from bisect_onnx.pipeline.given_inputs import gather_feeds
from bisect_onnx.pipeline.inputs import Feeds, name_feeds, resolve_feeds
from bisect_onnx.pipeline.opening import OpenedReference, open_reference
from bisect_onnx.pipeline.request import LocateRequest
from bisect_onnx.pipeline.samples import Rows, Samples, sources_of
from bisect_onnx.runtimes.base import Candidate, Reference

if TYPE_CHECKING:
    from bisect_onnx.readers.onnx_file import OnnxFile

__all__ = ["Sides", "open_candidate", "open_sides"]


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
    samples: Samples | None = None  # None when there is one; ``feeds`` is the first of them until all were run


def open_sides(request: LocateRequest) -> Sides:
    """Open the candidate, the reference and the feeds, in the order in which errors are cheapest to find."""
    from bisect_onnx.readers import onnx_file
    from bisect_onnx.readers.signature import read_signature

    file = onnx_file.read(Path(request.candidate))
    opened = open_reference(
        request.reference,
        weights=request.weights,
        unsafe_load=request.unsafe_load,
        inputs=sources_of(request.inputs)[0],
    )
    samples, feeds = _feeds(request, signature=read_signature(file.proto), graph=file.graph, opened=opened)
    return dataclasses.replace(open_candidate(request, file, opened=opened, feeds=feeds), samples=samples)


def open_candidate(request: LocateRequest, file: "OnnxFile", *, opened: OpenedReference, feeds: Feeds) -> Sides:
    """Both sides, when the file is read, the reference is open and the feeds are known."""
    from bisect_onnx.readers.onnx_kinds import shape_arithmetic
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


def _feeds(
    request: LocateRequest, *, signature: Sequence[InputSignature], graph: Graph, opened: OpenedReference
) -> tuple[Samples | None, Feeds]:
    """All samples and the first; None and the feeds where there is only one."""
    sources = sources_of(request.inputs)
    if not request.samples and len(sources) == 1:
        source = sources[0]
        return None, resolve_feeds(
            source,
            signature=signature,
            graph=graph,
            opened=opened,
            seed=request.seed,
            shapes=request.shapes,
            other_layouts=True,
        )
    _require_samples_make_sense(request, opened)

    def flat(source: object, label: str, *, mapped: bool) -> GivenFeeds:
        if opened.leaves is not None:
            from bisect_onnx.runtimes.torch_factory import named_leaves

            source = named_leaves(opened.module, source, names=tuple(opened.leaves), where=label)
        return dataclasses.replace(gather_feeds(source, mapped=mapped), source=label)

    def resolve(source: object, label: str) -> Feeds:
        given = source if isinstance(source, GivenFeeds) else flat(source, label, mapped=False)
        return resolve_feeds(given, signature=signature, graph=graph, opened=opened, shapes=request.shapes)

    def rows(source: object, label: str) -> Rows:
        given = flat(source, label, mapped=True)
        return Rows(name_feeds(given, signature=signature, opened=opened), signature=signature, source=label)

    samples = Samples(sources, rows=rows if request.samples else None, resolve=resolve)
    return samples, samples.feeds(0)


def _require_samples_make_sense(request: LocateRequest, opened: OpenedReference) -> None:
    if request.inputs is None:
        raise SamplesError(
            where="--samples",
            expected="inputs whose first axis counts samples",
            got="no inputs",
            next_step="give them with --inputs, or leave out --samples",
        )
    if opened.recording is not None:
        raise SamplesError(
            where=str(opened.recording),
            expected="a reference that can be run on every sample",
            got="recorded values, which belong to the inputs that they were recorded with",
            next_step="give the model itself as the reference, or one sample with its own recording at a time",
        )


def _free_memory() -> int:
    import psutil

    return int(psutil.virtual_memory().available)
