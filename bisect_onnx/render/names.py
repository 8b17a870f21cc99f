"""Text that came from a model, wrapped without loss and kept from turning the line around."""

import unicodedata

from rich.cells import cell_len

from bisect_onnx.render.escapes import safe

__all__ = ["lines_of", "one_line"]

# Left-to-right mark: after a right-to-left name it keeps the figures that follow on their side.
LEFT_TO_RIGHT = "\u200e"

# A long name is best broken behind one of these.
BREAK_AFTER = "/._:-,"


def _turns(text: str) -> bool:
    """Whether a terminal that knows bidirectional text would set part of ``text`` from right to left."""
    return any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in text)


def one_line(text: str) -> str:
    """`safe`, and closed against a change of direction."""
    text = safe(text)
    return f"{LEFT_TO_RIGHT}{text}{LEFT_TO_RIGHT}" if _turns(text) else text


def lines_of(text: str, width: int) -> list[str]:
    """Break safe ``text`` into lines of at most ``width`` cells; joined again they lose only the spaces at breaks."""
    width = max(width, 2)  # a wide character needs two cells
    lines: list[str] = []
    rest = text
    while cell_len(rest) > width:
        end = _longest_prefix(rest, width)
        end = _good_break(rest, end)
        lines.append(rest[:end].rstrip(" "))
        rest = rest[end:].lstrip(" ")
    lines.append(rest)
    return [f"{LEFT_TO_RIGHT}{line}{LEFT_TO_RIGHT}" if _turns(line) else line for line in lines]


def _longest_prefix(text: str, width: int) -> int:
    """How many characters of ``text`` fit into ``width`` cells; at least one."""
    used = 0
    for position, character in enumerate(text):
        used += cell_len(character)
        if used > width:
            return max(position, 1)
    return len(text)


def _good_break(text: str, end: int) -> int:
    """The best place at or before ``end``: a space, then behind a separator, in the last two thirds of the line."""
    earliest = max(end // 3, 1)
    if end < len(text) and text[end] == " ":
        return end
    space = text.rfind(" ", earliest, end)
    if space > 0:
        return space + 1
    behind = max(text.rfind(mark, earliest, end) for mark in BREAK_AFTER)
    return behind + 1 if behind > 0 else end
