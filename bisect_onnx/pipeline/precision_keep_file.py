"""The file of ``--keep-list``: one node name a line, written whole or not at all."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bisect_onnx.errors import KeepListToleranceError, OutputPathError
from bisect_onnx.pipeline.request import LocateRequest

__all__ = ["check_keep_list", "write_keep_list"]

OPTION = "--keep-list"
EXPECTED = "a path for a new file"


def check_keep_list(request: LocateRequest) -> None:
    """Refuse what cannot be answered or written, before the long work starts."""
    target = request.keep_list
    if target is None:
        return
    if request.atol is None and request.rtol is None and request.metric is None:
        raise KeepListToleranceError(path=target)
    if target.is_dir():
        got, step = "a folder", f"name a file in it: {target / 'keep.txt'}"
    elif target.exists() and not request.force:
        got, step = "a file that is there", "choose another path, or replace it with --force"
    elif not target.parent.is_dir():
        got, step = f"no folder {str(target.parent)!r}", "make the folder first"
    elif not os.access(target if target.exists() else target.parent, os.W_OK):
        got, step = "a place that is read-only", "choose a path that you may write"
    elif _is_read(target, request):
        got, step = "a file that this run reads", "choose another path"
    else:
        return
    raise OutputPathError(option=OPTION, path=target, expected=EXPECTED, got=got, next_step=step)


def _is_read(target: Path, request: LocateRequest) -> bool:
    inputs = request.inputs if isinstance(request.inputs, list) else [request.inputs]
    read = [request.candidate, request.weights, request.reference, *inputs]
    paths = [Path(path) for path in read if isinstance(path, str | Path)]
    return target.exists() and any(path.exists() and target.samefile(path) for path in paths)


def write_keep_list(target: Path, names: Sequence[str]) -> None:
    """Replace ``target`` in one step."""
    real = target.resolve()
    text = "".join(f"{name}\n" for name in names)
    try:
        descriptor, unfinished = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
            mask = os.umask(0)
            os.umask(mask)
            Path(unfinished).chmod(0o666 & ~mask)
            Path(unfinished).replace(real)
        except BaseException:
            Path(unfinished).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputPathError(
            option=OPTION,
            path=target,
            expected="a file that can be written to the end",
            got=error.strerror or str(error),
            next_step="free some space or choose another path, and run again",
        ) from error
