"""Small worlds for the tests of core and align: graphs written by hand, evaluated with numpy, drawn by Hypothesis.

A `World` is a graph together with the number of each of its values, so that a test can state what is true
of it. The same operators serve both sides; a reference calls them by their ATen names.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from bisect_onnx.align.by_value import pair_by_value
from bisect_onnx.align.reference_index import ReferenceIndex
from bisect_onnx.core.alignment import Basis, Pair
from bisect_onnx.core.compare import Array, Verdict
from bisect_onnx.core.graph import Graph, Node, Value, ValueKind
from bisect_onnx.core.tensor import Fingerprint, fingerprint

__all__ = [
    "ATEN", "FEW", "Sources", "World", "both", "candidate_of", "chain", "dags", "differing", "entry", "evaluate",
    "judge_of", "normal", "pairs_of", "prints", "random_worlds", "reordered", "subsets", "values_of",
]  # fmt: skip

Sources = tuple[tuple[int, ...], ...]

# For statements that small worlds show soon; the search and the walk get Hypothesis' full number of examples.
FEW: Final = settings(max_examples=40)


# --- graphs of numbers, for the search ---


def chain(length: int) -> Sources:
    """``length`` values, each computed from the one before."""
    return tuple((value - 1,) if value else () for value in range(length))


def differing(sources: Sources, *, culprits: Collection[int], healed: Collection[int] = ()) -> frozenset[int]:
    """Values that differ in the real run: culprits and all that reads a differing value, but for the healed."""
    found: set[int] = set()
    for value, above in enumerate(sources):
        if value in culprits or (value not in healed and any(source in found for source in above)):
            found.add(value)
    return frozenset(found)


def judge_of(
    bad: Collection[int], *, untestable: Collection[int] = (), asked: list[int] | None = None
) -> Callable[[int], Verdict]:
    """A judge that knows the truth; each question is written to ``asked``."""

    def judge(value: int) -> Verdict:
        if asked is not None:
            asked.append(value)
        if value in untestable:
            return Verdict.UNTESTABLE
        return Verdict.MISMATCH if value in bad else Verdict.MATCH

    return judge


@st.composite
def dags(draw: st.DrawFn, *, max_size: int = 40) -> Sources:
    """Random graphs in topological order, from bushes to chains with shortcuts; some values read nothing."""
    # Three bytes a value are drawn at once: two near sources and a far one. Zeros shrink to a bush without edges.
    raw = draw(st.binary(max_size=3 * (max_size - 1)))
    sources: list[tuple[int, ...]] = [()]
    for near, other, far in zip(raw[0::3], raw[1::3], raw[2::3], strict=False):
        value = len(sources)
        offsets = (near % 8, other % 16, far % 64 if far % 4 == 1 else 0)
        sources.append(tuple(sorted({value - offset for offset in offsets if 0 < offset <= value})))
    return tuple(sources)


@st.composite
def subsets(draw: st.DrawFn, values: Sequence[int]) -> frozenset[int]:
    """Any subset, each value as likely in as out."""
    bits = draw(st.integers(0, 2 ** len(values) - 1))
    return frozenset(value for at, value in enumerate(values) if bits >> at & 1)


# --- graphs with numbers in them ---


def _split(x: Array, *, axis: int, sizes: Sequence[int]) -> tuple[Array, ...]:
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis=axis))


# Operator by ONNX name: arrays in, arrays out.
OPERATORS: Final[Mapping[str, Callable[..., Array | tuple[Array, ...]]]] = {
    "Abs": np.abs,
    "Add": np.add,
    "Concat": lambda *xs, axis: np.concatenate(xs, axis=axis),
    "Constant": lambda *, value: np.asarray(value),
    "Dropout": lambda x: x,
    "Exp": np.exp,
    "Identity": lambda x: x,
    "LayerNormalization": lambda x: ((x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)).astype(x.dtype),
    "MatMul": np.matmul,
    "Mix": lambda a, b: ((a + 2 * b).astype(a.dtype), (a - 3 * b).astype(a.dtype)),  # two outputs, each of both inputs
    "Mul": np.multiply,
    "Neg": np.negative,
    "Relu": lambda x: np.maximum(x, 0),
    "Reshape": lambda x, *, shape: x.reshape(shape),
    "Resize": lambda x, sizes: np.resize(x, tuple(int(size) for size in sizes)),
    "Shape": lambda x: np.array(x.shape, dtype=np.int64),
    "Sigmoid": lambda x: (1 / (1 + np.exp(-x))).astype(x.dtype),
    "Split": _split,
    "Sub": np.subtract,
    "Tanh": np.tanh,
    "Transpose": lambda x, *, perm: np.transpose(x, perm),
    "Where": np.where,
}

# What the reference calls the same thing; operators that are not listed are called by their lower-case name.
ATEN: Final[Mapping[str, str]] = {
    "Concat": "cat", "Identity": "clone", "LayerNormalization": "native_layer_norm", "MatMul": "mm",
    "Reshape": "view", "Resize": "upsample_bilinear2d", "Transpose": "permute",
}  # fmt: skip
_ONNX_OF: Final = {f"aten.{ATEN.get(name, name.lower())}": name for name in OPERATORS}


class World:
    """A graph being written, each value computed at once. ``aten`` makes it a reference: ATen names for the calls."""

    def __init__(self, *, aten: bool = False) -> None:
        self.numbers: dict[str, Array] = {}
        self._aten = aten
        self._inputs: list[str] = []
        self._nodes: list[Node] = []
        self._values: dict[str, Value] = {}

    def _know(self, name: str, kind: ValueKind, array: Array) -> str:
        assert name not in self.numbers, f"{name} is there already"
        self.numbers[name] = array
        self._values[name] = Value(name=name, kind=kind, dtype=str(array.dtype), shape=array.shape)
        return name

    def input(self, name: str, array: Array) -> str:
        self._inputs.append(name)
        return self._know(name, ValueKind.INPUT, array)

    def parameter(self, name: str, array: Array) -> str:
        return self._know(name, ValueKind.PARAMETER, array)

    def op(self, op_type: str, *sources: str, to: str, module: str | None = None, **attributes: Any) -> str:
        """Append a node; ``to`` names its outputs, separated by blanks. Returns the first of them."""
        outputs = tuple(to.split())
        results = _apply(op_type, [self.numbers[name] for name in sources], attributes)
        # As the readers have it: what is computed from shapes and constants alone is constant.
        fixed = op_type in ("Shape", "Constant") or not any(
            self._values[name].kind in (ValueKind.INPUT, ValueKind.ACTIVATION) for name in sources
        )
        kind = ValueKind.CONSTANT if fixed else ValueKind.ACTIVATION
        if op_type in ("Identity", "Reshape", "Transpose") and self._values[sources[0]].kind is ValueKind.PARAMETER:
            kind = ValueKind.PARAMETER  # another view of it
        for name, array in zip(outputs, results, strict=True):
            self._know(name, kind, array)
        called = f"aten.{ATEN.get(op_type, op_type.lower())}" if self._aten else op_type
        self._nodes.append(
            Node(
                index=len(self._nodes), name=f"#{len(self._nodes)}:{called}", op_type=called, inputs=sources,
                outputs=outputs, attributes=attributes, module=module,
            )
        )  # fmt: skip
        return outputs[0]

    def graph(self, *outputs: str) -> Graph:
        """The graph so far; without ``outputs`` all that nobody reads is one."""
        read = {name for node in self._nodes for name in node.inputs}
        ends = tuple(name for node in self._nodes for name in node.outputs if name not in read)
        return Graph(
            name="world", inputs=tuple(self._inputs), outputs=outputs or ends, nodes=tuple(self._nodes),
            values=dict(self._values),
        )  # fmt: skip

    def index(self) -> ReferenceIndex:
        return ReferenceIndex(self.graph(), prints(self.numbers))


def _apply(op_type: str, arrays: Sequence[Array], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    result = OPERATORS[_ONNX_OF.get(op_type, op_type)](*arrays, **attributes)
    return result if isinstance(result, tuple) else (np.asarray(result),)


def prints(numbers: Mapping[str, Array]) -> dict[str, Fingerprint]:
    return {name: fingerprint(array) for name, array in numbers.items()}


def evaluate(nodes: Sequence[Node], numbers: Mapping[str, Array]) -> dict[str, Array]:
    """``numbers`` and all that ``nodes`` compute from them; a value that is given is not computed again."""
    known = dict(numbers)
    for node in nodes:
        results = _apply(node.op_type, [known[name] for name in node.inputs], node.attributes)
        for name, array in zip(node.outputs, results, strict=True):
            known.setdefault(name, array)
    return known


def values_of(graph: Graph, world: World, *, replaced: Mapping[str, Node] | None = None) -> dict[str, Array]:
    """Numbers of a run of ``graph`` on the world's inputs and parameters, some nodes replaced by output name."""
    given = {
        name: array
        for name, array in world.numbers.items()
        if graph.producer(name) is None and (name in graph.values or name in graph.inputs)
    }
    nodes = [(replaced or {}).get(node.outputs[0], node) for node in graph.nodes]
    return evaluate(nodes, given)


