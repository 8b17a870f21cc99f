"""Progress is a moving line on a terminal and silence elsewhere; messages are wrapped where that helps a reader."""

import io

import pytest

from bisect_onnx.cli import progress
from bisect_onnx.core.events import ProbeDone, StageFinished, StageStarted, Warned

EVENTS = (
    StageStarted(stage="search", title="Testing [bold]every[/bold] segment\x1b"),
    ProbeDone(probe="relu", verdict="match", suspects=12),
    Warned(message="the symptom moved"),
    ProbeDone(probe="add", verdict="mismatch", suspects=3),
    StageFinished(stage="search", seconds=0.1),
)


class Stderr(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def stderr(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> Stderr:
    """A stderr in place of pytest's; called in the test's body, because pytest sets its own before that."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    stream = Stderr(terminal=terminal)
    monkeypatch.setattr("sys.stderr", stream)
    return stream


def told(**options: bool) -> None:
    with progress.progress(**({"quiet": False, "verbose": False} | options)) as listen:
        for event in EVENTS:
            listen(event)


def test_on_a_terminal_the_stage_the_probes_and_warnings_are_shown(monkeypatch):
    terminal = stderr(monkeypatch, terminal=True)
    told()

    text = terminal.getvalue()
    assert r"Testing [bold]every[/bold] segment\x1b" in text
    assert "warning: the symptom moved" in text


def test_an_interrupted_run_gives_the_cursor_back(monkeypatch):
    terminal = stderr(monkeypatch, terminal=True)

    def interrupted() -> None:
        with progress.progress(quiet=False, verbose=False) as listen:
            listen(EVENTS[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")


def test_quiet_leaves_only_the_warnings(monkeypatch):
    terminal = stderr(monkeypatch, terminal=True)
    told(quiet=True)

    assert terminal.getvalue() == "warning: the symptom moved\n"


def test_outside_a_terminal_there_are_only_warnings(monkeypatch):
    stream = stderr(monkeypatch, terminal=False)

    told()

    assert stream.getvalue() == "warning: the symptom moved\n"


def test_the_probes_of_a_stage_are_counted(monkeypatch):
    terminal = stderr(monkeypatch, terminal=True)
    with progress.progress(quiet=False, verbose=False) as listen:
        for event in EVENTS[:4]:
            listen(event)

    assert "2 probes, 3 suspects left" in terminal.getvalue()


def test_a_message_on_a_terminal_hangs_behind_its_label_and_keeps_paths_whole(monkeypatch):
    terminal = stderr(monkeypatch, terminal=True)
    monkeypatch.setenv("COLUMNS", "40")

    progress.say(f"error: no\n  next:     copy the weights file again, beside {'/path' * 12}\n\n")

    assert terminal.getvalue() == (
        f"error: no\n  next:     copy the weights file again,\n            beside\n            {'/path' * 12}\n\n\n"
    )


def test_a_closed_stderr_does_not_end_the_run(monkeypatch):
    stream = stderr(monkeypatch, terminal=False)
    stream.close()

    progress.say("lost")

    assert stream.closed
