"""From an accused segment to the node in it.

The reference's own calls are opened up (a GELU into its erf, a linear layer into product and bias), and the
segment is settled against those like a model of its own. What is left is told apart by experiments: a
parameter of the module put in the place of an initializer, the order of the elements.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from bisect_onnx.align.by_structure import same_family
from bisect_onnx.align.operators import MOVEMENT, PASS_THROUGH, same_operator
from bisect_onnx.align.reference_index import ReferenceIndex
from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array
from bisect_onnx.core.edits import NodeEdit, variants
from bisect_onnx.core.graph import Graph, Node
from bisect_onnx.errors import RuntimeFailedError
from bisect_onnx.pipeline.judge import scaled_gap
from bisect_onnx.pipeline.prober import Prober
from bisect_onnx.pipeline.region import Judged, Region
from bisect_onnx.pipeline.settle import Settling, subgraph

__all__ = ["Narrowed", "WeightProof", "narrow"]

# Values tried in the place of one input; each is one run of a few nodes.
MOST_TRIALS = 24

FLOAT_BITS = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class WeightProof:
    """Putting ``parameter`` in the place of ``initializer`` made the segment right."""

    initializer: str
    parameter: str
    transform: str
    error: float  # relative L2 distance of the initializer from the parameter


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Narrowed:
    """The accused node first, then the others that could not be cleared, then the rest of the segment."""

    node: Node
    suspects: tuple[Node, ...]
    reference_name: str | None  # the call of the reference it stands for: a value name of the capture
    weight: WeightProof | None


def narrow(
    item: Judged,
    *,
    region: Region,
    pairs: Mapping[str, Pair],
    parameter_of: Mapping[str, str],
    cleared: frozenset[int],
) -> Narrowed:
    """Find the node that makes ``item`` wrong; ``cleared`` are nodes that another segment, a right one, holds too."""
    rewired = _reads_another(item, region=region, pairs=pairs, cleared=cleared)
    if rewired is not None:
        return Narrowed(node=rewired, suspects=(rewired,), reference_name=item.pair.reference, weight=None)
    finest, inner_region, inner_pairs = _opened(
        item, region=region, pairs=pairs, parameter_of=parameter_of, cleared=cleared
    )
    nodes = finest.segment.nodes
    weight = _weight_proof(finest, region=inner_region, pairs=inner_pairs, cleared=cleared)
    if weight is not None:
        node = next(node for node in nodes if weight.initializer in node.inputs)
        return Narrowed(node=node, suspects=(node,), reference_name=item.pair.reference, weight=weight)
    calls = (
        *_calls_between(item, region=region, pairs=pairs),
        *_calls_between(finest, region=inner_region, pairs=inner_pairs),
    )
    edited = _right_after_an_edit(finest, region=inner_region, pairs=inner_pairs, cleared=cleared, calls=calls)
    if edited is not None:
        return Narrowed(node=edited, suspects=(edited,), reference_name=item.pair.reference, weight=None)
    suspects = _suspects(
        finest, region=inner_region, pairs=inner_pairs, parameter_of=parameter_of, cleared=cleared, whole=region.graph
    )
    return Narrowed(node=suspects[0], suspects=tuple(suspects), reference_name=item.pair.reference, weight=None)


def _reads_another(
    item: Judged, *, region: Region, pairs: Mapping[str, Pair], cleared: frozenset[int]
) -> Node | None:
    """The node that reads a wrong value, when the right one exists elsewhere in the candidate.

    Tried by feeding the other value's partner in the place of each input of the segment.
    """
    index = region.index
    output = index.group_of[item.pair.reference]
    fed = {index.group_of[pairs[name].reference] for name in item.segment.inputs}
    held = {index.group_of[pair.reference] for pair in pairs.values()}
    wanted = [g for g in index.upstream(output, most=2 * MOST_TRIALS) if g in held and g not in fed]
    for name in item.segment.inputs:
        readers = [n for n in region.graph.consumers(name) if n in item.segment.nodes and n.index not in cleared]
        if name not in region.plain or len(readers) != 1:
            continue
        like = region.plain[name]
        for group in wanted[:MOST_TRIALS]:
            print_ = index.fingerprint(group)
            if print_.size != like.size or not same_family(print_.dtype, str(like.dtype)):
                continue
            reference = index.member(group, shape=like.shape)
            form = region.prober.reference(reference).reshape(like.shape).astype(like.dtype, copy=False)
            if _right_with(item, {name: form}, region=region, pairs=pairs):
                return readers[0]
    return None


def _right_after_an_edit(
    item: Judged,
    *,
    region: Region,
    pairs: Mapping[str, Pair],
    cleared: frozenset[int],
    calls: Sequence[Node],
) -> Node | None:
    """The node whose other form, or another constant of the reference, makes the segment right."""
    if len(item.segment.nodes) == 1:
        return None
    suspects = [node for node in item.segment.nodes if node.index not in cleared]
    numbers = _numbers(calls)
    for node in suspects:
        for name in node.real_inputs():
            array = region.prober.candidate.parameters.get(name)
            if array is None or array.size != 1 or array.dtype.kind not in "fi":
                continue
            for number in numbers:
                form = np.full(array.shape, number).astype(array.dtype)
                if form != array and _right_with(item, {name: form}, region=region, pairs=pairs):
                    return node
    for node in suspects:
        for edit in variants(node):
            # Another operator is only tried when the reference calls one like it here: few elements or
            # discrete ones agree by accident.
            if edit.op_type is not None and not any(_calls_like(edit.op_type, call) for call in calls):
                continue
            if _right_with(item, {}, region=region, pairs=pairs, edits=(edit,)):
                return node
    return None


def _calls_like(op_type: str, call: Node) -> bool:
    """Whether a reference call does what the operator does, by its name or by an argument (rounding_mode="floor")."""
    return same_operator(op_type, call.op_type) or op_type.lower() in call.attributes.values()


def _calls_between(item: Judged, *, region: Region, pairs: Mapping[str, Pair]) -> list[Node]:
    """The reference's calls from the segment's inputs to its output."""
    index = region.index
    fed = [index.group_of[pairs[name].reference] for name in item.segment.inputs]
    output = index.group_of[item.pair.reference]
    members = [member for group in (*index.between(fed, output), output) for member in index.members[group]]
    return [call for member in members if (call := index.graph.producer(member)) is not None]


def _numbers(calls: Sequence[Node]) -> list[float]:
    """Numbers that the calls take as arguments, with their negatives and reciprocals."""
    found: dict[float, None] = {}
    for value in (value for call in calls for value in call.attributes.values()):
        if isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value):
            found.update(dict.fromkeys((float(value), -float(value), *((1 / value,) if value else ()))))
    return list(found)[:MOST_TRIALS]


def _opened(
    item: Judged,
    *,
    region: Region,
    pairs: Mapping[str, Pair],
    parameter_of: Mapping[str, str],
    cleared: frozenset[int],
) -> tuple[Judged, Region, Mapping[str, Pair]]:
    """The smallest part of the segment that is wrong against the opened-up reference."""
    if len(item.segment.nodes) == 1:
        return item, region, pairs
    entry = {name: pairs[name] for name in item.segment.inputs}
    given = [pair.reference for pair in entry.values()]
    opened = region.prober.capture.open_up([item.pair.reference], given=given)
    index = ReferenceIndex(opened.graph, opened.fingerprints)
    if any(name not in index.group_of for name in (*given, item.pair.reference)):
        return item, region, pairs
    prober = Prober(region.prober.candidate, opened, region.prober.feeds)
    values = {
        name: region.partner(pair)
        if name in region.plain
        else region.prober.feeds.get(name, region.entry_values.get(name))
        for name, pair in entry.items()
    }
    inner = Region(
        subgraph(region.graph, item.segment),
        index,
        prober,
        entry=entry,
        entry_values={name: array for name, array in values.items() if array is not None},
    )
    settled = Settling(
        inner,
        outputs={item.pair.candidate: item.pair},
        parameter_of=parameter_of,
        narrow=False,
    ).settle()
    parts = [
        part
        for part in settled.accused
        if any(node.index not in cleared and node.op_type not in PASS_THROUGH for node in part.segment.nodes)
    ]
    return (parts[0], inner, settled.pairs) if parts else (item, region, pairs)


def _weight_proof(
    item: Judged, *, region: Region, pairs: Mapping[str, Pair], cleared: frozenset[int]
) -> WeightProof | None:
    """Try the reference's parameters in the place of each initializer of the segment."""
    reference = region.prober.capture
    wanted = _parameters_between(item, region=region, pairs=pairs)
    candidate = region.prober.candidate
    for node in item.segment.nodes:
        if node.index in cleared:
            continue
        for name in node.real_inputs():
            array = candidate.parameters.get(name)
            if array is None or array.dtype.kind != "f" or array.size < 2:
                continue
            for parameter in wanted:
                own = reference.fetch([parameter]).get(parameter)
                if own is None or own.size != array.size:
                    continue
                for transform, form in _forms(own, array):
                    if np.array_equal(form, array):
                        continue
                    if _right_with(item, {name: form}, region=region, pairs=pairs):
                        return WeightProof(
                            initializer=name,
                            parameter=parameter,
                            transform=transform,
                            error=_distance(array, form),
                        )
    return None


