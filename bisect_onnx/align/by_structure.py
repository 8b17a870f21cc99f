"""Hypotheses for a segment that went wrong: which value inside may stand for which reference value.

Nothing here is evidence: each hypothesis is tried by feeding the reference's value and looking whether
what comes after agrees again. The order only decides how many must be tried.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from bisect_onnx.align.operators import same_operator
from bisect_onnx.align.reference_index import ReferenceIndex
from bisect_onnx.core.graph import Graph, Node
from bisect_onnx.core.segments import Segment
from bisect_onnx.core.tensor import Fingerprint

__all__ = ["Hypothesis", "hypotheses", "rearranged", "same_family"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Hypothesis:
    """Candidate value ``value`` stands for reference class ``group``; ``reference`` is its member to use."""

    value: str
    group: int
    reference: str
    score: float
    in_sequence: bool  # part of the best order-keeping match of the two sequences of operators
    by_exporter: bool  # the exporter's own record speaks for it
    by_parameter: bool


def hypotheses(
    segment: Segment,
    *,
    graph: Graph,
    index: ReferenceIndex,
    groups: Sequence[int],
    observed: Mapping[str, Fingerprint],
    parameter_of: Mapping[str, str],
    fed: Mapping[str, int],
) -> list[Hypothesis]:
    """Rank the possible pairs inside a segment, likeliest first.

    Args:
        segment: Where the error is.
        graph: The candidate.
        index: The reference.
        groups: Reference classes between the segment's inputs and its output, in order.
        observed: Fingerprints of the segment's interior, fed with the reference's inputs.
        parameter_of: Reference parameter by candidate initializer.
        fed: Reference class of each of the segment's inputs.
    """
    above = _classes_above(segment, fed)
    inside = [name for name in segment.interior if name in observed]
    found = []
    for place, value in enumerate(inside):
        producer = graph.producer(value)
        assert producer is not None
        readers = [node for node in graph.consumers(value) if node in segment.nodes]
        for order, group in enumerate(groups):
            reference = index.fingerprint(group)
            if reference.size != observed[value].size or not same_family(observed[value].dtype, reference.dtype):
                continue
            found.append(
                _scored(
                    value,
                    group,
                    producer=producer,
                    readers=readers,
                    index=index,
                    observed=observed[value],
                    parameter_of=parameter_of,
                    descends=index.descends(group, above[value]),
                    drift=abs(place / max(len(inside), 1) - order / max(len(groups), 1)),
                )
            )
    position = {value: place for place, value in enumerate(inside)}
    chosen = _in_sequence(found, position)
    ranked = [dataclasses.replace(item, in_sequence=(item.value, item.group) in chosen) for item in found]
    # Those in sequence from the front: the first that holds leaves the least to divide further.
    return sorted(
        ranked,
        key=lambda item: (
            not item.in_sequence,
            position[item.value] if item.in_sequence else -item.score,
            position[item.value],
            item.group,
        ),
    )


def _classes_above(segment: Segment, fed: Mapping[str, int]) -> dict[str, frozenset[int]]:
    """For each value of the segment, the reference classes of the inputs it is computed from."""
    above = {name: frozenset({group}) for name, group in fed.items()}
    for node in segment.nodes:
        found = frozenset[int]().union(*(above[name] for name in node.reads if name in above))
        above.update(dict.fromkeys(node.real_outputs(), found))
    return above


def _in_sequence(found: Sequence[Hypothesis], position: Mapping[str, int]) -> set[tuple[str, int]]:
    """The pairs of the order-keeping match with the largest total score.

    Both sides list their operators in the order in which they run, so a matching that crosses itself is
    unlikely, and in a stack of equal layers the place in the sequence is all that tells them apart.
    Longest common subsequence by dynamic programming (Needleman and Wunsch, 1970, gaps free).
    """
    groups = sorted({item.group for item in found})
    column = {group: place for place, group in enumerate(groups)}
    worth: dict[int, dict[int, tuple[float, Hypothesis]]] = {}
    for item in found:
        if item.score > 0:
            worth.setdefault(position[item.value], {})[column[item.group]] = (item.score, item)
    # best[j]: largest total that uses columns below j, with the pairs as a linked list.
    best: list[tuple[float, _Link | None]] = [(0.0, None)] * (len(groups) + 1)
    for row in sorted(worth):
        for place, (score, item) in sorted(worth[row].items(), reverse=True):
            total = best[place][0] + score
            if total > best[place + 1][0]:
                best[place + 1] = (total, _Link(item, best[place][1]))
        for place in range(len(groups)):
            if best[place][0] > best[place + 1][0]:
                best[place + 1] = best[place]
    chosen: set[tuple[str, int]] = set()
    link = best[-1][1]
    while link is not None:
        chosen.add((link.item.value, link.item.group))
        link = link.before
    return chosen


@dataclasses.dataclass(frozen=True, slots=True)
class _Link:
    item: Hypothesis
    before: "_Link | None"


def _scored(
    value: str,
    group: int,
    *,
    producer: Node,
    readers: Sequence[Node],
    index: ReferenceIndex,
    observed: Fingerprint,
    parameter_of: Mapping[str, str],
    descends: bool,
    drift: float,
) -> Hypothesis:
    origins = [node for member in index.members[group] if (node := index.graph.producer(member)) is not None]
    users = [node for member in index.members[group] for node in index.graph.consumers(member)]
    reference = index.fingerprint(group)
    exporter = any(_recorded_as(producer, origin) for origin in origins)
    made = _shared_parameter(producer, origins, index=index, parameter_of=parameter_of)
    read = any(_shared_parameter(reader, users, index=index, parameter_of=parameter_of) for reader in readers)
    same_module = producer.module is not None and any(origin.module == producer.module for origin in origins)
    kind = any(same_operator(producer.op_type, origin.op_type) for origin in origins)
    shape = any(index.fingerprints[member].shape == observed.shape for member in index.members[group])
    score = (
        6.0 * exporter
        + 5.0 * read
        + 3.0 * made
        + 3.0 * same_module
        + 2.0 * kind
        + 1.0 * shape
        + 3.0 * rearranged(observed, reference)
        + 2.0 * max(0.0, _correlation(observed, reference))
        - 8.0 * (not descends)  # it would ignore an input: possible only where the candidate reads a wrong one
        - (0.0 if exporter else 4.0 * drift)  # the exporter's record needs no guess by place
    )
    return Hypothesis(
        value=value,
        group=group,
        reference=index.member(group, shape=observed.shape, module=producer.module),
        score=score,
        in_sequence=False,
        by_exporter=exporter,
        by_parameter=read or made,
    )


def same_family(first: str, second: str) -> bool:
    """Whether two dtypes can hold one quantity: both floats, both integers, or both bool."""
    if "float" in first or "float" in second:
        return "float" in first and "float" in second
    return first.strip("u0123456789") == second.strip("u0123456789")


def _recorded_as(node: Node, origin: Node) -> bool:
    """Whether the exporter says that ``node`` came from the call ``origin``: same module, same ATen name."""
    if node.torch_op is None or node.module is None or node.module != origin.module or origin.torch_op is None:
        return False
    ours, theirs = (
        name.split(".")[1].rstrip("_") if "." in name else name for name in (node.torch_op, origin.torch_op)
    )
    return ours == theirs or same_operator(node.op_type, origin.op_type)


def _shared_parameter(
    node: Node, calls: Sequence[Node], *, index: ReferenceIndex, parameter_of: Mapping[str, str]
) -> bool:
    """Whether ``node`` reads an initializer whose parameter one of the reference calls reads."""
    ours = {parameter_of[name] for name in node.real_inputs() if name in parameter_of}
    return bool(ours) and any(ours & index.parameters(call) for call in calls)


def rearranged(observed: Fingerprint, reference: Fingerprint) -> bool:
    """Whether both hold the same elements in another order, as far as order-free statistics tell."""
    scale = max(reference.rms, float(np.finfo(np.float32).tiny))
    pairs = (
        (observed.mean, reference.mean),
        (observed.rms, reference.rms),
        (observed.minimum, reference.minimum),
        (observed.maximum, reference.maximum),
    )
    return all(abs(ours - theirs) <= 1e-5 * scale for ours, theirs in pairs)


def _correlation(observed: Fingerprint, reference: Fingerprint) -> float:
    ours, theirs = observed.probes, reference.probes
    if ours.size < 3 or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return 0.0
    with np.errstate(all="ignore"):  # masks of float64 overflow
        a, b = ours - ours.mean(), theirs - theirs.mean()
        norms = float(np.linalg.norm(a) * np.linalg.norm(b))
        return float(np.dot(a, b)) / norms if 0 < norms < np.inf else 0.0
