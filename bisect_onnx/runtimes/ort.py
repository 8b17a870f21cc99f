"""The candidate: an ONNX file in ONNX Runtime, as the user configures it, and opened up for probes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bisect_onnx.core.edits import NodeEdit
from bisect_onnx.core.graph import Graph
from bisect_onnx.readers.onnx_file import OnnxFile
from bisect_onnx.runtimes.base import Array, Place, WrittenOut
from bisect_onnx.runtimes.ort_probe import Prober, run_named
from bisect_onnx.runtimes.ort_session import Settings, create_session, provider_name
from bisect_onnx.runtimes.ort_values import is_exposable
from bisect_onnx.runtimes.written_out import write_out

if TYPE_CHECKING:
    import onnxruntime as ort

__all__ = ["OrtCandidate"]


class OrtCandidate:
    """Implements `runtimes.base.Candidate`. ``runs`` counts runs of the user's model and of probes."""

    graph: Graph
    parameters: Mapping[str, Array]

    def __init__(
        self,
        file: OnnxFile,
        *,
        providers: Sequence[str],
        level: int,
        session_options: Mapping[str, str],
        custom_ops: Sequence[Path],
    ) -> None:
        self._file = file
        self._settings = Settings(
            providers=tuple(provider_name(name) for name in providers),
            level=level,
            options=dict(session_options),
            custom_ops=tuple(custom_ops),
        )
        self._prober = Prober(file, settings=self._settings)
        self._session: ort.InferenceSession | None = None
        self._own_runs = 0
        self._pieces: list[OrtCandidate] = []
        self.graph = file.graph
        self.parameters = file.initializers

    @property
    def runs(self) -> int:
        """How often a model ran so far."""
        return self._own_runs + self._prober.runs + sum(piece.runs for piece in self._pieces)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs of the untouched file in the requested configuration.

        A tensor is returned under its name; the items of a sequence as "name[0]", "name[1]", ...
        """
        if self._session is None:
            self._session = create_session(self._file.path, settings=self._settings, path=self._file.path)
        outputs = self._session.get_outputs()
        known = {value.name for value in (*self._session.get_inputs(), *self._session.get_overridable_initializers())}
        self._own_runs += 1
        found = run_named(
            self._session,
            {name: array for name, array in feeds.items() if name in known},
            fetch=[output.name for output in outputs],
            file=self._file,
        )
        return flattened(found, {output.name for output in outputs if is_exposable(output.type)})

    def probe(
        self,
        feeds: Mapping[str, Array],
        *,
        fetch: Sequence[str],
        cuts: Mapping[str, Array],
        edits: Sequence[NodeEdit] = (),
    ) -> dict[str, Array]:
        """Run at level 0 on CPU with values replaced and exposed; see `runtimes.base.Candidate.probe`."""
        return self._prober.probe(feeds, fetch=fetch, cuts=cuts, edits=edits)

    def written_out(
        self, feeds: Mapping[str, Array], *, output: str, choices: Mapping[Place, int]
    ) -> WrittenOut | None:
        """See `runtimes.base.Candidate.written_out`."""
        return write_out(self._file, feeds, output=output, choices=choices, open_piece=self._open_piece)

    def _open_piece(self, file: OnnxFile) -> "OrtCandidate":
        piece = OrtCandidate(
            file,
            providers=self._settings.providers,
            level=self._settings.level,
            session_options=self._settings.options,
            custom_ops=self._settings.custom_ops,
        )
        self._pieces.append(piece)
        return piece


def flattened(outputs: Mapping[str, Array], tensors: set[str]) -> dict[str, Array]:
    """Arrays by name; what is no tensor becomes one entry per item."""
    flat: dict[str, Array] = {}
    for name, value in outputs.items():
        if name in tensors:
            flat[name] = value
        else:
            flat.update({f"{name}[{position}]": np.asarray(item) for position, item in enumerate(value)})
    return flat
