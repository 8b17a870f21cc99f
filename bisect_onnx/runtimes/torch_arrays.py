"""Tensors to numpy arrays and back, with the dtypes numpy lacks carried by ml_dtypes."""

from typing import Any

import ml_dtypes
import numpy as np
import torch

__all__ = ["Array", "dtype_name", "holds_array", "to_numpy", "to_tensor", "view_as_numpy"]

Array = np.ndarray[Any, np.dtype[Any]]

# Dtypes that numpy knows only through ml_dtypes, with the integer type of the same width that carries the bits.
_BIT_CARRIERS: dict[torch.dtype, tuple[torch.dtype, np.dtype[Any]]] = {
    torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16)),
    torch.float8_e4m3fn: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fn)),
    torch.float8_e5m2: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2)),
    torch.float8_e4m3fnuz: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fnuz)),
    torch.float8_e5m2fnuz: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2fnuz)),
}
_CARRIED = {numpy_type: (carrier, torch_type) for torch_type, (carrier, numpy_type) in _BIT_CARRIERS.items()}


def dtype_name(dtype: torch.dtype) -> str:
    """Numpy's name of a torch dtype; ml_dtypes uses the same names as torch for the rest."""
    return str(dtype).removeprefix("torch.")


def holds_array(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a plain strided one: sparse, nested and quantised tensors have no array here."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.is_quantized
        and tensor.device.type != "meta"
    )


def view_as_numpy(tensor: torch.Tensor) -> Array:
    """An array of the tensor's values that shares its memory where device and dtype allow."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu()
    if plain.dtype is torch.complex32:  # numpy has no pair of float16
        plain = plain.to(torch.complex64)
    carried = _BIT_CARRIERS.get(plain.dtype)
    if carried is None:
        array: Array = plain.numpy()
        return array
    carrier, numpy_type = carried
    bits: Array = plain.view(carrier).numpy()
    return bits.view(numpy_type)


def to_numpy(tensor: torch.Tensor) -> Array:
    """A row-major copy of the tensor's values that shares no memory with it."""
    return np.array(view_as_numpy(tensor), order="C", copy=True)


def to_tensor(array: Array, *, device: torch.device | None = None) -> torch.Tensor:
    """A tensor with a copy of the array's values, so that a model that writes to its inputs leaves the array alone."""
    copy = np.array(array, order="C", copy=True)
    carried = _CARRIED.get(copy.dtype)
    if carried is None:
        tensor = torch.from_numpy(copy if copy.dtype.isnative else copy.astype(copy.dtype.newbyteorder("=")))
    else:
        carrier, torch_type = carried
        bits = copy.view(np.dtype(dtype_name(carrier)))
        tensor = torch.from_numpy(bits).view(torch_type)
    return tensor if device is None else tensor.to(device)
