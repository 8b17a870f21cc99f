"""Candidate initializers and the reference's parameters: equal as they are, transposed, or only close."""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from bisect_onnx.core.compare import Array

__all__ = ["ParameterMatch", "ParameterMatcher", "relative_distance"]

# Initializers smaller than this are scalars and little vectors of constants: too common to identify anything.
SMALLEST = 4
# Parameters that are compared element by element with one initializer, the likeliest first.
MOST_COMPARED = 8
# Unrelated weights of one scale lie a relative distance of about sqrt(2) apart, so this is far from both.
FARTHEST = 0.5
# Elements that are compared at a time: whole float64 copies of large weights cost more than the arithmetic.
PIECE = 1 << 15


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ParameterMatch:
    """An initializer and the parameter that it is or comes closest to."""

    initializer: str
    parameter: str
    transform: str  # "identity", "transpose", "reshape"
    error: float  # relative L2 distance; 0 when equal, infinite when it is no longer plausible
    rearranged: bool  # the same elements in another order, as far as order-free figures tell

    @property
    def plausible(self) -> bool:
        """Whether the initializer was that parameter once: still close, or only rearranged."""
        return self.rearranged or self.error <= FARTHEST


class ParameterMatcher:
    """Looks initializers up among the reference's parameters; arrays are read, never copied."""

    def __init__(self, parameters: Mapping[str, Array]) -> None:
        self._parameters = parameters
        self._names: dict[int, list[str]] = {}
        for name, array in parameters.items():
            if array.size >= SMALLEST and array.dtype.kind in "fV":
                self._names.setdefault(array.size, []).append(name)
        self._profiles: dict[int, Array] = {}  # by size, of those that were asked for

    def match(self, name: str, array: Array) -> ParameterMatch | None:
        """The nearest parameter of as many elements; None when there is none or the initializer is tiny.

        The name decides between equals (tied or equal weights).
        """
        if array.size < SMALLEST or array.dtype.kind not in "fV":
            return None
        if name in self._names.get(array.size, ()):
            found = _compare(name, array, parameter=name, other=self._parameters[name])
            if found.error == 0:
                return found
        ours = _profile(array)
        scale = max(ours[1], float(np.finfo(np.float32).tiny))
        names, theirs = self._of_size(array.size)
        with np.errstate(all="ignore"):
            gaps = np.max(np.abs(theirs - np.array(ours)), axis=1, initial=0.0) / scale
        # The same elements in any order, but for the last bits; not so when the gap is a NaN.
        alike = gaps <= 1e-6
        rearranged = {names[place] for place in np.flatnonzero(alike)}
        others = np.array([other != name for other in names], dtype=bool)
        ranked = np.lexsort((gaps, others, ~alike))
        compared: list[ParameterMatch] = []
        for other in (names[place] for place in ranked[:MOST_COMPARED]):
            compared.append(_compare(name, array, parameter=other, other=self._parameters[other]))
            if compared[-1].error == 0:
                return compared[-1]
        best = min(compared, key=lambda match: (match.parameter not in rearranged, match.error), default=None)
        return None if best is None else dataclasses.replace(best, rearranged=best.parameter in rearranged)

    def _of_size(self, size: int) -> tuple[list[str], Array]:
        """Names, and their profiles as rows."""
        names = self._names.get(size, [])
        if size not in self._profiles:
            rows = [_profile(self._parameters[name]) for name in names]
            self._profiles[size] = np.array(rows, dtype=np.float64).reshape(len(rows), 3)
        return names, self._profiles[size]


def _profile(array: Array) -> tuple[float, float, float]:
    """Mean, rms and largest magnitude: free of order, so that a transposed, permuted or rolled copy is found."""
    with np.errstate(all="ignore"):
        flat = np.asarray(array).reshape(-1).astype(np.float32, copy=False)
        top = float(max(flat.max(), -flat.min()))
        return float(flat.mean(dtype=np.float64)), float(np.sqrt(float(np.dot(flat, flat)) / flat.size)), top


def _compare(name: str, array: Array, *, parameter: str, other: Array) -> ParameterMatch:
    forms: list[tuple[str, Array]] = []
    if other.shape == array.shape:
        forms.append(("identity", other))
    if other.ndim == 2 and other.shape[::-1] == array.shape:
        forms.append(("transpose", other.T))
    if not forms:
        forms.append(("reshape", other.reshape(array.shape)))
    ranked = [
        ParameterMatch(
            initializer=name,
            parameter=parameter,
            transform=transform,
            error=relative_distance(array, form, beyond=FARTHEST),
            rearranged=False,
        )
        for transform, form in forms
    ]
    return min(ranked, key=lambda item: item.error)


def relative_distance(array: Array, other: Array, *, beyond: float = float("inf")) -> float:
    """Relative L2 distance; infinite from a zero array, where one side is not finite, and when larger than ``beyond``.

    Args:
        array: Any shape.
        other: Of that shape; the distance is relative to it.
        beyond: From which distance on the figure itself does not matter.
    """
    # So that squares neither overflow nor vanish; those of narrower floats do not, in float64.
    top = float(np.max(np.abs(other), initial=0.0)) if other.dtype == np.float64 else 1.0
    if top == 0 or not np.isfinite(top):
        return 0.0 if np.array_equal(array, other) else float("inf")
    size = sum(_squares(piece, top=top) for piece in _pieces(other))
    apart = 0.0
    with np.errstate(all="ignore"):
        for ours, theirs in zip(_pieces(array, like=other), _pieces(other, like=array), strict=True):
            apart += _squares(ours.astype(np.float64) - theirs, top=top)
            if apart > beyond**2 * size:
                return float("inf")
        error = float(np.sqrt(np.float64(apart) / size))
    if np.isfinite(error):
        return error
    return 0.0 if np.array_equal(array, other) else float("inf")


def _squares(piece: Array, *, top: float) -> float:
    with np.errstate(all="ignore"):
        flat = piece.astype(np.float64, copy=False).reshape(-1) / top
        return float(np.dot(flat, flat))


def _pieces(array: Array, *, like: Array | None = None) -> Iterator[Array]:
    """The array in small pieces, cut in the same places as ``like``, which has its shape and perhaps another layout."""
    plain = array.flags.c_contiguous and (like is None or like.flags.c_contiguous)
    rows = array.reshape(-1) if plain or array.ndim == 0 else array
    height = max(1, PIECE // max(1, rows[0].size)) if len(rows) else 1
    yield from (rows[start : start + height] for start in range(0, len(rows), height))
