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
    keeper = _Keeper()
    signal.signal(signal.SIGINT, keeper)
    try:
        yield
    finally:
        keeper.rest()
        signal.signal(signal.SIGINT, signal.default_int_handler)


class _Keeper:
    """The signal handler."""

    def __init__(self) -> None:
        self._kept = False
        self._over = threading.Event()

    def __call__(self, _number: int, frame: types.FrameType | None) -> None:
        if not _importing(frame):
            self.rest()
            raise KeyboardInterrupt
        # Before anything else: the next signal may come while this one is being handled.
        first, self._kept = not self._kept, True
        if not first:
            _end_at_once()
        say("interrupted: stopping when the import of a library is done; press Ctrl-C again to stop at once")
        threading.Thread(target=self._watch, args=(threading.get_ident(),), daemon=True).start()

    def rest(self) -> None:
        """Nothing that was kept is to be raised any more."""
        self._over.set()

    def _watch(self, thread: int) -> None:
        """Raise what was kept as soon as ``thread`` is outside an import.

        Signalled only then: two signals that arrive together are handled as one, and a look in between could
        swallow the user's second Ctrl-C.
        """
        while not self._over.wait(LOOK_AGAIN_SECONDS):
            frames = sys._current_frames()  # noqa: SLF001 - documented, in spite of its name
            if not _importing(frames.get(thread)):
                _thread.interrupt_main()
                return


def _importing(frame: types.FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == IMPORTLIB:
            return True
        frame = frame.f_back
    return False


def _end_at_once() -> None:
    """Nothing of ours is being written during an import, so nothing is left behind."""
    try:
        if sys.stderr.isatty():
            sys.stderr.write(SHOW_CURSOR)
        say("interrupted: no report was made and nothing was written")
    finally:  # the first message may be half written, and a stream that is in use refuses the second
        os._exit(INTERRUPTED)
