"""Ctrl-C while a library is being imported: kept until the import is over, because torch's would abort the process."""

import _thread
import contextlib
import os
import signal
import sys
import threading
import types
from collections.abc import Iterator

from bisect_onnx.cli.progress import say

__all__ = ["interrupts_after_imports"]

INTERRUPTED = 128 + signal.SIGINT  # as a shell reports it

# How long a kept interrupt waits before it looks again: short for a person, long for a machine.
LOOK_AGAIN_SECONDS = 0.1

IMPORTLIB = "<frozen importlib._bootstrap>"
SHOW_CURSOR = "\x1b[?25h"


@contextlib.contextmanager
def interrupts_after_imports() -> Iterator[None]:
    """Inside, a KeyboardInterrupt is raised only where no import is under way.

    Limit (pybind11 3, torch 2.13): an exception in Python code that C++ runs during its module's import
    ends in std::terminate, with status 134 and a C++ message instead of ours.
    """
    main_thread = threading.current_thread() is threading.main_thread()
    if not main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # ignored (nohup) or handled by whoever embeds us: not ours to change
        return
    signal.signal(signal.SIGINT, _Keeper())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class _Keeper:
    """The signal handler."""

    def __init__(self) -> None:
        self._kept = False
        self._ours = False  # the next signal is our own second look, not the user

    def __call__(self, _number: int, frame: types.FrameType | None) -> None:
        ours, self._ours = self._ours, False
        if not _importing(frame):
            raise KeyboardInterrupt
        if self._kept and not ours:
            _end_at_once()
        if not self._kept:
            say("interrupted: stopping when the import of a library is done; press Ctrl-C again to stop at once")
        self._kept = True
        timer = threading.Timer(LOOK_AGAIN_SECONDS, self._look_again)
        timer.daemon = True
        timer.start()

    def _look_again(self) -> None:
        self._ours = True
        _thread.interrupt_main()


def _importing(frame: types.FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == IMPORTLIB:
            return True
        frame = frame.f_back
    return False


def _end_at_once() -> None:
    """Nothing of ours is being written during an import, so nothing is left behind."""
    if sys.stderr.isatty():
        sys.stderr.write(SHOW_CURSOR)
    say("interrupted: no report was made and nothing was written")
    os._exit(INTERRUPTED)
