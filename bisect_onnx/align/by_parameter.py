"""Candidate initializers and the reference's parameters: equal as they are, transposed, or only close."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from bisect_onnx.core.compare import Array

__all__ = ["ParameterMatch", "ParameterMatcher", "relative_distance"]

# Initializers smaller than this are scalars and little vectors of constants: too common to identify anything.
SMALLEST = 4
# Parameters that are compared element by element with one initializer, the likeliest first.
MOST_COMPARED = 8


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ParameterMatch:
    """An initializer and the parameter that it is or comes closest to."""

    initializer: str
    parameter: str
    transform: str  # "identity", "transpose", "reshape"
    error: float  # relative L2 distance; 0 when equal
    rearranged: bool  # the same elements in another order, as far as order-free figures tell

    @property
    def plausible(self) -> bool:
        """Whether the initializer was that parameter once: still close, or only rearranged.

        Unrelated weights of one scale lie a relative distance of about sqrt(2) apart, so a half is far from both.
        """
        return self.rearranged or self.error <= 0.5


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Profile:
    """Order-free summary, so that a transposed, permuted or rolled copy is found in one look."""

    name: str
    mean: float
    rms: float
    top: float


class ParameterMatcher:
    """Looks initializers up among the reference's parameters; arrays are read, never copied."""

    def __init__(self, parameters: Mapping[str, Array]) -> None:
        self._parameters = parameters
        self._by_size: dict[int, list[_Profile]] = {}
        for name, array in parameters.items():
            if array.size >= SMALLEST and array.dtype.kind in "fV":
                self._by_size.setdefault(array.size, []).append(_profile(name, array))

    def match(self, name: str, array: Array) -> ParameterMatch | None:
        """The nearest parameter of as many elements; None when there is none or the initializer is tiny.

        The name decides between equals (tied or equal weights).
        """
        if array.size < SMALLEST or array.dtype.kind not in "fV":
            return None
        ours = _profile(name, array)
        scale = max(ours.rms, float(np.finfo(np.float32).tiny))
        gaps = {other.name: _gap(ours, other) / scale for other in self._by_size.get(array.size, ())}
        # The same elements in any order, but for the last bits; not so when the gap is a NaN.
        rearranged = {other for other, gap in gaps.items() if gap <= 1e-6}
        ranked = sorted(gaps, key=lambda other: (other not in rearranged, other != name, gaps[other]))
        found: list[ParameterMatch] = []
        for other in ranked[:MOST_COMPARED]:
            found.append(_compare(name, array, parameter=other, other=self._parameters[other]))
            if found[-1].error == 0:
                return found[-1]
        best = min(found, key=lambda match: (match.parameter not in rearranged, match.error), default=None)
        return None if best is None else dataclasses.replace(best, rearranged=best.parameter in rearranged)


def _profile(name: str, array: Array) -> _Profile:
    with np.errstate(all="ignore"):
        flat = np.asarray(array).reshape(-1).astype(np.float32, copy=False)
        return _Profile(
            name=name,
            mean=float(flat.mean(dtype=np.float64)),
            rms=float(np.sqrt(float(np.dot(flat, flat)) / flat.size)),
            top=float(np.max(np.abs(flat))),
        )


def _gap(first: _Profile, second: _Profile) -> float:
    return max(abs(first.mean - second.mean), abs(first.rms - second.rms), abs(first.top - second.top))


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
            error=relative_distance(array, form),
            rearranged=False,
        )
        for transform, form in forms
    ]
    return min(ranked, key=lambda item: item.error)


def relative_distance(array: Array, other: Array) -> float:
    """Relative L2 distance; infinite from a zero array, and where one side is not finite."""
    if np.array_equal(array, other):
        return 0.0
    with np.errstate(all="ignore"):
        wide = other.astype(np.float64)
        top = float(np.max(np.abs(wide)))  # so that squares neither overflow nor vanish
        error = float(np.linalg.norm((array.astype(np.float64) - wide) / top) / np.linalg.norm(wide / top))
    return error if np.isfinite(error) else float("inf")
