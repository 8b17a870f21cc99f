"""One submodule of a module: what it is given in a run of the whole, and a reference of its own."""

import dataclasses
import difflib
import inspect
from collections.abc import Mapping

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from bisect_onnx.errors import SubmoduleNotCalledError, SubmoduleNotFoundError
from bisect_onnx.runtimes.base import Array, Reference
from bisect_onnx.runtimes.torch_arrays import to_numpy
from bisect_onnx.runtimes.torch_eager import EagerReference
from bisect_onnx.runtimes.torch_factory import EagerModel, TorchModel, wrap

__all__ = ["Submodule", "element_count", "find_submodule", "open_submodule"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submodule:
    """A submodule and the arguments of its first call in a run of the whole."""

    path: str  # as the tracker names it: the first of several names of one module
    module: nn.Module
    eager: EagerModel
    arguments: object  # a tuple, or a mapping by parameter name
    feeds: Mapping[str, Array]  # the tensors among the arguments, by the names that ``eager`` takes
    calls: int


def find_submodule(module: nn.Module, path: str) -> tuple[nn.Module, str]:
    """The submodule, and the first of its names.

    Raises:
        SubmoduleNotFoundError: With names that are near.
    """
    children = dict(module.named_modules(remove_duplicate=False))
    if path not in children or not path:
        names = [name for name in children if name]
        near = difflib.get_close_matches(path, names, n=3) or [name for name in names if name.endswith(f".{path}")][:3]
        raise SubmoduleNotFoundError(path=path, root=type(module).__name__, near=near, known=names)
    found = children[path]
    return found, next(name for name, child in module.named_modules() if child is found)


def open_submodule(reference: Reference, module: nn.Module, path: str, *, feeds: Mapping[str, Array]) -> Submodule:
    """Run the whole once, untouched, and keep what the submodule is called with first.

    Raises:
        SubmoduleNotFoundError: The module has none of that path.
        SubmoduleNotCalledError: This run does not call it.
        ReferenceFailedError: The whole failed.
    """
    child, name = find_submodule(module, path)
    calls: list[tuple[tuple[object, ...], dict[str, object]]] = []
    count = 0

    def keep(_module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        nonlocal count
        count += 1
        if count == 1:
            calls.append(pytree.tree_map_only(torch.Tensor, lambda each: each.detach().clone(), (args, kwargs)))

    handle = child.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        reference.run(feeds)
    finally:
        handle.remove()
    if not calls:
        raise SubmoduleNotCalledError(path=path, root=reference.description)
    arguments = _arguments(child, *calls[0])
    model = TorchModel(
        module=child, description=f"{reference.description}, submodule {path}", example_inputs=None, notes=()
    )
    eager = wrap(model, inputs=arguments)
    return Submodule(
        path=name,
        module=child,
        eager=eager,
        arguments=arguments,
        feeds={key: _array(value) for key, value in _leaves(eager, arguments).items()},
        calls=count,
    )


def under_its_path(submodule: Submodule) -> Reference:
    """The submodule's reference with the names that its parts have in the whole."""
    assert isinstance(submodule.eager.reference, EagerReference)
    submodule.eager.reference.path = submodule.path
    return submodule.eager.reference


def element_count(module: nn.Module) -> int:
    """Of its parameters and buffers."""
    return sum(tensor.numel() for tensor in (*module.parameters(), *module.buffers()))


def _arguments(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """As `wrap` takes them: a tuple, or a mapping when something was passed by name."""
    if not kwargs:
        return args
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    arguments = dict(bound.arguments)
    for parameter in inspect.signature(module.forward).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments |= arguments.pop(parameter.name, {})
    return arguments


def _leaves(eager: EagerModel, arguments: object) -> Mapping[str, object]:
    if eager.leaves is not None:
        return eager.leaves
    if isinstance(arguments, Mapping):
        return arguments
    assert isinstance(arguments, tuple)
    names = eager.call_order or tuple(f"input_{place}" for place in range(len(arguments)))
    return dict(zip(names, arguments, strict=False))


def _array(value: object) -> Array:
    return to_numpy(value) if isinstance(value, torch.Tensor) else np.asarray(value)
