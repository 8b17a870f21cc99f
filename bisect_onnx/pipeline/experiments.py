"""Experiments that tell the nodes of an accused segment apart: run it again with one thing put right.

A parameter of the reference in the place of an initializer, a value of the reference in the place of an input,
a number of the reference in the place of a constant, a node in another form. What makes the segment right on
the reference's inputs was wrong.
"""

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from bisect_onnx.align.by_structure import same_family
from bisect_onnx.align.operators import MOVEMENT, same_operator
from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array
from bisect_onnx.core.edits import NodeEdit, variants, with_arguments
from bisect_onnx.core.graph import Node
from bisect_onnx.errors import RuntimeFailedError
from bisect_onnx.pipeline.region import Judged, Region

__all__ = [
    "WeightProof",
    "calls_between",
    "cured_by_an_edit",
    "numbers_of",
    "reads_another",
    "right_with",
    "weight_proof",
]

# Values tried in the place of one input; each is one run of a few nodes.
MOST_TRIALS = 24
# Numbers tried in the place of one constant.
MOST_NUMBERS = 64


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class WeightProof:
    """Putting ``parameter`` in the place of ``initializer`` made the segment right."""

    initializer: str
    parameter: str
    transform: str
    error: float  # relative L2 distance of the initializer from the parameter


def reads_another(item: Judged, *, region: Region, pairs: Mapping[str, Pair], cleared: frozenset[int]) -> Node | None:
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
            if right_with(item, {name: form}, region=region, pairs=pairs):
                return readers[0]
    return _swapped(item, region=region, pairs=pairs, cleared=cleared)


def _swapped(item: Judged, *, region: Region, pairs: Mapping[str, Pair], cleared: frozenset[int]) -> Node | None:
    """The node that gave out two values in the wrong places, or the first that reads one of them."""
    names = [name for name in item.segment.inputs if name in region.plain]
    for first, second in itertools.combinations(names, 2):
        both = [source for source in _sources(first, region) if source in _sources(second, region)]
        places = [(first, second), *((_way(first, s, region), _way(second, s, region)) for s in both)]
        if not any(_right_exchanged(item, *each, region=region, pairs=pairs, freed={first, second}) for each in places):
            continue
        both = [source for source in both if not _in_known_slot(source, region=region, pairs=pairs)]
        readers = [n for n in region.graph.consumers(first) if n in item.segment.nodes and n.index not in cleared]
        readers.sort(key=lambda node: second not in node.inputs)  # one that reads both has them in the wrong places
        return next(iter((*both, *readers)), None)
    return None


def _right_exchanged(
    item: Judged, first: str, second: str, *, region: Region, pairs: Mapping[str, Pair], freed: Collection[str]
) -> bool:
    """Whether the segment is right when two values change places and nothing else feeds the inputs ``freed``."""
    if first == second or first not in pairs or second not in pairs:
        return False
    ours, theirs = region.partner(pairs[first]), region.partner(pairs[second])
    if ours.size != theirs.size or ours.dtype != theirs.dtype or np.array_equal(ours.ravel(), theirs.ravel()):
        return False
    forms = {first: theirs.reshape(ours.shape), second: ours.reshape(theirs.shape)}
    return right_with(item, forms, region=region, pairs=pairs, freed=freed)


def _way(value: str, source: Node, region: Region) -> str:
    """The output of ``source`` that ``value`` comes from by mere movement."""
    while (node := region.graph.producer(value)) is not None and node.index != source.index:
        value = node.inputs[0]
    return value


def _in_known_slot(node: Node, *, region: Region, pairs: Mapping[str, Pair]) -> bool:
    """Whether the reference has a call like ``node`` that gives the same values in the same places."""
    index = region.index
    groups = [index.group_of[pairs[name].reference] for name in node.real_outputs() if name in pairs]
    slots = []
    for group in groups:
        origins = ((member, index.graph.producer(member)) for member in index.members[group])
        slots += [o.outputs.index(m) for m, o in origins if o is not None and same_operator(node.op_type, o.op_type)]
    return len(groups) == len(node.real_outputs()) and slots == list(range(len(groups)))


