"""The tree of errors on a terminal: guides and names on the left, three right-aligned columns of figures."""

import dataclasses
from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from bisect_onnx.render import rows
from bisect_onnx.render.escapes import safe
from bisect_onnx.render.names import lines_of
from bisect_onnx.render.tree import Line, Mark

__all__ = ["ErrorTree"]

# From this width on the column titles fit unabridged and the names still have two thirds of the line.
WIDE = 90
TITLES_WIDE = ("inherited", "introduced", "accumulated")
TITLES_NARROW = ("inherit", "introd", "accum")
FIGURE_WIDTH = 7  # "4.1e-01"

# Guides deeper than half of the name column would leave no room for names.
NAME_SHARE = 2

STYLES = {
    Mark.CULPRIT: "bold red",
    Mark.SUSPECT: "bold yellow",
    Mark.SEGMENT: "red",
    Mark.OVER: "yellow",
    Mark.DIFFERS: "yellow",
    Mark.CARRIES: "magenta",
    Mark.FINE: "green",
    Mark.UNTESTED: "dim",
}
SYMBOLS = {
    Mark.CULPRIT: ("✗", "X"),
    Mark.SUSPECT: ("?", "?"),
    Mark.SEGMENT: ("▪", "*"),
    Mark.OVER: ("!", "!"),
    Mark.DIFFERS: ("≠", "#"),
    Mark.CARRIES: ("↓", "v"),
    Mark.FINE: ("✓", "+"),
    Mark.UNTESTED: ("·", "."),
}
GUIDES = {"tee": ("├─ ", "|- "), "elbow": ("└─ ", "`- "), "bar": ("│  ", "|  "), "gap": ("   ", "   ")}


@dataclasses.dataclass(frozen=True, slots=True)
class ErrorTree:
    """Lines of `render.tree.tree_lines`, laid out at the width it is given."""

    lines: Sequence[Line]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        titles = TITLES_WIDE if options.max_width >= WIDE else TITLES_NARROW
        ascii_only = 1 if options.ascii_only else 0
        columns = tuple(max(len(title), FIGURE_WIDTH) for title in titles)
        name_width = options.max_width - sum(columns) - 2 * len(columns)
        figures = "".join(f"  {title:>{column}}" for title, column in zip(titles, columns, strict=True))
        yield Text(" " * name_width + figures, style="dim", no_wrap=True, overflow="ignore")
        for line in self.lines:
            yield from _laid_out(line, name_width=name_width, columns=columns, ascii_only=ascii_only)


def _laid_out(line: Line, *, name_width: int, columns: tuple[int, ...], ascii_only: int) -> RenderResult:
    first, later = _guides(line.depth_guides, ascii_only=ascii_only)
    allowed = name_width // NAME_SHARE
    # Deeper than that, the outermost guides go: the nearest ancestors matter most.
    first, later = first[-allowed:], later[-allowed:]
    symbol = SYMBOLS[line.mark][ascii_only]
    parts = lines_of(_words(line), name_width - len(first) - len(symbol) - 1)
    values = (line.inherited, line.introduced, line.accumulated)
    for number, part in enumerate(parts):
        text = Text(no_wrap=True, overflow="ignore")
        text.append(first if number == 0 else later, style="dim")
        text.append(f"{symbol} " if number == 0 else "  ", style=STYLES[line.mark])
        text.append(part, style=_name_style(line))
        if number == 0:
            text.append(" " * (name_width - text.cell_len))
            for number_of_column, (column, value) in enumerate(zip(columns, values, strict=True)):
                shown = "" if value is None else rows.figure(value)
                text.append(f"  {shown:>{column}}", style=_figure_style(line, number_of_column))
        text.rstrip()
        yield text


def _guides(more: tuple[bool, ...], *, ascii_only: int) -> tuple[str, str]:
    """Guides for the first line of an entry and for its continuation lines."""
    if not more:
        return "", ""
    outer = "".join(GUIDES["bar" if follows else "gap"][ascii_only] for follows in more[:-1])
    first = GUIDES["tee" if more[-1] else "elbow"][ascii_only]
    later = GUIDES["bar" if more[-1] else "gap"][ascii_only]
    return outer + first, outer + later


def _words(line: Line) -> str:
    if line.op_type is None:
        return f"{safe(line.label)}  {line.note}".rstrip()
    words = safe(line.label)
    if not line.label.endswith(f":{line.op_type}"):  # as the label of a node without a name does
        words += f"  {safe(line.op_type)}"
    if line.mark is not Mark.FINE:
        words += f"  {line.mark.value}"
    return words + (f" ({safe(line.note)})" if line.note else "")


def _name_style(line: Line) -> str:
    if line.mark in (Mark.CULPRIT, Mark.SUSPECT) and line.op_type is not None:
        return STYLES[line.mark]
    return "dim" if line.mark is Mark.UNTESTED else ""


def _figure_style(line: Line, column: int) -> str:
    """The introduced error of an accused node stands out."""
    return STYLES[line.mark] if line.mark in (Mark.CULPRIT, Mark.SUSPECT) and column == 1 else ""
