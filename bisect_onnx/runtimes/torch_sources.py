"""The line of user code that a torch call came from."""

import linecache
import os
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType

import torch

from bisect_onnx.core.graph import Source

__all__ = ["SourceFinder", "user_file"]

_OURS = f"{Path(__file__).absolute().parent.parent}{os.sep}"
_TORCH = f"{Path(torch.__file__).absolute().parent}{os.sep}"
_STANDARD = f"{Path(sysconfig.get_path('stdlib')).absolute()}{os.sep}"
_INSTALLED = tuple(f"{Path(sysconfig.get_path(kind)).absolute()}{os.sep}" for kind in ("purelib", "platlib"))


class SourceFinder:
    """Finds the innermost frame outside torch, the standard library and this package; remembers what it saw."""

    def __init__(self, *, stop: CodeType) -> None:
        """Prepare to look at stacks. Frames outside the call of ``stop`` are not the model's."""
        self._stop = stop
        self._files: dict[CodeType, str | None] = {}  # None: not user code
        self._sources: dict[tuple[str, int], Source] = {}

    def current(self) -> Source | None:
        """The user's line that is being executed; None when no frame of the stack is the user's."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not self._stop:
            code = frame.f_code
            if code not in self._files:
                self._files[code] = user_file(code.co_filename)
            file = self._files[code]
            if file is not None:
                return self._source(file, frame.f_lineno)
            frame = frame.f_back
        return None

    def _source(self, file: str, line: int) -> Source:
        found = self._sources.get((file, line))
        if found is None:
            found = Source(file=file, line=line, code=linecache.getline(file, line).strip() or None)
            self._sources[file, line] = found
        return found


def user_file(file: str) -> str | None:
    """The absolute path of a file of user code; None for torch, the standard library and this package."""
    if file.startswith("<"):  # generated code has no file to show
        return None
    path = str(Path(file).absolute())
    if path.startswith((_TORCH, _OURS)):
        return None
    if path.startswith(_STANDARD) and not path.startswith(_INSTALLED):
        return None
    return path