def _sources(value: str, region: Region) -> list[Node]:
    """Nodes with several outputs that ``value`` comes from by mere movement, nearest first."""
    found = []
    node = region.graph.producer(value)
    while node is not None and node.op_type in MOVEMENT:
        if len(node.real_outputs()) > 1:
            found.append(node)
        node = region.graph.producer(node.inputs[0])
    return found


def cured_by_an_edit(
    item: Judged, suspects: Sequence[Node], *, region: Region, pairs: Mapping[str, Pair], calls: Sequence[Node]
) -> list[Node]:
    """Those of ``suspects`` whose other form, or another number of the reference, makes the segment right.

    More than one when the fault can be mended in several places; the likeliest first. From the end: swapping the
    branches of a Where and turning its condition around are one fault, the Where's.
    """
    numbers = numbers_of(calls, _sizes(item, region))
    arguments = _arguments(calls)

    def by_form(node: Node) -> bool:
        forms = itertools.chain(variants(node), itertools.islice(with_arguments(node, arguments), MOST_NUMBERS))
        return any(
            right_with(item, {}, region=region, pairs=pairs, edits=(edit,))
            for edit in forms
            # Another operator is only tried when the reference calls one like it here: few elements or
            # discrete ones agree by accident.
            if edit.op_type is None or any(_calls_like(edit.op_type, call) for call in calls)
        )

    def by_number(node: Node) -> bool:
        return any(right_with(item, form, region=region, pairs=pairs) for form in _other_numbers(node, numbers, region))

    cured = [node for node in reversed(suspects) if by_form(node)]
    return cured + [node for node in suspects if node not in cured and by_number(node)]


def _sizes(item: Judged, region: Region) -> list[int]:
    """Every axis length that occurs in the segment, on either side."""
    names = (*item.segment.inputs, *item.segment.interior, item.segment.output)
    shapes = [array.shape for name in names if (array := region.given(name)) is not None]
    return sorted({size for shape in (*shapes, region.index.fingerprints[item.pair.reference].shape) for size in shape})


def _arguments(calls: Sequence[Node]) -> list[object]:
    """What the calls take besides tensors, each value once; a pair of paddings also as ONNX spells it."""
    found: dict[object, None] = {}
    for value in (value for call in calls for value in call.attributes.values()):
        if isinstance(value, tuple):
            found.update(dict.fromkeys((value, (*value, *value))))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[value] = None
    return list(found)


def _other_numbers(node: Node, numbers: Sequence[float], region: Region) -> Iterator[dict[str, Array]]:
    """Each single-element constant that the node reads, with each of ``numbers`` in its place."""
    for name in node.real_inputs():
        array = region.prober.candidate.parameters.get(name)
        if array is None or array.size != 1 or array.dtype.kind not in "fi":
            continue
        for number in numbers:
            form = np.full(array.shape, number).astype(array.dtype)
            if form != array:
                yield {name: form}
    if node.op_type == "Slice":
        yield from _other_ranges(node, numbers, region)


def _other_ranges(node: Node, numbers: Sequence[float], region: Region) -> Iterator[dict[str, Array]]:
    """Slices of the same length from each of ``numbers`` on."""
    start, end = (region.prober.candidate.parameters.get(name) for name in node.inputs[1:3])
    cut = region.given(node.outputs[0])
    if start is None or end is None or cut is None or start.size != 1 or len(node.inputs) < 4:
        return
    axes = region.prober.candidate.parameters.get(node.inputs[3])
    if axes is None or axes.size != 1:
        return
    length = cut.shape[int(axes.flat[0])]
    for number in (number for number in numbers if number >= 0 and number == int(number)):
        yield {
            node.inputs[1]: np.full_like(start, int(number)),
            node.inputs[2]: np.full_like(end, int(number) + length),
        }


def _calls_like(op_type: str, call: Node) -> bool:
    """Whether a reference call does what the operator does, by its name or by an argument (rounding_mode="floor")."""
    return same_operator(op_type, call.op_type) or op_type.lower() in call.attributes.values()


def calls_between(item: Judged, *, region: Region, pairs: Mapping[str, Pair]) -> list[Node]:
    """The reference's calls from the segment's inputs to its output."""
    index = region.index
    fed = [index.group_of[pairs[name].reference] for name in item.segment.inputs]
    output = index.group_of[item.pair.reference]
    members = [member for group in (*index.between(fed, output), output) for member in index.members[group]]
    return [call for member in members if (call := index.graph.producer(member)) is not None]


