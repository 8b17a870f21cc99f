"""Pairs by value: walk the candidate in topological order and look for each value among the reference's.

A value match is a hypothesis, not an acquittal: what is found here is judged by the segment test. The walk
keeps to the graph, though. A value is only paired with a reference value that descends from the partners
of everything it is computed from, so an earlier or a foreign value that happens to look alike is not taken.
"""

from collections.abc import Mapping

from bisect_onnx.align.distance import NEAR
from bisect_onnx.align.operators import same_operator
from bisect_onnx.align.reference_index import Match, ReferenceIndex
from bisect_onnx.core.alignment import Basis, Pair
from bisect_onnx.core.graph import Graph, Node, ValueKind
from bisect_onnx.core.segments import reads
from bisect_onnx.core.tensor import Fingerprint

__all__ = ["acceptable", "choose", "pair_by_value"]

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
    for node in graph.nodes:
        ancestors = frozenset[int]().union(*(above[name] for name in reads(node) if name in above))
        for name in node.real_outputs():
            above[name] = ancestors
            if graph.kind(name) is not ValueKind.ACTIVATION:
                continue
            pair = fixed.get(name)
            if pair is None and name in observed:
                found = acceptable(index, observed[name], ancestors=ancestors, narrow=narrow)
                found = [m for m in found if m.distance <= nearest and (name, m.group) not in barred]
                pair = choose(index, found, node=node, name=name, shape=observed[name].shape, ancestors=ancestors)
            if pair is not None:
                pairs[name] = pair
                above[name] = frozenset({index.group_of[pair.reference]})
    return pairs


def acceptable(
    index: ReferenceIndex, observed: Fingerprint, *, ancestors: frozenset[int], narrow: bool = False
) -> list[Match]:
    """Classes that resemble ``observed`` and descend from ``ancestors``, nearest first."""
    return [
        match
        for match in index.resembling(observed)
        if index.descends(match.group, ancestors)
        and comparable(observed, index.fingerprint(match.group), exact=match.distance == 0, narrow=narrow)
        and informative(index, match, observed, ancestors)
    ]


def comparable(observed: Fingerprint, reference: Fingerprint, *, exact: bool, narrow: bool) -> bool:
    """Whether the two dtypes can stand for one quantity."""
    ours, theirs = NARROW.get(observed.dtype), NARROW.get(reference.dtype)
    if (ours is None) != (theirs is None):
        return exact  # an integer or bool against a float: a cast mask, equal to the last element or nothing
    if ours is None or theirs is None:
        return True
    return narrow or ours >= theirs


def informative(index: ReferenceIndex, match: Match, observed: Fingerprint, ancestors: frozenset[int]) -> bool:
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


def choose(
    index: ReferenceIndex,
    found: list[Match],
    *,
    node: Node,
    name: str,
    shape: tuple[int, ...],
    ancestors: frozenset[int],
) -> Pair | None:
    """The best of several matches: nearest by value, then same module and operator, then the earliest."""
    if not found:
        return None
    best = found[0].distance
    rivals = [match for match in found if match.distance <= max(3 * best, INDISTINCT)]

    def rank(match: Match) -> tuple[bool, int, bool, int]:
        members = index.members[match.group]
        producers = [index.graph.producer(member) for member in members]
        same_module = any(
            producer is not None and node.module is not None and producer.module == node.module
            for producer in producers
        )
        same_kind = any(producer is not None and same_operator(node.op_type, producer.op_type) for producer in producers)
        passes_through = match.group in ancestors
        fits = any(index.fingerprints[member].shape == shape for member in members)
        return (not same_module, 0 if same_kind else 1 if passes_through else 2, not fits, match.group)

    group = min(rivals, key=rank).group
    reference = index.member(group, shape=shape, module=node.module)
    same_shape = index.fingerprints[reference].shape == shape
    return Pair(
        candidate=name,
        reference=reference,
        basis=Basis.VALUE,
        transform="identity" if same_shape else "reshape",
    )
