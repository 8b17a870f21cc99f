"""The roots of the tree of errors, and the form of their texts."""

from collections.abc import Sequence
from typing import ClassVar

__all__ = [
    "BisectOnnxError",
    "RuntimeTroubleError",
    "UsageError",
    "listing",
    "page",
]


class BisectOnnxError(Exception):
    """Base of everything this package raises on purpose."""

    exit_code: ClassVar[int]


class UsageError(BisectOnnxError):
    """Bad usage or unreadable input."""

    exit_code = 2


class RuntimeTroubleError(BisectOnnxError):
    """A runtime failed, or no answer was possible."""

    exit_code = 3


def page(what: str, *, where: str, expected: str, got: str, next_step: str) -> str:
    """The text of an error: one line that says what, then where, expected, got and the next step."""
    rows = (("where", where), ("expected", expected), ("got", got), ("next", next_step))
    return "\n".join((what, *(f"  {label + ':':<10}{text}" for label, text in rows)))


def listing(names: Sequence[str], *, limit: int = 5) -> str:
    """Names for a message: quoted, comma-separated, the rest counted."""
    shown = ", ".join(repr(name) for name in names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown or "none"
