"""Stand-ins for recorded calls that cannot run as they are on tensors of another dtype or layout."""

from collections.abc import Mapping, Sequence

import torch

from bisect_onnx.runtimes.torch_tape import Call, Geometry, Recorded, Ref

__all__ = ["NotRepeatableError", "substitute_for"]


class NotRepeatableError(Exception):
    """This call has no float64 form; the value it makes is left out."""


def substitute_for(
    call: Call, known: Mapping[str, torch.Tensor], *, values: Mapping[str, Recorded]
) -> Sequence[torch.Tensor] | None:
    """Results of an equivalent of the call, or None when the call itself can be run."""
    operator = call.plan.op_type
    if operator in _SHOWS_UNWRITTEN or (operator == "aten.view" and str(call.func).endswith(".dtype")):
        raise NotRepeatableError("elements are shown that the repetition does not have")
    if not call.args or not isinstance(call.args[0], Ref):
        return None
    source = known[call.args[0].name]
    if operator in _RESHAPES:  # `view` wants strides that a repetition need not have
        return (source.reshape(call.args[1]),)
    if operator == "aten._softmax":  # ``half_to_float`` is refused for anything but half precision
        return (torch.softmax(source, call.args[1]),)
    if operator == "aten._log_softmax":
        return (torch.log_softmax(source, call.args[1]),)
    if operator == "aten.as_strided":
        return (_as_strided(call, source, geometry=values[call.args[0].name].geometry),)
    return None


_RESHAPES = frozenset({"aten.view", "aten._unsafe_view", "aten._reshape_alias"})
_SHOWS_UNWRITTEN = frozenset({"aten.resize_", "aten.set_", "aten.as_strided_"})


def _as_strided(call: Call, tensor: torch.Tensor, *, geometry: Geometry) -> torch.Tensor:
    """Takes elements by their place in memory, so the recorded places are laid out again."""
    offset = call.args[3] if len(call.args) > 3 else call.kwargs.get("storage_offset")
    shown = Geometry(tuple(call.args[1]), tuple(call.args[2]), geometry.offset if offset is None else offset)
    extent = geometry.extent()[1]
    if shown.extent()[1] > extent:
        raise NotRepeatableError("elements outside the recorded value are read")
    covered = torch.zeros(extent, dtype=torch.bool, device=tensor.device)
    geometry.distinct().of(covered).fill_(1)
    if not bool(shown.of(covered).all()):
        raise NotRepeatableError("elements outside the recorded value are read")
    buffer = tensor.new_zeros(extent)
    geometry.lay(tensor, buffer=buffer)
    return shown.of(buffer).clone()
