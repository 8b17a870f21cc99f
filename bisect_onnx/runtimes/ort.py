"""The candidate: an ONNX file in ONNX Runtime, as the user configures it, and opened up for probes."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import onnx
from onnx import external_data_helper

from bisect_onnx.core.edits import NodeEdit
from bisect_onnx.core.graph import Graph, Node
from bisect_onnx.readers.onnx_file import OnnxFile
from bisect_onnx.readers.onnx_file import read as read_file
from bisect_onnx.readers.onnx_tensors import byte_length, each_tensor
from bisect_onnx.runtimes.base import Array, Place, WrittenOut
from bisect_onnx.runtimes.onnx_evaluator import evaluate
from bisect_onnx.runtimes.ort_probe import Prober
from bisect_onnx.runtimes.ort_run import run_named
from bisect_onnx.runtimes.ort_session import Settings, create_session, provider_name
from bisect_onnx.runtimes.ort_values import flattened, is_exposable
from bisect_onnx.runtimes.piece_file import INLINE_BYTES
from bisect_onnx.runtimes.scratch import make_scratch
from bisect_onnx.runtimes.written_out import write_out

if TYPE_CHECKING:
    import onnxruntime as ort

__all__ = ["OrtCandidate"]

# Where the runtime saves what it made of a model, with the weights in a file beside it: a message ends at 2 GiB.
OPTIMISED_PATH: Final = "optimized_model_filepath"
WEIGHTS_ASIDE: Final = "session.optimized_model_external_initializers_file_name"
ASIDE_FROM: Final = "session.optimized_model_external_initializers_min_size_in_bytes"


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
        without: Sequence[str] = (),
    ) -> None:
        self._file = file
        self._settings = Settings(
            providers=tuple(provider_name(name) for name in providers),
            level=level,
            options=dict(session_options),
            custom_ops=tuple(custom_ops),
            without=tuple(without),
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
        return self._run(self._session, feeds)

    def run_afresh(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """`run` in a session made for it."""
        return self.run_configured(feeds)

    def run_configured(
        self,
        feeds: Mapping[str, Array],
        *,
        level: int | None = None,
        without: Sequence[str] = (),
        exposed: Sequence[str] = (),
    ) -> dict[str, Array]:
        """`run` in another configuration, in a session of its own.

        Args:
            feeds: Graph inputs.
            level: Optimisation level; None for the configured one.
            without: Optimisers to switch off.
            exposed: Values to return besides; the runtime merges no nodes across one.
        """
        settings = self._configured(level=level, without=without)
        model: Path | bytes = self._file.path
        if exposed:
            model, config = self._prober.exposing(exposed)
            settings = dataclasses.replace(settings, options={**settings.options, **config})
        return self._run(create_session(model, settings=settings, path=self._file.path), feeds)

    def optimised(self, *, without: Sequence[str] = ()) -> Graph:
        """What the runtime makes of the graph, as it saves it."""
        folder = make_scratch(self)
        path = folder / "optimised.onnx"
        settings = self._configured(level=None, without=without)
        aside = {OPTIMISED_PATH: str(path), WEIGHTS_ASIDE: "weights.bin", ASIDE_FROM: "1024"}
        create_session(
            self._file.path,
            settings=dataclasses.replace(settings, options={**settings.options, **aside}),
            path=self._file.path,
        )
        return read_file(path).graph

    def reconfigured(self, *, without: Sequence[str]) -> "OrtCandidate":
        """The same file with some optimisers off."""
        return OrtCandidate(
            self._file,
            providers=self._settings.providers,
            level=self._settings.level,
            session_options=self._settings.options,
            custom_ops=self._settings.custom_ops,
            without=without,
        )

    def editable(self) -> onnx.ModelProto | None:
        """A copy of the whole model with its weights inside; None where those are too large for one message."""
        if sum(byte_length(tensor) or 0 for tensor in each_tensor(self._file.proto)) > INLINE_BYTES:
            return None
        model = onnx.ModelProto()
        model.CopyFrom(self._file.proto)
        external_data_helper.load_external_data_for_model(model, str(self._file.path.absolute().parent))
        for tensor in each_tensor(model):
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                tensor.data_location = onnx.TensorProto.DEFAULT
                del tensor.external_data[:]
        return model

    def edited(self, model: onnx.ModelProto) -> "OrtCandidate":
        """The same configuration of an edited copy, in a temporary file."""
        path = make_scratch(self) / self._file.path.name
        path.write_bytes(model.SerializeToString())
        return self._open_piece(read_file(path))

    def _configured(self, *, level: int | None, without: Sequence[str]) -> Settings:
        chosen = self._settings.level if level is None else level
        return dataclasses.replace(self._settings, level=chosen, without=(*self._settings.without, *without))

    def _run(self, session: "ort.InferenceSession", feeds: Mapping[str, Array]) -> dict[str, Array]:
        outputs = session.get_outputs()
        known = {value.name for value in (*session.get_inputs(), *session.get_overridable_initializers())}
        self._own_runs += 1
        found = run_named(
            session,
            {name: array for name, array in feeds.items() if name in known},
            fetch=[output.name for output in outputs],
            path=self._file.path,
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

    def evaluated(
        self,
        nodes: Sequence[Node],
        *,
        inputs: Mapping[str, Array],
        output: str,
        shapes: Mapping[str, tuple[int, ...]],
    ) -> Array:
        """See `runtimes.onnx_evaluator.evaluate`."""
        return evaluate(self._file, nodes, inputs=inputs, output=output, shapes=shapes)

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
            without=self._settings.without,
        )
        self._pieces.append(piece)
        return piece
