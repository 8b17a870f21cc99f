"""What an ATen operator computes inside, as calls of simpler operators.

Ours come first: they name the steps that exporters write (the product before the bias, the mean before the
deviation). Torch's own table serves the rest.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

__all__ = ["decompositions_of", "functional_form"]

Decomposition = Callable[..., Any]

# Operators of torch's core set that nevertheless stand for several steps. Others of that set are one step.
_COMPOUND_CORE = frozenset(
    {
        "aten._log_softmax",
        "aten.avg_pool2d",
        "aten.elu",
        "aten.grid_sampler_2d",
        "aten.hardtanh",
        "aten.leaky_relu",
        "aten.pixel_shuffle",
        "aten.upsample_bilinear2d",
        "aten.upsample_nearest2d",
    }
)


def decompositions_of(func: Any) -> Iterator[Decomposition]:
    """Ways to compute the operator in simpler steps, the best one first; none for a simple operator."""
    operator = func._schema.name.replace("::", ".")
    own = _OWN.get(operator)
    if own is not None:
        yield own
    if func._can_decompose():  # a composite: torch itself computes it by other operators
        yield func.decompose
    implementation = getattr(func, "impl_aten", None)
    if operator.startswith("prims.") and implementation is not None:
        yield implementation
    if any(result.alias_info is not None for result in func._schema.returns):
        return  # a view moves elements and computes nothing
    if torch.Tag.core in func.tags and operator not in _COMPOUND_CORE:
        return
    known = torch._decomp.decomposition_table.get(func)
    if known is not None:
        yield known


def functional_form(func: Any) -> Any:
    """The operator that returns what an in-place one writes; the operator itself when there is none."""
    namespace, _, name = func._schema.name.partition("::")
    if not name.endswith("_") or name.endswith("__"):
        return func
    packet = getattr(getattr(torch.ops, namespace), name[:-1], None)
    return getattr(packet, func._overloadname, func)


def _addmm(bias: Any, first: Any, second: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    return _scaled(bias, beta) + _scaled(torch.mm(first, second), alpha)


def _baddbmm(bias: Any, first: Any, second: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    return _scaled(bias, beta) + _scaled(torch.bmm(first, second), alpha)


def _addmv(bias: Any, first: Any, second: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    return _scaled(bias, beta) + _scaled(torch.mv(first, second), alpha)


def _scaled(tensor: Any, factor: float) -> Any:
    return tensor if factor == 1 else tensor * factor


def _convolution(image: Any, weight: Any, bias: Any, *rest: Any) -> Any:
    if bias is None:
        return NotImplemented
    product = torch.ops.aten.convolution.default(image, weight, None, *rest)
    return product + bias.reshape(-1, *[1] * (weight.dim() - 2))


def _gelu(tensor: Any, *, approximate: str = "none") -> Any:
    if approximate == "tanh":
        cubed = tensor + 0.044715 * torch.pow(tensor, 3)
        return 0.5 * tensor * (1 + torch.tanh(math.sqrt(2 / math.pi) * cubed))
    return tensor * (torch.erf(tensor * math.sqrt(0.5)) + 1) * 0.5


def _silu(tensor: Any) -> Any:
    return tensor * torch.sigmoid(tensor)


def _mish(tensor: Any) -> Any:
    return tensor * torch.tanh(torch.nn.functional.softplus(tensor))


def _hardswish(tensor: Any) -> Any:
    return tensor * torch.nn.functional.hardsigmoid(tensor)


def _softmax(tensor: Any, dim: int, *_: object) -> Any:
    powers = torch.exp(tensor - torch.amax(tensor, dim, keepdim=True))
    return powers / powers.sum(dim, keepdim=True)


def _variance(tensor: Any, dim: Any = None, *, correction: Any = None, keepdim: Any = False) -> Any:
    axes = list(range(tensor.dim())) if not dim else list(dim)
    count = math.prod(tensor.shape[axis] for axis in axes)
    deviation = tensor - tensor.mean(axes, keepdim=True)
    mean_square = (deviation * deviation).mean(axes, keepdim=bool(keepdim))
    lost = 1 if correction is None else correction
    return mean_square if lost == 0 else mean_square * (count / (count - lost))


def _variance_and_mean(tensor: Any, dim: Any = None, *, correction: Any = None, keepdim: Any = False) -> Any:
    axes = list(range(tensor.dim())) if not dim else list(dim)
    variance = _variance(tensor, dim, correction=correction, keepdim=keepdim)
    return variance, tensor.mean(axes, keepdim=bool(keepdim))


def _layer_norm(tensor: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    axes = list(range(tensor.dim() - len(shape), tensor.dim()))
    normal, mean, scale = _normalised(tensor, axes, eps=eps)
    return _affine(normal, weight, bias), mean, scale


def _group_norm(tensor: Any, weight: Any, bias: Any, *sizes: Any) -> Any:
    batch, channels, _, groups, eps = sizes
    normal, mean, scale = _normalised(tensor.reshape(batch, groups, -1), [2], eps=eps)
    per_channel = (channels, *[1] * (tensor.dim() - 2))
    weight, bias = (None if part is None else part.reshape(per_channel) for part in (weight, bias))
    return _affine(normal.reshape(tensor.shape), weight, bias), mean.squeeze(2), scale.squeeze(2)


def _normalised(tensor: Any, axes: Any, *, eps: float) -> Any:
    mean = tensor.mean(axes, keepdim=True)
    deviation = tensor - mean
    variance = (deviation * deviation).mean(axes, keepdim=True)
    deviance = torch.sqrt(variance + eps)
    return deviation / deviance, mean, torch.reciprocal(deviance)


def _affine(tensor: Any, weight: Any, bias: Any) -> Any:
    scaled = tensor if weight is None else tensor * weight
    return scaled if bias is None else scaled + bias


def _batch_norm(*args: Any) -> Any:
    image, weight, bias, mean, variance, training, _, eps = args
    if training and mean is not None:
        return NotImplemented  # it writes the running statistics
    shape = (-1, *[1] * (image.dim() - 2))
    weight, bias = (None if part is None else part.reshape(shape) for part in (weight, bias))
    if training:
        normal, mean, scale = _normalised(image, [0, *range(2, image.dim())], eps=eps)
        return _affine(normal, weight, bias), mean.reshape(-1), scale.reshape(-1)
    normal = (image - mean.reshape(shape)) / torch.sqrt(variance.reshape(shape) + eps)
    empty = image.new_empty((0,))
    return _affine(normal, weight, bias), empty, empty.clone()


_OWN: Mapping[str, Decomposition] = {
    "aten.addmm": _addmm,
    "aten.baddbmm": _baddbmm,
    "aten.addmv": _addmv,
    "aten.convolution": _convolution,
    "aten.gelu": _gelu,
    "aten.silu": _silu,
    "aten.mish": _mish,
    "aten.hardswish": _hardswish,
    "aten._softmax": _softmax,
    "aten._safe_softmax": _softmax,
    "aten.var": _variance,
    "aten.var_mean": _variance_and_mean,
    "aten.native_layer_norm": _layer_norm,
    "aten.native_group_norm": _group_norm,
    "aten.native_batch_norm": _batch_norm,
}
