"""Hold arrays against the signature of an ONNX file: shape, dtype, emptiness; and suit them to the reference."""

from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np

from bisect_onnx.core.feeds import Array, InputSignature
from bisect_onnx.errors import EmptyFeedError, FeedDtypeError, FeedShapeError

__all__ = ["check_feeds", "reference_arrays"]


def check_feeds(
    arrays: Mapping[str, Array],
    *,
    signature: Sequence[InputSignature],
    source: str,
    parameters: Mapping[str, Array],
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The arrays in native byte order and row-major, and notes on what was rounded.

    One rounding is made, and told: a float that has the reference's dtype is rounded to the narrower float
    that the file declares (a float16 copy of a float32 model), and both sides get the rounded numbers.

    Raises:
        FeedShapeError, FeedDtypeError, EmptyFeedError: In the order of the signature.
    """
    reference_dtype = float_dtype(parameters)
    lengths: dict[str, tuple[int, str]] = {}
    checked: dict[str, Array] = {}
    notes = []
    for declared in signature:
        array = plain(arrays[declared.name], declared=declared)
        _check_shape(array, declared=declared, lengths=lengths, source=source)
        if declared.dtype is not None and dtype_name(array) != declared.dtype:
            if not _may_round(array, declared=declared, reference_dtype=reference_dtype):
                raise FeedDtypeError(where=source, name=declared.name, expected=declared.dtype, got=dtype_name(array))
            array = array.astype(np.dtype(declared.dtype))
            notes.append(
                f"the input {declared.name!r} was rounded from {reference_dtype} to the file's {declared.dtype}; "
                "both sides get the rounded numbers"
            )
        checked[declared.name] = array
    _check_empty(checked, signature=signature, source=source)
    return checked, tuple(notes)


def reference_arrays(
    arrays: Mapping[str, Array], *, pairs: Mapping[str, str], parameters: Mapping[str, Array]
) -> dict[str, Array]:
    """The candidate's arrays by the reference's names; narrower floats widened, exactly, to the module's dtype."""
    dtype = float_dtype(parameters)
    return {
        pairs[name]: array.astype(dtype) if dtype is not None and _narrower(array.dtype, dtype) else array
        for name, array in arrays.items()
    }


def float_dtype(parameters: Mapping[str, Array]) -> np.dtype[np.generic] | None:
    """The dtype of the reference's float parameters; None when they have several, or there are none."""
    dtypes = {array.dtype for array in parameters.values() if float_bits(array.dtype) is not None}
    return dtypes.pop() if len(dtypes) == 1 else None


def float_bits(dtype: np.dtype[np.generic]) -> int | None:
    """Width of a float dtype; None for anything else."""
    try:
        return int(ml_dtypes.finfo(dtype).bits)  # type: ignore[no-untyped-call] # ml_dtypes leaves it untyped
    except ValueError:
        return None


def plain(array: Array, *, declared: InputSignature) -> Array:
    """Native byte order, row-major, text as objects; bfloat16 that a file stored as opaque bytes is named again."""
    if array.dtype.kind in "US":
        return array.astype(str).astype(object)
    if array.dtype.kind == "V" and array.dtype.names is None and declared.dtype not in {None, "string"}:
        wanted = np.dtype(declared.dtype)
        if wanted.kind == "V" and array.dtype != wanted and wanted.itemsize == array.dtype.itemsize:
            array = array.view(wanted)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray alone makes (1,) of a scalar


def dtype_name(array: Array) -> str:
    return "string" if array.dtype.kind in "OUS" else str(array.dtype)


def _narrower(first: np.dtype[np.generic], second: np.dtype[np.generic]) -> bool:
    bits, other = float_bits(first), float_bits(second)
    return bits is not None and other is not None and bits < other


def _may_round(array: Array, *, declared: InputSignature, reference_dtype: np.dtype[np.generic] | None) -> bool:
    if declared.dtype in {None, "string"} or array.dtype != reference_dtype:
        return False
    return _narrower(np.dtype(declared.dtype), array.dtype)


def _check_shape(array: Array, *, declared: InputSignature, lengths: dict[str, tuple[int, str]], source: str) -> None:
    """Compare with the declared axes; ``lengths`` collects what each symbol stands for, and where that was seen."""
    if declared.dims is None:
        return
    problem = None
    if len(array.shape) != len(declared.dims):
        problem = f"{len(array.shape)} axes, and the file has {len(declared.dims)}"
    else:
        for axis, (length, dim) in enumerate(zip(array.shape, declared.dims, strict=True)):
            if isinstance(dim, int) and dim != length:
                problem = f"axis {axis} has length {length}, and the file fixes {dim}"
            elif isinstance(dim, str):
                known, place = lengths.setdefault(dim, (length, f"axis {axis} of {declared.name!r}"))
                if known != length:
                    problem = f"axis {axis} ({dim}) has length {length}, and {place} has {known}"
            if problem is not None:
                break
    if problem is not None:
        raise FeedShapeError(
            where=source,
            name=declared.name,
            expected=str(declared),
            got=f"{dtype_name(array)}[{', '.join(map(str, array.shape))}]",
            problem=problem,
        )


def _check_empty(arrays: Mapping[str, Array], *, signature: Sequence[InputSignature], source: str) -> None:
    """Refuse empty inputs, but for a cache of length zero beside inputs that have elements."""
    some_elements = any(array.size for array in arrays.values())
    for declared in signature:
        array = arrays[declared.name]
        for axis, length in enumerate(array.shape):
            free = declared.dims is None or not isinstance(declared.dims[axis], int)
            if length == 0 and not (axis > 0 and free and some_elements):
                raise EmptyFeedError(where=source, name=declared.name, shape=array.shape)