def _parameters_between(item: Judged, *, region: Region, pairs: Mapping[str, Pair]) -> list[str]:
    calls = _calls_between(item, region=region, pairs=pairs)
    found = dict.fromkeys(name for call in calls for name in sorted(region.index.parameters(call)))
    return [name for name in found if name in region.index.fingerprints]


def _forms(own: Array, like: Array) -> list[tuple[str, Array]]:
    forms = []
    if own.shape == like.shape:
        forms.append(("identity", own))
    if own.ndim == 2 and own.shape[::-1] == like.shape:
        forms.append(("transpose", np.ascontiguousarray(own.T)))
    if not forms:
        forms.append(("reshape", own.reshape(like.shape)))
    return [(transform, form.astype(like.dtype, copy=False)) for transform, form in forms]


def _right_with(
    item: Judged,
    replaced: Mapping[str, Array],
    *,
    region: Region,
    pairs: Mapping[str, Pair],
    edits: Sequence[NodeEdit] = (),
) -> bool:
    """Whether the segment is right on the reference's inputs with some values replaced or nodes edited."""
    cuts = {**region.entry_values}
    for name in item.segment.inputs:
        if name in region.plain:
            cuts[name] = region.partner(pairs[name])
    try:
        got = region.prober.forced(cuts | dict(replaced), [item.pair.candidate], edits=edits)
    except RuntimeFailedError:
        return False  # the runtime does not take this form of the node, or this number in this place
    computed = got.get(item.pair.candidate)
    return computed is not None and not region.judged(item.pair, pairs, computed).mismatch


