"""Feeds from disk: ``.npz``, ``.npy``, and folders in the form of the ONNX backend tests."""

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from bisect_onnx.core.feeds import Array, GivenFeeds
from bisect_onnx.core.recording import METADATA
from bisect_onnx.errors import FeedsFormatError, FeedsNeedPickleError, FeedsUnreadableError
from bisect_onnx.readers.recording_file import record_of, restored

__all__ = ["named_or_ordered", "read_backend_folder", "read_npy", "read_npz"]

NPY_MAGIC = b"\x93NUMPY"
NPZ_KIND = "an .npz archive written by np.savez"
NPY_KIND = "an .npy file written by np.save"
PB_KIND = "a folder with input_0.pb, input_1.pb, ..., one TensorProto each"


def read_npz(path: Path) -> GivenFeeds:
    """One array per input name; the names ``arr_0``, ``arr_1`` … of unnamed arrays count as an order.

    Of a capture the arrays that were its inputs are read.
    """
    if not zipfile.is_zipfile(path):
        raise FeedsUnreadableError(path=path, kind=NPZ_KIND, detail=_size(path))
    arrays: dict[str, Array] = {}
    name = METADATA
    try:
        with np.load(path, allow_pickle=False) as archive:
            record = record_of(archive)
            for name in archive.files if record is None else record.inputs:
                value = restored(name, archive[name], record)
                if not isinstance(value, np.ndarray):
                    raise FeedsUnreadableError(path=path, kind=NPZ_KIND, detail=f"{name!r} inside is no array")
                arrays[name] = value
    except ValueError as error:
        raise _refused(path, error, name=name, kind=NPZ_KIND) from error
    except (OSError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError) as error:
        raise FeedsUnreadableError(path=path, kind=NPZ_KIND, detail=f"{name!r} inside: {_first_line(error)}") from error
    return named_or_ordered(arrays, source=path.name)


def named_or_ordered(arrays: Mapping[str, Array], *, source: str) -> GivenFeeds:
    """The arrays of an archive; np.savez calls those without a name arr_0, arr_1, ..."""
    if arrays and set(arrays) == {f"arr_{index}" for index in range(len(arrays))}:
        ordered = tuple(arrays[f"arr_{index}"] for index in range(len(arrays)))
        return GivenFeeds(source=source, ordered=ordered, in_graph_order=True)
    return GivenFeeds(source=source, named=arrays)


def read_npy(path: Path) -> GivenFeeds:
    """The one input of a one-input model."""
    with path.open("rb") as file:
        if file.read(len(NPY_MAGIC)) != NPY_MAGIC:
            raise FeedsUnreadableError(path=path, kind=NPY_KIND, detail=_size(path))
    try:
        array = np.load(path, allow_pickle=False)
    except ValueError as error:
        raise _refused(path, error, name=path.name, kind=NPY_KIND) from error
    except (OSError, EOFError) as error:
        raise FeedsUnreadableError(path=path, kind=NPY_KIND, detail=_first_line(error)) from error
    return GivenFeeds(source=path.name, ordered=(array,), in_graph_order=True)


def read_backend_folder(folder: Path) -> GivenFeeds:
    """``input_0.pb`` … in the order of the graph's inputs."""
    numbers = sorted(
        int(found[1]) for file in folder.iterdir() if (found := re.fullmatch(r"input_(\d+)\.pb", file.name))
    )
    if not numbers:
        inside = sorted(entry.name for entry in folder.glob("test_data_set_*"))
        raise FeedsFormatError(
            where=str(folder),
            got="a folder without input_0.pb",
            next_step=f"give the data set in it: {folder / inside[0]}" if inside else "name a file of feeds in it",
        )
    if numbers != list(range(len(numbers))):
        gap = next(index for index, number in enumerate(numbers) if index != number)
        raise FeedsUnreadableError(path=folder, kind=PB_KIND, detail=f"input_{gap}.pb is missing")
    ordered = tuple(_read_tensor(folder / f"input_{number}.pb") for number in numbers)
    return GivenFeeds(source=folder.name, ordered=ordered, in_graph_order=True)


def _read_tensor(path: Path) -> Array:
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
        if tensor.data_type == onnx.TensorProto.UNDEFINED:
            raise FeedsUnreadableError(path=path, kind=PB_KIND, detail="no TensorProto (a sequence or an optional?)")
        return numpy_helper.to_array(tensor, base_dir=str(path.parent))
    except (DecodeError, ValueError, TypeError, OSError, onnx.checker.ValidationError) as error:
        raise FeedsUnreadableError(path=path, kind=PB_KIND, detail=_first_line(error)) from error


def _refused(path: Path, error: ValueError, *, name: str, kind: str) -> FeedsNeedPickleError | FeedsUnreadableError:
    if "allow_pickle" in str(error):
        return FeedsNeedPickleError(where=str(path), got=f"{name!r} is an array of Python objects")
    return FeedsUnreadableError(path=path, kind=kind, detail=f"{name!r}: {_first_line(error)}")


def _size(path: Path) -> str:
    return f"{path.stat().st_size} bytes that are something else, or cut off"


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
