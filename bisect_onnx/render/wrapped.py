"""A rich renderable for text from a model: wrapped by our own rules at whatever width it is given."""

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

from bisect_onnx.render.escapes import safe
from bisect_onnx.render.names import lines_of

__all__ = ["Wrapped"]

# Below this a column stops shrinking: a name of one character per line is no longer a name.
NARROWEST = 8


class Wrapped:
    """Escaped lines, never cut; a long one is broken at a space or behind a separator.

    Lines are arguments of their own: a line end inside one came from a model, and is shown as an escape.
    """

    def __init__(self, *lines: str, style: str = "") -> None:
        self._lines = [safe(line) for line in lines]
        self._style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines:
            for part in lines_of(line, options.max_width):
                yield Text(part, style=self._style, no_wrap=True, overflow="ignore")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widest = max((Text(line).cell_len for line in self._lines), default=0)
        return Measurement(min(widest, NARROWEST), widest).with_maximum(options.max_width)
