"""The graph model: who makes a value, who reads it, also from inside bodies, and what lies above it."""

import dataclasses

import pytest
from hypothesis import given

from bisect_onnx.core.graph import Graph, Node, PathStep, Source, Value, ValueKind, captured_names, node_label
from tests.builders import FEW, random_worlds


def names(text: str) -> tuple[str, ...]:
    """Value names from a text; a dash stands for an omitted one."""
    return tuple("" if name == "-" else name for name in text.split())


def node(index: int, inputs: str, outputs: str, *bodies: Graph, op_type: str = "Op") -> Node:
    return Node(
        index=index, name=f"n{index}", op_type=op_type, inputs=names(inputs), outputs=names(outputs), subgraphs=bodies
    )  # fmt: skip


def graph(*nodes: Node, inputs: str = "", outputs: str = "", kinds: dict[str, ValueKind] | None = None) -> Graph:
    values = {name: Value(name=name, kind=kind) for name, kind in (kinds or {}).items()}
    return Graph(name="g", inputs=tuple(inputs.split()), outputs=tuple(outputs.split()), nodes=nodes, values=values)


def test_a_node_without_a_name_is_called_by_place_and_operator():
    assert node_label(3, "Conv") == "#3:Conv"
    assert node_label(3, "Conv", name="stem") == "stem"


def test_omitted_inputs_and_outputs_are_no_values():
    made = node(0, "x - sizes", "y -")

    assert (made.real_inputs(), made.real_outputs()) == (("x", "sizes"), ("y",))


def test_equal_keys_mean_equal_operands_and_an_omitted_input_keeps_its_place():
    numbering = {"a": 1, "b": 1, "c": 2}

    assert node(0, "a w", "x").inputs_key(numbering) == node(1, "b w", "y").inputs_key(numbering) == (1, "w")
    assert node(0, "a - c", "x").inputs_key(numbering) != node(0, "a c", "x").inputs_key(numbering)


def test_a_value_knows_its_producer_and_each_reader_once():
    first, second, third = node(0, "x", "a b"), node(1, "a a", "c"), node(2, "a b c", "d")
    known = graph(first, second, third, inputs="x", outputs="d")

    assert known.producer("b") == first
    assert known.producer("x") is None
    assert known.consumers("a") == (second, third)
    assert known.consumers("d") == ()
    assert known.ancestors(["c"]) == {"c", "a", "x"}


def test_activations_come_in_order_and_without_constants():
    known = graph(node(0, "", "k"), node(1, "x k", "a -"), node(2, "a", "b"), kinds={"k": ValueKind.CONSTANT})

    assert list(known.activations()) == ["a", "b"]
    assert known.kind("k") is ValueKind.CONSTANT


def test_what_a_body_reads_from_outside_is_read_by_the_node():
    inner = graph(
        node(0, "cond x i", "t"), node(1, "t w", "u"), inputs="i", outputs="u", kinds={"t": ValueKind.ACTIVATION}
    )
    loop = node(1, "n", "y", inner, op_type="Loop")
    known = graph(node(0, "a", "x"), loop)

    assert captured_names(loop) == ("cond", "x", "w")
    assert known.consumers("x") == (loop,)
    assert known.ancestors(["y"]) == {"y", "n", "cond", "x", "a", "w"}


def test_what_a_body_of_a_body_reads_from_outside_is_read_too_but_not_what_the_outer_body_makes():
    innermost = graph(node(0, "far near", "z"), outputs="z")
    middle = graph(node(0, "i", "near"), node(1, "near", "q", innermost), inputs="i", outputs="q")

    assert captured_names(node(0, "", "y", middle)) == ("far",)


def test_a_body_that_returns_an_outer_value_reads_it():
    for kinds in ({}, {"x": ValueKind.INPUT}):
        branch = graph(outputs="x", kinds=kinds)

        assert captured_names(node(0, "flag", "y", branch, op_type="If")) == ("x",)


def test_an_outer_value_that_a_body_lists_as_its_own_input_kind_is_still_outer():
    body = graph(node(0, "x i", "t"), inputs="i", outputs="t", kinds={"x": ValueKind.INPUT, "i": ValueKind.INPUT})

    assert captured_names(node(0, "", "y", body)) == ("x",)


def test_both_branches_count_and_a_name_counts_once():
    branches = [graph(node(0, "x a", "t"), outputs="t"), graph(node(0, "b x", "t"), outputs="t")]

    assert captured_names(node(0, "flag", "y", *branches)) == ("x", "a", "b")


def test_graphs_are_values():
    first, second = (graph(node(0, "x", "y"), inputs="x", outputs="y") for _ in range(2))

    assert first == second
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.name = "other"  # type: ignore[misc]


def test_places_are_told_as_plain_data():
    assert Source(file="/a.py", line=3).to_dict() == {"file": "/a.py", "line": 3, "code": None}
    assert PathStep(node="loop", index=2, graph="body").to_dict() == {
        "node": "loop", "index": 2, "graph": "body", "iteration": None,
    }  # fmt: skip


@FEW
@given(random_worlds())
def test_ancestors_are_what_the_sources_are_and_their_ancestors(world):
    known = world.graph()

    for value in known.activations():
        above = known.ancestors([value])
        producer = known.producer(value)
        assert producer is not None
        assert above == {value}.union(producer.inputs, *(known.ancestors([name]) for name in producer.inputs))
