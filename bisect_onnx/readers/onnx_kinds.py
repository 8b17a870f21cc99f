"""Which values of an ONNX graph are inputs, parameters, constants or activations."""

from collections.abc import Iterable, Mapping, Sequence

from bisect_onnx.core.graph import Graph, Node, ValueKind, captured_names

__all__ = ["SMALL_CONSTANT", "classify", "in_order", "shape_arithmetic"]

# Up to here an integer Constant node is an axis, a shape or an index, above it a table.
SMALL_CONSTANT = 64

# These show a parameter in another form; everything else computes something new from it.
SAME_PARAMETER = frozenset({"Identity", "Transpose", "Reshape", "Cast", "Squeeze", "Unsqueeze", "Flatten"})

# What they return depends on no input, and yet is not constant.
RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
)

# Operators outside these domains may do anything, so what they compute is never taken for a constant.
KNOWN_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})

# These read the shape of their input and not its elements.
SHAPE_READERS = frozenset({"Shape", "Size"})

FIXED = frozenset({ValueKind.PARAMETER, ValueKind.CONSTANT})


def in_order(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """``nodes`` so that each comes behind those it reads; the file's order where that already holds.

    ONNX demands that order, yet runtimes also load files without it. Nodes of a cycle stay where they are, for
    the runtime to refuse.
    """
    producers = {name: node for node in nodes for name in node.real_outputs()}
    done: dict[int, Node] = {}
    opened: set[int] = set()
    for first in nodes:
        stack = [first]
        while stack:
            node = stack.pop()
            if node.index in opened:
                done.setdefault(node.index, node)  # all that it reads is done
                continue
            opened.add(node.index)
            stack.append(node)
            sources = (producers.get(name) for name in (*node.real_inputs(), *captured_names(node)))
            stack.extend(source for source in sources if source is not None and source.index not in opened)
    return tuple(done.values())


def classify(
    nodes: Iterable[Node], *, inputs: Iterable[str], parameters: Iterable[str], tables: Mapping[str, bool]
) -> dict[str, ValueKind]:
    """Kind of each value of one graph.

    A value is CONSTANT when it does not depend on the elements of any input. That includes what is computed
    from the *shape* of an activation: it changes with the size of the inputs only, and has no counterpart in
    a traced reference.

    Args:
        nodes: In topological order.
        inputs: Graph inputs that are not initializers.
        parameters: Names of initializers.
        tables: Outputs of Constant nodes; True for those that are parameters rather than axes or shapes.
    """
    kinds = dict.fromkeys(parameters, ValueKind.PARAMETER) | dict.fromkeys(inputs, ValueKind.INPUT)
    for node in nodes:
        for name in node.real_outputs():
            kinds[name] = _kind(node, kinds, tables=tables)
    return kinds


def _kind(node: Node, kinds: Mapping[str, ValueKind], *, tables: Mapping[str, bool]) -> ValueKind:
    if node.op_type == "Constant" and node.outputs[0] in tables:
        return ValueKind.PARAMETER if tables[node.outputs[0]] else ValueKind.CONSTANT
    if _is_unpredictable(node):
        return ValueKind.ACTIVATION
    sources = (*node.real_inputs(), *captured_names(node))
    if node.op_type in SHAPE_READERS and node.domain in ("", "ai.onnx"):
        return ValueKind.CONSTANT
    if not all(kinds.get(name) in FIXED for name in sources):
        return ValueKind.ACTIVATION
    if node.op_type in SAME_PARAMETER and sources and kinds.get(sources[0]) is ValueKind.PARAMETER:
        return ValueKind.PARAMETER
    return ValueKind.CONSTANT


def _is_unpredictable(node: Node) -> bool:
    """Whether the node, or one inside it, is random or unknown."""
    if node.op_type in RANDOM or node.domain not in KNOWN_DOMAINS:
        return True
    return any(_is_unpredictable(inner) for body in node.subgraphs for inner in body.nodes)


def shape_arithmetic(graph: Graph) -> set[str]:
    """Values of kind CONSTANT that are computed from the shape of an input or activation."""
    found: set[str] = set()
    for node in graph.nodes:
        sources = (*node.real_inputs(), *captured_names(node))
        reads_shape = node.op_type in SHAPE_READERS and any(graph.kind(name) not in FIXED for name in sources)
        if reads_shape or any(name in found for name in sources):
            found.update(name for name in node.real_outputs() if graph.kind(name) is ValueKind.CONSTANT)
    return found
