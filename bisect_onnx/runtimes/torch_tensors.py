"""Torch tensors as numpy arrays, and feeds from files written by ``torch.save``."""

import pickle
from pathlib import Path

import torch

from bisect_onnx.core.feeds import Array
from bisect_onnx.errors import FeedsFormatError, FeedsNeedPickleError, FeedsUnreadableError
from bisect_onnx.runtimes.torch_arrays import holds_array, to_numpy
from bisect_onnx.runtimes.torch_checkpoint import is_saved_by_torch, refused_object

__all__ = ["load_tensors", "tensor_to_array"]


def tensor_to_array(tensor: torch.Tensor, *, where: str) -> Array:
    """A copy of ``tensor`` on the CPU, bit for bit; the caller's tensor keeps its grad state."""
    if not holds_array(tensor):
        kind = "meta" if tensor.is_meta else str(tensor.layout).removeprefix("torch.")
        raise FeedsFormatError(
            where=where, got=f"a tensor that is not dense ({kind})", next_step="pass a dense tensor, e.g. x.to_dense()"
        )
    try:
        return to_numpy(tensor)
    except TypeError as error:
        raise FeedsFormatError(
            where=where, got=f"a tensor of {tensor.dtype}", next_step="convert it to a dtype that ONNX has"
        ) from error


def load_tensors(path: Path) -> object:
    """The content of a ``.pt`` saved with tensors only: a tensor, a tuple, a list or a mapping of tensors."""
    kind = "tensors written by torch.save"
    if not is_saved_by_torch(path):
        raise FeedsUnreadableError(
            path=path, kind=kind, detail=f"{path.stat().st_size} bytes that are something else, or cut off"
        )
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        refused = refused_object(error)
        if refused is not None:
            raise FeedsNeedPickleError(where=str(path), got=refused) from error
        raise FeedsUnreadableError(path=path, kind=kind, detail="a pickle that is damaged") from error
    except Exception as error:
        detail = str(error).strip().partition("\n")[0] or type(error).__name__
        raise FeedsUnreadableError(path=path, kind=kind, detail=detail) from error
