"""Read FEEDS in any form a user gives them, from disk or from Python, into arrays of our own."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from bisect_onnx.core.feeds import Array, GivenFeeds
from bisect_onnx.errors import FeedsFormatError, FeedsNeedPickleError, FeedsNotFoundError
from bisect_onnx.readers import feeds_file, mapped_feeds

__all__ = ["gather_feeds", "refuse_lists_of_numbers"]

Leaf = Array | None


def gather_feeds(inputs: object, *, source: str = "caller", mapped: bool = False) -> GivenFeeds:
    """Read feeds from a path (text or `Path`), or from tensors and arrays: one, a sequence, or a mapping.

    Every array returned is a copy: what a run does to it, the caller's does not see.

    Args:
        inputs: What the user gave.
        source: What the report calls inputs that were not read from disk.
        mapped: Leave arrays in their file, read-only, until a part of them is asked for.
    """
    if isinstance(inputs, str | Path):
        return _read(Path(inputs), mapped=mapped)
    return _from_python(inputs, source=source)


def refuse_lists_of_numbers(inputs: object, *, source: str = "caller") -> None:
    """Feeds that hold numbers in lists and no array: which dtype they are to have is not ours to guess.

    Beside arrays a list of numbers is an argument that is no tensor, such as a size.

    Raises:
        FeedsFormatError: With the place of the first such list.
    """
    place = None if _holds_array(inputs) else _list_of_numbers(inputs, where=source)
    if place is not None:
        raise FeedsFormatError(
            where=place,
            got="a list of Python numbers, and no array or tensor anywhere",
            next_step="make arrays first, e.g. np.asarray(rows, dtype=np.float32)",
        )


def _holds_array(item: object) -> bool:
    if isinstance(item, Mapping):
        return any(_holds_array(inner) for inner in item.values())
    if isinstance(item, list | tuple):
        return any(_holds_array(inner) for inner in item)
    return isinstance(item, np.ndarray | np.generic) or hasattr(item, "detach")


def _list_of_numbers(item: object, *, where: str) -> str | None:
    """The place of the first list of numbers, in order."""
    if isinstance(item, Mapping):
        parts = [(f"{where}, {str(name)!r}", inner) for name, inner in item.items()]
    elif isinstance(item, list | tuple):
        if item and all(isinstance(inner, bool | int | float) for inner in item):
            return where
        parts = [(f"{where}[{index}]", inner) for index, inner in enumerate(item)]
    else:
        return None
    return next((found for place, inner in parts if (found := _list_of_numbers(inner, where=place))), None)


def _read(path: Path, *, mapped: bool) -> GivenFeeds:
    if not path.exists():
        raise FeedsNotFoundError(path=path)
    if path.is_dir():
        return feeds_file.read_backend_folder(path)
    if path.suffix == ".npz":
        return mapped_feeds.map_npz(path) if mapped else feeds_file.read_npz(path)
    if path.suffix == ".npy":
        return mapped_feeds.map_npy(path) if mapped else feeds_file.read_npy(path)
    if path.suffix in {".pt", ".pth"}:
        _require_torch(path)
        from bisect_onnx.runtimes.torch_tensors import load_tensors

        return _from_python(load_tensors(path), source=path.name)
    raise FeedsFormatError(
        where=str(path),
        got=f"a file whose suffix is {path.suffix!r}" if path.suffix else "a file without a suffix",
        next_step="save the inputs with np.savez('feeds.npz', name=array)",
    )


def _require_torch(path: Path) -> None:
    if find_spec("torch") is None:
        raise FeedsFormatError(
            where=str(path),
            got="a file that torch writes, and torch is not installed here",
            next_step="save the inputs with np.savez('feeds.npz', name=array) where torch is",
        )


def _from_python(inputs: object, *, source: str) -> GivenFeeds:
    if isinstance(inputs, Mapping):
        return GivenFeeds(source=source, named=dict(_named(inputs, source=source)))
    if not isinstance(inputs, list | tuple):
        return GivenFeeds(source=source, ordered=(_array(inputs, where=source),))
    # The convention of torch.onnx.export: a mapping at the end holds what is passed by name.
    named = dict(_named(inputs[-1], source=source)) if inputs and isinstance(inputs[-1], Mapping) else {}
    positional = inputs[:-1] if inputs and isinstance(inputs[-1], Mapping) else inputs
    ordered = tuple(
        leaf for index, item in enumerate(positional) for leaf in _leaves(item, where=f"{source}, [{index}]")
    )
    return GivenFeeds(source=source, named=named, ordered=ordered)


def _named(inputs: Mapping[object, object], *, source: str) -> Iterator[tuple[str, Array]]:
    for name, value in inputs.items():
        if value is None:  # as a call leaves an optional parameter at its default
            continue
        yield str(name), _array(value, where=f"{source}, {str(name)!r}")


def _leaves(item: object, *, where: str) -> Iterator[Leaf]:
    """Arrays inside nested sequences, in order, as exporters flatten them."""
    if item is None:
        yield None
    elif isinstance(item, list | tuple):
        for index, inner in enumerate(item):
            yield from _leaves(inner, where=f"{where}[{index}]")
    else:
        yield _array(item, where=where)


def _array(value: object, *, where: str) -> Array:
    if isinstance(value, np.ndarray | np.generic | bool | int | float):
        array = np.array(value)
    elif hasattr(value, "detach"):  # a torch tensor, without importing torch to ask
        from bisect_onnx.runtimes.torch_tensors import tensor_to_array

        array = tensor_to_array(value, where=where)  # type: ignore[arg-type] # nothing else has detach
    else:
        raise FeedsFormatError(
            where=where,
            got=f"an object of type {type(value).__name__}",
            next_step="convert it first, e.g. np.asarray(value, dtype=np.float32)",
        )
    if array.dtype.hasobject and not all(isinstance(item, str) for item in array.ravel()):
        raise FeedsNeedPickleError(where=where, got="an array of Python objects")
    return array
