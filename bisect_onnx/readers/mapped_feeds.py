"""Feeds from disk that are too many to hold at once: arrays that stay in their file until a part of them is read."""

import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bisect_onnx.core.feeds import Array, GivenFeeds
from bisect_onnx.readers.feeds_file import named_or_ordered, read_npy, read_npz
from bisect_onnx.readers.recording_file import is_capture

__all__ = ["map_npy", "map_npz"]

# The fixed part of a member's header in a zip file; two lengths at its end say how much follows before the data
# (APPNOTE.TXT 6.3, section 4.3.7).
LOCAL_HEADER_BYTES = 30


def map_npy(path: Path) -> GivenFeeds:
    """As `read_npy`, with the array mapped where the file allows it."""
    try:
        array = np.load(path, allow_pickle=False, mmap_mode="r")
    except (OSError, ValueError):  # an empty array cannot be mapped, and a faulty file gets its message there
        return read_npy(path)
    return GivenFeeds(source=path.name, ordered=(array,), in_graph_order=True)


def map_npz(path: Path) -> GivenFeeds:
    """As `read_npz`, with the arrays mapped when the archive stores them uncompressed, as np.savez does."""
    arrays = _mapped_members(path) if zipfile.is_zipfile(path) and not is_capture(path) else None
    return read_npz(path) if arrays is None else named_or_ordered(arrays, source=path.name)


def _mapped_members(path: Path) -> dict[str, Array] | None:
    """None when a member cannot be mapped, or is damaged."""
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            members = archive.infolist()
            stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
            if not stored or archive.testzip() is not None:
                return None
            return {member.filename.removesuffix(".npy"): _mapped(path, file, member) for member in members}
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return None


def _mapped(path: Path, file: BinaryIO, member: zipfile.ZipInfo) -> Array:
    """Raises ValueError for what is no plain array of the format's first two versions."""
    file.seek(member.header_offset)
    header = file.read(LOCAL_HEADER_BYTES)
    file.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), 1)
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, by_column, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, by_column, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise ValueError(f"version {version} of the format")
    if dtype.hasobject:
        raise ValueError("an array of objects")
    return np.memmap(path, dtype=dtype, mode="r", offset=file.tell(), shape=shape, order="F" if by_column else "C")
