"""What one opened-up run recorded: calls, and the values that they read, made and wrote."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from bisect_onnx.core.graph import Graph, Node, Source, Value, ValueKind
from bisect_onnx.runtimes.torch_arrays import dtype_name
from bisect_onnx.runtimes.torch_schema import SchemaPlan, plain_attribute

__all__ = ["Call", "Geometry", "ModuleCall", "Place", "Rebuild", "Recorded", "Ref", "Tape", "Unit", "map_leaves"]


@dataclasses.dataclass(frozen=True, slots=True)
class Ref:
    """Stands for a tensor in recorded arguments."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Geometry:
    """Which elements of a storage a tensor shows."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def distinct(self) -> "Geometry":
        """The same elements without the axes that an expansion repeats."""
        shape = tuple(min(size, 1) if step == 0 else size for size, step in zip(self.shape, self.stride, strict=True))
        return Geometry(shape, self.stride, self.offset)

    def of(self, buffer: torch.Tensor) -> torch.Tensor:
        """The elements in a flat buffer that stands for the storage."""
        return buffer.as_strided(self.shape, self.stride, self.offset)

    def lay(self, tensor: torch.Tensor, *, buffer: torch.Tensor) -> None:
        """Write a tensor of this shape to its places in the buffer."""
        distinct = self.distinct()
        first_of_repeated = tuple(slice(0, size) for size in distinct.shape)
        distinct.of(buffer).copy_(tensor[first_of_repeated])

    def extent(self) -> tuple[int, int]:
        """First element, and one past the last; (0, 0) when empty."""
        if 0 in self.shape:
            return 0, 0
        last = self.offset + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return self.offset, last + 1


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """A value as it was when it was made."""

    name: str
    kind: ValueKind
    dtype: torch.dtype
    geometry: Geometry
    device: torch.device
    plain: bool  # False for sparse, nested and quantised tensors, whose elements are not kept


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Rebuild:
    """A tensor that an in-place call changed through another tensor of the same storage.

    The new value is ``old`` with the elements of each written value put over it, in order.
    """

    name: str
    old: str
    written: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ModuleCall:
    """One call of a module; ``number`` counts the calls of that module, from 1."""

    path: str
    class_name: str
    number: int
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    exact: bool = True  # False: a submodule of it may be running unseen

    @property
    def label(self) -> str:
        return self.path if self.number == 1 else f"{self.path}@{self.number}"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where in the user's model a call happens; ``label`` begins the names of its values."""

    label: str
    module: ModuleCall | None
    source: Source | None


@dataclasses.dataclass(kw_only=True, slots=True)
class Call:
    """One ATen call. ``rebuilds`` grows while later calls read what this one changed."""

    index: int
    name: str
    func: Any
    plan: SchemaPlan
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[str, ...]  # results in order, then the written tensors that are not results
    module: ModuleCall | None
    source: Source | None
    rebuilds: list[Rebuild] = dataclasses.field(default_factory=list)

    def reads(self) -> Iterator[str]:
        """Names of the values that the call itself reads, repeated where read twice."""
        for tree in (self.args, tuple(self.kwargs.values())):
            yield from _refs(tree)


@dataclasses.dataclass(frozen=True, kw_only=True)  # no slots: what is asked for thousands of times is kept
class Unit:
    """One step of a repetition: a call, or the rebuilding of a tensor that the call changed."""

    call: Call
    rebuild: Rebuild | None = None

    @functools.cached_property
    def reads(self) -> tuple[str, ...]:
        """The values that the step needs, each once."""
        if self.rebuild is None:
            return tuple(dict.fromkeys(self.call.reads()))
        return tuple(dict.fromkeys((self.rebuild.old, *self.rebuild.written)))

    @property
    def makes(self) -> tuple[str, ...]:
        return self.call.outputs if self.rebuild is None else (self.rebuild.name,)

    @functools.cached_property
    def order(self) -> tuple[int, int]:
        return self.call.index, 0 if self.rebuild is None else 1 + self.call.rebuilds.index(self.rebuild)


