"""Record what an ONNX file computes, as it is and with its values exposed; onnx and ONNX Runtime are all it needs.

The file is run untouched for its outputs. For the values between, every result of a node becomes an output of a
copy that holds structure only: weights stay in files. What does not fit the memory at once comes from several such
copies. A value that breaks its copy is left out, with what the runtime said.
"""

import collections
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import onnx
import onnxruntime as ort

from bisect_onnx.core.compare import ErrorStats, compare_arrays
from bisect_onnx.errors import ModelNotLoadedError, RuntimeFailedError
from bisect_onnx.readers.onnx_tensors import Slim
from bisect_onnx.runtimes.base import Array
from bisect_onnx.runtimes.ort_run import run_named
from bisect_onnx.runtimes.ort_session import Settings, create_session
from bisect_onnx.runtimes.ort_values import element_type, flattened, is_exposable
from bisect_onnx.runtimes.ort_weights import PlacedWeights
from bisect_onnx.runtimes.value_sizes import value_sizes

__all__ = ["Recorder"]

# As many values per session as the runtime exposes without a session becoming slow to start: with 10,000 a
# session took 0.7 s, with 50,000 it took 14.8 s, and 4.9 s in pieces of this size.
MOST_AT_ONCE: Final = 2_000

# A value that breaks its session is found by halving; a model in which so many do is not worth more sessions.
MOST_FAILURES: Final = 64


class Recorder:
    """One file in one configuration, on one set of feeds.

    ``skipped`` and ``moved`` are complete when `values` has ended; see `core.recording.Recording`.
    """

    def __init__(self, path: Path, model: Slim, *, settings: Settings, feeds: Mapping[str, Array]) -> None:
        self._path = path
        self._slim = model
        self._settings = settings
        self._feeds = feeds
        self._outputs: Mapping[str, Array] = {}
        self._failures = 0
        self.providers: tuple[str, ...] = ()
        self.sessions = 0
        self.skipped: dict[str, str] = {}
        self.moved: dict[str, str] = {}

    def outputs(self) -> Mapping[str, Array]:
        """Of the untouched file; the items of a sequence are called "name[0]", "name[1]", ...

        Raises:
            ModelNotLoadedError: The runtime refuses the file.
            RuntimeFailedError: It fails while it runs it.
        """
        session = create_session(self._path, settings=self._settings, path=self._path)
        self.providers = tuple(session.get_providers())
        found = self._run(session, [output.name for output in session.get_outputs()])
        self._outputs = flattened(found, {each.name for each in session.get_outputs() if is_exposable(each.type)})
        return self._outputs

    def values(self, *, max_bytes: int) -> Iterator[dict[str, Array]]:
        """What every other node of the main graph gives, piece by piece; a piece takes about ``max_bytes``."""
        known = {output.name for output in self._slim.proto.graph.output}
        names = [
            name
            for node in self._slim.proto.graph.node
            for name in node.output
            if name and name not in known and not _is_constant(node)
        ]
        weights = PlacedWeights(self._slim, path=self._path)
        pieces = collections.deque(_pieces(names, value_sizes(self._slim.proto, self._feeds), max_bytes=max_bytes))
        while pieces:
            piece = pieces.popleft()
            try:
                yield self._exposed(piece, weights)
            except (ModelNotLoadedError, RuntimeFailedError) as error:
                self._failures += 1
                if len(piece) == 1 or self._failures > MOST_FAILURES:
                    self.skipped.update(dict.fromkeys(piece, f"exposed, it breaks the session: {error.detail}"))
                else:
                    pieces.extendleft((piece[len(piece) // 2 :], piece[: len(piece) // 2]))

    def _exposed(self, names: Sequence[str], weights: PlacedWeights) -> dict[str, Array]:
        model = onnx.ModelProto()
        model.CopyFrom(weights.model)
        # Without a declared type: the runtime infers it, and a stale declaration in the file cannot contradict.
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        settings = dataclasses.replace(self._settings, options={**self._settings.options, **weights.config})
        session = create_session(model.SerializeToString(), settings=settings, path=self._path)
        types = {output.name: output.type for output in session.get_outputs()}
        usable = [name for name in types if is_exposable(types[name])]
        found = self._run(session, usable)
        self.sessions += 1
        self.skipped.update({name: _why_not(types[name]) for name in names if name not in found})
        for name, before in self._outputs.items():
            if name in found:
                self._look_for_movement(name, before, found.pop(name))
        return found

    def _run(self, session: ort.InferenceSession, fetch: Sequence[str]) -> dict[str, Array]:
        taken = {value.name for value in (*session.get_inputs(), *session.get_overridable_initializers())}
        fed = {name: array for name, array in self._feeds.items() if name in taken}
        return run_named(session, fed, fetch=fetch, path=self._path)

    def _look_for_movement(self, name: str, before: Array, exposed: Array) -> None:
        """Note the largest difference that exposing made in an output, over its rms; the last bits often move."""
        error = compare_arrays(before, exposed)
        if not isinstance(error, ErrorStats) or error.nonfinite_mismatch:
            distance = math.inf
        elif error.scaled is None:
            distance = math.inf if error.mismatched else 0.0
        else:
            distance = error.scaled
        if distance > float(self.moved.get(name, 0.0)):
            self.moved[name] = repr(distance)


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx")


def _why_not(kind: str) -> str:
    if element_type(kind) is None:
        return f"the runtime cannot hand over {kind} as an array"
    return "the runtime returned nothing for it"


def _pieces(names: Sequence[str], sizes: Mapping[str, int], *, max_bytes: int) -> Iterator[list[str]]:
    """The names in order, split where their sizes pass ``max_bytes``; one of unknown size counts as the largest."""
    largest = max((sizes[name] for name in names if name in sizes), default=0)
    piece: list[str] = []
    held = 0
    for name in names:
        size = sizes.get(name, largest)
        if piece and (held + size > max_bytes or len(piece) >= MOST_AT_ONCE):
            yield piece
            piece, held = [], 0
        piece.append(name)
        held += size
    if piece:
        yield piece
