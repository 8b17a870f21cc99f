"""Ctrl-C during an import waits for its end: an exception there would abort the process inside a library."""

import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

from bisect_onnx.cli.interrupts import IMPORTLIB, _Keeper, interrupts_after_imports

ROOT = Path(__file__).parents[2]

# `locate` imports a module that waits for a line, as torch's import takes its time, and then works on without end.
PROGRAM = """
import sys, types
sys.path.insert(0, {folder!r})
module = types.ModuleType("bisect_onnx.pipeline.locate")
def locate(request, *, on_event):
    import slow_to_import
    while True:
        pass
module.locate = locate
sys.modules["bisect_onnx.pipeline.locate"] = module
from bisect_onnx.cli.app import main
main()
"""
SLOW = """
import sys
print("importing", file=sys.stderr, flush=True)
for line in iter(sys.stdin.readline, "go on\\n"):
    pass
print("imported", file=sys.stderr, flush=True)
"""
KEPT = "interrupted: stopping when the import of a library is done; press Ctrl-C again to stop at once\n"
ENDED = "interrupted: no report was made and nothing was written\n"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")


@pytest.fixture
def importing(tmp_path) -> subprocess.Popen[str]:
    """A run in the middle of an import, interrupted once."""
    (tmp_path / "slow_to_import.py").write_text(SLOW, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(folder=str(tmp_path)), "locate", "m.onnx", "-r", "net.py:build"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == KEPT
    return process


def test_it_is_raised_when_the_import_is_done(importing):
    out, err = importing.communicate("go on\n")

    assert (importing.returncode, out, err) == (130, "", "imported\n" + ENDED)


def test_the_second_one_ends_the_run_at_once(importing):
    importing.send_signal(signal.SIGINT)
    out, err = importing.communicate()

    assert (importing.returncode, out, err) == (130, "", ENDED)


def test_outside_an_import_it_is_raised_where_it_arrives():
    with pytest.raises(KeyboardInterrupt), interrupts_after_imports():
        signal.raise_signal(signal.SIGINT)


def test_the_handler_is_given_back():
    before = signal.getsignal(signal.SIGINT)

    with interrupts_after_imports():
        assert signal.getsignal(signal.SIGINT) is not before

    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_of_somebody_else_is_left_alone():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_after_imports():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_second_one_that_comes_while_the_first_is_handled_ends_the_run(monkeypatch):
    """Told by hand, because a signal cannot be sent at a chosen line."""
    keeper = _Keeper()
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 1:
            keeper(signal.SIGINT, importing_frame())

    monkeypatch.setattr("bisect_onnx.cli.interrupts.say", say)
    monkeypatch.setattr("os._exit", _exit)

    with pytest.raises(_ExitedError):
        keeper(signal.SIGINT, importing_frame())
    keeper.rest()

    assert said == [KEPT.strip(), ENDED.strip()]


class _ExitedError(Exception):
    """Stands for the end of the process."""


def _exit(status: int) -> None:
    assert status == 130
    raise _ExitedError


def importing_frame() -> types.FrameType:
    """A frame that looks like one of the import system's."""
    names: dict[str, types.FrameType] = {}
    exec(compile("import sys\nframe = sys._getframe()", IMPORTLIB, "exec"), names)
    return names["frame"]