@dataclasses.dataclass(kw_only=True)
class Tape:
    """Every call of one run in order, and every value by name."""

    calls: list[Call] = dataclasses.field(default_factory=list)
    values: dict[str, Recorded] = dataclasses.field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    modules: list[ModuleCall] = dataclasses.field(default_factory=list)

    @functools.cached_property
    def makers(self) -> dict[str, Unit]:
        """The step that makes each value; to be read when the recording is over."""
        found: dict[str, Unit] = {}
        for call in self.calls:
            found.update(dict.fromkeys(call.outputs, Unit(call=call)))
            for rebuild in call.rebuilds:
                found[rebuild.name] = Unit(call=call, rebuild=rebuild)
        return found

    def _nodes(self) -> Iterator[Node]:
        index = 0
        for call in self.calls:
            yield node_of(call, index=index)
            index += 1
            for rebuild in call.rebuilds:
                yield node_of_rebuild(rebuild, call=call, index=index)
                index += 1

    def graph(self, name: str) -> Graph:
        return Graph(
            name=name,
            inputs=self.inputs,
            outputs=self.outputs,
            nodes=tuple(self._nodes()),
            values={value.name: _value_of(value) for value in self.values.values()},
        )


def map_leaves(tree: Any, changes: Mapping[type, Callable[[Any], Any]]) -> Any:
    """Copy nested lists and tuples with each leaf of a type in ``changes`` replaced."""
    if isinstance(tree, list):
        return [map_leaves(item, changes) for item in tree]
    if isinstance(tree, tuple):
        return tuple(map_leaves(item, changes) for item in tree)
    for kind, change in changes.items():
        if isinstance(tree, kind):
            return change(tree)
    return tree


def _refs(tree: object) -> Iterator[str]:
    if isinstance(tree, Ref):
        yield tree.name
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from _refs(item)


def _value_of(value: Recorded) -> Value:
    return Value(name=value.name, kind=value.kind, dtype=dtype_name(value.dtype), shape=value.geometry.shape)


def node_of(call: Call, *, index: int) -> Node:
    """The call as a graph node: tensors as inputs, everything else as attributes under its schema name."""
    inputs: list[str] = []
    attributes: dict[str, object] = {}
    for argument in call.plan.arguments:
        given, value = argument.pick(call.args, call.kwargs)
        if argument.is_tensor:
            _sort_tensor_argument(argument.name, value, inputs, attributes)
        elif (given or argument.has_default) and value is not None:
            attributes[argument.name] = plain_attribute(value)
    return Node(
        index=index,
        name=call.name,
        op_type=call.plan.op_type,
        inputs=tuple(inputs),
        outputs=call.outputs,
        attributes=attributes,
        module=None if call.module is None else call.module.path,
        module_class=None if call.module is None else call.module.class_name,
        torch_op=str(call.func),
        source=call.source,
    )


def node_of_rebuild(rebuild: Rebuild, *, call: Call, index: int) -> Node:
    """The change of a tensor through a view, as the operator that would make the changed tensor anew."""
    return Node(
        index=index,
        name=rebuild.name,
        op_type="aten.as_strided_scatter",
        inputs=(rebuild.old, *dict.fromkeys(rebuild.written)),
        outputs=(rebuild.name,),
        module=None if call.module is None else call.module.path,
        module_class=None if call.module is None else call.module.class_name,
        torch_op=str(call.func),
        source=call.source,
    )


def _sort_tensor_argument(name: str, value: object, inputs: list[str], attributes: dict[str, object]) -> None:
    items: Sequence[object] = value if isinstance(value, list | tuple) else (value,)
    inputs.extend(item.name if isinstance(item, Ref) else "" for item in items)
    plain = [item for item in items if item is not None and not isinstance(item, Ref)]
    if plain:  # a Python number where the schema wants a tensor: `x * 2`
        attributes[name] = plain_attribute(value if len(plain) == len(items) else tuple(plain))
