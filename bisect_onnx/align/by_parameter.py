"""Candidate initializers and the reference's parameters: equal as they are, transposed, or only close."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from bisect_onnx.core.compare import Array

__all__ = ["ParameterMatch", "ParameterMatcher"]

# Initializers smaller than this are scalars and little vectors of constants: too common to identify anything.
SMALLEST = 4


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ParameterMatch:
    """An initializer and the parameter that it is or comes closest to."""

    initializer: str
    parameter: str
    transform: str  # "identity", "transpose", "reshape"
    error: float  # relative L2 distance; 0 when equal


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
        ranked = sorted(
            self._by_size.get(array.size, ()),
            key=lambda other: (_gap(ours, other) / scale > 1e-6, other.name != name, _gap(ours, other) / scale),
        )
        best: ParameterMatch | None = None
        for other in ranked[:8]:
            found = _compare(name, array, other.name, self._parameters[other.name])
            if best is None or found.error < best.error:
                best = found
            if best.error == 0:
                break
        return best


def _profile(name: str, array: Array) -> _Profile:
    flat = np.asarray(array).reshape(-1).astype(np.float32, copy=False)
    with np.errstate(all="ignore"):
        return _Profile(
            name=name,
            mean=float(flat.mean(dtype=np.float64)),
            rms=float(np.sqrt(float(np.dot(flat, flat)) / flat.size)),
            top=float(np.max(np.abs(flat))),
        )


def _gap(first: _Profile, second: _Profile) -> float:
    return max(abs(first.mean - second.mean), abs(first.rms - second.rms), abs(first.top - second.top))


def _compare(name: str, array: Array, other_name: str, other: Array) -> ParameterMatch:
    shapes: list[tuple[str, Array]] = []
    if other.shape == array.shape:
        shapes.append(("identity", other))
    if other.ndim == 2 and other.shape[::-1] == array.shape:
        shapes.append(("transpose", other.T))
    if not shapes:
        shapes.append(("reshape", other.reshape(array.shape)))
    norm = max(float(np.linalg.norm(other.astype(np.float64))), float(np.finfo(np.float32).tiny))
    wide = array.astype(np.float64)
    ranked = [
        ParameterMatch(
            initializer=name,
            parameter=other_name,
            transform=transform,
            error=float(np.linalg.norm(wide - form.astype(np.float64))) / norm,
        )
        for transform, form in shapes
    ]
    return min(ranked, key=lambda item: item.error)
