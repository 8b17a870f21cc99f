"""Stand-ins for recorded calls that cannot run as they are on tensors of another dtype or layout."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from bisect_onnx.runtimes.torch_tape import Call, Recorded, Ref

__all__ = ["NotRepeatableError", "substitute_for"]


class NotRepeatableError(Exception):
    """This call has no float64 form; the value it makes is left out."""


def substitute_for(
    call: Call, known: Mapping[str, torch.Tensor], *, values: Mapping[str, Recorded]
) -> Sequence[torch.Tensor] | None:
    """Results of an equivalent of the call, or None when the call itself can be run."""
    stand_in = _STAND_INS.get(call.plan.op_type)
    if stand_in is None or not call.args or not isinstance(call.args[0], Ref):
        return None
    return stand_in(call, known[call.args[0].name], recorded=values[call.args[0].name])


def _reshape(call: Call, tensor: torch.Tensor, *, recorded: Recorded) -> Sequence[torch.Tensor]:
    """`view` wants strides that a repetition need not have."""
    if str(call.func).endswith(".dtype"):
        raise NotRepeatableError("the bits are read as another dtype")
    return (tensor.reshape(call.args[1]),)


def _as_strided(call: Call, tensor: torch.Tensor, *, recorded: Recorded) -> Sequence[torch.Tensor]:
    """Takes elements by their place in memory, so the recorded places are laid out again."""
    shape, stride = call.args[1], call.args[2]
    offset = _optional(call, 3, "storage_offset")
    geometry = recorded.geometry
    first = geometry.offset if offset is None else offset
    extent = geometry.extent()[1]
    last = first + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if 0 in shape:
        return (tensor.new_zeros(shape),)
    if last >= extent:
        raise NotRepeatableError("elements outside the recorded value are read")
    covered = torch.zeros(extent, dtype=torch.bool, device=tensor.device)
    geometry.distinct().of(covered).fill_(1)
    if not bool(covered.as_strided(shape, stride, first).all()):
        raise NotRepeatableError("elements outside the recorded value are read")
    buffer = tensor.new_zeros(extent)
    geometry.lay(tensor, buffer=buffer)
    return (buffer.as_strided(shape, stride, first).clone(),)


def _softmax(call: Call, tensor: torch.Tensor, *, recorded: Recorded) -> Sequence[torch.Tensor]:
    """``half_to_float`` is refused for anything but half precision."""
    function = torch.softmax if "log" not in call.plan.op_type else torch.log_softmax
    return (function(tensor, call.args[1]),)


def _refuse(call: Call, tensor: torch.Tensor, *, recorded: Recorded) -> Sequence[torch.Tensor]:
    raise NotRepeatableError("memory that the call does not write is shown")


def _optional(call: Call, position: int, name: str) -> Any:
    return call.args[position] if len(call.args) > position else call.kwargs.get(name)


_STAND_INS: Mapping[str, Callable[..., Sequence[torch.Tensor]]] = {
    "aten.view": _reshape,
    "aten._unsafe_view": _reshape,
    "aten._reshape_alias": _reshape,
    "aten.as_strided": _as_strided,
    "aten._softmax": _softmax,
    "aten._log_softmax": _softmax,
    "aten.resize_": _refuse,
    "aten.set_": _refuse,
    "aten.as_strided_": _refuse,
}
