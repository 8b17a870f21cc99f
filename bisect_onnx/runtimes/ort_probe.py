"""Probe an ONNX model with ONNX Runtime: any values replaced, any values returned, at level 0 on CPU."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime as ort

from bisect_onnx.core.edits import NodeEdit
from bisect_onnx.core.graph import ValueKind
from bisect_onnx.errors import FeedDtypeError, FeedShapeError, ModelNotLoadedError, RuntimeFailedError
from bisect_onnx.readers.onnx_file import OnnxFile
from bisect_onnx.runtimes.base import Array
from bisect_onnx.runtimes.expose import CutType, Exposable, expose
from bisect_onnx.runtimes.ort_run import RUNTIME_NAME, describe, missing_inputs, run_named
from bisect_onnx.runtimes.ort_session import Settings, create_session
from bisect_onnx.runtimes.ort_values import is_exposable
from bisect_onnx.runtimes.ort_weights import PlacedWeights

__all__ = ["Prober"]

# The locate engine alternates between a scan and its confirmation, and between a few segments; more sessions
# only hold memory. A session holds memory for what its nodes compute: together as much as this many whole models.
KEPT_MODELS = 3

# A prepacked copy of the weights per session costs their size again, and 0.4 s for 256 MB.
PROBE_CONFIG: Mapping[str, str] = {"session.disable_prepacking": "1"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeSession:
    session: ort.InferenceSession
    inputs: Mapping[str, str]  # graph input that stands for each cut
    fetch: tuple[str, ...]  # the exposable ones
    nodes: int


class Prober:
    """Sessions over pieces of one model; the newest are kept, as many as make up a few models."""

    def __init__(self, file: OnnxFile, *, settings: Settings) -> None:
        self._file = file
        self._settings = settings
        self._weights: PlacedWeights | None = None
        self._whole: Exposable | None = None
        self._config = PROBE_CONFIG
        self._sessions: collections.OrderedDict[object, ProbeSession] = collections.OrderedDict()
        self.runs = 0

    def probe(
        self,
        feeds: Mapping[str, Array],
        *,
        fetch: Sequence[str],
        cuts: Mapping[str, Array],
        edits: Sequence[NodeEdit] = (),
    ) -> dict[str, Array]:
        """See `runtimes.base.Candidate.probe`.

        ``cuts`` may also name graph inputs and initializers. A fetched graph input or initializer is
        returned as fed or stored.

        Raises:
            ValueError: A name that the main graph does not have.
        """
        graph = self._file.graph
        for name in (*fetch, *cuts):
            if name not in graph.values:
                raise ValueError(f"{name!r} is no value of the main graph of {self._file.path.name}")
        # An initializer that the file also lists as an input may be fed like one.
        overrides = {name: array for name, array in feeds.items() if graph.kind(name) is ValueKind.PARAMETER}
        replaced = {**overrides, **cuts}
        for name, array in replaced.items():
            self._check(name, array)
        found = {name: self._given(name, feeds) for name in fetch if graph.producer(name) is None}
        computed = tuple(dict.fromkeys(name for name in fetch if name not in found))
        if computed:
            found.update(self._run(feeds, fetch=computed, cuts=replaced, edits=tuple(edits)))
        return {name: found[name] for name in fetch if name in found}

    def _check(self, name: str, array: Array) -> None:
        """A cut of another dtype or rank would broadcast or be refused: it would be another model."""
        known = self._file.graph.values[name]
        got = "str" if array.dtype.kind in "OU" else array.dtype.name
        if known.dtype is not None and got != known.dtype:
            raise FeedDtypeError(
                where=f"the value fed into {self._file.path.name}", name=name, expected=known.dtype, got=got
            )
        if known.shape is not None and len(known.shape) != array.ndim:
            raise FeedShapeError(
                where=f"the value fed into {self._file.path.name}",
                name=name,
                expected=str(list(known.shape)),
                got=str(list(array.shape)),
                problem="another number of axes",
            )

    def _given(self, name: str, feeds: Mapping[str, Array]) -> Array:
        if name in feeds:
            return np.array(feeds[name])
        if name in self._file.initializers:
            return np.array(self._file.initializers[name])
        raise missing_inputs([name], path=str(self._file.path), signature=self._file.graph.inputs)

    def _run(
        self,
        feeds: Mapping[str, Array],
        *,
        fetch: tuple[str, ...],
        cuts: Mapping[str, Array],
        edits: tuple[NodeEdit, ...],
    ) -> dict[str, Array]:
        types = {name: CutType(dtype=plain_dtype(array), rank=array.ndim) for name, array in cuts.items()}
        probe = self._session(fetch, types, edits)
        arrays = {probe.inputs[name]: array for name, array in cuts.items() if name in probe.inputs}
        wanted = {value.name for value in probe.session.get_inputs()} - set(arrays)
        arrays.update({name: feeds[name] for name in sorted(wanted & set(feeds))})
        if not probe.fetch:
            return {}
        self.runs += 1
        return run_named(probe.session, arrays, fetch=probe.fetch, path=self._file.path)

    def _session(
        self, fetch: tuple[str, ...], cuts: Mapping[str, CutType], edits: tuple[NodeEdit, ...]
    ) -> ProbeSession:
        whole = self._opened_whole()
        piece = whole.piece(fetch=fetch, cuts=cuts)
        # What the piece does not read makes no other session, nor does the order.
        fed = {name: kind for name, kind in sorted(cuts.items()) if name in piece.read}
        key = (fetch, tuple(fed.items()), edits)
        if key not in self._sessions:
            self._sessions[key] = self._create(whole, fetch, fed, edits, nodes=len(piece.nodes))
        self._sessions.move_to_end(key)
        while len(self._sessions) > 1 and self._held_nodes() > KEPT_MODELS * len(self._file.graph.nodes):
            self._sessions.popitem(last=False)
        return self._sessions[key]

    def exposing(self, names: Sequence[str]) -> tuple[bytes, Mapping[str, str]]:
        """The whole model with ``names`` as further outputs, and the configuration that finds its weights."""
        whole = self._opened_whole()
        model = onnx.ModelProto()
        model.CopyFrom(whole.model)
        there = {output.name for output in model.graph.output}
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in there)
        return model.SerializeToString(), self._weights.config if self._weights is not None else {}

    def _held_nodes(self) -> int:
        return sum(session.nodes for session in self._sessions.values())

    def _opened_whole(self) -> Exposable:
        if self._weights is None or self._whole is None:
            self._weights = PlacedWeights(self._file.slim, path=self._file.path)
            self._whole = Exposable(self._weights.model, graph=self._file.graph)
            self._config = {**PROBE_CONFIG, **self._weights.config}
        return self._whole

    def _create(
        self,
        whole: Exposable,
        fetch: tuple[str, ...],
        cuts: Mapping[str, CutType],
        edits: tuple[NodeEdit, ...],
        *,
        nodes: int,
    ) -> ProbeSession:
        exposed = expose(whole, fetch=fetch, cuts=cuts, edits=edits)
        settings = self._settings.for_probes(self._config)
        try:
            session = create_session(exposed.proto.SerializeToString(), settings=settings, path=self._file.path)
        except ModelNotLoadedError as error:
            raise RuntimeFailedError(
                runtime=RUNTIME_NAME, path=self._file.path, fetching=describe(fetch), detail=error.detail
            ) from error
        usable = tuple(output.name for output in session.get_outputs() if is_exposable(output.type))
        return ProbeSession(session=session, inputs=exposed.inputs, fetch=usable, nodes=nodes)


def plain_dtype(array: Array) -> np.dtype[np.generic]:
    """Dtype that stands for the element type: text of any length is one type."""
    return np.dtype(object) if array.dtype.kind == "U" else array.dtype