def entry(graph: Graph, index: ReferenceIndex) -> dict[str, Pair]:
    """The pairs of the graph inputs, which have one name on both sides."""
    return {
        name: Pair(candidate=name, reference=name, basis=Basis.NAME) for name in graph.inputs if name in index.group_of
    }


# --- a reference and a candidate side by side ---


def normal(*shape: int, seed: int = 0) -> Array:
    """Normally distributed float32 numbers, equal for equal arguments."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def both(**inputs: Array) -> tuple[World, World]:
    """An empty reference and an empty candidate on the same inputs."""
    reference, candidate = World(aten=True), World()
    for name, array in inputs.items():
        reference.input(name, array)
        candidate.input(name, array)
    return reference, candidate


def pairs_of(reference: World, candidate: World, **options: Any) -> dict[str, str]:
    """Reference value by candidate value, as the walk pairs them; graph inputs are left out."""
    graph, index = candidate.graph(), reference.index()
    found = pair_by_value(graph, index, observed=prints(candidate.numbers), fixed=entry(graph, index), **options)
    return {name: pair.reference for name, pair in found.items() if name not in graph.inputs}


# --- random worlds ---

UNARY: Final = ("Abs", "Exp", "Neg", "Relu", "Sigmoid", "Tanh", "Transpose", "Dropout")
BINARY: Final = ("Add", "MatMul", "Mix", "Mul", "Sub")


@st.composite
def random_worlds(draw: st.DrawFn, *, max_nodes: int = 14) -> World:
    """Arithmetic on float64 matrices of 5 x 5: one or two inputs, a weight, operators of one and two outputs."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    world = World(aten=True)
    names = [world.input(f"in{at}", rng.normal(size=(5, 5))) for at in range(draw(st.integers(1, 2)))]
    weight = world.parameter("weight", rng.normal(size=(5, 5)) / 3)
    for at in range(draw(st.integers(1, max_nodes))):
        op_type = draw(st.sampled_from(UNARY + BINARY))
        first = draw(st.sampled_from(names[-4:]))
        if op_type in UNARY:
            # The exponential of an exponential is infinite soon.
            squashed = world.op("Tanh", first, to=f"small{at}") if op_type == "Exp" else first
            attributes: dict[str, Any] = {"perm": (1, 0)} if op_type == "Transpose" else {}
            names.append(world.op(op_type, squashed, to=f"r{at}", **attributes))
        else:
            second = draw(st.sampled_from([*names[-6:], weight]))
            to = f"r{at} s{at}" if op_type == "Mix" else f"r{at}"
            world.op(op_type, first, second, to=to)
            names += to.split()
    return world


