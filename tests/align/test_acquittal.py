"""A value match is a hypothesis, not an acquittal: the false ones that the walk must not take.

Each test builds a reference and a candidate by hand and states which candidate value may stand for which
reference value. A value without a pair is no fault; a pair with a foreign value leads to a wrong accusation.
"""

import dataclasses

import numpy as np
import pytest

from bisect_onnx.align.by_value import pair_by_value
from bisect_onnx.core.graph import Node
from tests.builders import World, both, entry, normal, pairs_of, prints

LOWEST = float(np.finfo(np.float32).min)


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


def test_what_a_lost_operator_makes_equal_to_an_earlier_value_stands_for_nothing():
    # r is lost, so that s passes x on and t gives what a gave: each equals an earlier value of the reference.
    reference, candidate = both(x=normal(4, 5))
    for world, op_type in ((reference, "Add"), (candidate, "Sub")):
        world.op("Abs", "x", to="a")
        world.op(op_type, "x", "x", to="r")
        world.op("Add", "r", "x", to="s")
        world.op("Abs", "s", to="t")
        world.op("Identity", "t", to="copy")

    assert pairs_of(reference, candidate) == {"a": "a"}


def test_a_class_stands_for_as_many_computing_nodes_as_the_reference_made_calls():
    reference, candidate = both(x=normal(4, 5))
    for call in "ab":
        reference.op("Tanh", "x", to=f"r{call}")
    for call in "abc":
        candidate.op("Tanh", "x", to=f"v{call}")
    candidate.op("Reshape", "va", to="view", shape=(20,))

    assert pairs_of(reference, candidate) == {"va": "ra", "vb": "ra", "view": "ra"}
    assert reference.index().calls(reference.index().group_of["ra"]) == 2


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
