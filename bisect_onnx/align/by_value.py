"""Pairs by value: walk the candidate in topological order and look for each value among the reference's.

A value match is a hypothesis, not an acquittal: what is found here is judged by the segment test. The walk
keeps to the graph, though. A value is only paired with a reference value that descends from the partners
of everything it is computed from, so an earlier or a foreign value that happens to look alike is not taken;
and a reference value stands for no more computing nodes than the reference made calls.
"""

import collections
from collections.abc import Mapping

from bisect_onnx.align.distance import NEAR
from bisect_onnx.align.operators import MOVEMENT, PASS_THROUGH, same_operator
from bisect_onnx.align.reference_index import Match, ReferenceIndex
from bisect_onnx.core.alignment import Basis, Pair
from bisect_onnx.core.graph import Graph, Node, ValueKind
from bisect_onnx.core.tensor import Fingerprint

__all__ = ["INDISTINCT", "acceptable", "choose", "pair_by_value"]

# A match this close is not told from another by its distance: float32 noise of a deep net.
INDISTINCT = 1e-5
NARROW = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


def pair_by_value(
    graph: Graph,
    index: ReferenceIndex,
    *,
    observed: Mapping[str, Fingerprint],
    fixed: Mapping[str, Pair],
    barred: frozenset[tuple[str, int]] = frozenset(),
    narrow: bool = False,
    nearest: float = NEAR,
) -> dict[str, Pair]:
    """Pair candidate activations with reference values.

    Args:
        graph: The candidate.
        index: The reference.
        observed: Fingerprints of candidate values of one run, with ``fixed`` substituted or not.
        fixed: Pairs that stand (graph inputs, and those that other evidence gave).
        barred: Pairs (candidate value, reference class) that were found wrong.
        narrow: Also pair a value with a reference value of a wider float dtype: for candidates that
            run in lower precision throughout.
        nearest: Largest distance that is looked at.

    Returns:
        All pairs, the fixed ones included, in topological order.
    """
    pairs: dict[str, Pair] = {name: pair for name, pair in fixed.items() if graph.producer(name) is None}
    above: dict[str, frozenset[int]] = {
        name: frozenset({index.group_of[pair.reference]}) for name, pair in pairs.items()
    }
    taken = collections.Counter(index.group_of[pair.reference] for name, pair in fixed.items() if name not in pairs)
    for node in graph.nodes:
        ancestors = frozenset[int]().union(*(above[name] for name in node.reads if name in above))
        read = frozenset(index.group_of[pairs[name].reference] for name in node.reads if name in pairs)
        for name in node.real_outputs():
            if graph.kind(name) is not ValueKind.ACTIVATION and not _telling(observed.get(name)):
                continue  # a shape or a scale, not computed from any numbers
            above[name] = ancestors
            pair = fixed.get(name)
            if pair is None and name in observed:
                found = acceptable(index, observed[name], ancestors=ancestors, narrow=narrow, node=node, read=read)
                # Before any other filter: a nearest value that cannot be taken leaves this one unpaired, and never
                # makes room for a value that resembles it less (the same place of the next layer).
                reach = min(nearest, max(3 * found[0].distance, INDISTINCT)) if found else 0.0
                found = [m for m in found if m.distance <= reach and (name, m.group) not in barred]
                found = [m for m in found if m.group in ancestors or taken[m.group] < index.calls(m.group)]
                shape = observed[name].shape
                pair = choose(index, found, node=node, name=name, shape=shape, ancestors=ancestors, read=read)
            if pair is not None:
                group = index.group_of[pair.reference]
                pairs[name] = pair
                above[name] = frozenset({group})
                taken[group] += (group not in ancestors) - (name in fixed)
    return pairs


def _telling(print_: Fingerprint | None) -> bool:
    """Whether a value that depends on no input has enough numbers to be known by them."""
    return print_ is not None and print_.distinct > 2


def acceptable(
    index: ReferenceIndex,
    observed: Fingerprint,
    *,
    ancestors: frozenset[int],
    narrow: bool = False,
    node: Node | None = None,
    read: frozenset[int] = frozenset(),
) -> list[Match]:
    """Classes that resemble ``observed`` and descend from ``ancestors``, nearest first.

    ``node`` computes the value and reads the classes ``read``: that tells values of few distinct elements apart.
    """
    return [
        match
        for match in index.resembling(observed)
        if index.descends(match.group, ancestors)
        and comparable(observed, index.fingerprint(match.group), exact=match.distance == 0, narrow=narrow)
        and (
            informative(index, match, observed=observed, ancestors=ancestors)
            or (node is not None and _same_call(index, match.group, node=node, read=read))
        )
    ]


