"""Cut a graph at its paired values: each paired value ends a segment, fed by the nearest paired values above."""

import dataclasses
from collections.abc import Collection, Iterable

from bisect_onnx.core.graph import Graph, Node, ValueKind

__all__ = ["Segment", "depends_on", "fixed_ancestors", "frontiers", "segment_of"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """The smallest piece that can be accused from outside."""

    output: str
    inputs: tuple[str, ...]  # paired values (and graph inputs) it reads, in order of first use
    nodes: tuple[Node, ...]  # in topological order; the last one writes ``output``

    @property
    def interior(self) -> tuple[str, ...]:
        """Values computed inside that are neither ``output`` nor fed; outputs of one node stay in order."""
        ends = {self.output, *self.inputs}
        return tuple(name for node in self.nodes for name in node.real_outputs() if name not in ends)


def frontiers(graph: Graph, cut: Collection[str]) -> dict[str, frozenset[str]]:
    """For every activation, the nearest values of ``cut`` above it (itself not counted)."""
    result: dict[str, frozenset[str]] = {}
    for node in graph.nodes:
        found: set[str] = set()
        for name in node.reads:
            if name in cut:
                found.add(name)
            elif name in result:
                found |= result[name]
        frozen = frozenset(found)
        for name in node.real_outputs():
            result[name] = frozen
    return result


def segment_of(graph: Graph, output: str, *, cut: Collection[str], followed: Collection[str] | None = None) -> Segment:
    """The segment that ends in ``output``.

    Args:
        graph: The candidate.
        output: Where the segment ends.
        cut: Values at which it begins.
        followed: Values whose producers belong to it when they are not cut; all activations by default.
            What else it reads depends on no input, see `fixed_ancestors`.
    """
    nodes: dict[int, Node] = {}
    inputs: dict[str, None] = {}
    producer = graph.producer(output)
    stack = [] if producer is None else [producer]
    while stack:
        node = stack.pop()
        if node.index in nodes:
            continue
        nodes[node.index] = node
        for name in node.reads:
            if name in cut:
                inputs.setdefault(name)
                continue
            above = graph.producer(name)
            inside = graph.kind(name) is ValueKind.ACTIVATION if followed is None else name in followed
            if above is not None and inside:
                stack.append(above)
    ordered = tuple(sorted(nodes.values(), key=graph.place))
    order = {name: position for position, name in enumerate(_first_uses(ordered))}
    return Segment(output=output, inputs=tuple(sorted(inputs, key=lambda name: order[name])), nodes=ordered)


def fixed_ancestors(graph: Graph, nodes: Iterable[Node], *, cut: Collection[str]) -> tuple[Node, ...]:
    """What ``nodes`` read that depends on no input: the nodes that compute it, up to ``cut``, in topological order.

    Scales from a shape, masks, start values, prepared parameters. Constant nodes are data and not counted.
    """
    given = list(nodes)
    seen = {node.index for node in given}
    found: list[Node] = []
    stack = [name for node in given for name in node.reads]
    while stack:
        name = stack.pop()
        above = graph.producer(name)
        if above is None or above.op_type == "Constant" or graph.kind(name) is ValueKind.ACTIVATION:
            continue
        if name not in cut and above.index not in seen:
            seen.add(above.index)
            found.append(above)
            stack.extend(above.reads)
    return tuple(sorted(found, key=graph.place))


def _first_uses(nodes: Iterable[Node]) -> list[str]:
    return list(dict.fromkeys(name for node in nodes for name in node.reads))


def depends_on(nodes: Iterable[Node], value: str) -> set[str]:
    """Values computed from ``value`` by ``nodes`` (topological order), without ``value`` itself."""
    below = {value}
    for node in nodes:
        if any(name in below for name in node.reads):
            below.update(node.real_outputs())
    return below - {value}
