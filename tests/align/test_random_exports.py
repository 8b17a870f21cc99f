"""Random worlds, exported and spoilt: healthy ones pair completely, and what is accused holds the fault."""

import dataclasses
from collections.abc import Mapping

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from bisect_onnx.align.by_value import INDISTINCT, pair_by_value
from bisect_onnx.core.alignment import Basis, Pair
from bisect_onnx.core.compare import ErrorStats, compare_arrays
from bisect_onnx.core.graph import Graph, Node
from bisect_onnx.core.segments import Segment, frontiers, segment_of
from tests.builders import FEW, World, candidate_of, entry, evaluate, prints, random_worlds, values_of


def without_equals(world: World) -> bool:
    """Whether every two classes of the reference can be told apart by their numbers."""
    index = world.index()
    alike = (index.resembling(index.fingerprint(group)) for group in range(len(index.members)))
    return all(sum(match.distance <= INDISTINCT for match in matches) == 1 for matches in alike)


@given(st.data())
def test_a_healthy_export_in_another_order_with_other_names_is_paired_completely(data):
    world = data.draw(random_worlds())
    assume(without_equals(world))
    index = world.index()
    graph, stands_for = data.draw(candidate_of(world))

    pairs = pair_by_value(graph, index, observed=prints(values_of(graph, world)), fixed=entry(graph, index))

    for name in graph.activations():
        assert name in pairs, name
        assert index.group_of[pairs[name].reference] == index.group_of[stands_for[name]]
        assert pairs[name].basis is Basis.VALUE


@FEW
@given(st.data())
def test_whatever_is_wrong_no_pair_leaves_the_ancestry_of_the_reference(data):
    world = data.draw(random_worlds())
    graph, _ = data.draw(candidate_of(world))
    index = world.index()
    nodes = faulty(data, graph)
    graph = dataclasses.replace(graph, nodes=nodes)
    observed = prints(values_of(graph, world))

    pairs = pair_by_value(graph, index, observed=observed, fixed=entry(graph, index))

    nearest = frontiers(graph, pairs.keys())
    for name, pair in pairs.items():
        group = index.group_of[pair.reference]
        assert [match for match in index.resembling(observed[name]) if match.group == group] or name in graph.inputs
        for source in nearest.get(name, ()):
            assert index.ancestors[group] >> index.group_of[pairs[source].reference] & 1


@FEW
@given(st.data())
def test_a_fault_gives_no_other_partner_to_what_is_not_computed_from_it(data):
    world = data.draw(random_worlds())
    assume(without_equals(world))
    healthy, _ = data.draw(candidate_of(world))
    index = world.index()
    nodes = faulty(data, healthy)
    graph = dataclasses.replace(healthy, nodes=nodes)
    changed = {name for old, new in zip(healthy.nodes, nodes, strict=True) if old != new for name in new.outputs}
    below = {name for name in graph.activations() if graph.ancestors([name]) & changed}

    before, after = (
        pair_by_value(each, index, observed=prints(values_of(each, world)), fixed=entry(each, index))
        for each in (healthy, graph)
    )

    # The fault may make what another node should make, and take its partner; nobody gets a wrong one.
    assert {n: p for n, p in after.items() if n not in below}.items() <= before.items()


def accused(graph: Graph, world: World, pairs: Mapping[str, Pair]) -> list[Segment]:
    """Segments that give another value than the reference when they are fed the reference's values."""
    wrong = []
    for name, pair in pairs.items():
        segment = segment_of(graph, name, cut=pairs.keys())
        fed = {value: world.numbers[pairs[value].reference] for value in segment.inputs} | {"weight": weight(world)}
        if segment.nodes and not agree(evaluate(segment.nodes, fed)[name], world.numbers[pair.reference]):
            wrong.append(segment)
    return wrong


def weight(world: World) -> np.ndarray:
    return world.numbers["weight"]


def agree(first: np.ndarray, second: np.ndarray) -> bool:
    error = compare_arrays(second, first)
    return isinstance(error, ErrorStats) and error.scaled is not None and error.scaled < 1e-9


@FEW
@given(st.data())
def test_no_segment_of_a_healthy_export_is_wrong(data):
    world = data.draw(random_worlds())
    graph, stands_for = data.draw(candidate_of(world))
    index = world.index()
    fixed = entry(graph, index) | by_name(graph, stands_for)

    pairs = pair_by_value(graph, index, observed=prints(values_of(graph, world)), fixed=fixed)

    assert accused(graph, world, pairs) == []


@given(st.data())
def test_a_segment_that_is_wrong_on_right_inputs_holds_the_faulty_node(data):
    world = data.draw(random_worlds())
    healthy, stands_for = data.draw(candidate_of(world))
    index = world.index()
    graph = dataclasses.replace(healthy, nodes=faulty(data, healthy))
    assume(graph.nodes != healthy.nodes)
    fault = next(new for old, new in zip(healthy.nodes, graph.nodes, strict=True) if old != new)
    observed = prints(values_of(graph, world))

    pairs = pair_by_value(graph, index, observed=observed, fixed=entry(graph, index))
    # What the fault makes may be a value of the reference, at another place: only what reads it can tell then.
    made = [
        (index.group_of[pairs[name].reference], index.group_of[stands_for[name]])
        for name in fault.outputs
        if name in pairs
    ]
    assume(all(ours == theirs for ours, theirs in made))
    wrong = accused(graph, world, pairs | by_name(graph, stands_for))

    assert [segment.output for segment in wrong if fault not in segment.nodes] == []


def by_name(graph: Graph, stands_for: Mapping[str, str]) -> dict[str, Pair]:
    """The pairs of the outputs, which have names on both sides."""
    return {
        name: Pair(candidate=name, reference=stands_for[name], basis=Basis.NAME)
        for name in graph.outputs
        if graph.producer(name) is not None
    }


def faulty(data, graph: Graph) -> tuple[Node, ...]:
    """The nodes with one of them computing something else, or reading something else."""
    at = data.draw(st.integers(0, len(graph.nodes) - 1))
    node = graph.nodes[at]
    kind = data.draw(st.sampled_from(["operator", "swap", "rewire"]))
    if kind == "operator" and len(node.outputs) == 1:
        others = ("Abs", "Tanh", "Neg", "Identity") if len(node.inputs) == 1 else ("Add", "Mul", "Sub", "MatMul")
        node = dataclasses.replace(node, op_type=data.draw(st.sampled_from(others)), attributes={})
    elif kind == "swap":
        node = dataclasses.replace(node, inputs=node.inputs[::-1])
    else:
        earlier = [*graph.inputs, *(name for other in graph.nodes[:at] for name in other.outputs)]
        node = dataclasses.replace(node, inputs=(data.draw(st.sampled_from(earlier)), *node.inputs[1:]))
    return (*graph.nodes[:at], node, *graph.nodes[at + 1 :])
