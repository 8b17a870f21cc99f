"""A temporary folder that goes when its owner goes, when the program ends, or, after a kill, with the next program.

A killed program cannot clean up, and what it leaves may be gigabytes of weights. So the owner of a folder holds
a lock on a file in it, which the system releases however the owner ends: a folder whose lock is free is nobody's.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import weakref
from pathlib import Path

if sys.platform != "win32":
    import fcntl

__all__ = ["make_scratch"]

PREFIX = "bisect-onnx-"
LOCK = "owner.lock"


def make_scratch(owner: object) -> Path:
    """Make a folder that is removed with ``owner``, or at the end of the program.

    Raises:
        OSError: The folder for temporary files does not take one.
    """
    _sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
    weakref.finalize(owner, _remove, folder, _hold(folder))
    return folder


def _hold(folder: Path) -> contextlib.ExitStack:
    """Lock the folder until the result is closed. On Windows nothing: an open file could not be removed."""
    held = contextlib.ExitStack()
    if sys.platform != "win32":
        unnamed = folder / "lock"
        fcntl.flock(held.enter_context(unnamed.open("wb")), fcntl.LOCK_EX)
        # It gets its name only now, so that nobody finds it free before.
        unnamed.rename(folder / LOCK)
    return held


def _remove(folder: Path, held: contextlib.ExitStack) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # on Windows a file that is still mapped stays
    held.close()


def _sweep(parent: Path) -> None:
    """Remove what killed programs of this user left; on Windows that waits for the system's own cleaning."""
    if sys.platform == "win32":
        return
    for lock in sorted(parent.glob(f"{PREFIX}*/{LOCK}")):
        # Another program may clean up at the same time, and other users' folders are theirs.
        with contextlib.suppress(OSError):
            folder = lock.parent
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with lock.open("r+b") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
