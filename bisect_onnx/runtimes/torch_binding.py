"""From named arrays to the arguments of a forward call."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from bisect_onnx.errors import FeedsDoNotFitModuleError
from bisect_onnx.runtimes.torch_arrays import Array, to_tensor
from bisect_onnx.runtimes.torch_structure import fill_leaves, leaf_names

__all__ = ["ArgumentBinding", "Binding"]


class ArgumentBinding(Protocol):
    """Makes the arguments of one call from named arrays."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def arguments(
        self, feeds: Mapping[str, Array], *, device: torch.device | None
    ) -> tuple[list[Any], dict[str, Any], dict[str, torch.Tensor]]:
        """Positional arguments, keyword arguments, and the tensor made for each feed."""
        ...


class Binding:
    """Knows how the named inputs of a module become its positional and keyword arguments."""

    def __init__(self, module: nn.Module, *, example: object, bind_order: Sequence[str] | None) -> None:
        """Read the forward signature.

        Args:
            module: Its forward is not called.
            example: A tuple of positional arguments or a mapping of keyword arguments whose nesting and
                non-tensors are kept; None when each input is one argument.
            bind_order: Names of feeds in call order, for names that the signature does not have.
        """
        everything = _parameters(module)
        self._parameters = [p for p in everything if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        self._any_keyword = any(p.kind is p.VAR_KEYWORD for p in everything)
        self._example = example
        self._bind_order = None if bind_order is None else tuple(bind_order)
        self.names = self._names()

    def _names(self) -> tuple[str, ...]:
        if self._bind_order is not None:
            return self._bind_order
        if isinstance(self._example, Mapping):
            return leaf_names(dict(self._example))
        if isinstance(self._example, tuple | list):
            return leaf_names(self._keyed(self._example))
        required = tuple(p.name for p in self._parameters if p.default is inspect.Parameter.empty)
        return required or tuple(p.name for p in self._parameters)

    def arguments(
        self, feeds: Mapping[str, Array], *, device: torch.device | None
    ) -> tuple[list[Any], dict[str, Any], dict[str, torch.Tensor]]:
        """See `ArgumentBinding.arguments`."""
        tensors = {name: to_tensor(array, device=device) for name, array in feeds.items()}
        if self._example is not None:
            return *self._from_example(tensors), tensors
        if self._bind_order is None and self._takes_by_name(tensors):
            positional_only = [p.name for p in self._parameters if p.kind is p.POSITIONAL_ONLY and p.name in tensors]
            keywords = {name: tensor for name, tensor in tensors.items() if name not in positional_only}
            return [tensors[name] for name in positional_only], keywords, tensors
        order = self._bind_order or tuple(tensors)
        self._check(order, tensors)
        return [tensors[name] for name in order], {}, tensors

    def _takes_by_name(self, tensors: Mapping[str, torch.Tensor]) -> bool:
        """Whether each name is a parameter, or may be one because the forward takes any keyword."""
        known = {p.name for p in self._parameters}
        return set(tensors) <= known or (self._any_keyword and not known.isdisjoint(tensors))

    def _from_example(self, tensors: Mapping[str, torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
        self._check(self.names, tensors)
        by_keyword = isinstance(self._example, Mapping)
        tree = dict(self._example) if isinstance(self._example, Mapping) else self._keyed(self._example)
        leaves = (tensors[name] for name in self.names)
        filled = fill_leaves(tree, dict(zip(leaf_names(tree), leaves, strict=True)))
        return ([], filled) if by_keyword else (list(filled.values()), {})

    def _keyed(self, example: Any) -> dict[str, Any]:
        """Positional arguments under their parameters' names."""
        names = [p.name for p in self._parameters if p.kind is not p.KEYWORD_ONLY]
        names += [f"input_{index}" for index in range(len(names), len(example))]
        return dict(zip(names, example, strict=False))

    def _check(self, expected: Sequence[str], tensors: Mapping[str, torch.Tensor]) -> None:
        if set(expected) != set(tensors):
            raise FeedsDoNotFitModuleError(expected=tuple(expected), got=tuple(tensors))


def _parameters(module: nn.Module) -> list[inspect.Parameter]:
    if isinstance(module, torch.jit.ScriptModule):
        schema: Any = getattr(module.forward, "schema")  # noqa: B009  # a ScriptMethod; torch types it as a function
        return [
            inspect.Parameter(
                argument.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=argument.default_value if argument.has_default_value() else inspect.Parameter.empty,
            )
            for argument in schema.arguments[1:]
        ]
    return list(inspect.signature(module.forward).parameters.values())
