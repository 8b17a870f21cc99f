"""Figures, counts and durations as text: the one place where a number of the report is rounded."""

import math
from collections.abc import Mapping, Sequence

__all__ = [
    "UNKNOWN",
    "attribute",
    "cosine",
    "count",
    "factor",
    "figure",
    "is_over",
    "judged",
    "percent",
    "precise",
    "seconds",
    "shape",
    "size",
    "worst",
]

# The letters of a report are ASCII; only the lines and marks around them are not, where the terminal allows.
UNKNOWN = "-"

# A list longer than this is cut in attributes and facts, with its length said: the JSON has all of it.
LIST_SHOWN = 8

# Above this a factor says no more than "far beyond", and digits only blur it.
FACTOR_WRITTEN_OUT = 1e7


def figure(value: float | None) -> str:
    """For columns: two significant digits, always in one form so that a column can be scanned; "-" if unknown."""
    if value is None:
        return UNKNOWN
    if not math.isfinite(value) or value == 0:
        return _special(value)
    return f"{value:.1e}"


def precise(value: float | None) -> str:
    """For sentences and metric tables: three significant digits, plain where that is short."""
    if value is None:
        return UNKNOWN
    if not math.isfinite(value) or value == 0:
        return _special(value)
    return f"{value:.3g}"


def cosine(value: float | None) -> str:
    """As `precise`, but what lies just below 1 keeps its distance: rounded up it would claim equality."""
    if value is not None and 0.9995 <= value < 1:
        return f"1 - {1 - value:.1e}"
    return precise(value)


def judged(value: float | None, metric: str) -> str:
    """A figure by the name of its metric, for sentences and tables of outputs."""
    return cosine(value) if metric == "cosine" else precise(value)


def _special(value: float) -> str:
    if value == 0:
        return "0"
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def count(number: int, noun: str, *, plural: str = "") -> str:
    """A number with its noun: "1 node", "1,204 nodes"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def is_over(value: float | None, threshold: float | None) -> bool:
    """Whether ``value`` is beyond ``threshold``; NaN is, unknown is not."""
    return value is not None and threshold is not None and not value <= threshold


def factor(value: float | None, threshold: float | None) -> str | None:
    """By how much ``value`` exceeds ``threshold``, e.g. "28,000 times"; None where that has no meaning."""
    if value is None or threshold is None or not is_over(value, threshold):
        return None
    if threshold == 0 or not math.isfinite(value):
        return "infinitely"
    ratio = value / threshold
    if ratio >= FACTOR_WRITTEN_OUT or not math.isfinite(ratio):
        return f"{ratio:.0e} times"
    rounded = float(f"{ratio:.2g}")
    return f"{rounded:,.0f} times" if rounded >= 10 else f"{ratio:.1f} times"


def worst(values: Sequence[float | None]) -> float | None:
    """The largest known value, NaN above all; None when nothing is known."""
    known = [value for value in values if value is not None]
    if any(math.isnan(value) for value in known):
        return math.nan
    return max(known, default=None)


def percent(fraction: float | None) -> str:
    """Whole per cent, but never 100 % or 0 % for what is not quite all or nothing."""
    if fraction is None:
        return UNKNOWN
    if not math.isfinite(fraction):
        return _special(fraction)
    if 0.995 <= fraction < 1:
        return f"{math.floor(fraction * 1000) / 10:.1f}%"
    return "under 1%" if 0 < fraction < 0.005 else f"{fraction:.0%}"


def seconds(duration: float) -> str:
    if duration >= 120:
        return f"{int(duration // 60)} min {int(duration % 60)} s"
    return f"{duration:.1f} s" if duration >= 1 else f"{duration * 1000:.0f} ms"


def size(number: int) -> str:
    """Bytes in the largest binary unit that leaves at least one."""
    amount = float(number)
    for unit in ("bytes", "KiB", "MiB"):
        if amount < 1024:
            return f"{number} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def shape(dimensions: Sequence[int]) -> str:
    return "x".join(str(dimension) for dimension in dimensions) if dimensions else "scalar"


def attribute(value: object) -> str:
    """A value of an attribute or a fact on one line; long lists are cut and say so."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: UNKNOWN}[value]
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {attribute(item)}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        shown = ", ".join(attribute(item) for item in value[:LIST_SHOWN])
        return f"[{shown}]" if len(value) <= LIST_SHOWN else f"[{shown}, ... {len(value)} in all]"
    return str(value) or '""'  # an empty string is a value too: the name of the root module, for example
