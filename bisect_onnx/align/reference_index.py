"""The reference's values as classes of equals, with their ancestry and a lookup by fingerprint.

Two reference values fall in one class when one is only another view of the other (a reshape, a clone, a
dropout in evaluation mode), or when the same call was made twice on the same inputs (an exporter merges
those). Ancestry is kept between classes, as one bit set each.
"""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from bisect_onnx.align.bucket import Bucket
from bisect_onnx.core.graph import Graph, Node, ValueKind
from bisect_onnx.core.tensor import Fingerprint

__all__ = ["Match", "ReferenceIndex"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """A class of reference values that resembles an observed value; ``distance`` is relative to its rms."""

    group: int
    distance: float


class ReferenceIndex:
    """Lookup structure over one captured reference graph; immutable after construction."""

    def __init__(self, graph: Graph, fingerprints: Mapping[str, Fingerprint]) -> None:
        self.graph = graph
        self.fingerprints = fingerprints
        self.group_of: dict[str, int] = {}
        self.members: list[list[str]] = []  # value names by class, in order of appearance
        self.ancestors: list[int] = []  # bit set of classes by class, itself included
        self.structured = bool(graph.nodes)
        self._calls: dict[int, int] = {}
        self._numbering: dict[tuple[object, ...], int] = {}
        self._roots: dict[str, frozenset[str]] = {}  # parameters that a value without inputs is made of
        self._fixed = 0  # bit set of the classes that depend on no input
        for name in graph.inputs:
            if name in fingerprints:
                self._new_group(name, 0)
        for node in graph.nodes:
            self._add_node(node)
        if not self.structured:
            for name in fingerprints:
                if name not in self.group_of:
                    self._new_group(name, 0)
        self.position = {name: order for order, name in enumerate(self.group_of)}
        self._buckets = self._make_buckets()

    def _new_group(self, name: str, ancestors: int) -> int:
        group = len(self.members)
        self.members.append([name])
        self.ancestors.append(ancestors | 1 << group)
        self.group_of[name] = group
        return group

    def _join(self, name: str, group: int, *, ancestors: int) -> None:
        self.members[group].append(name)
        self.ancestors[group] |= ancestors
        self.group_of[name] = group

    def parameters(self, node: Node) -> frozenset[str]:
        """Names of the parameters a call reads, also through a view or another preparation of them."""
        return frozenset[str]().union(*(self._root(name) for name in node.real_inputs()))

    def _root(self, name: str) -> frozenset[str]:
        return self._roots.get(name, frozenset() if name in self.group_of else frozenset({name}))

    def _add_node(self, node: Node) -> None:
        inputs = [self.group_of[name] for name in node.real_inputs() if name in self.group_of]
        above = 0
        for group in inputs:
            above |= self.ancestors[group]
        if not above & ~self._fixed:
            roots = self.parameters(node)
            self._roots.update(dict.fromkeys(node.real_outputs(), roots))
        for slot, name in enumerate(node.outputs):
            known = self.fingerprints.get(name)
            if not name or known is None or not self._is_quantity(name, known):
                continue
            same = self._view_of(known, node.real_inputs())
            key = (node.op_type, repr(sorted(node.attributes.items())), node.inputs_key(self.group_of), slot)
            if same is None:
                earlier = self._numbering.get(key)
                if earlier is not None and _equal(known, self.fingerprints[self.members[earlier][0]]):
                    same = earlier
                    self._calls[same] = self._calls.get(same, 0) + 1
            if same is None:
                same = self._new_group(name, above)
                self._calls[same] = 1
                if self.graph.kind(name) is ValueKind.CONSTANT:
                    self._fixed |= 1 << same
            else:
                self._join(name, same, ancestors=above)
            self._numbering.setdefault(key, same)

    def _is_quantity(self, name: str, print_: Fingerprint) -> bool:
        """Activations, and what is computed from no input if it has enough numbers to be known by them."""
        kind = self.graph.kind(name)
        return kind in (ValueKind.ACTIVATION, ValueKind.INPUT) or (kind is ValueKind.CONSTANT and print_.distinct > 2)

    def _view_of(self, known: Fingerprint, inputs: Iterable[str]) -> int | None:
        """The class of the input that has the same elements in the same order, if there is one."""
        if known.distinct <= 1 and known.size > 1:
            return None  # constant tensors are equal without being the same quantity
        for name in inputs:
            group = self.group_of.get(name)
            other = self.fingerprints.get(name)
            if group is not None and other is not None and _equal(known, other):
                return group
        return None

    def _make_buckets(self) -> dict[int, Bucket]:
        by_size: dict[int, list[int]] = {}
        for group, names in enumerate(self.members):
            by_size.setdefault(self.fingerprints[names[0]].size, []).append(group)
        return {
            size: Bucket(groups, [self.fingerprints[self.members[group][0]] for group in groups])
            for size, groups in by_size.items()
        }

    def fingerprint(self, group: int) -> Fingerprint:
        return self.fingerprints[self.members[group][0]]

    def calls(self, group: int) -> float:
        """How many calls made the class anew, views not counted: 0 for an input, no limit where no calls are known."""
        return self._calls.get(group, 0) if self.structured else float("inf")

    def descends(self, group: int, ancestors: Iterable[int]) -> bool:
        """Whether ``group`` is computed from (or is) each of ``ancestors``; always true without a graph."""
        return not self.structured or all(self.ancestors[group] >> other & 1 for other in ancestors)

    def resembling(self, observed: Fingerprint) -> list[Match]:
        """Classes within `distance.NEAR` of an observed value, nearest first."""
        bucket = self._buckets.get(observed.size)
        if bucket is None or observed.size == 0:
            return []
        return [Match(group=group, distance=gap) for group, gap in bucket.near(observed)]

    def of_size(self, size: int) -> list[int]:
        """All classes with ``size`` elements, in order of appearance."""
        bucket = self._buckets.get(size)
        return [] if bucket is None else list(bucket.groups)

    def member(self, group: int, *, shape: tuple[int, ...], module: str | None = None) -> str:
        """The value of a class that fits best: same shape, then same module, then the earliest."""
        names = self.members[group]

        def rank(name: str) -> tuple[bool, bool]:
            producer = self.graph.producer(name)
            other_module = module is not None and (producer is None or producer.module != module)
            return (self.fingerprints[name].shape != shape, other_module)

        return min(names, key=rank)

    def origin(self, name: str, *, module: str | None = None) -> Node | None:
        """The call that computes a value: behind views of it, in ``module`` if one is there."""
        group = self.group_of.get(name)
        if group is None:
            return None
        calls = [call for member in self.members[group] if (call := self.graph.producer(member)) is not None]
        same = [call for call in calls if call.module == module]
        return next(iter(same or calls), None)

    def operands(self, group: int) -> list[int]:
        """Classes that the calls behind ``group`` read, in order; views of itself are not counted."""
        found: dict[int, None] = {}
        for name in self.members[group]:
            call = self.graph.producer(name)
            if call is not None:
                found.update((self.group_of[value], None) for value in call.real_inputs() if value in self.group_of)
        found.pop(group, None)
        return list(found)

    def upstream(self, group: int, *, most: int) -> list[int]:
        """Classes that ``group`` is computed from, nearest first: breadth first over the operands."""
        found: dict[int, None] = {}
        level = [group]
        while level and len(found) < most:
            above = dict.fromkeys(operand for each in level for operand in self.operands(each) if operand not in found)
            above.pop(group, None)  # a view may read what is computed from its class
            found.update(above)
            level = list(above)
        return list(found)[:most]

    def between(self, inputs: Iterable[int], output: int) -> list[int]:
        """Classes computed from any of ``inputs`` on the way to ``output``, both ends left out, in order."""
        starts = 0
        for group in inputs:
            starts |= 1 << group
        inside = self.ancestors[output] & ~(1 << output) & ~starts
        found = []
        while inside:
            low = inside & -inside
            group = low.bit_length() - 1
            inside ^= low
            if self.ancestors[group] & starts:
                found.append(group)
        return found


def _equal(first: Fingerprint, second: Fingerprint) -> bool:
    """Whether two fingerprints are those of one sequence of elements, though perhaps of two dtypes.

    Equal sequences are summed in the same way, so only the last bits of float64 may differ; a sum of products
    is taken in float32 where the dtype allows it.
    """
    noise = 1e-9 if first.dtype == second.dtype else 1e-5
    return (
        first.size == second.size
        and first.finite == second.finite
        and first.counted == second.counted
        and first.minimum == second.minimum
        and first.maximum == second.maximum
        and abs(first.mean - second.mean) <= 1e-12 * (abs(first.mean) + first.rms)
        and abs(first.neighbours - second.neighbours) <= noise * first.rms**2
        and np.array_equal(first.probes, second.probes, equal_nan=True)
    )
