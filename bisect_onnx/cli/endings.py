"""How the program ends: the message and the exit status of each way that is no answer."""

import traceback
from pathlib import Path

from bisect_onnx import __version__
from bisect_onnx.cli.progress import say

__all__ = ["BAD_USAGE", "INTERRUPTED", "fail", "fault", "interrupted", "out_of_memory"]

INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
FAULT_OF_OURS = 70  # EX_SOFTWARE of sysexits.h
BAD_USAGE = 2


def fail(message: str, *, status: int) -> int:
    say(f"error: {message}")
    return status


def out_of_memory() -> int:
    return fail("out of memory\n  next:     limit the kept values with --max-memory, e.g. 1GiB", status=3)


def interrupted() -> int:
    say("interrupted: no report was made and nothing was written")
    return INTERRUPTED


def fault(error: Exception, *, verbose: bool) -> int:
    last = traceback.extract_tb(error.__traceback__)[-1]
    if verbose:
        say("".join(traceback.format_exception(error)).rstrip())
    step = "report it with the traceback above" if verbose else "run it again with -v and report it with the traceback"
    return fail(
        f"a fault of ours, not of your model: {type(error).__name__}: {error}\n"
        f"  where:    {Path(last.filename).name}, line {last.lineno}\n"
        f"  next:     {step}, the command and the versions (bisect-onnx {__version__}) at the project's issue tracker",
        status=FAULT_OF_OURS,
    )
