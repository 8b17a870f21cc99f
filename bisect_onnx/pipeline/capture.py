"""Record what an ONNX file computes on this machine, for a `locate` on another one.

Nothing here needs more than numpy, onnx and ONNX Runtime: it runs where torch is not.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from bisect_onnx.core.events import Listener, ignore
from bisect_onnx.core.recording import METADATA, Captured, Recording
from bisect_onnx.errors import OutputPathError
from bisect_onnx.pipeline.stages import StageClock

__all__ = ["CaptureRequest", "capture"]

OPTION: Final = "--output"

# Fits beside a model on a board with 4 GiB, where the system does not say how much is free.
DEFAULT_BYTES: Final = 1 << 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaptureRequest:
    """Options of one `capture`; the defaults are the command line's."""

    model: Path
    output: Path
    inputs: object = None  # a path, or a mapping or tuple of arrays; None draws random ones
    seed: int = 0
    shapes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    providers: tuple[str, ...] = ("CPUExecutionProvider",)  # full or short names ("cuda")
    level: int = 99
    session_options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    custom_ops: tuple[Path, ...] = ()
    max_memory: int | None = None  # bytes of values held at once; None: half of what the machine has free
    force: bool = False  # replace a file that is no capture


def capture(request: CaptureRequest, *, on_event: Listener = ignore) -> Captured:
    """Run the file and write its inputs, values and outputs with what is needed to repeat the run.

    Raises:
        BisectOnnxError: The file, the inputs or the path of the output are unusable, or the runtime failed.
    """
    from bisect_onnx.pipeline.environment import describe_environment
    from bisect_onnx.pipeline.inputs import feeds_of_file
    from bisect_onnx.readers.onnx_digest import digest_model
    from bisect_onnx.readers.onnx_outline import outline
    from bisect_onnx.readers.onnx_proto import read_proto
    from bisect_onnx.readers.onnx_tensors import slim
    from bisect_onnx.readers.signature import read_signature
    from bisect_onnx.runtimes.npz_writer import new_npz
    from bisect_onnx.runtimes.ort_recorder import Recorder
    from bisect_onnx.runtimes.ort_session import Settings, provider_name

    _check_target(request)
    run = StageClock(on_event)
    with run.stage("open", "Opening the model"):
        model = read_proto(request.model)
        structure = slim(model)
        feeds, source = feeds_of_file(
            request.inputs,
            signature=read_signature(model),
            graph=outline(structure.proto),
            seed=request.seed,
            shapes=request.shapes,
        )
        settings = Settings(
            providers=tuple(provider_name(name) for name in request.providers),
            level=request.level,
            options=dict(request.session_options),
            custom_ops=request.custom_ops,
        )
        recorder = Recorder(request.model, structure, settings=settings, feeds=feeds)
    with run.stage("confirm", "Running the model as it is"):
        outputs = recorder.outputs()
    bits: dict[str, str] = {}
    values = 0
    try:
        with new_npz(request.output) as archive:
            for name, array in (feeds | dict(outputs)).items():
                archive.add(name, _storable(name, array, bits))
            with run.stage("capture", "Recording the values between"):
                for piece in recorder.values(max_bytes=request.max_memory or _free_memory() // 2):
                    values += len(piece)
                    for name, array in piece.items():
                        archive.add(name, _storable(name, array, bits))
            recording = Recording(
                model=digest_model(request.model, model),
                providers=recorder.providers,
                level=request.level,
                session_options=dict(request.session_options),
                custom_ops=tuple(library.name for library in request.custom_ops),
                inputs=tuple(feeds),
                source=source,
                outputs=tuple(name for name in outputs if name not in feeds),
                sessions=recorder.sessions,
                bits=bits,
                skipped=recorder.skipped,
                moved=recorder.moved,
                environment=describe_environment(providers=recorder.providers, level=request.level),
            )
            archive.add(METADATA, np.array(recording.to_text()))
        size = request.output.stat().st_size
    except OSError as error:
        raise OutputPathError(
            option=OPTION,
            path=request.output,
            expected="room for every value of the model",
            got=error.strerror or str(error),
            next_step="free some space or choose another path, and run again",
        ) from error
    return Captured(model=request.model, path=request.output, recording=recording, values=values, bytes=size)


def _storable(name: str, array: np.ndarray, bits: dict[str, str]) -> np.ndarray:
    """The array in a dtype that numpy stores without pickle; ``bits`` remembers another dtype that it has."""
    if array.dtype.kind == "O":
        return array.astype(str)
    if array.dtype.kind == "V":  # bfloat16 and float8, which numpy would store as bytes without a meaning
        bits[name] = array.dtype.name
        return array.view(np.dtype(f"uint{8 * array.dtype.itemsize}"))
    return array


def _free_memory() -> int:
    """What is free, where the system tells."""
    try:
        return int(os.sysconf("SC_AVPHYS_PAGES")) * int(os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):  # Windows, macOS
        return 2 * DEFAULT_BYTES


def _check_target(request: CaptureRequest) -> None:
    """Refuse a path that cannot or must not be written, before the long work starts."""
    from bisect_onnx.readers.recording_file import is_capture

    target = request.output
    read = [request.model, request.inputs, *request.custom_ops]
    if target.is_dir():
        got, step = "a folder", f"name a file in it: {target / 'values.npz'}"
    elif any(_same_file(target, path) for path in read if isinstance(path, str | Path)):
        got, step = "a file that this run reads", "choose another path"
    elif target.exists() and not request.force and not is_capture(target):
        got, step = "a file that is no capture", "choose another path, or replace it with --force"
    elif target.suffix != ".npz":
        got, step = f"the suffix {target.suffix!r}", f"call it {target.with_suffix('.npz').name}"
    elif not target.absolute().parent.is_dir():
        got, step = f"no folder {str(target.parent)!r}", "make the folder first"
    elif not os.access(target if target.exists() else target.absolute().parent, os.W_OK):
        got, step = "a place that is read-only", "choose a path that you may write"
    else:
        return
    expected = "a path for a new .npz file, or an earlier capture"
    raise OutputPathError(option=OPTION, path=target, expected=expected, got=got, next_step=step)


def _same_file(target: Path, path: str | Path) -> bool:
    return target.exists() and Path(path).exists() and target.samefile(path)
