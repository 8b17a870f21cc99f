"""The least work that an answer needs, done by hand: what a run of `locate` is held against.

Nothing of the package is used here, so that a waste of its own cannot hide in the floor.
"""

import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import helper
from torch import nn

from scripts.bench_arithmetic import Span, Stopwatch

__all__ = ["BARE", "CONFIRM", "WORK", "WorkFloor"]

Array = np.ndarray[Any, np.dtype[Any]]

EAGER: Final = "floor: eager forward"
SESSION: Final = "floor: session at the requested level"
RUN: Final = "floor: its run"
SESSION_0: Final = "floor: session at level 0, every value exposed"
RUN_0: Final = "floor: its run, every value"
SESSION_FORCED: Final = "floor: session cut at every value"
RUN_FORCED: Final = "floor: its run, fed at every cut"
COMPARED: Final = "floor: one pass over both sets of values"

CONFIRM: Final = (EAGER, SESSION, RUN)
BARE: Final = (EAGER, SESSION_0, RUN_0, COMPARED)
WORK: Final = (EAGER, SESSION, RUN, SESSION_0, RUN_0, SESSION_FORCED, RUN_FORCED, COMPARED)

# As the probes of the package have it; packing anew costs each session a copy of the weights.
LEAN: Final = {"session.disable_prepacking": "1"}
CUT: Final = "cut of "

# The arrays of a session, and of a cut, beyond which creating it is no longer linear: the package's own limit too.
MOST_CUTS: Final = 2000


class WorkFloor:
    """One module and file, prepared so that each round does nothing but the work itself."""

    def __init__(self, module: nn.Module, path: Path, inputs: Mapping[str, torch.Tensor], *, scratch: Path) -> None:
        self._module = module
        self._path = path
        self._tensors = tuple(inputs.values())
        self._feeds = {name: tensor.numpy() for name, tensor in inputs.items()}
        self._scratch = scratch
        self._exposed, values = self._write_exposed()
        self._forced = self._write_forced(values)

    def round(self) -> dict[str, Span]:
        """Seconds of each component, measured once."""
        watch = Stopwatch()
        gc.collect()
        with watch.timing(EAGER), torch.no_grad():
            self._module(*self._tensors)
        with watch.timing(SESSION):
            session = _session(self._path, optimised=True, config={})
        with watch.timing(RUN):
            session.run(None, self._feeds)
        with watch.timing(SESSION_0):
            session = _session(self._exposed, optimised=False, config=LEAN)
        with watch.timing(RUN_0):
            first = dict(zip(_outputs(session), session.run(None, self._feeds), strict=True))
        second: dict[str, Array] = {}
        for path in self._forced:
            with watch.timing(SESSION_FORCED):
                session = _session(path, optimised=False, config=LEAN)
            fed = {each.name: first[each.name.removeprefix(CUT)] for each in session.get_inputs() if CUT in each.name}
            own = {each.name: self._feeds[each.name] for each in session.get_inputs() if CUT not in each.name}
            with watch.timing(RUN_FORCED):
                second.update(zip(_outputs(session), session.run(None, {**fed, **own}), strict=True))
        with watch.timing(COMPARED):
            for name, array in second.items():
                _looked_at(first[name], array)
        return watch.spans

    def _write_exposed(self) -> tuple[Path, dict[str, Array]]:
        """The file with every activation as an output, its weights aside, and what those values are."""
        model = onnx.load(self._path)
        own = {value.name for value in model.graph.output}
        names = [name for node in model.graph.node if node.op_type != "Constant" for name in node.output if name]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in own)
        path = self._scratch / f"{self._path.stem}-exposed.onnx"
        onnx.save(model, path, save_as_external_data=True, location=f"{path.stem}.bin", size_threshold=1024)
        session = _session(path, optimised=False, config=LEAN)
        return path, dict(zip(_outputs(session), session.run(None, self._feeds), strict=True))

    def _write_forced(self, values: Mapping[str, Array]) -> list[Path]:
        """The exposed file cut at every floating value, in as many files as keep each below the limit."""
        model = onnx.load(self._exposed, load_external_data=False)
        cut = [name for name, array in values.items() if array.dtype.kind == "f"]
        for node in model.graph.node:
            for place, name in enumerate(node.input):
                if name in values and values[name].dtype.kind == "f":
                    node.input[place] = f"{CUT}{name}"
        nodes = list(model.graph.node)
        size = MOST_CUTS if len(cut) > MOST_CUTS else len(nodes)
        parts = [nodes[start : start + size] for start in range(0, len(nodes), size)]
        return [self._write_part(model, part, values=values, number=number) for number, part in enumerate(parts)]

    def _write_part(
        self, model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], *, values: Mapping[str, Array], number: int
    ) -> Path:
        part = onnx.ModelProto()
        part.CopyFrom(model)
        if len(nodes) < len(model.graph.node):
            for field in ("node", "output", "initializer"):
                part.graph.ClearField(field)
            part.graph.node.extend(nodes)
            made = {name for node in nodes for name in node.output}
            read = {name for node in nodes for name in node.input}
            part.graph.output.extend(value for value in model.graph.output if value.name in made)
            part.graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in read)
        read = {name for node in nodes for name in node.input if name.startswith(CUT)}
        for name in sorted(read):
            array = values[name.removeprefix(CUT)]
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            part.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
        path = self._scratch / f"{self._path.stem}-forced-{number}.onnx"
        onnx.save(part, path)
        return path


def _session(path: Path, *, optimised: bool, config: Mapping[str, str]) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = (
        ort.GraphOptimizationLevel.ORT_ENABLE_ALL if optimised else ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    options.log_severity_level = 4
    for name, value in {"session.intra_op.allow_spinning": "0", **config}.items():
        options.add_session_config_entry(name, value)
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _outputs(session: ort.InferenceSession) -> list[str]:
    return [value.name for value in session.get_outputs()]


def _looked_at(reference: Array, candidate: Array) -> tuple[float, float]:
    """The largest difference and the size of the reference: what any comparison has to read the arrays for."""
    if not reference.size or reference.dtype.kind != "f":
        return float(np.array_equal(reference, candidate)), 0.0
    flat = reference.reshape(-1)
    return float(np.max(np.abs(candidate - reference))), float(np.dot(flat, flat))
