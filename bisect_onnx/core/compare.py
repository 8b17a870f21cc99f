"""Compare two arrays in a stated order: shape, dtype, non-finite positions, then numbers."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = [
    "MASK_CONSTANT", "Array", "ErrorStats", "Objection", "Verdict", "compare_arrays", "dtype_tiny",
    "largest_excess", "mask_class", "root_mean_square",
]  # fmt: skip

Array = np.ndarray[Any, np.dtype[Any]]

# Half the largest float32: masks are filled with finfo.min (or -3.4e38); nothing else reaches this far.
MASK_CONSTANT = float(np.finfo(np.float32).max) / 2


class Verdict(enum.Enum):
    """Outcome of comparing one pair."""

    MATCH = "match"
    MISMATCH = "mismatch"
    UNTESTABLE = "untestable"  # no counterpart, or the value could not be observed


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Objection:
    """Why two arrays cannot be compared element by element."""

    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ErrorStats:
    """Distance between two arrays of one shape; a figure that has no meaning for the dtype is None.

    ``scaled`` is max_abs over max(rms of the reference, the dtype's tiny).
    """

    max_abs: float | None
    max_rel: float | None
    rmse: float | None
    relative_l2: float | None
    cosine: float | None
    snr_db: float | None
    max_ulp: int | None
    mismatched: int | None
    total: int | None
    nonfinite_mismatch: int | None
    worst_index: tuple[int, ...] | None
    scaled: float | None
    input: str | None = None  # for an inherited error: the worst input

    def to_dict(self) -> dict[str, object]:
        data: dict[str, object] = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        data["worst_index"] = None if self.worst_index is None else list(self.worst_index)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ErrorStats":
        fields = {field.name: data.get(field.name) for field in dataclasses.fields(cls)}
        worst = fields["worst_index"]
        fields["worst_index"] = None if worst is None else tuple(worst)
        return cls(**fields)


def dtype_tiny(dtype: np.dtype[Any]) -> float:
    """Smallest normal number of a floating dtype; 1 for integers and bool."""
    if dtype.kind in "iub" or dtype.name.lstrip("u").startswith("int"):  # int4 and int2 are of no numpy kind
        return 1.0
    import ml_dtypes

    real = np.dtype(dtype.type(0).real.dtype) if dtype.kind == "c" else dtype
    return float(ml_dtypes.finfo(real).tiny)  # type: ignore[no-untyped-call]  # ml_dtypes gives no types to finfo


def root_mean_square(array: Array) -> float:
    """RMS of the finite elements below the mask constant, in float64; 0 for an empty array."""
    values = np.abs(as_wide(array)).ravel()
    kept = values[values < MASK_CONSTANT]  # false for NaN and infinity too
    return _norm(kept) / float(np.sqrt(kept.size)) if kept.size else 0.0


def _norm(magnitudes: Array) -> float:
    """Euclidean norm of numbers that are not negative; their squares may be too small or too large for float64."""
    top = float(np.max(magnitudes, initial=0.0))
    return top * float(np.sqrt(np.sum(np.square(magnitudes / top)))) if 0 < top < np.inf else top


def as_wide(array: Array) -> Array:
    """Float64 (complex128, or object-free copy) of ``array`` so that differences cannot wrap or overflow."""
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def objection(reference: Array, candidate: Array, *, check_dtype: bool = True) -> Objection | None:
    """Say why two arrays cannot be compared element by element, or None if they can."""
    if reference.shape != candidate.shape:
        return Objection(reason=f"shape: reference {reference.shape}, candidate {candidate.shape}")
    textual = [array.dtype.kind in "OUS" for array in (reference, candidate)]
    if all(textual):
        return None  # numpy has several dtypes for strings, ONNX has one
    if any(textual) or (check_dtype and reference.dtype != candidate.dtype):
        return Objection(reason=f"dtype: reference {reference.dtype}, candidate {candidate.dtype}")
    return None


def compare_arrays(
    reference: Array, candidate: Array, *, check_dtype: bool = True, masks_alike: bool = False
) -> ErrorStats | Objection:
    """Measure the error of ``candidate`` against ``reference``.

    NaN agrees with NaN and an infinity with the same infinity; other non-finite positions are counted
    in ``nonfinite_mismatch`` and make ``max_abs`` infinite. Elements where both sides hold a mask
    constant (magnitude of half the float32 maximum or more, same sign) agree as a class. Integers are
    compared exactly. ``max_rel`` leaves out elements where the reference is zero, unless no other differs.

    Args:
        reference: Any shape, any numeric, bool or string dtype.
        candidate: Same shape; same dtype unless ``check_dtype`` is False.
        check_dtype: Refuse arrays of two dtypes. False compares in float64.
        masks_alike: An infinity also agrees with a mask constant of its sign: inside a model one side
            masks with -inf, the other with the smallest number.

    Returns:
        The statistics, or the `Objection` that forbids comparing.
    """
    refused = objection(reference, candidate, check_dtype=check_dtype)
    if refused is not None:
        return refused
    if reference.dtype.kind in "OUS":
        return _compare_text(reference, candidate)
    return _compare_numbers(reference, candidate, masks_alike=masks_alike)


def _compare_text(reference: Array, candidate: Array) -> ErrorStats:
    differs = np.asarray(reference != candidate, dtype=bool)
    count = int(np.count_nonzero(differs))
    worst = tuple(int(i) for i in np.argwhere(differs)[0]) if count else None
    return ErrorStats(
        max_abs=None, max_rel=None, rmse=None, relative_l2=None, cosine=None, snr_db=None, max_ulp=None,
        mismatched=count, total=int(reference.size), nonfinite_mismatch=0, worst_index=worst, scaled=None,
    )  # fmt: skip


def mask_class(values: Array) -> Array:
    """-1 or 1 where an element is a mask constant or an infinity, by its sign; 0 elsewhere, also for NaN."""
    with np.errstate(all="ignore"):
        return np.where(np.abs(values) >= MASK_CONSTANT, np.sign(values), 0).astype(np.int8)


def largest_excess(reference: Array, candidate: Array, *, rtol: float) -> float:
    """Largest |candidate - reference| - rtol * |reference|; -inf when no element is a number on both sides.

    Elements that are a mask constant of one sign on both sides agree as a class and are left out, as in
    `compare_arrays`. Differences of integers are exact.

    Args:
        reference: Any shape, any dtype; strings have no excess.
        candidate: Same shape.
        rtol: Relative tolerance.
    """
    if reference.dtype.kind in "OUS" or reference.size == 0:
        return float("-inf")
    ref, cand = as_wide(reference), as_wide(candidate)
    whole = reference.dtype.kind in "iub" and candidate.dtype.kind in "iub"
    with np.errstate(all="ignore"):
        usable = np.isfinite(ref) & np.isfinite(cand) & ~_masked_alike(ref, cand)
        difference = _whole_gap(reference, candidate) if whole else np.abs(cand - ref)
        return float(np.max((difference - rtol * np.abs(ref))[usable], initial=-np.inf))


def _compare_numbers(reference: Array, candidate: Array, *, masks_alike: bool) -> ErrorStats:
    total = int(reference.size)
    if total == 0:
        return ErrorStats(
            max_abs=0.0, max_rel=0.0, rmse=0.0, relative_l2=0.0, cosine=1.0, snr_db=float("inf"), max_ulp=0,
            mismatched=0, total=0, nonfinite_mismatch=0, worst_index=None, scaled=0.0,
        )  # fmt: skip
    ref, cand = as_wide(reference), as_wide(candidate)
    whole = reference.dtype.kind in "iub" and candidate.dtype.kind in "iub"
    with np.errstate(all="ignore"):
        same = (reference == candidate) if whole else _same(ref, cand, masks_alike=masks_alike)
        finite = np.isfinite(ref) & np.isfinite(cand)
        difference = np.where(same, 0.0, _whole_gap(reference, candidate) if whole else np.abs(cand - ref))
        difference[~finite & ~same] = np.inf
        worst = int(np.argmax(difference))
        max_abs = float(difference.flat[worst])
        magnitude = np.abs(ref)
        usable = finite & (magnitude < MASK_CONSTANT) & (np.abs(cand) < MASK_CONSTANT)
        signal, noise = _norm(magnitude[usable]), _norm(difference)
        return ErrorStats(
            max_abs=max_abs,
            max_rel=_max_rel(difference, magnitude),
            rmse=noise / float(np.sqrt(total)),
            relative_l2=_ratio(noise, signal),
            cosine=_cosine(ref[usable], cand[usable]),
            snr_db=_decibels(signal, noise),
            max_ulp=_max_ulp(reference, candidate, finite=finite, same=same),
            mismatched=int(np.count_nonzero(~same)),
            total=total,
            nonfinite_mismatch=int(np.count_nonzero(~finite & ~same)),
            worst_index=None if max_abs == 0 else tuple(int(i) for i in np.unravel_index(worst, reference.shape)),
            scaled=max_abs / max(root_mean_square(reference), dtype_tiny(reference.dtype)),
        )


def _masked_alike(ref: Array, cand: Array) -> Array:
    """Where both are a mask constant or an infinity of one sign; nowhere for complex numbers."""
    if ref.dtype.kind == "c" or cand.dtype.kind == "c":
        return np.zeros(ref.shape, dtype=bool)
    masks = mask_class(ref)
    alike: Array = (masks != 0) & (masks == mask_class(cand))
    return alike


def _same(ref: Array, cand: Array, *, masks_alike: bool) -> Array:
    """Where two wide arrays agree although a difference may not be zero: NaN, infinities, mask constants."""
    same: Array = (ref == cand) | (np.isnan(ref) & np.isnan(cand))
    if ref.dtype.kind == "c" or cand.dtype.kind == "c":
        return same
    masked = _masked_alike(ref, cand)
    same |= masked if masks_alike else masked & np.isfinite(ref) & np.isfinite(cand)
    return same


def _whole_gap(reference: Array, candidate: Array) -> Array:
    """Distances of integers: exact ones, where float64 would take 2**60 and 2**60 + 1 for one number."""
    first, second = reference.astype(np.uint64), candidate.astype(np.uint64)  # modulo 2**64
    exact = np.where(reference > candidate, first - second, second - first).astype(np.float64)
    rough = np.abs(as_wide(candidate) - as_wide(reference))
    return np.where(rough < 2.0**63, exact, rough)


def _max_rel(difference: Array, magnitude: Array) -> float:
    if not difference.any():
        return 0.0
    counted = (difference > 0) & (magnitude > 0)
    if np.isinf(difference).any() or not counted.any():
        return float("inf")
    return float(np.max(difference[counted] / magnitude[counted]))


def _ratio(noise: float, signal: float) -> float:
    if signal == 0 or noise == float("inf"):
        return float("inf") if noise else 0.0
    return noise / signal


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return float("inf")
    if signal == 0 or noise == float("inf"):
        return float("-inf")
    return 20 * float(np.log10(signal) - np.log10(noise))


def _cosine(ref: Array, cand: Array) -> float | None:
    """Cosine of the angle between two flat vectors; None when one of them is zero."""
    # Scale first, so that squares of 1e200 stay finite.
    top = max(float(np.max(np.abs(ref), initial=0.0)), float(np.max(np.abs(cand), initial=0.0)))
    if top == 0 or not np.isfinite(top):
        return 1.0 if top == 0 else None
    a, b = ref / top, cand / top
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(min(1.0, max(-1.0, np.real(np.vdot(a, b)) / norms))) if norms else None


def _max_ulp(reference: Array, candidate: Array, *, finite: Array, same: Array) -> int | None:
    """Largest distance in units in the last place; None for other than equal float dtypes of 2, 4 or 8 bytes.

    Source:
        IEEE 754-2019, 5.10 (total order): within one sign, bit patterns read as integers are ordered as
        the numbers are. Both zeros count as one point.
    """
    if reference.dtype != candidate.dtype or reference.dtype.kind not in "fV" or not finite.any():
        return None
    size = reference.dtype.itemsize
    if size not in (2, 4, 8):
        return None
    signed = np.dtype(f"i{size}").newbyteorder(reference.dtype.byteorder)

    def rank(array: Array) -> Array:
        bits = np.ascontiguousarray(array).view(signed).reshape(array.shape).astype(np.int64)
        magnitude = bits & np.int64(2 ** (8 * size - 1) - 1)
        return np.where(bits < 0, -magnitude, magnitude)

    first, second = rank(reference)[finite & ~same], rank(candidate)[finite & ~same]
    # Modulo 2**64, so that the distance from the lowest float64 to the highest is right as well.
    apart = np.maximum(first, second).astype(np.uint64) - np.minimum(first, second).astype(np.uint64)
    return int(np.max(apart, initial=0))
