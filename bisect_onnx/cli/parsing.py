"""Texts of the command line as values, without the library that takes the command line apart."""

import re
from collections.abc import Sequence

__all__ = ["UnusableTextError", "parse_bytes", "parse_pairs", "parse_shapes"]

UNITS = {
    "": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
}  # fmt: skip


class UnusableTextError(Exception):
    """A text that cannot be meant; `option` is where it was given."""

    def __init__(self, text: str, *, option: str) -> None:
        super().__init__(text)
        self.option = option


def parse_shapes(given: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """``["image=1,3,224,224"]`` as a mapping; "scalar=" is a shape without axes."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in given:
        # An input's name may hold "=", its lengths cannot.
        name, equals, lengths = text.rpartition("=")
        axes = [axis.strip() for axis in lengths.split(",")] if lengths.strip() else []
        if not equals or not name or not all(axis.isascii() and axis.isdigit() for axis in axes):
            raise UnusableTextError(f"{text!r} is not NAME=LENGTH,LENGTH,... as in image=1,3,224,224", option="--shape")
        if name in shapes:
            raise UnusableTextError(f"{name!r} is given twice", option="--shape")
        shapes[name] = tuple(int(axis) for axis in axes)
    return shapes


def parse_pairs(given: Sequence[str]) -> dict[str, str]:
    """``["intra_op_num_threads=1"]`` as a mapping."""
    pairs: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UnusableTextError(f"{text!r} is not KEY=VALUE", option="--session-option")
        if key.strip() in pairs:
            raise UnusableTextError(f"{key.strip()!r} is given twice", option="--session-option")
        pairs[key.strip()] = value.strip()
    return pairs


def parse_bytes(text: str | None) -> int | None:
    """``512MiB``, ``2GB`` or plain bytes; None stays None."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", text.strip())
    amount = None if found is None else UNITS.get(found[2].lower())
    if found is None or amount is None or int(float(found[1]) * amount) < 1:
        raise UnusableTextError(f"{text!r} is no amount of memory such as 512MiB or 2GiB", option="--max-memory")
    return int(float(found[1]) * amount)