def reordered(draw: st.DrawFn, nodes: Sequence[Node]) -> list[Node]:
    """The nodes in another topological order."""
    waiting = list(nodes)
    made = {name for node in nodes for name in node.outputs}
    done: set[str] = set()
    order = []
    while waiting:
        ready = [node for node in waiting if all(name in done or name not in made for name in node.inputs)]
        node = draw(st.sampled_from(ready))
        waiting.remove(node)
        order.append(node)
        done.update(node.outputs)
    return order


@st.composite
def candidate_of(draw: st.DrawFn, world: World) -> tuple[Graph, dict[str, str]]:
    """A healthy export of a world: other names, another order, ONNX operators, Identity nodes put in between.

    Returns:
        The graph, and the reference value that each of its activations stands for.
    """
    graph = world.graph()
    nodes: list[Node] = []
    stands_for: dict[str, str] = {name: name for name in world.numbers if graph.producer(name) is None}
    renamed = {name: name for name in stands_for}
    values = {name: graph.values[name] for name in stands_for}
    for node in reordered(draw, graph.nodes):
        outputs = tuple(f"v{len(nodes)}_{slot}" for slot in range(len(node.outputs)))
        nodes.append(
            dataclasses.replace(
                node, index=len(nodes), name=f"#{len(nodes)}", op_type=_ONNX_OF[node.op_type],
                inputs=tuple(renamed[name] for name in node.inputs), outputs=outputs,
            )
        )  # fmt: skip
        for ours, theirs in zip(outputs, node.outputs, strict=True):
            stands_for[ours] = theirs
            renamed[theirs] = ours
            if draw(st.booleans()) and draw(st.booleans()):
                copy = f"copy{len(nodes)}"
                nodes.append(
                    Node(index=len(nodes), name=f"#{len(nodes)}", op_type="Identity", inputs=(ours,), outputs=(copy,))
                )
                stands_for[copy] = theirs
                renamed[theirs] = copy
    values |= {
        name: Value(name=name, kind=graph.kind(stands_for[name]))
        for node in nodes
        for name in node.outputs
    }  # fmt: skip
    read = {name for node in nodes for name in node.reads}
    outputs = tuple(name for node in nodes for name in node.outputs if name not in read)
    return Graph(name="export", inputs=graph.inputs, outputs=outputs, nodes=tuple(nodes), values=values), stands_for