def numbers_of(calls: Sequence[Node], sizes: Sequence[int]) -> list[float]:
    """Numbers that the calls take as arguments, with their negatives, reciprocals and distances from a size.

    A roll by 3 of an axis of 8 is exported as slices at 3 and at 5.
    """
    found: dict[float, None] = {}
    for value in (value for call in calls for value in call.attributes.values()):
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float) and not isinstance(number, bool) and np.isfinite(number):
                found.update(dict.fromkeys((float(number), -float(number), *((1 / number,) if number else ()))))
                if isinstance(number, int) and number:
                    found.update(dict.fromkeys(float(size - abs(number)) for size in sizes if size > abs(number)))
    return list(found)[:MOST_NUMBERS]


def weight_proof(
    item: Judged, suspects: Sequence[Node], *, region: Region, pairs: Mapping[str, Pair]
) -> WeightProof | None:
    """Try the reference's parameters in the place of each initializer that ``suspects`` read."""
    reference = region.prober.capture
    wanted = _parameters_between(item, region=region, pairs=pairs)
    candidate = region.prober.candidate
    for node in suspects:
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
                    if right_with(item, {name: form}, region=region, pairs=pairs):
                        return WeightProof(
                            initializer=name,
                            parameter=parameter,
                            transform=transform,
                            error=_distance(array, form),
                        )
    return _folded_proof(item, region=region, pairs=pairs)


def _folded_proof(item: Judged, *, region: Region, pairs: Mapping[str, Pair]) -> WeightProof | None:
    """Try weight and bias of a convolution with the BatchNorm behind it folded in, as exporters do."""
    nodes = [node for node in item.segment.nodes if node.op_type in ("Conv", "ConvTranspose") and len(node.inputs) == 3]
    calls = calls_between(item, region=region, pairs=pairs)
    convolution = next((call for call in calls if call.op_type == "aten.convolution"), None)
    norm = next((call for call in calls if "batch_norm" in call.op_type), None)
    if len(nodes) != 1 or convolution is None or norm is None:
        return None
    names = [*convolution.inputs[1:3], *norm.inputs[1:5]]
    found = region.prober.capture.fetch([name for name in names if name in region.index.fingerprints])
    weight, bias, gamma, beta, mean, variance = (found.get(name) for name in names)
    epsilon = norm.attributes.get("eps")
    if weight is None or mean is None or variance is None or not isinstance(epsilon, float):
        return None
    scale = (1.0 if gamma is None else gamma) / np.sqrt(variance + epsilon)
    axis = 1 if convolution.attributes.get("transposed") else 0
    if weight.shape[axis] != scale.size:
        return None  # a grouped transposed convolution keeps its channels elsewhere
    shape = [scale.size if place == axis else 1 for place in range(weight.ndim)]
    folded = weight * scale.reshape(shape)
    shift = ((0.0 if bias is None else bias) - mean) * scale + (0.0 if beta is None else beta)
    own = region.prober.candidate.parameters.get(nodes[0].inputs[1])
    if own is None or own.shape != folded.shape:
        return None
    forms = {nodes[0].inputs[1]: folded.astype(own.dtype), nodes[0].inputs[2]: np.asarray(shift).astype(own.dtype)}
    if not right_with(item, forms, region=region, pairs=pairs):
        return None
    return WeightProof(
        initializer=nodes[0].inputs[1],
        parameter=convolution.inputs[1],
        transform="batch norm folded in",
        error=_distance(own, folded),
    )


def _parameters_between(item: Judged, *, region: Region, pairs: Mapping[str, Pair]) -> list[str]:
    calls = calls_between(item, region=region, pairs=pairs)
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


def right_with(
    item: Judged,
    replaced: Mapping[str, Array],
    *,
    region: Region,
    pairs: Mapping[str, Pair],
    edits: Sequence[NodeEdit] = (),
    freed: Collection[str] = (),
) -> bool:
    """Whether the segment is right on the reference's inputs with some values replaced or nodes edited.

    The inputs ``freed`` are not given the reference's values: they follow from what is above them.
    """
    cuts = {**region.entry_values}
    for name in item.segment.inputs:
        if name in region.plain and name not in freed:
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
