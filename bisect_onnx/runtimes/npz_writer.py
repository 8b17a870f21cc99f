"""Write an ``.npz`` array by array: no more than one is in memory, and the file is whole or not there at all."""

import contextlib
import os
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bisect_onnx.runtimes.base import Array

__all__ = ["NpzWriter", "new_npz"]

# The first moment that a zip archive can name: equal arrays make equal bytes.
NO_TIME = (1980, 1, 1, 0, 0, 0)


class NpzWriter:
    """An archive as numpy.savez writes it."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def add(self, name: str, array: Array) -> None:
        """Append one array of a plain dtype."""
        member = zipfile.ZipInfo(f"{name}.npy", date_time=NO_TIME)
        with self._archive.open(member, "w", force_zip64=True) as stream:
            np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)


@contextlib.contextmanager
def new_npz(target: Path) -> Iterator[NpzWriter]:
    """Replace ``target`` when the block ends; leave it as it was when the block raises.

    Raises:
        OSError: The folder or the disk does not take the file.
    """
    real = target.resolve()  # a link keeps pointing where it did
    descriptor, name = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.")
    unfinished = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            yield NpzWriter(archive)
        unfinished.chmod(_mode_for(real))
        unfinished.replace(real)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _mode_for(path: Path) -> int:
    """Permissions of the file that is replaced, else what a new file gets."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
