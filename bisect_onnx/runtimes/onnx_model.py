"""Another ONNX file as the reference: level 0 on CPU, every value of its main graph open to view."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bisect_onnx.core.graph import Graph, ValueKind
from bisect_onnx.core.tensor import Fingerprint, fingerprint
from bisect_onnx.readers.onnx_file import OnnxFile
from bisect_onnx.runtimes.base import Array
from bisect_onnx.runtimes.ort import OrtCandidate

__all__ = ["OnnxReference"]

# As many values per session as the runtime exposes without a session becoming slow to start.
FETCHED_AT_ONCE = 2_000


class OnnxReference:
    """Implements `runtimes.base.Reference`; values and parameters are named as in the file."""

    def __init__(self, file: OnnxFile) -> None:
        self.runtime = OrtCandidate(file, providers=("cpu",), level=0, session_options={}, custom_ops=())
        self.description = f"{file.path.name} (ONNX Runtime, level 0, CPU)"
        self.input_names = file.graph.inputs
        self.output_names = file.graph.outputs
        self.changed_inputs: frozenset[str] = frozenset()
        self.parameters: Mapping[str, Array] = file.initializers

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs of the untouched file."""
        outputs = self.runtime.run(feeds)
        self.output_names = tuple(outputs)
        return outputs

    def rerun(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Another run; the runtime's random operators go on from where they were, seeded ones too."""
        return self.run(feeds)

    def capture(self, feeds: Mapping[str, Array], *, max_bytes: int) -> "OnnxCapture":
        """Run with everything exposed, in pieces that fit ``max_bytes`` where sizes are known."""
        kept = {name: array.copy() for name, array in feeds.items()}  # later passes need them as they are now
        return OnnxCapture(self.runtime, kept, max_bytes=max_bytes)


class OnnxCapture:
    """Implements `runtimes.base.Capture`."""

    def __init__(self, runtime: OrtCandidate, feeds: Mapping[str, Array], *, max_bytes: int) -> None:
        self._runtime = runtime
        self._feeds = feeds
        self._kept: dict[str, Array] = {}
        self._unexposable: set[str] = set()
        self.graph = runtime.graph
        computed: dict[str, Fingerprint] = {
            name: fingerprint(feeds[name]) for name in self.graph.inputs if name in feeds
        }
        room = max_bytes
        for names in _pieces(self.graph, max_bytes=max_bytes):
            arrays = runtime.probe(feeds, fetch=names, cuts={})
            self._unexposable.update(set(names) - set(arrays))
            computed.update({name: fingerprint(array) for name, array in arrays.items() if _is_numeric(array)})
            for name, array in arrays.items():
                if array.nbytes <= room:
                    self._kept[name] = array
                    room -= array.nbytes
        self.fingerprints: Mapping[str, Fingerprint] = LazyFingerprints(computed, parameters=runtime.parameters)

    def fetch(self, names: Sequence[str]) -> dict[str, Array]:
        """Arrays of the named values, kept or from another run; what cannot be exposed is absent."""
        found = {name: self._kept[name].copy() for name in names if name in self._kept}
        rest = [name for name in names if name not in found and name not in self._unexposable]
        if rest:
            found.update(self._runtime.probe(self._feeds, fetch=rest, cuts={}))
        return {name: found[name] for name in names if name in found}

    def exact(self, fetch: Sequence[str], *, given: Sequence[str] | None, seed: int | None) -> dict[str, Array]:
        """Nothing: the runtime has no float64 kernel for most operators, so no value can be repeated exactly."""
        return {}

    def recompute(self, fetch: Sequence[str], *, given: Mapping[str, Array]) -> dict[str, Array]:
        """See `Capture.recompute`."""
        # A value without a declared dtype is taken as it was captured.
        like = {name: self.graph.values[name].dtype or self.fingerprints[name].dtype for name in given}
        arrays = {name: array.astype(np.dtype(like[name]), copy=False) for name, array in given.items()}
        feeds = {**self._feeds, **{name: array for name, array in arrays.items() if name in self._feeds}}
        cuts = {name: array for name, array in arrays.items() if name not in self._feeds}
        return self._runtime.probe(feeds, fetch=[name for name in fetch if name not in self._unexposable], cuts=cuts)

    def open_up(self, fetch: Sequence[str], *, given: Sequence[str]) -> "OnnxCapture":
        """This capture itself: ONNX nodes are as far open as they go."""
        return self


def _is_numeric(array: Array) -> bool:
    return array.dtype.kind not in "OUS"


def _pieces(graph: Graph, *, max_bytes: int) -> Iterator[list[str]]:
    """Non-parameter values in order, split where their known sizes pass ``max_bytes``."""
    piece: list[str] = []
    size = 0
    for node in graph.nodes:
        for name in node.real_outputs():
            if graph.kind(name) is ValueKind.PARAMETER:
                continue
            known = _known_bytes(graph, name)
            if piece and (size + known > max_bytes or len(piece) >= FETCHED_AT_ONCE):
                yield piece
                piece, size = [], 0
            piece.append(name)
            size += known
    if piece:
        yield piece


def _known_bytes(graph: Graph, name: str) -> int:
    """Size of a value by its declared type; 0 where that is open."""
    value = graph.values[name]
    if value.shape is None or value.dtype is None or value.dtype == "str":
        return 0
    count = 1
    for size in value.shape:
        count *= size or 0  # an open size: not known
    # ml_dtypes, which the runtime's module imports, taught numpy the names bfloat16 and float8.
    return count * np.dtype(value.dtype).itemsize


class LazyFingerprints(Mapping[str, Fingerprint]):
    """Those of the run, and of parameters when asked for: most files hold more weights than a search looks at."""

    def __init__(self, computed: Mapping[str, Fingerprint], *, parameters: Mapping[str, Array]) -> None:
        self._computed = dict(computed)
        self._parameters = parameters

    def __getitem__(self, name: str) -> Fingerprint:
        if name not in self._computed:
            self._computed[name] = fingerprint(np.asarray(self._parameters[name]))
        return self._computed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._computed, *self._parameters)))

    def __len__(self) -> int:
        return len(set(self._computed) | set(self._parameters))
