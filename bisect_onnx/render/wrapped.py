"""A rich renderable for text from a model: wrapped by our own rules at whatever width it is given."""

import dataclasses

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

from bisect_onnx.render.names import lines_of, safe

__all__ = ["Wrapped"]

# Below this a column stops shrinking: a name of one character per line is no longer a name.
NARROWEST = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Wrapped:
    """Escaped ``text``, never cut; a long line is broken at a space or behind a separator."""

    text: str
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.text.split("\n"):
            for part in lines_of(safe(line), options.max_width):
                yield Text(part, style=self.style, no_wrap=True, overflow="ignore")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widest = max(Text(safe(line)).cell_len for line in self.text.split("\n"))
        return Measurement(min(widest, NARROWEST), widest).with_maximum(options.max_width)
