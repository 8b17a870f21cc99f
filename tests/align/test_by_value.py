"""The walk pairs candidate values with reference values by their numbers and edges alone."""

import numpy as np
import pytest

from bisect_onnx.align.by_value import acceptable, pair_by_value
from bisect_onnx.align.reference_index import ReferenceIndex
from bisect_onnx.core.alignment import Basis, Pair
from bisect_onnx.core.graph import Graph, Node
from bisect_onnx.core.tensor import fingerprint
from tests.builders import World, both, entry, normal, pairs_of, prints


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
        world.op("Tanh", "x", to="a")
        world.op("Neg", "a", to="b")

    first, second = (list(pairs_of(reference, candidate).items()) for _ in range(2))

    assert first == second == [("a", "a"), ("b", "b")]
