"""A value match is a hypothesis: which ones the walk takes, and the false ones it must not take.

Each test builds a reference and a candidate by hand and states which candidate value may stand for which
reference value. A value without a pair is no fault; a pair with a foreign value leads to a wrong accusation.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bisect_onnx.align.by_value import INDISTINCT, acceptable, pair_by_value
from bisect_onnx.align.reference_index import ReferenceIndex
from bisect_onnx.core.alignment import Basis, Pair
from bisect_onnx.core.graph import Graph, Node
from bisect_onnx.core.segments import frontiers, reads
from bisect_onnx.core.tensor import fingerprint
from tests.builders import World, candidate_of, entry, prints, random_worlds, values_of

LOWEST = float(np.finfo(np.float32).min)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def pairs_of(reference: World, candidate: World, **options) -> dict[str, str]:
    """Reference value by candidate value, graph inputs left out."""
    graph, index = candidate.graph(), reference.index()
    found = pair_by_value(graph, index, observed=prints(candidate.numbers), fixed=entry(graph, index), **options)
    return {name: pair.reference for name, pair in found.items() if name not in graph.inputs}


def both(**inputs: np.ndarray) -> tuple[World, World]:
    """An empty reference and an empty candidate on the same inputs."""
    reference, candidate = World(aten=True), World()
    for name, array in inputs.items():
        reference.input(name, array)
        candidate.input(name, array)
    return reference, candidate


# --- healthy graphs pair completely ---


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


def test_nothing_is_needed_but_numbers_and_edges():
    reference, candidate = both(x=normal(3, 4))
    reference.op("Relu", "x", to="r")
    reference.op("Tanh", "r", to="t")
    candidate.op("Relu", "x", to="17")
    candidate.op("Tanh", "17", to="18")

    assert pairs_of(reference, candidate) == {"17": "r", "18": "t"}


def test_the_inside_of_a_decomposed_operator_has_no_partner_and_what_follows_has():
    reference, candidate = both(x=normal(3, 4))
    w = normal(3, 4, seed=1)
    for world in (reference, candidate):
        world.parameter("w", w)
    reference.numbers["x"] = candidate.numbers["x"]
    candidate.op("Sigmoid", "x", to="gate")
    candidate.op("Mul", "x", "gate", to="act")
    candidate.op("Mul", "act", "w", to="out")
    silu = candidate.numbers["act"]
    reference.op("Where", "x", "w", "w", to="noise")  # something else of that size
    reference._know("silu", reference._values["noise"].kind, silu)
    reference._nodes.append(Node(index=1, name="silu", op_type="aten.silu", inputs=("x",), outputs=("silu",)))
    reference.op("Mul", "silu", "w", to="scaled")

    assert pairs_of(reference, candidate) == {"act": "silu", "out": "scaled"}


def test_a_value_in_another_shape_is_paired_and_says_so():
    reference, candidate = both(x=normal(4, 6))
    reference.op("Tanh", "x", to="r")
    candidate.op("Reshape", "x", to="flat", shape=(24,))
    candidate.op("Tanh", "flat", to="t")
    graph, index = candidate.graph(), reference.index()

    pairs = pair_by_value(graph, index, observed=prints(candidate.numbers), fixed=entry(graph, index))

    assert pairs["t"] == Pair(candidate="t", reference="r", basis=Basis.VALUE, transform="reshape")


def test_the_shape_that_an_operator_is_told_is_not_what_it_computes_from():
    # Resize to the size of a skip connection: the reference reads numbers of x only.
    reference, candidate = both(x=normal(2, 3), skip=normal(4, 6, seed=1))
    reference.op("Constant", to="sizes", value=np.array([4, 6]))
    reference.op("Resize", "x", "sizes", to="up")
    reference.op("Add", "up", "skip", to="sum")
    candidate.op("Tanh", "skip", to="other")
    candidate.op("Shape", "skip", to="shape")
    candidate.op("Resize", "x", "shape", to="resized")
    candidate.op("Add", "resized", "skip", to="added")

    assert pairs_of(reference, candidate) == {"resized": "up", "added": "sum"}


# --- what a value is computed from must stand above its partner ---


def test_an_earlier_value_is_not_taken_for_what_is_computed_from_a_later_one():
    # The candidate undoes what the reference did: its result equals r1, which does not descend from r2.
    reference, candidate = both(x=normal(4, 4))
    reference.op("Tanh", "x", to="r1")
    reference.op("Neg", "r1", to="r2")
    reference.op("Exp", "r2", to="r3")
    candidate.op("Tanh", "x", to="a")
    candidate.op("Neg", "a", to="b")
    candidate.op("Neg", "b", to="undone")

    assert pairs_of(reference, candidate) == {"a": "r1", "b": "r2"}


def test_a_skipped_operator_shows_as_its_input_passed_through():
    reference, candidate = both(x=normal(4, 4))
    reference.op("Tanh", "x", to="r1")
    reference.op("Sigmoid", "r1", to="r2")
    candidate.op("Tanh", "x", to="a")
    candidate.op("Identity", "a", to="lost")

    assert pairs_of(reference, candidate) == {"a": "r1", "lost": "r1"}


def test_a_value_of_the_other_branch_is_not_taken():
    reference, candidate = both(x=normal(4, 4), y=normal(4, 4, seed=1))
    for world in (reference, candidate):
        world.op("Tanh", "x", to="left")
    reference.op("Tanh", "y", to="right")
    candidate.op("Sub", "y", "y", to="nothing")
    candidate.op("Add", "nothing", "left", to="crossed")  # equals left, but reads y as well

    assert pairs_of(reference, candidate) == {"left": "left"}


def test_a_foreign_value_that_is_equal_by_chance_is_not_taken():
    x = normal(4, 4)
    reference, candidate = both(x=x, y=x.copy())  # two inputs with the same numbers
    reference.op("Tanh", "x", to="tx")
    candidate.op("Tanh", "y", to="ty")

    assert pairs_of(reference, candidate) == {}


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


@given(st.data())
def test_a_fault_changes_no_pair_of_what_is_not_computed_from_it(data):
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

    assert {n: p for n, p in before.items() if n not in below} == {n: p for n, p in after.items() if n not in below}


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


# --- the same numbers in other places ---


@pytest.mark.parametrize(
    ("op_type", "right", "wrong"),
    [
        ("Transpose", {"perm": (0, 2, 1, 3)}, {"perm": (2, 0, 1, 3)}),
        ("Transpose", {"perm": (0, 2, 1, 3)}, {"perm": (0, 2, 3, 1)}),
    ],
)
def test_a_wrong_permutation_is_not_paired(op_type, right, wrong):
    reference, candidate = both(x=normal(3, 3, 3, 3))
    reference.op(op_type, "x", to="r", **right)
    candidate.op(op_type, "x", to="v", **wrong)

    assert pairs_of(reference, candidate) == {}


def test_a_concat_in_the_wrong_order_is_not_paired():
    reference, candidate = both(x=normal(2, 8), y=normal(2, 8, seed=1))
    for axis in (0, 1):
        reference.op("Concat", "x", "y", to=f"r{axis}", axis=axis)
        candidate.op("Concat", "y", "x", to=f"v{axis}", axis=axis)

    assert pairs_of(reference, candidate) == {}


def test_an_output_of_a_split_does_not_stand_for_another_output_of_it():
    # The numbers are those of the reference, each half in the place of the other.
    reference, candidate = both(x=normal(4, 6))
    reference.op("Split", "x", to="first second", axis=1, sizes=(3, 3))
    candidate.op("Split", "x", to="a b", axis=1, sizes=(3, 3))
    swapped = Node(index=0, name="split", op_type="Split", inputs=("x",), outputs=("b", "a"), attributes={"axis": 1})
    graph, index = dataclasses.replace(candidate.graph(), nodes=(swapped,)), reference.index()

    pairs = pair_by_value(graph, index, observed=prints(candidate.numbers), fixed=entry(graph, index))

    assert set(pairs) == {"x"}


def test_a_consumer_that_reads_the_wrong_output_of_a_split_leaves_the_split_right():
    reference, candidate = both(x=normal(4, 6))
    reference.op("Split", "x", to="first second", axis=1, sizes=(3, 3))
    reference.op("Tanh", "first", to="t")
    candidate.op("Split", "x", to="a b", axis=1, sizes=(3, 3))
    candidate.op("Tanh", "b", to="wrong")

    assert pairs_of(reference, candidate) == {"a": "first", "b": "second"}


def test_halves_that_were_cut_one_by_one_pair_with_the_outputs_of_a_split():
    reference, candidate = both(x=normal(4, 6))
    reference.op("Split", "x", to="first second", axis=0, sizes=(2, 2))
    candidate.op("Split", "x", to="a rest", axis=0, sizes=(2, 2))
    candidate.op("Identity", "rest", to="b")

    assert pairs_of(reference, candidate) == {"a": "first", "rest": "second", "b": "second"}


# --- numbers that say nothing ---


def test_all_zero_tensors_are_not_told_apart_and_not_paired():
    x = normal(4, 5)
    reference, candidate = both(x=x)
    reference.op("Sub", "x", "x", to="zero1")
    reference.op("Relu", "x", to="r")
    reference.op("Sub", "r", "r", to="zero2")
    candidate.op("Relu", "x", to="v")
    candidate.op("Sub", "v", "v", to="zero")
    candidate.op("Sub", "x", "x", to="other")

    assert pairs_of(reference, candidate).get("other") is None
    assert pairs_of(reference, candidate)["v"] == "r"


def test_a_value_that_became_zero_by_a_fault_is_not_a_zero_tensor_of_the_reference():
    # The only zeros of the reference are born otherwise, and later.
    reference, candidate = both(x=normal(4, 5))
    for world in (reference, candidate):
        world.parameter("w", normal(4, 5, seed=1))
        world.parameter("none", np.zeros((4, 5), np.float32))
    reference.op("Mul", "x", "w", to="scaled")
    reference.op("Tanh", "scaled", to="t")
    reference.op("Sub", "t", "t", to="zeros")
    candidate.op("Mul", "x", "none", to="faulty")

    assert pairs_of(reference, candidate) == {}


@pytest.mark.parametrize("lowest", [LOWEST, -np.inf])
def test_masks_of_several_layers_are_not_mixed_up(lowest):
    x = normal(6, 6)
    reference, candidate = both(x=x)
    mask = np.where(np.tril(np.ones((6, 6))) > 0, 0, lowest).astype(np.float32)
    for world in (reference, candidate):
        world.parameter("mask", mask)
        world.parameter("zero", np.zeros((6, 6), np.float32))
    # Layer by layer another computation gives the same mask.
    reference.op("Abs", "x", to="a")
    reference.op("Mul", "a", "zero", to="z1")
    reference.op("Add", "z1", "mask", to="mask1")
    reference.op("Tanh", "x", to="t")
    reference.op("Mul", "t", "zero", to="z2")
    reference.op("Sub", "mask", "z2", to="mask2")
    candidate.op("Add", "x", "mask", to="scores")
    candidate.op("Mul", "x", "zero", to="nothing")
    candidate.op("Add", "nothing", "mask", to="which")

    assert "which" not in pairs_of(reference, candidate)


def test_the_one_mask_of_a_model_is_paired_wherever_the_two_sides_mask_with():
    reference, candidate = both(keep=np.tril(np.ones((6, 6))) > 0)
    for world, lowest in ((reference, -np.inf), (candidate, LOWEST)):
        world.parameter("zero", np.zeros((6, 6), np.float32))
        world.parameter("lowest", np.full((6, 6), lowest, np.float32))
        world.op("Where", "keep", "zero", "lowest", to="mask")

    assert pairs_of(reference, candidate) == {"mask": "mask"}


def test_scores_with_masked_elements_are_paired_by_the_others():
    reference, candidate = both(x=normal(6, 6))
    mask = np.where(np.tril(np.ones((6, 6))) > 0, 0, LOWEST).astype(np.float32)
    for world in (reference, candidate):
        world.parameter("mask", mask)
    reference.op("Tanh", "x", to="r1")
    reference.op("Add", "x", "mask", to="r2")
    reference.op("Add", "r1", "mask", to="r3")
    candidate.op("Add", "x", "mask", to="a")

    assert pairs_of(reference, candidate) == {"a": "r2"}


def test_a_value_with_masks_elsewhere_is_another_value():
    reference, candidate = both(x=normal(6, 6))
    masks = [np.where(each > 0, 0, LOWEST).astype(np.float32) for each in (np.tril(np.ones((6, 6))), np.eye(6))]
    for world in (reference, candidate):
        world.parameter("causal", masks[0])
        world.parameter("diagonal", masks[1])
    reference.op("Add", "x", "causal", to="r")
    candidate.op("Add", "x", "diagonal", to="v")

    assert pairs_of(reference, candidate) == {}


# --- repetition ---


def tied_layers(world: World, calls: int) -> None:
    """One layer called several times in a row, as with tied weights."""
    w = world.parameter("w", normal(4, 4, seed=3))
    name = "x"
    for call in range(calls):
        world.op("MatMul", name, w, to=f"m{call}")
        name = world.op("Tanh", f"m{call}", to=f"h{call}")


def test_layers_with_tied_weights_pair_call_by_call():
    reference, candidate = both(x=normal(3, 4))
    for world in (reference, candidate):
        tied_layers(world, 4)

    found = pairs_of(reference, candidate)

    assert found == {name: name for call in range(4) for name in (f"m{call}", f"h{call}")}


def test_a_lost_call_of_a_repeated_layer_pairs_nothing_with_a_later_call():
    reference, candidate = both(x=normal(3, 4))
    tied_layers(reference, 3)
    tied_layers(candidate, 2)
    candidate.op("Neg", "h1", to="out")

    assert pairs_of(reference, candidate) == {name: name for call in range(2) for name in (f"m{call}", f"h{call}")}


def test_a_layer_that_reaches_its_fixed_point_pairs_with_the_call_in_its_place():
    # Normalising what is normal already changes only the last bits: call order and edges decide.
    x = normal(6, 32)
    reference, candidate = both(x=x)
    for world in (reference, candidate):
        world.op("LayerNormalization", "x", to="n0")
        world.op("LayerNormalization", "n0", to="n1")
        world.op("LayerNormalization", "n1", to="n2")
        world.op("Tanh", "n2", to="t")

    found = pairs_of(reference, candidate)
    index = reference.index()

    assert {name: index.group_of[value] for name, value in found.items()} == {
        name: index.group_of[name] for name in ("n0", "n1", "n2", "t")
    }


def test_call_order_decides_between_equals():
    # Two operators that give the same numbers: each stands for the one in its place.
    reference, candidate = both(x=normal(3, 4), y=normal(3, 4, seed=1))
    for world in (reference, candidate):
        world.op("Add", "x", "y", to="one")
        world.op("Add", "y", "x", to="two")
        world.op("Tanh", "one", to="t1")
        world.op("Sigmoid", "two", to="t2")

    assert pairs_of(reference, candidate) == {"one": "one", "two": "two", "t1": "t1", "t2": "t2"}


def test_equals_that_are_told_apart_by_what_they_are_computed_from_need_no_order():
    reference, candidate = both(x=normal(3, 4), y=normal(3, 4).copy())
    for world, names in ((reference, "xy"), (candidate, "yx")):
        for name in names:
            world.op("Tanh", name, to=f"t{name}")

    assert pairs_of(reference, candidate) == {"ty": "ty", "tx": "tx"}


def test_a_copy_of_a_value_does_not_take_the_place_of_its_equal():
    reference, candidate = both(x=normal(3, 4), y=normal(3, 4, seed=1))
    for world in (reference, candidate):
        world.op("Add", "x", "y", to="one")
        world.op("Add", "y", "x", to="two")
    candidate.op("Identity", "one", to="copy")
    candidate.op("Tanh", "copy", to="t")
    reference.op("Tanh", "one", to="t")

    assert pairs_of(reference, candidate) == {"one": "one", "two": "two", "copy": "one", "t": "t"}


def test_the_module_decides_between_equals_before_call_order():
    reference, candidate = both(x=normal(3, 4), y=normal(3, 4, seed=1))
    reference.op("Add", "x", "y", to="one", module="a")
    reference.op("Add", "y", "x", to="two", module="b")
    candidate.op("Add", "x", "y", to="v", module="b")

    assert pairs_of(reference, candidate) == {"v": "two"}


def test_a_call_that_was_made_twice_and_exported_once_stands_for_both():
    reference, candidate = both(x=normal(3, 4))
    reference.op("Tanh", "x", to="one")
    reference.op("Tanh", "x", to="two")
    reference.op("Neg", "one", to="n")
    reference.op("Sigmoid", "two", to="s")
    candidate.op("Tanh", "x", to="v")
    candidate.op("Neg", "v", to="vn")
    candidate.op("Sigmoid", "v", to="vs")

    assert pairs_of(reference, candidate) == {"v": "one", "vn": "n", "vs": "s"}


# --- values that change little ---


@pytest.mark.parametrize("scale", [1e-1, 1e-2, 1e-4, 1e-6])
def test_a_residual_that_adds_little_is_told_from_what_it_is_added_to(scale):
    # The scale of a freshly made ConvNeXt or CaiT block is 1e-6.
    reference, candidate = both(x=normal(8, 16))
    for world in (reference, candidate):
        world.parameter("scale", np.array(scale, np.float32))
        world.op("Tanh", "x", to="t")
        world.op("Mul", "t", "scale", to="small")
    reference.op("Add", "x", "small", to="sum")
    # The candidate adds in another precision, so that its sum differs in the last bits.
    candidate.op("Add", "x", "small", to="sum")
    candidate.numbers["sum"] = np.nextafter(candidate.numbers["sum"], np.float32(np.inf))

    assert pairs_of(reference, candidate) == {"t": "t", "small": "small", "sum": "sum"}


def test_a_lost_residual_is_not_taken_for_the_sum():
    reference, candidate = both(x=normal(8, 16))
    for world in (reference, candidate):
        world.parameter("scale", np.array(1e-2, np.float32))
        world.op("Tanh", "x", to="t")
        world.op("Mul", "t", "scale", to="small")
    reference.op("Add", "x", "small", to="sum")
    candidate.op("Identity", "x", to="sum")

    assert pairs_of(reference, candidate)["sum"] == "x"


def test_a_value_that_differs_a_little_is_paired_so_that_it_can_be_judged():
    # The two forms of GELU differ by 5e-4: within reach of its partner, and of no other value.
    reference, candidate = both(x=normal(8, 16))
    reference.op("Sigmoid", "x", to="r")
    candidate.op("Sigmoid", "x", to="v")
    candidate.numbers["v"] = candidate.numbers["v"] + np.float32(5e-4)

    assert pairs_of(reference, candidate) == {"v": "r"}


@pytest.mark.parametrize(("nearest", "expected"), [(1e-4, {}), (1e-2, {"v": "r"})])
def test_the_reach_of_a_match_can_be_narrowed(nearest, expected):
    reference, candidate = both(x=normal(8, 16))
    reference.op("Sigmoid", "x", to="r")
    candidate.op("Sigmoid", "x", to="v")
    candidate.numbers["v"] = candidate.numbers["v"] + np.float32(5e-4)

    assert pairs_of(reference, candidate, nearest=nearest) == expected


# --- dtypes, fixed and barred pairs ---


def test_a_narrower_float_is_paired_when_the_candidate_runs_in_low_precision_only():
    reference, candidate = both(x=normal(8, 16))
    reference.op("Tanh", "x", to="r")
    candidate.op("Tanh", "x", to="v")
    candidate.numbers["v"] = candidate.numbers["v"].astype(np.float16)

    assert pairs_of(reference, candidate) == {}
    assert pairs_of(reference, candidate, narrow=True) == {"v": "r"}


@pytest.mark.parametrize(("changed", "expected"), [(0.0, {"v": "r"}), (1e-3, {})])
def test_an_integer_stands_for_a_float_when_every_element_is_equal(changed, expected):
    reference, candidate = both(x=normal(5, 5))
    numbers = np.arange(25).reshape(5, 5)
    for world, array in ((reference, numbers.astype(np.float32) + np.float32(changed)), (candidate, numbers)):
        world.op("Identity", "x", to="r" if world is reference else "v")
        world.numbers["r" if world is reference else "v"] = array

    assert pairs_of(reference, candidate) == expected


def test_a_barred_pair_is_not_made_again():
    reference, candidate = both(x=normal(3, 4))
    reference.op("Tanh", "x", to="r")
    candidate.op("Tanh", "x", to="v")
    group = reference.index().group_of["r"]

    assert pairs_of(reference, candidate, barred=frozenset({("v", group)})) == {}


def test_a_fixed_pair_stands_whatever_its_numbers_are_and_steers_what_follows():
    reference, candidate = both(x=normal(3, 4))
    reference.op("Tanh", "x", to="r")
    reference.op("Neg", "r", to="n")
    candidate.op("Exp", "x", to="v")
    candidate.op("Neg", "v", to="w")
    graph, index = candidate.graph(), reference.index()
    fixed = entry(graph, index) | {"v": Pair(candidate="v", reference="r", basis=Basis.STRUCTURE)}
    observed = prints(candidate.numbers) | {"w": fingerprint(-reference.numbers["r"])}  # of a run with v replaced

    pairs = pair_by_value(graph, index, observed=observed, fixed=fixed)

    assert {name: pair.reference for name, pair in pairs.items()} == {"x": "x", "v": "r", "w": "n"}
    assert pairs["v"].basis is Basis.STRUCTURE


def test_pairs_come_in_topological_order():
    reference, candidate = both(x=normal(3, 4))
    reference.op("Tanh", "x", to="r")
    candidate.op("Tanh", "x", to="v")
    candidate.op("Identity", "v", to="a")
    graph, index = candidate.graph(), reference.index()

    assert list(pair_by_value(graph, index, observed=prints(candidate.numbers), fixed=entry(graph, index))) == [
        "x", "v", "a",
    ]  # fmt: skip


def test_what_may_be_taken_is_near_and_below_all_it_is_computed_from():
    reference, _ = both(x=normal(3, 4), y=normal(3, 4, seed=1))
    reference.op("Tanh", "x", to="r")
    index = reference.index()
    like = fingerprint(reference.numbers["r"])
    x, y, r = (index.group_of[name] for name in "xyr")

    def groups(*ancestors: int) -> list[int]:
        return [match.group for match in acceptable(index, like, ancestors=frozenset(ancestors))]

    assert groups() == groups(x) == groups(x, r) == [r]
    assert groups(y) == groups(x, y) == []


def test_recorded_values_without_edges_are_paired_by_their_numbers():
    x = normal(3, 4)
    numbers = {"x": x, "relu": np.maximum(x, 0), "other": normal(3, 4, seed=5)}
    graph = Graph(name="recorded", inputs=("x",), outputs=("relu",), nodes=(), values={})
    index = ReferenceIndex(graph, prints(numbers))
    candidate = World()
    candidate.input("x", x)
    candidate.op("Relu", "x", to="v")
    ours = candidate.graph()

    pairs = pair_by_value(ours, index, observed=prints(candidate.numbers), fixed=entry(ours, index))

    assert {name: pair.reference for name, pair in pairs.items()} == {"x": "x", "v": "relu"}


def test_equal_runs_make_equal_pairs():
    reference, candidate = both(x=normal(3, 4))
    for world in (reference, candidate):
        tied_layers(world, 3)

    first: Mapping[str, str] = pairs_of(reference, candidate)

    assert list(first.items()) == list(pairs_of(reference, candidate).items())
    assert set(first) <= {name for node in candidate.graph().nodes for name in (*reads(node), *node.outputs)}
