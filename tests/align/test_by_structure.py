"""Hypotheses inside a wrong segment: all that are possible, likeliest first, and in the order of the operators."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_onnx.align.by_structure import Hypothesis, hypotheses, same_family
from bisect_onnx.align.reference_index import ReferenceIndex
from bisect_onnx.core.segments import Segment, segment_of
from tests.builders import FEW, World, candidate_of, prints, random_worlds


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def ranked(reference: World, candidate: World, *, parameter_of: dict[str, str] | None = None) -> list[Hypothesis]:
    """Hypotheses for the candidate as one segment from ``x`` to its last value, against the whole reference."""
    graph, index = candidate.graph(), reference.index()
    (output,) = graph.outputs
    segment = segment_of(graph, output, cut={"x", output})
    groups = index.between([index.group_of["x"]], index.group_of[reference.graph().outputs[0]])
    observed = prints({name: candidate.numbers[name] for name in segment.interior})
    fed = {"x": index.group_of["x"]}
    return hypotheses(
        segment, graph=graph, index=index, groups=groups, observed=observed, parameter_of=parameter_of or {}, fed=fed
    )


def both() -> tuple[World, World]:
    reference, candidate = World(aten=True), World()
    for world in (reference, candidate):
        world.input("x", normal(4, 4))
    return reference, candidate


def told(found: list[Hypothesis]) -> list[tuple[str, str]]:
    return [(item.value, item.reference) for item in found]


def test_a_chain_with_a_fault_at_its_head_is_matched_operator_by_operator():
    reference, candidate = both()
    reference.op("Tanh", "x", to="r1")
    candidate.op("Sigmoid", "x", to="v1")
    for world, names in ((reference, "r"), (candidate, "v")):
        world.op("Neg", f"{names}1", to=f"{names}2")
        world.op("Exp", f"{names}2", to=f"{names}3")
        world.op("Tanh", f"{names}3", to=f"{names}4")

    found = ranked(reference, candidate)

    assert told([item for item in found if item.in_sequence]) == [("v1", "r1"), ("v2", "r2"), ("v3", "r3")]
    assert told(found)[:3] == told([item for item in found if item.in_sequence])
    assert len(found) == 9  # every value against every class


def test_values_of_another_size_or_family_are_no_hypotheses():
    reference, candidate = both()
    reference.op("Tanh", "x", to="r1")
    reference.op("Split", "r1", to="half rest", axis=0, sizes=(2, 2))
    reference.op("Neg", "half", to="out")
    candidate.op("Tanh", "x", to="v1")
    candidate.numbers["v1"] = candidate.numbers["v1"].astype(np.int64)
    candidate.op("Neg", "v1", to="v2")

    assert ranked(reference, candidate) == []


def test_a_reader_of_the_same_parameter_speaks_for_a_value():
    reference, candidate = both()
    for world, name in ((reference, "linear.weight"), (candidate, "val_3")):
        world.parameter(name, normal(4, 4, seed=5))
    for above, step in ("xa", "ab", "bc"):
        reference.op("Tanh", above, to=step)
    reference.op("MatMul", "c", "linear.weight", to="m")
    reference.op("Neg", "m", to="out")
    candidate.op("Tanh", "x", to="va")
    candidate.op("Tanh", "va", to="vb")
    candidate.op("MatMul", "vb", "val_3", to="vm")
    candidate.op("Neg", "vm", to="vout")

    found = ranked(reference, candidate, parameter_of={"val_3": "linear.weight"})
    by_pair = {(item.value, item.reference): item for item in found}

    assert by_pair["vb", "c"].by_parameter
    assert by_pair["vm", "m"].by_parameter
    assert not by_pair["va", "a"].by_parameter
    assert by_pair["vb", "c"].score == max(item.score for item in found if item.value == "vb")


def test_the_exporters_record_outweighs_the_place():
    reference, candidate = both()
    reference.op("Tanh", "x", to="r1", module="first")
    reference.op("Tanh", "r1", to="r2", module="second")
    reference.op("Neg", "r2", to="out")
    candidate.op("Tanh", "x", to="v1", module="second")
    candidate.op("Neg", "v1", to="vout")
    for world in (reference, candidate):
        world._nodes = [
            dataclasses.replace(node, torch_op="aten.tanh.default") if node.module else node for node in world._nodes
        ]

    found = ranked(reference, candidate)

    assert told(found)[0] == ("v1", "r2")
    assert [item.by_exporter for item in found] == [True, False]


def test_an_order_of_elements_speaks_for_a_value():
    reference, candidate = both()
    reference.op("Transpose", "x", to="r1", perm=(1, 0))
    reference.op("Neg", "r1", to="out")
    candidate.op("Identity", "x", to="v1")
    candidate.op("Neg", "v1", to="vout")

    (found,) = ranked(reference, candidate)

    assert (found.value, found.reference) == ("v1", "r1")
    assert found.score > 3


def test_the_member_in_the_shape_of_the_value_is_used():
    reference, candidate = both()
    reference.op("Tanh", "x", to="r1")
    reference.op("Reshape", "r1", to="flat", shape=(16,))
    reference.op("Neg", "flat", to="out")
    candidate.op("Reshape", "x", to="vflat", shape=(16,))
    candidate.op("Sigmoid", "vflat", to="v1")
    candidate.op("Neg", "v1", to="vout")

    assert ("v1", "flat") in told(ranked(reference, candidate))


@FEW
@given(st.data())
def test_the_sequence_never_crosses_itself_and_no_other_scores_higher(data):
    world = data.draw(random_worlds(max_nodes=5))
    graph, _ = data.draw(candidate_of(world))
    index = world.index()
    output = graph.outputs[-1]
    segment = segment_of(graph, output, cut={*graph.inputs, output})
    groups = list(range(len(graph.inputs), len(index.members)))[:4]
    numbers = {name: np.random.default_rng(len(name)).normal(size=(5, 5)) for name in segment.interior[:4]}

    found = hypotheses(
        segment, graph=graph, index=index, groups=groups, observed=prints(numbers), parameter_of={},
        fed=classes_of_inputs(segment, index),
    )  # fmt: skip

    place = {name: at for at, name in enumerate(segment.interior)}
    chosen = sorted((place[item.value], item.group) for item in found if item.in_sequence)
    assert crosses_nothing(chosen)
    score = {(place[item.value], item.group): item.score for item in found if item.score > 0}
    subsets = (list(some) for length in range(5) for some in itertools.combinations(sorted(score), length))
    best = max(sum(score[pair] for pair in some) for some in subsets if crosses_nothing(some))
    assert sum(score[pair] for pair in chosen) == pytest.approx(best)


def classes_of_inputs(segment: Segment, index: ReferenceIndex) -> dict[str, int]:
    return {name: index.group_of[name] for name in segment.inputs}


def test_what_ignores_an_input_of_the_value_comes_after_what_reads_all_of_them():
    # As in a stack of equal layers: r1 and r2 look alike, and only r2 descends from y, which v reads.
    reference, candidate = both()
    for world in (reference, candidate):
        world.input("y", normal(4, 4, seed=1))
    reference.op("Tanh", "x", to="r1")
    reference.op("Mul", "r1", "y", to="m")
    reference.op("Tanh", "m", to="r2")
    reference.op("Neg", "r2", to="out")
    candidate.op("Sub", "x", "y", to="wrong")
    candidate.op("Tanh", "wrong", to="v")
    candidate.op("Neg", "v", to="vout")
    graph, index = candidate.graph(), reference.index()
    segment = segment_of(graph, "vout", cut={"x", "y", "vout"})

    found = hypotheses(
        segment, graph=graph, index=index, groups=[index.group_of[name] for name in ("r1", "m", "r2")],
        observed=prints({name: candidate.numbers[name] for name in segment.interior}), parameter_of={},
        fed=classes_of_inputs(segment, index),
    )  # fmt: skip

    best = max((item for item in found if item.value == "v"), key=lambda item: item.score)
    assert best.reference == "r2"
    assert ("v", "r2") in told([item for item in found if item.in_sequence])


def crosses_nothing(pairs: list[tuple[int, int]]) -> bool:
    return all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs))


@FEW
@given(st.data())
def test_equal_questions_get_equal_answers(data):
    world = data.draw(random_worlds(max_nodes=6))
    graph, _ = data.draw(candidate_of(world))
    output = graph.outputs[-1]
    segment = segment_of(graph, output, cut={*graph.inputs, output})
    numbers = {name: np.random.default_rng(len(name)).normal(size=(5, 5)) for name in segment.interior}

    first, second = (
        hypotheses(
            segment, graph=graph, index=index, groups=range(1, len(index.members)), observed=prints(numbers),
            parameter_of={}, fed=classes_of_inputs(segment, index),
        )
        for index in (world.index(), world.index())
    )  # fmt: skip

    assert first == second
    assert len({(item.value, item.group) for item in first}) == len(first)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("float32", "float16", True), ("bfloat16", "float64", True), ("float8_e4m3fn", "float32", True),
        ("int64", "int32", True), ("uint8", "int8", True), ("bool", "bool", True), ("float32", "int32", False),
        ("int64", "bool", False), ("bool", "float16", False), ("complex64", "complex128", True),
        ("complex64", "float32", False),
    ],
)  # fmt: skip
def test_families_of_dtypes(first, second, expected):
    assert same_family(first, second) is expected
    assert same_family(second, first) is expected
