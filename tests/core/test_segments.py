"""Cutting at paired values: the segments cover the graph, and each is fed by nothing but cuts."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bisect_onnx.core.graph import Graph, Node, ValueKind
from bisect_onnx.core.segments import Segment, depends_on, frontiers, segment_of
from tests.builders import FEW, World, evaluate, random_worlds, subsets


@st.composite
def cut_worlds(draw: st.DrawFn) -> tuple[World, Graph, frozenset[str]]:
    """A world and a set of values to cut at: its inputs and outputs always, any others by chance."""
    world = draw(random_worlds())
    graph = world.graph()
    inner = draw(subsets(range(len(list(graph.activations())))))
    chosen = {name for place, name in enumerate(graph.activations()) if place in inner}
    return world, graph, frozenset(chosen | {*graph.inputs, *graph.outputs})


def segments(graph: Graph, cut: frozenset[str]) -> list[Segment]:
    return [segment_of(graph, name, cut=cut) for name in graph.activations() if name in cut]


def a_diamond() -> tuple[World, Graph]:
    world = World()
    x = world.input("x", np.arange(4.0))
    w = world.parameter("w", np.full(4, 2.0))
    world.op("Add", x, w, to="stem")
    world.op("Neg", "stem", to="left")
    world.op("Mul", "stem", w, to="right")
    world.op("Add", "left", "right", to="join")
    return world, world.graph()


@FEW
@given(cut_worlds())
def test_every_activation_lies_in_a_segment_or_is_dead(case):
    _, graph, cut = case

    covered = {name for segment in segments(graph, cut) for node in segment.nodes for name in node.outputs}

    assert set(graph.activations()) <= covered  # an output that nobody reads is an output of these graphs: none is dead


@FEW
@given(cut_worlds())
def test_a_segment_reads_nothing_but_cuts_parameters_and_itself(case):
    _, graph, cut = case

    for segment in segments(graph, cut):
        made = {name for node in segment.nodes for name in node.outputs}
        read = {name for node in segment.nodes for name in node.inputs}
        assert set(segment.inputs) <= cut
        assert all(graph.kind(name) is ValueKind.PARAMETER for name in read - made - set(segment.inputs))
        assert segment.nodes[-1] == graph.producer(segment.output)
        assert [node.index for node in segment.nodes] == sorted({node.index for node in segment.nodes})


@FEW
@given(cut_worlds())
def test_segments_fed_with_true_inputs_give_the_true_values(case):
    world, graph, cut = case

    for segment in segments(graph, cut):
        fed = {name: world.numbers[name] for name in (*segment.inputs, "weight")}
        assert np.array_equal(evaluate(segment.nodes, fed)[segment.output], world.numbers[segment.output])


@FEW
@given(cut_worlds())
def test_the_inputs_of_a_segment_are_the_frontier_of_its_output(case):
    _, graph, cut = case
    nearest = frontiers(graph, cut)

    for segment in segments(graph, cut):
        assert frozenset(segment.inputs) == nearest[segment.output]


@FEW
@given(cut_worlds())
def test_the_interior_of_a_segment_is_what_it_computes_and_nothing_fed(case):
    _, graph, cut = case

    for segment in segments(graph, cut):
        made = [name for node in segment.nodes for name in node.outputs]
        assert list(segment.interior) == [n for n in made if n != segment.output and n not in segment.inputs]


@FEW
@given(random_worlds())
def test_cutting_everywhere_leaves_single_nodes(world):
    graph = world.graph()
    cut = frozenset(world.numbers) - {"weight"}

    for segment in segments(graph, cut):
        assert segment.nodes == (graph.producer(segment.output),)
        assert segment.inputs == tuple(dict.fromkeys(name for name in segment.nodes[0].inputs if name in cut))


def test_a_value_that_nobody_needs_is_in_no_segment():
    world, _ = a_diamond()
    world.op("Relu", "left", to="dead")

    assert all("dead" not in segment.interior for segment in segments(world.graph("join"), frozenset({"x", "join"})))


def test_the_whole_graph_is_one_segment_when_only_its_ends_are_cut():
    _, graph = a_diamond()

    segment = segment_of(graph, "join", cut={"x", "join"})

    assert segment == Segment(output="join", inputs=("x",), nodes=graph.nodes)
    assert segment.interior == ("stem", "left", "right")


def test_a_cut_in_one_branch_leaves_the_other_in_the_segment():
    _, graph = a_diamond()

    segment = segment_of(graph, "join", cut={"x", "left", "join"})

    assert segment.inputs == ("x", "left")  # in the order in which its nodes read them
    assert [node.op_type for node in segment.nodes] == ["Add", "Mul", "Add"]


def test_constant_nodes_are_left_out_of_a_segment():
    world = World()
    world.input("x", np.arange(4.0))
    world.op("Constant", to="two", value=2.0)
    world.op("Shape", "x", to="shape")
    world.op("Mul", "x", "two", to="y")

    segment = segment_of(world.graph(), "y", cut={"x", "y"})

    assert [node.op_type for node in segment.nodes] == ["Mul"]


def test_the_nodes_of_a_file_that_is_out_of_order_are_in_order():
    late = Node(index=0, name="late", op_type="Neg", inputs=("a",), outputs=("b",))
    early = Node(index=1, name="early", op_type="Neg", inputs=("x",), outputs=("a",))
    graph = Graph(name="g", inputs=("x",), outputs=("b",), nodes=(early, late), values={})

    assert segment_of(graph, "b", cut={"x", "b"}).nodes == (early, late)


def test_a_graph_input_belongs_to_no_segment():
    _, graph = a_diamond()

    assert segment_of(graph, "x", cut={"x"}) == Segment(output="x", inputs=(), nodes=())


def test_what_bodies_read_feeds_the_segment():
    body = Graph(
        name="body", inputs=(), outputs=("t",), values={},
        nodes=(Node(index=0, name="inner", op_type="Neg", inputs=("a",), outputs=("t",)),),
    )  # fmt: skip
    first = Node(index=0, name="first", op_type="Neg", inputs=("x",), outputs=("a",))
    branch = Node(index=1, name="if", op_type="If", inputs=("flag",), outputs=("y",), subgraphs=(body,))
    graph = Graph(name="g", inputs=("x", "flag"), outputs=("y",), nodes=(first, branch), values={})

    assert branch.reads == ("flag", "a")
    assert segment_of(graph, "y", cut={"x", "flag", "y"}).nodes == (first, branch)
    assert segment_of(graph, "y", cut={"a", "flag", "y"}).inputs == ("flag", "a")
    assert depends_on(graph.nodes, "x") == {"a", "y"}


@FEW
@given(random_worlds())
def test_what_depends_on_a_value_has_it_among_its_ancestors(world):
    graph = world.graph()

    for name in graph.activations():
        assert depends_on(graph.nodes, name) == {
            other for other in graph.activations() if other != name and name in graph.ancestors([other])
        }
