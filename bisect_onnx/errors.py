"""Every exception this package raises on purpose, with the exit status each ends the program with.

BisectOnnxError
├── UsageError (2)              bad usage or unreadable input
└── RuntimeTroubleError (3)     a runtime failed, or no answer was possible
"""

from typing import ClassVar

__all__ = ["BisectOnnxError", "RuntimeTroubleError", "UsageError"]


class BisectOnnxError(Exception):
    """Base of everything this package raises on purpose."""

    exit_code: ClassVar[int]


class UsageError(BisectOnnxError):
    """Bad usage or unreadable input."""

    exit_code = 2


class RuntimeTroubleError(BisectOnnxError):
    """A runtime failed, or no answer was possible."""

    exit_code = 3
