"""What an ATen operator's schema says: which arguments are tensors, which are written, what is a view."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bisect_onnx.runtimes.torch_arrays import dtype_name
from bisect_onnx.runtimes.torch_structure import tensors_in

__all__ = ["Argument", "SchemaPlan", "plain_attribute", "plan_of"]

# Views whose schema does not say so, because autograd treats them as copies.
_UNDECLARED_VIEWS = frozenset(
    {
        "aten.unsafe_split",
        "aten.unsafe_split_with_sizes",
        "aten.unsafe_chunk",
        "aten._unsafe_view",
        "aten._reshape_alias",
        "aten.lift_fresh",
    }
)

# Kernels that update the running statistics without saying so in their schema, in training mode.
_UNDECLARED_WRITES: Mapping[str, tuple[str, ...]] = {
    "aten.native_batch_norm": ("running_mean", "running_var"),
    "aten.cudnn_batch_norm": ("running_mean", "running_var"),
    "aten.miopen_batch_norm": ("running_mean", "running_var"),
    "aten._batch_norm_with_update": ("running_mean", "running_var"),
}

# Results that take shape and dtype from a tensor but nothing from its elements.
_SHAPE_ONLY = frozenset(
    f"aten.{name}{suffix}"
    for name in ("empty", "zeros", "ones", "full", "rand", "randn", "randint")
    for suffix in ("_like",)
) | {"aten.new_empty", "aten.new_zeros", "aten.new_ones", "aten.new_full", "aten.new_empty_strided"}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Argument:
    name: str
    position: int | None  # None: by keyword only
    is_tensor: bool
    is_written: bool
    has_default: bool
    default: object

    def pick(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[bool, Any]:
        """Whether the call gave this argument, and its value (the default when it did not)."""
        if self.position is not None and self.position < len(args):
            return True, args[self.position]
        if self.name in kwargs:
            return True, kwargs[self.name]
        return False, self.default


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SchemaPlan:
    op_type: str  # "aten.convolution"
    arguments: tuple[Argument, ...]
    written: tuple[Argument, ...]
    is_view: bool
    moves_only_metadata: bool  # `t_`, `squeeze_`: the tensor changes its shape, no element changes
    is_random: bool
    shape_only: bool

    def written_by(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Argument, ...]:
        """Arguments that a call with these arguments writes to."""
        if not self.written:
            return ()
        if self.op_type in _UNDECLARED_WRITES:
            training = next((argument for argument in self.arguments if argument.name == "training"), None)
            if training is not None and not training.pick(args, kwargs)[1]:
                return ()
        return tuple(argument for argument in self.written if argument.pick(args, kwargs)[1] is not None)

    def written_tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """The tensors among the arguments that a call writes to, in schema order."""
        arguments = self.written_by(args, kwargs)
        return [tensor for argument in arguments for tensor in tensors_in(argument.pick(args, kwargs)[1])]


def plan_of(func: Any) -> SchemaPlan:
    """Read the schema of an operator overload."""
    schema = func._schema
    namespace, _, base = schema.name.partition("::")
    op_type = f"{namespace}.{base}"
    undeclared = _UNDECLARED_WRITES.get(op_type, ())
    arguments = tuple(
        Argument(
            name=argument.name,
            position=None if argument.kwarg_only else position,
            is_tensor="Tensor" in str(argument.type),
            is_written=argument.name in undeclared
            or (argument.alias_info is not None and argument.alias_info.is_write),
            has_default=argument.has_default_value(),
            default=argument.default_value if argument.has_default_value() else None,
        )
        for position, argument in enumerate(schema.arguments)
    )
    returns_alias = any(result.alias_info is not None and not result.alias_info.is_write for result in schema.returns)
    tags = getattr(func, "tags", ())
    return SchemaPlan(
        op_type=op_type,
        arguments=arguments,
        written=tuple(argument for argument in arguments if argument.is_written),
        is_view=returns_alias or op_type in _UNDECLARED_VIEWS,
        moves_only_metadata=torch.Tag.inplace_view in tags,
        is_random=torch.Tag.nondeterministic_seeded in tags,
        shape_only=op_type in _SHAPE_ONLY,
    )


def plain_attribute(value: object) -> object:
    """Plain data for a recorded argument that is not a tensor."""
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, list | tuple):
        return tuple(plain_attribute(item) for item in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, complex):
        return (value.real, value.imag)
    if isinstance(value, torch.device | torch.layout | torch.memory_format):
        return str(value)
    return f"<{type(value).__name__}>"  # a generator, packed parameters: their text would hold an address
