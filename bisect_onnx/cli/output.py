"""Where the report goes: the terminal or pipe on stdout, and a JSON file that is whole or not there at all."""

import contextlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bisect_onnx.errors import OutputPathError

if TYPE_CHECKING:
    from bisect_onnx.core.report import Report
    from bisect_onnx.render.as_json import AsJson
    from bisect_onnx.render.as_terminal import AsTerminal

__all__ = ["STDOUT", "check_json_target", "deliver", "stdout_for_the_report"]

STDOUT = Path("-")
OURS = "bisect-onnx/report/"


def check_json_target(target: Path | None, *, force: bool, inputs: Sequence[Path]) -> None:
    """Refuse a path that cannot or must not be written, before the long work starts.

    ``inputs`` are files that the run reads: no flag makes us write over one.
    """
    if target is None or target == STDOUT:
        return
    expected = "a path for a new file, or an earlier report of ours"
    if target.is_dir():
        got, step = "a folder", f"name a file in it: {target / 'report.json'}"
    elif any(_same_file(target, path) for path in inputs):
        got, step = "a file that this run reads", "choose another path"
    elif target.exists() and not _is_regular(target):
        return  # a device or a named pipe: nothing is replaced
    elif target.exists() and not force and not _is_our_report(target):
        got, step = "a file that is not a report of ours", "choose another path, or replace it with --force"
    elif not target.parent.is_dir():
        got, step = f"no folder {str(target.parent)!r}", "make the folder first"
    else:
        _check_writable(target, expected=expected)
        return
    raise OutputPathError(option="--json", path=target, expected=expected, got=got, next_step=step)


def _check_writable(target: Path, *, expected: str) -> None:
    if target.exists() and not os.access(target, os.W_OK):
        problem = "the file is read-only"
    else:
        try:
            with tempfile.TemporaryFile(dir=target.resolve().parent):
                return
        except OSError as error:
            problem = error.strerror or str(error)
    raise OutputPathError(
        option="--json", path=target, expected=expected, got=problem, next_step="choose a path that you may write"
    )


def _same_file(target: Path, path: Path) -> bool:
    return target.exists() and path.exists() and target.samefile(path)


def _is_regular(path: Path) -> bool:
    return stat.S_ISREG(path.stat().st_mode)


def _is_our_report(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            start = stream.read(64).lstrip()
            if not start.startswith(b"{"):
                return False  # whatever it is, it may be large: do not read on
            stream.seek(0)
            data = json.load(stream)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and str(data.get("schema", "")).startswith(OURS)


@contextlib.contextmanager
def stdout_for_the_report() -> Iterator[None]:
    """Inside, whatever writes to stdout (the user's module, a library in C) writes to stderr instead."""
    with contextlib.redirect_stdout(sys.stderr), _descriptor_redirected():
        yield


@contextlib.contextmanager
def _descriptor_redirected() -> Iterator[None]:
    try:
        ours, theirs = sys.__stdout__.fileno(), sys.__stderr__.fileno()  # type: ignore[union-attr]  # None is caught
        saved = os.dup(ours)
    except (OSError, ValueError, AttributeError):
        yield  # no real stdout (closed, or replaced by a test): nothing to protect
        return
    try:
        sys.__stdout__.flush()  # type: ignore[union-attr]  # it had a descriptor
        os.dup2(theirs, ours)
        yield
    finally:
        os.dup2(saved, ours)
        os.close(saved)


def deliver(report: "Report", *, terminal: "AsTerminal", json_target: Path | None) -> None:
    """Write the file first, so that a reader who closes the pipe does not lose it; a failed file is told last."""
    from bisect_onnx.render.as_json import AsJson

    if json_target == STDOUT:
        _write_stdout(report, AsJson())
        return
    try:
        if json_target is not None:
            _write_file(report, json_target)
    except OutputPathError:
        _write_stdout(report, terminal)
        raise
    _write_stdout(report, terminal)


def _write_stdout(report: "Report", renderer: "AsTerminal | AsJson") -> None:
    try:
        renderer.write(report, sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough (`| head`). Python flushes stdout once more at exit: give it a place.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise OutputPathError(
            option="the report",
            path=Path("stdout"),
            expected="a stream that takes the whole report",
            got=error.strerror or str(error),
            next_step="free some space, or write the report elsewhere with --json PATH",
        ) from error


def _write_file(report: "Report", target: Path) -> None:
    """Replace ``target`` in one step, or leave what is there as it was."""
    from bisect_onnx.render.as_json import AsJson

    try:
        if target.exists() and not _is_regular(target):
            with target.open("w", encoding="utf-8") as stream:
                AsJson().write(report, stream)
            return
        real = target.resolve()  # a link keeps pointing where it did
        descriptor, name = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                AsJson().write(report, stream)
            Path(name).chmod(_mode_for(real))
            Path(name).replace(real)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputPathError(
            option="--json",
            path=target,
            expected="a file that can be written to the end",
            got=error.strerror or str(error),
            next_step="free some space or choose another path, and run again",
        ) from error


def _mode_for(path: Path) -> int:
    """Permissions of the file that is replaced, else what a new file gets."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
