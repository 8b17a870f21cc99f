"""Progress and warnings on stderr: a moving line on a terminal, plain lines elsewhere."""

import contextlib
import importlib.util
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from bisect_onnx.core.events import Event, Listener, ProbeDone, StageFinished, StageStarted, Warned

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["progress", "say"]

ERROR_PAGE_INDENT = " " * 12  # as `errors.page` sets its labels


def say(text: str) -> None:
    """One message to the user, beside the report."""
    from bisect_onnx.render.escapes import safe

    lines = [safe(line) for line in text.split("\n")]
    with contextlib.suppress(OSError, ValueError):  # a closed stderr must not end the run
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns
            lines = [part for line in lines for part in _hanging(line, width)]
        sys.stderr.write("".join(f"{line}\n" for line in lines))
        sys.stderr.flush()


def _hanging(line: str, width: int) -> list[str]:
    """``line`` wrapped at spaces, never inside a path; what follows a label of an error page stays beside it."""
    indent = ERROR_PAGE_INDENT if line.startswith("  ") else ""
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [""]


@contextlib.contextmanager
def progress(*, quiet: bool, verbose: bool) -> Iterator[Listener]:
    """A listener for the run inside; ``quiet`` leaves only warnings."""
    # Where only a capture runs there may be no rich.
    if quiet or not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield _plain(verbose=verbose and not quiet)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as shown:
        yield _Moving(shown)


def _plain(*, verbose: bool) -> Listener:
    def listen(event: Event) -> None:
        if isinstance(event, Warned):
            say(f"warning: {event.message}")
        elif verbose and isinstance(event, StageStarted):
            say(f"{event.stage}: {event.title}")
        elif verbose and isinstance(event, StageFinished):
            say(f"{event.stage}: done after {_duration(event.seconds)}")

    return listen


def _duration(seconds: float) -> str:
    from bisect_onnx.render import rows

    return rows.seconds(seconds)


class _Moving:
    """Keeps one line for the stage that is running."""

    def __init__(self, shown: "Progress") -> None:
        self._shown = shown
        self._task: TaskID | None = None
        self._probes = 0

    def __call__(self, event: Event) -> None:
        react: dict[type, Callable[..., None]] = {
            StageStarted: self._started,
            StageFinished: self._finished,
            ProbeDone: self._probed,
            Warned: self._warned,
        }
        react[type(event)](event)

    def _started(self, event: StageStarted) -> None:
        from bisect_onnx.render.escapes import safe

        self._end_line()
        self._probes = 0
        self._task = self._shown.add_task(safe(event.title), total=event.steps, count="")

    def _finished(self, _event: StageFinished) -> None:
        self._end_line()

    def _probed(self, event: ProbeDone) -> None:
        self._probes += 1
        if self._task is not None:
            noun = "probe" if self._probes == 1 else "probes"
            self._shown.update(self._task, advance=1, count=f"{self._probes} {noun}, {event.suspects} suspects left")

    def _warned(self, event: Warned) -> None:
        from rich.text import Text

        from bisect_onnx.render.escapes import safe

        self._shown.console.print(Text(f"warning: {safe(event.message)}", style="yellow"))

    def _end_line(self) -> None:
        if self._task is not None:
            self._shown.remove_task(self._task)
            self._task = None