def _distance(ours: Array, theirs: Array) -> float:
    norm = float(np.linalg.norm(theirs.astype(np.float64)))
    gap = float(np.linalg.norm(ours.astype(np.float64) - theirs.astype(np.float64)))
    return gap / norm if norm else (0.0 if gap == 0 else float("inf"))


def _suspects(
    item: Judged,
    *,
    region: Region,
    pairs: Mapping[str, Pair],
    parameter_of: Mapping[str, str],
    cleared: frozenset[int],
    whole: Graph,
) -> list[Node]:
    """The segment's nodes, likeliest first."""
    nodes = list(item.segment.nodes)
    if len(nodes) == 1:
        return nodes
    moved = _only_rearranged(item, region=region, pairs=pairs)
    differs = _unlike_siblings(nodes, whole)

    def suspicion(place: int, node: Node) -> tuple[bool, bool, bool, bool, bool, int]:
        movement = node.op_type in MOVEMENT
        return (
            node.index in cleared,
            movement != moved,
            not _narrows(node, region),
            node.index not in differs,
            not _free(node, region, parameter_of),
            -place,
        )

    order = sorted(range(len(nodes)), key=lambda place: suspicion(place, nodes[place]))
    return [nodes[place] for place in order]


def _only_rearranged(item: Judged, *, region: Region, pairs: Mapping[str, Pair]) -> bool:
    """Whether the computed elements are the reference's in another order."""
    cuts = {**region.entry_values} | {
        name: region.partner(pairs[name]) for name in item.segment.inputs if name in region.plain
    }
    computed = region.prober.forced(cuts, [item.pair.candidate])[item.pair.candidate]
    reference = region.prober.reference(item.pair.reference)
    if computed.size != reference.size or computed.dtype.kind not in "fiub":
        return False
    return scaled_gap(np.sort(reference.reshape(-1)), np.sort(computed.reshape(-1))) <= item.judgement.threshold


def _narrows(node: Node, region: Region) -> bool:
    """Whether the node rounds to a coarser type: the lossy half of a round trip."""
    if node.op_type != "Cast":
        return False
    before, after = (_dtype(region, name) for name in (node.inputs[0], node.outputs[0]))
    return FLOAT_BITS.get(after, 0) < FLOAT_BITS.get(before, 0)


def _dtype(region: Region, name: str) -> str:
    if name in region.plain:
        return str(region.plain[name].dtype)
    if name in region.entry_values:
        return str(region.entry_values[name].dtype)
    known = region.graph.values.get(name)
    return (known.dtype if known is not None else None) or ""


def _free(node: Node, region: Region, parameter_of: Mapping[str, str]) -> bool:
    """Whether something about the node could be wrong: an attribute, or a constant that is no parameter."""
    if node.op_type in PASS_THROUGH:
        return False
    constants = [name for name in node.real_inputs() if name in region.prober.candidate.parameters]
    return bool(node.attributes) or any(name not in parameter_of for name in constants)


def _unlike_siblings(nodes: Sequence[Node], whole: Graph) -> frozenset[int]:
    """Indices of nodes that differ from the node at the same place of every other such sequence in the graph."""
    kinds = [node.op_type for node in nodes]
    if any(second.index - first.index > 64 for first, second in zip(nodes, nodes[1:], strict=False)):
        return frozenset()
    siblings: list[list[Node]] = []
    flat = [node for node in whole.nodes if node.op_type not in ("Constant",)]
    for start in range(len(flat) - len(kinds) + 1):
        window = flat[start : start + len(kinds)]
        if [node.op_type for node in window] == kinds and window[0].index != nodes[0].index:
            siblings.append(window)
    if not siblings:
        return frozenset()
    return frozenset(
        node.index
        for place, node in enumerate(nodes)
        if all(repr(sibling[place].attributes) != repr(node.attributes) for sibling in siblings)
    )
