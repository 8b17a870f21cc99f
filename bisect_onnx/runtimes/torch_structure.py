"""Names for the tensors inside whatever a forward returns, and for the places they came from."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

__all__ = ["fill_leaves", "leaf_names", "name_outputs", "tensors_in"]


def name_outputs(result: object) -> dict[str, torch.Tensor]:
    """Flatten a forward's result into named tensors, in order.

    Mapping keys, dataclass fields and named-tuple fields name their entries, other sequences count
    ("output_0"), nesting joins with ".". None and non-tensors are skipped.
    """
    return dict(_named("", result))


def _named(prefix: str, result: object) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(result, torch.Tensor):
        yield prefix or "output_0", result
        return
    for key, item in _entries(result, top=not prefix):
        yield from _named(f"{prefix}.{key}" if prefix else key, item)


def _entries(result: object, *, top: bool) -> Iterator[tuple[str, object]]:
    if isinstance(result, Mapping):  # transformers' ModelOutput too: it leaves out what is None
        yield from ((str(key), item) for key, item in result.items())
    elif dataclasses.is_dataclass(result) and not isinstance(result, type):
        yield from ((field.name, getattr(result, field.name)) for field in dataclasses.fields(result))
    elif isinstance(result, tuple) and hasattr(result, "_fields"):
        yield from zip(result._fields, result, strict=True)
    elif isinstance(result, list | tuple):
        yield from ((f"output_{index}" if top else str(index), item) for index, item in enumerate(result))
    elif _is_attention_cache(result):
        layers = enumerate(getattr(result, "layers"))  # noqa: B009  # the class is transformers', not ours to import
        yield from (
            (f"{index}.{part}", getattr(layer, f"{part}s")) for index, layer in layers for part in ("key", "value")
        )


def _is_attention_cache(result: object) -> bool:
    """Whether this is one of transformers' key/value caches, which are no containers to Python."""
    layers = getattr(result, "layers", None)
    return isinstance(layers, list) and all(hasattr(layer, "keys") and hasattr(layer, "values") for layer in layers)


def tensors_in(tree: object) -> Iterator[torch.Tensor]:
    """Every tensor in nested lists, tuples, mappings and dataclasses, in order."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, _PLAIN):  # the rest of most calls; testing for a mapping takes long
        return
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from tensors_in(item)
    elif isinstance(tree, Mapping):
        for item in tree.values():
            yield from tensors_in(item)
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        for field in dataclasses.fields(tree):
            yield from tensors_in(getattr(tree, field.name))


_PLAIN = (int, float, str, type(None), torch.dtype, torch.device)


def leaf_names(arguments: Mapping[str, object]) -> tuple[str, ...]:
    """Names of the tensors and arrays in named arguments: "states.0" is the first of ``states``."""
    return tuple(name for key, item in arguments.items() for name in _leaves(key, item))


def fill_leaves(arguments: Mapping[str, object], leaves: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """The same arguments with each tensor or array replaced by the leaf of its name."""
    return {key: _filled(key, item, leaves) for key, item in arguments.items()}


def _leaves(name: str, item: object) -> Iterator[str]:
    if isinstance(item, torch.Tensor | np.ndarray):
        yield name
    elif isinstance(item, list | tuple):
        for index, inner in enumerate(item):
            yield from _leaves(f"{name}.{index}", inner)
    elif isinstance(item, Mapping):
        for key, inner in item.items():
            yield from _leaves(f"{name}.{key}", inner)


def _filled(name: str, item: Any, leaves: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(item, torch.Tensor | np.ndarray):
        return leaves[name]
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*(_filled(f"{name}.{index}", inner, leaves) for index, inner in enumerate(item)))
    if isinstance(item, list | tuple):
        return type(item)(_filled(f"{name}.{index}", inner, leaves) for index, inner in enumerate(item))
    if isinstance(item, Mapping):
        return {key: _filled(f"{name}.{key}", inner, leaves) for key, inner in item.items()}
    return item