def comparable(observed: Fingerprint, reference: Fingerprint, *, exact: bool, narrow: bool) -> bool:
    """Whether the two dtypes can stand for one quantity."""
    ours, theirs = NARROW.get(observed.dtype), NARROW.get(reference.dtype)
    if (ours is None) != (theirs is None):
        return exact  # an integer or bool against a float: a cast mask, equal to the last element or nothing
    if ours is None or theirs is None:
        return True
    return narrow or ours >= theirs


def informative(index: ReferenceIndex, match: Match, *, observed: Fingerprint, ancestors: frozenset[int]) -> bool:
    """Whether the equality of two values says anything: all-zero tensors and masks equal each other everywhere.

    A value of few distinct elements is only taken when its reference has no equal among the values it
    could be mistaken for.
    """
    if observed.distinct > 2 or observed.size == 1:
        return True
    rivals = [
        other.group
        for other in index.resembling(observed)
        if other.group != match.group and other.distance <= INDISTINCT and index.descends(other.group, ancestors)
    ]
    return not rivals


def _same_call(index: ReferenceIndex, group: int, *, node: Node, read: frozenset[int]) -> bool:
    """Whether the reference computes the class by the same operator from the same values, and there is no twin."""
    calls = [call for member in index.members[group] if (call := index.graph.producer(member)) is not None]
    if not read or not _same_kind(index, group, node=node) or not read <= set(index.operands(group)):
        return False
    if not any(index.parameters(call) for call in calls):
        return False  # x - x is zero wherever it stands
    twins = [g for g in index.of_size(index.fingerprint(group).size) if g != group and read <= set(index.operands(g))]
    return not any(_same_kind(index, twin, node=node) for twin in twins)


def choose(
    index: ReferenceIndex,
    found: list[Match],
    *,
    node: Node,
    name: str,
    shape: tuple[int, ...],
    ancestors: frozenset[int],
    read: frozenset[int] | None = None,
) -> Pair | None:
    """The best of several matches: nearest by value, then same module and operator, then the earliest.

    Args:
        index: The reference.
        found: What `acceptable` gave.
        node: The node that computes the value.
        name: The value.
        shape: The value's.
        ancestors: Classes of the nearest pairs above it.
        read: Those among them that ``node`` reads itself; None when it is not known.
    """
    passed = ancestors if read is None else read
    found = [match for match in found if _possible(index, match.group, node=node, ancestors=ancestors, passed=passed)]
    found = [match for match in found if _in_slot(index, match.group, node=node, name=name)]
    if not found:
        return None
    best = found[0].distance
    rivals = [match for match in found if match.distance <= max(3 * best, INDISTINCT)]

    def rank(match: Match) -> tuple[bool, int, bool, int]:
        members = index.members[match.group]
        producers = [producer for member in members if (producer := index.graph.producer(member)) is not None]
        same_module = node.module is not None and any(producer.module == node.module for producer in producers)
        passes_through = match.group in ancestors
        # What computes is expected to make something new, even where that changes the last bits only.
        kind = 1 if passes_through else 0 if _same_kind(index, match.group, node=node) else 2
        fits = any(index.fingerprints[member].shape == shape for member in members)
        return (not same_module, kind, not fits, match.group)

    group = min(rivals, key=rank).group
    reference = index.member(group, shape=shape, module=node.module)
    same_shape = index.fingerprints[reference].shape == shape
    return Pair(
        candidate=name,
        reference=reference,
        basis=Basis.VALUE,
        transform="identity" if same_shape else "reshape",
    )


def _same_kind(index: ReferenceIndex, group: int, *, node: Node) -> bool:
    origins = (index.graph.producer(member) for member in index.members[group])
    return any(origin is not None and same_operator(node.op_type, origin.op_type) for origin in origins)


def _possible(
    index: ReferenceIndex, group: int, *, node: Node, ancestors: frozenset[int], passed: frozenset[int]
) -> bool:
    """Whether an output of ``node`` may stand for a class of equal numbers.

    What computes makes something new: that its result equals what it was computed from proves nothing, unless
    the reference has such a call there as well. Nor does a tensor of one number prove anything (all zero: a fault
    makes those too).
    """
    same_kind = _same_kind(index, group, node=node)
    if group in ancestors:
        return group in passed and (same_kind or node.op_type in PASS_THROUGH | MOVEMENT)
    one_number = index.fingerprint(group).distinct <= 1 and index.fingerprint(group).size > 1
    return same_kind or not one_number


def _in_slot(index: ReferenceIndex, group: int, *, node: Node, name: str) -> bool:
    """Whether ``name`` comes from the same output of ``node`` as the class does: halves of a split are not swapped."""
    slots = set()
    for member in index.members[group]:
        origin = index.graph.producer(member)
        if origin is not None and len(origin.real_outputs()) > 1 and same_operator(node.op_type, origin.op_type):
            slots.add(origin.outputs.index(member))
    return len(node.real_outputs()) < 2 or not slots or node.outputs.index(name) in slots
