"""Recorded activations as the reference: an ``.npz`` with one array per value name, no model behind it."""

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from bisect_onnx.core.graph import Graph, Value, ValueKind
from bisect_onnx.core.recording import METADATA
from bisect_onnx.core.tensor import Fingerprint, fingerprint
from bisect_onnx.errors import RecordingError
from bisect_onnx.readers.recording_file import record_of, restored
from bisect_onnx.runtimes.base import Array

__all__ = ["RecordedReference"]

FORM = "an .npz with one array per value name, as 'bisect-onnx capture' and numpy.savez write"


class RecordedReference:
    """Implements `runtimes.base.Reference`.

    Every array counts as an output, because the file does not say which ones were. An array that has the
    name of an input must equal what is fed: a recording of another input would accuse a healthy model.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._shapes = _inspect(self._path)
        self.description = f"{self._path.name} (recorded activations)"
        self.input_names: tuple[str, ...] = ()
        self.output_names = tuple(self._shapes)
        self.changed_inputs: frozenset[str] = frozenset()
        self.parameters: Mapping[str, Array] = {}

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """All recorded arrays but the inputs."""
        self._check_inputs(feeds)
        return _load(self._path, [name for name in self._shapes if name not in feeds])

    def rerun(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The same arrays: nothing is computed."""
        return self.run(feeds)

    def capture(self, feeds: Mapping[str, Array], *, max_bytes: int) -> "RecordedCapture":
        """The recording itself; arrays are read from the file when asked for, whatever ``max_bytes`` says."""
        self._check_inputs(feeds)
        return RecordedCapture(self._path, self._shapes, inputs=[name for name in self._shapes if name in feeds])

    def _check_inputs(self, feeds: Mapping[str, Array]) -> None:
        for name, array in _load(self._path, [name for name in self._shapes if name in feeds]).items():
            given = feeds[name]
            if array.shape != given.shape or array.dtype != given.dtype or array.tobytes() != given.tobytes():
                raise RecordingError(
                    path=self._path,
                    expected=f"the recorded input {name!r} equal to the one that is fed",
                    got=f"another array ({array.dtype}{list(array.shape)}, fed {given.dtype}{list(given.shape)})",
                    next_step=f"feed the inputs of the recording: --inputs {self._path.name}",
                )


class RecordedCapture:
    """Implements `runtimes.base.Capture`; the graph has values and no nodes."""

    def __init__(self, path: Path, shapes: Mapping[str, Value], *, inputs: Sequence[str]) -> None:
        self._path = path
        values = {
            name: Value(
                name=name,
                kind=ValueKind.INPUT if name in inputs else ValueKind.ACTIVATION,
                dtype=value.dtype,
                shape=value.shape,
            )
            for name, value in shapes.items()
        }
        outputs = tuple(name for name in values if name not in inputs)
        self.graph = Graph(name=path.name, inputs=tuple(inputs), outputs=outputs, nodes=(), values=values)
        self.fingerprints: Mapping[str, Fingerprint] = {
            name: fingerprint(array) for name, array in _each(path, list(values)) if array.dtype.kind not in "US"
        }

    def fetch(self, names: Sequence[str]) -> dict[str, Array]:
        """Arrays from the file."""
        return _load(self._path, names)

    def exact(self, fetch: Sequence[str], *, given: Sequence[str] | None, seed: int | None) -> dict[str, Array]:
        """Nothing: there is no model to repeat."""
        return {}

    def recompute(self, fetch: Sequence[str], *, given: Mapping[str, Array]) -> dict[str, Array]:
        """Nothing: there are values, and no calls that could be repeated."""
        return {}

    def open_up(self, fetch: Sequence[str], *, given: Sequence[str]) -> "RecordedCapture":
        """This capture itself: what was not recorded cannot be seen."""
        return self


def _each(path: Path, names: Sequence[str]) -> Iterator[tuple[str, Array]]:
    with np.load(path, allow_pickle=False) as archive:
        record = record_of(archive)
        for name in names:
            yield name, restored(name, archive[name], record)


def _load(path: Path, names: Sequence[str]) -> dict[str, Array]:
    return dict(_each(path, names))


def _inspect(path: Path) -> dict[str, Value]:
    """Names and types of the arrays; every one is read once, so that a damaged file is known now.

    Raises:
        RecordingError: The file is missing, damaged, empty, or needs pickle.
    """
    if not path.is_file():
        got = "a folder" if path.is_dir() else "no such file"
        raise RecordingError(path=path, expected=FORM, got=got, next_step="check the path given to --reference")
    if not zipfile.is_zipfile(path):
        got = f"{path.stat().st_size} bytes that are no zip archive"
        raise RecordingError(path=path, expected=FORM, got=got, next_step="record again, or copy the file again")
    found: dict[str, Value] = {}
    name = "the list of its arrays"
    try:
        with np.load(path, allow_pickle=False) as archive:
            name = METADATA
            record = record_of(archive)
            for name in archive.files:
                if name == METADATA:
                    continue
                array = restored(name, archive[name], record)
                found[name] = Value(
                    name=name, kind=ValueKind.ACTIVATION, dtype=_dtype_name(array), shape=tuple(array.shape)
                )
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise _unreadable(path, name, error=error) from error
    if not found:
        raise RecordingError(path=path, expected=FORM, got="no arrays", next_step="record again")
    return found


def _unreadable(path: Path, name: str, *, error: Exception) -> RecordingError:
    if "pickle" in str(error).lower():
        return RecordingError(
            path=path,
            expected="plain arrays; pickled objects can run code and are never loaded",
            got=f"an object array under {name!r}",
            next_step="save it again with a plain dtype, e.g. numpy.asarray(value, dtype=numpy.float32)",
        )
    return RecordingError(
        path=path, expected=FORM, got=f"damage at {name!r}: {error}", next_step="record again, or copy the file again"
    )


def _dtype_name(array: Array) -> str:
    return "str" if array.dtype.kind in "US" else array.dtype.name
