"""The archive of a capture: its record, and arrays with the dtypes that numpy cannot store."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import ml_dtypes  # noqa: F401  # teaches numpy the names bfloat16 and float8
import numpy as np

from bisect_onnx.core.feeds import Array
from bisect_onnx.core.recording import METADATA, Recording

__all__ = ["array_names", "is_capture", "read_arrays", "read_record", "record_of", "restored"]


def record_of(archive: Mapping[str, Array]) -> Recording | None:
    """What an open archive says of itself; None when it is no capture.

    Raises:
        ValueError: The record is another version's, or damaged.
    """
    if METADATA not in archive:
        return None
    return Recording.from_text(str(archive[METADATA]))


def restored(name: str, array: Array, record: Recording | None) -> Array:
    """The array in its own dtype, where it was stored as bits."""
    dtype = None if record is None else record.bits.get(name)
    return array if dtype is None else array.view(np.dtype(dtype))


def read_record(path: Path) -> Recording | None:
    """The record of an archive; None when it is no capture.

    Raises:
        ValueError, OSError, zipfile.BadZipFile: The archive or its record cannot be read.
    """
    with np.load(path, allow_pickle=False) as archive:
        return record_of(archive)


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """Arrays of a capture by the names of their values."""
    with np.load(path, allow_pickle=False) as archive:
        record = record_of(archive)
        return {name: restored(name, archive[name], record) for name in names}


def is_capture(path: Path) -> bool:
    """Whether the file is an archive with a record, of any version."""
    try:
        with zipfile.ZipFile(path) as archive:
            return f"{METADATA}.npy" in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def array_names(path: Path) -> set[str]:
    """Names of the values that a capture holds."""
    with np.load(path, allow_pickle=False) as archive:
        return set(archive.files) - {METADATA}
