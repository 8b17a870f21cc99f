"""Reference values fall into classes of one quantity, and two quantities never into one."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_onnx.align.reference_index import ReferenceIndex
from bisect_onnx.core.graph import Graph, Node
from bisect_onnx.core.tensor import fingerprint, probe_positions
from tests.builders import FEW, World, prints, random_worlds

LOWEST = float(np.finfo(np.float32).min)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def classes(index: ReferenceIndex) -> list[list[str]]:
    return index.members


def after(operation: Node, before: np.ndarray, result: np.ndarray) -> ReferenceIndex:
    """The index of one call whose input and result are given."""
    graph = Graph(name="g", inputs=("x",), outputs=("y",), nodes=(operation,), values={})
    return ReferenceIndex(graph, prints({"x": before, "y": result}))


CALL = Node(index=0, name="call", op_type="aten.call", inputs=("x",), outputs=("y",))


# --- classes ---


def test_views_and_copies_are_of_the_class_of_their_source():
    world = World(aten=True)
    world.input("x", normal(3, 4))
    world.op("Reshape", "x", to="flat", shape=(12,))
    world.op("Identity", "flat", to="copy")
    world.op("Dropout", "copy", to="dropped")
    world.op("Tanh", "dropped", to="t")

    assert classes(world.index()) == [["x", "flat", "copy", "dropped"], ["t"]]


def test_a_transposition_is_no_view_of_the_same_sequence():
    world = World(aten=True)
    world.input("x", normal(3, 4))
    world.op("Transpose", "x", to="t", perm=(1, 0))

    assert classes(world.index()) == [["x"], ["t"]]


def test_one_call_made_twice_is_one_class_and_so_is_what_follows_from_it():
    world = World(aten=True)
    world.input("x", normal(3, 4))
    for call in "ab":
        world.op("Tanh", "x", to=f"t{call}")
        world.op("Neg", f"t{call}", to=f"n{call}")

    assert classes(world.index()) == [["x"], ["ta", "tb"], ["na", "nb"]]


def test_calls_that_differ_in_an_attribute_an_operand_or_an_output_are_apart():
    world = World(aten=True)
    world.input("x", normal(4, 4))
    world.parameter("w", normal(4, 4, seed=1))
    world.op("Transpose", "x", to="a", perm=(1, 0))
    world.op("Add", "x", "w", to="b")
    world.op("Add", "w", "x", to="c")  # the same numbers, another call
    world.op("Mix", "x", "x", to="d e")

    assert classes(world.index()) == [["x"], ["a"], ["b"], ["c"], ["d"], ["e"]]


def test_a_random_call_made_twice_is_two_classes():
    nodes = tuple(dataclasses.replace(CALL, index=at, outputs=(f"y{at}",)) for at in range(3))
    graph = Graph(name="g", inputs=("x",), outputs=(), nodes=nodes, values={})
    numbers = {"x": normal(3, 4), "y0": normal(3, 4, seed=1), "y1": normal(3, 4, seed=2), "y2": normal(3, 4, seed=1)}

    assert classes(ReferenceIndex(graph, prints(numbers))) == [["x"], ["y0", "y2"], ["y1"]]


@pytest.mark.parametrize("constant", [0.0, 1.0, LOWEST, np.inf, np.nan])
def test_constant_tensors_are_equal_without_being_one_quantity(constant):
    array = np.full((4, 5), constant, np.float32)

    assert classes(after(CALL, array, array.copy())) == [["x"], ["y"]]


def test_a_scalar_that_is_passed_on_stays_one_quantity():
    assert classes(after(CALL, np.array(0.5), np.array([0.5]))) == [["x", "y"]]


def test_a_wider_copy_is_of_the_class_of_its_source():
    half = normal(30, 40).astype(np.float16)

    assert classes(after(CALL, half, half.astype(np.float32))) == [["x", "y"]]
    assert classes(after(CALL, normal(30, 40), normal(30, 40).astype(np.float16))) == [["x"], ["y"]]


@FEW
@given(st.integers(65, 5000), st.floats(1e-3, 10.0), st.data())
def test_a_write_to_one_element_makes_another_quantity_wherever_it_is(size, change, data):
    before = normal(size)
    result = before.copy()
    result[data.draw(st.integers(0, size - 1))] += change

    assert len(classes(after(CALL, before, result))) == 2


@FEW
@given(st.integers(20, 1000), st.data())
def test_two_rows_that_change_places_make_another_quantity_wherever_they_are(rows, data):
    before = normal(rows, 4)
    result = before.copy()
    first, second = data.draw(st.lists(st.integers(0, rows - 1), min_size=2, max_size=2, unique=True))
    result[[first, second]] = before[[second, first]]

    assert len(classes(after(CALL, before, result))) == 2


def test_a_mask_with_one_more_masked_element_is_another_quantity():
    before = np.where(np.tril(np.ones((40, 40))) > 0, 0, LOWEST).astype(np.float32)
    free = np.setdiff1d(np.flatnonzero(before == 0), probe_positions(1600))
    result = before.copy()
    result.reshape(-1)[free[0]] = LOWEST

    assert np.array_equal(fingerprint(before).probes, fingerprint(result).probes)
    assert len(classes(after(CALL, before, result))) == 2


# --- ancestry ---


@FEW
@given(random_worlds())
def test_a_class_descends_from_all_its_members_are_computed_from(world):
    index = world.index()
    graph = world.graph()

    for name in graph.activations():
        above = {index.group_of[value] for value in graph.ancestors([name]) if value in index.group_of}
        assert index.descends(index.group_of[name], above)


@FEW
@given(random_worlds())
def test_a_class_without_views_descends_from_nothing_else(world):
    index = world.index()
    graph = world.graph()
    if any(len(members) > 1 for members in index.members):
        return  # a view may add what its call reads besides

    for name, group in index.group_of.items():
        above = {index.group_of[value] for value in graph.ancestors([name]) if value in index.group_of}
        assert {other for other in range(len(index.members)) if index.descends(group, [other])} == above


def test_recorded_values_descend_from_anything_because_nothing_is_known():
    graph = Graph(name="recorded", inputs=(), outputs=(), nodes=(), values={})
    index = ReferenceIndex(graph, prints({"a": normal(3), "b": normal(3, seed=1)}))

    assert classes(index) == [["a"], ["b"]]
    assert index.descends(0, [1])
    assert index.descends(1, [0])


def a_fork() -> World:
    world = World(aten=True)
    world.input("x", normal(3, 4))
    world.input("y", normal(3, 4, seed=1))
    world.op("Tanh", "x", to="a")
    world.op("Neg", "a", to="b")
    world.op("Exp", "y", to="c")
    world.op("Add", "b", "c", to="d")
    world.op("Abs", "d", to="e")
    return world


def test_between_two_cuts_lies_what_is_computed_on_the_way():
    index = a_fork().index()
    group = index.group_of

    def between(inputs: str, output: str) -> list[str]:
        return [index.members[found][0] for found in index.between([group[name] for name in inputs], group[output])]

    assert between("x", "e") == ["a", "b", "d"]
    assert between("xy", "e") == ["a", "b", "c", "d"]
    assert between("ac", "e") == ["b", "d"]
    assert between("d", "e") == []
    assert between("y", "b") == []


def test_the_operands_of_a_class_are_what_its_calls_read():
    index = a_fork().index()

    assert [index.members[found][0] for found in index.operands(index.group_of["d"])] == ["b", "c"]
    assert index.operands(index.group_of["x"]) == []


def test_upstream_of_a_class_are_what_it_is_computed_from_nearest_first_and_not_itself():
    index = a_fork().index()

    def upstream(name: str, most: int) -> list[str]:
        return [index.members[found][0] for found in index.upstream(index.group_of[name], most=most)]

    assert upstream("e", 9) == ["d", "b", "c", "a", "y", "x"]
    assert upstream("e", 3) == ["d", "b", "c"]
    assert upstream("x", 9) == []


def test_a_view_that_reads_something_computed_from_it_is_not_upstream_of_itself():
    # where(keep, x, x) passes x on, and keep is computed from x.
    world = World(aten=True)
    world.input("x", normal(3, 4))
    world.op("Relu", "x", to="keep")
    world.op("Where", "keep", "x", "x", to="same")
    index = world.index()

    assert classes(index) == [["x", "same"], ["keep"]]
    assert index.upstream(0, most=9) == [1]


def test_calls_that_made_a_class_are_counted_without_its_views():
    world = World(aten=True)
    world.input("x", normal(3, 4))
    for call in "ab":
        world.op("Tanh", "x", to=f"t{call}")
        world.op("Identity", f"t{call}", to=f"copy{call}")
    index = world.index()
    recorded = ReferenceIndex(Graph(name="r", inputs=(), outputs=(), nodes=(), values={}), prints(world.numbers))

    assert classes(index) == [["x"], ["ta", "copya", "tb", "copyb"]]
    assert [index.calls(group) for group in range(2)] == [0, 2]
    assert recorded.calls(0) == float("inf")


# --- look-up ---


@FEW
@given(random_worlds())
def test_every_class_resembles_itself_exactly_and_is_found_first(world):
    index = world.index()

    for group in range(len(index.members)):
        matches = index.resembling(index.fingerprint(group))
        assert matches[0].distance == 0.0
        assert group in [match.group for match in matches if match.distance == 0.0]
        assert [match.distance for match in matches] == sorted(match.distance for match in matches)


def test_a_value_of_another_size_resembles_nothing_and_neither_does_an_empty_one():
    index = a_fork().index()

    assert index.resembling(fingerprint(normal(5))) == []
    assert index.resembling(fingerprint(np.zeros((0, 3)))) == []
    assert index.of_size(12) == [0, 1, 2, 3, 4, 5, 6]
    assert index.of_size(5) == []


def test_the_member_of_the_shape_is_used_then_that_of_the_module_then_the_earliest():
    world = World(aten=True)
    world.input("x", normal(3, 4))
    world.op("Reshape", "x", to="flat", shape=(12,), module="a")
    world.op("Reshape", "x", to="also", shape=(12,), module="b")
    world.op("Identity", "x", to="copy", module="b")
    index = world.index()

    assert index.member(0, shape=(12,)) == "flat"
    assert index.member(0, shape=(12,), module="b") == "also"
    assert index.member(0, shape=(3, 4), module="b") == "copy"
    assert index.member(0, shape=(3, 4), module="c") == "x"
    assert index.member(0, shape=(2, 6)) == "x"


def test_parameters_are_known_through_views_of_them():
    world = World(aten=True)
    world.input("x", normal(3, 4))
    world.parameter("w", normal(4, 3, seed=1))
    world.parameter("b", normal(3, 3, seed=2))
    world.op("Transpose", "w", to="wt", perm=(1, 0))
    world.op("Transpose", "wt", to="w_again", perm=(1, 0))
    world.op("MatMul", "x", "w_again", to="m")
    world.op("Add", "m", "b", to="s")
    graph, index = world.graph(), world.index()

    assert [index.parameters(node) for node in graph.nodes] == [{"w"}, {"w"}, {"w"}, {"b"}]
    assert "wt" not in index.group_of  # no activation
