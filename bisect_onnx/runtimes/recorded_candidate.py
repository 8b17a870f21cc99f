"""A candidate that ran elsewhere: its outputs are those that were recorded, the file itself is open here."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bisect_onnx.core.edits import NodeEdit
from bisect_onnx.core.graph import Graph, Node
from bisect_onnx.core.recording import Recording
from bisect_onnx.readers.recording_file import array_names, read_arrays
from bisect_onnx.runtimes.base import Array, Candidate, Place, WrittenOut

__all__ = ["RecordedCandidate"]


class RecordedCandidate:
    """Implements `runtimes.base.Candidate`.

    `run` answers for the inputs of the recording with what was recorded; for other inputs, and for everything that
    is asked about the inside, ``here`` answers: the same file on this machine.
    """

    graph: Graph
    parameters: Mapping[str, Array]

    def __init__(self, path: Path, recording: Recording, *, here: Candidate, inputs: Mapping[str, Array]) -> None:
        self._path = path
        self.names = frozenset(array_names(path))
        self._inputs = inputs
        self.recording = recording
        self.here = here
        self.graph = here.graph
        self.parameters = here.parameters

    @property
    def runs(self) -> int:
        """Of the file here: what ran elsewhere is over."""
        return self.here.runs

    def recorded(self, names: Sequence[str]) -> dict[str, Array]:
        """Arrays of the recording."""
        return read_arrays(self._path, names)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The recorded outputs."""
        if any(not same(feeds[name], array) for name, array in self._inputs.items()):
            return self.here.run(feeds)
        # An output that is an input as well is stored as that.
        passed_on = [name for name in self.graph.outputs if name in self._inputs]
        return self.recorded([*self.recording.outputs, *passed_on])

    def run_afresh(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """See `run`."""
        return self.run(feeds)

    def probe(
        self,
        feeds: Mapping[str, Array],
        *,
        fetch: Sequence[str],
        cuts: Mapping[str, Array],
        edits: Sequence[NodeEdit] = (),
    ) -> dict[str, Array]:
        """See `runtimes.base.Candidate.probe`."""
        return self.here.probe(feeds, fetch=fetch, cuts=cuts, edits=edits)

    def evaluated(
        self,
        nodes: Sequence[Node],
        *,
        inputs: Mapping[str, Array],
        output: str,
        shapes: Mapping[str, tuple[int, ...]],
    ) -> Array:
        """See `runtimes.base.Candidate.evaluated`."""
        return self.here.evaluated(nodes, inputs=inputs, output=output, shapes=shapes)

    def written_out(
        self, feeds: Mapping[str, Array], *, output: str, choices: Mapping[Place, int]
    ) -> WrittenOut | None:
        """See `runtimes.base.Candidate.written_out`."""
        return self.here.written_out(feeds, output=output, choices=choices)


def same(first: Array, second: Array) -> bool:
    """Whether two arrays are equal bit for bit; text by its characters."""
    if first.shape != second.shape:
        return False
    if first.dtype.kind in "OUS" or second.dtype.kind in "OUS":
        return bool(np.array_equal(first.astype(str), second.astype(str)))
    return first.dtype == second.dtype and first.tobytes() == second.tobytes()
