"""What is written out computes the same, and tells where each of its nodes comes from."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from bisect_onnx.core.graph import nested_label
from bisect_onnx.readers.onnx_file import read
from bisect_onnx.runtimes.base import Choice, WrittenOut
from bisect_onnx.runtimes.ort import OrtCandidate
from bisect_onnx.runtimes.written_out import MOST_ITERATED_NODES
from tests.onnx_models import Array, random, save, tensor, value

make = helper.make_node

BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64
TURN = (value("turn", [], kind=INT64), value("go", [], kind=BOOL))


def opened(path: Path) -> OrtCandidate:
    return OrtCandidate(read(path), providers=("cpu",), level=0, session_options={}, custom_ops=())


def written(candidate: OrtCandidate, feeds: Mapping[str, Array], *, output: str = "y") -> WrittenOut:
    found = candidate.written_out(feeds, output=output, choices={})
    assert found is not None
    return found


def places(found: WrittenOut) -> list[str]:
    """Labels of the nodes in order, ``(...)`` around those that only do what the control flow node does."""
    labels = [(nested_label(origin.path, origin.node.name), origin.made) for origin in found.origins]
    return [f"({label})" if made else label for label, made in labels]


def assert_same(path: Path, feeds: Mapping[str, Array], *, outputs: Sequence[str] = ("y",)) -> WrittenOut:
    candidate = opened(path)
    whole = candidate.run(feeds)
    for output in outputs:
        found = written(candidate, feeds, output=output)
        assert not any(node.subgraphs for node in found.candidate.graph.nodes)
        np.testing.assert_array_equal(
            found.candidate.probe(feeds, fetch=[output], cuts={})[output], whole[output], strict=True
        )
    return found


def branch(op_type: str, result: str) -> onnx.GraphProto:
    return helper.make_graph(
        [make(op_type, ["x"], [result], name=op_type.lower())], "branch", [], [value(result, None)]
    )


def test_an_if_is_the_branch_that_was_taken(tmp_path: Path):
    either = make("If", ["c"], ["h"], name="if", then_branch=branch("Exp", "a"), else_branch=branch("Neg", "b"))
    path = save(
        tmp_path / "m.onnx",
        [either, make("Relu", ["h"], ["y"], name="relu")],
        inputs=[value("x", [3]), value("c", [], kind=BOOL)],
        outputs=["y"],
    )

    for taken, expected in ((True, "if/then_branch/exp"), (False, "if/else_branch/neg")):
        found = assert_same(path, {"x": random([3]), "c": np.array(taken)})
        assert places(found) == [expected, "relu"]
        assert found.choices == {((), 0): Choice(node=opened(path).graph.nodes[0], taken=int(taken))}


def test_a_branch_that_only_passes_a_value_on(tmp_path: Path):
    passing = helper.make_graph([], "branch", [], [value("x", [3])])
    either = make("If", ["c"], ["h"], name="if", then_branch=passing, else_branch=branch("Neg", "b"))
    nodes = [either, make("Relu", ["h"], ["y"], name="relu")]
    path = save(tmp_path / "m.onnx", nodes, inputs=[value("x", [3]), value("c", [], kind=BOOL)], outputs=["y"])

    candidate = opened(path)

    # Nothing ran inside.
    assert candidate.written_out({"x": random([3]), "c": np.ones((), np.bool_)}, output="y", choices={}) is None


def counting_loop(path: Path, *, turns: int) -> Path:
    """Adds a weight of the body's own to the state, and collects the state of even turns doubled, of odd ones bare."""
    doubled = helper.make_graph(
        [make("Add", ["more", "more"], ["twice"], name="double")], "d", [], [value("twice", None)]
    )
    bare = helper.make_graph([make("Abs", ["more"], ["alone"], name="bare")], "b", [], [value("alone", None)])
    body = helper.make_graph(
        [
            make("Add", ["state", "inner"], ["more"], name="add"),
            make("Constant", [], ["two"], value=tensor("", np.array(2, np.int64))),
            make("Mod", ["turn", "two"], ["odd"], name="mod"),
            make("Cast", ["odd"], ["is_odd"], name="cast", to=BOOL),
            make("If", ["is_odd"], ["item"], name="if", then_branch=bare, else_branch=doubled),
            make("Identity", ["go"], ["go_on"], name="go_on"),
        ],
        "body",
        [*TURN, value("state", [2])],
        [value("go_on", [], kind=BOOL), value("more", [2]), value("item", [2])],
        [tensor("inner", np.array([0.5, -1.0], np.float32))],
    )
    return save(
        path,
        [make("Loop", ["m", "", "x"], ["y", "items"], name="loop", body=body)],
        inputs=[value("x", [2])],
        outputs=["y", "items"],
        weights={"m": np.array(turns, np.int64)},
    )


def test_a_loop_is_its_iterations_and_each_has_its_own_branches(tmp_path: Path):
    path = counting_loop(tmp_path / "m.onnx", turns=3)

    found = assert_same(path, {"x": random([2])}, outputs=["y", "items"])

    assert places(found) == [
        "loop[0]/body/add",
        "loop[0]/body/if/else_branch/double",
        "loop[1]/body/add",
        "loop[1]/body/if/then_branch/bare",
        "loop[2]/body/add",
        "loop[2]/body/if/else_branch/double",
        "(loop)", "(loop)", "(loop)", "(loop)",
    ]  # fmt: skip
    assert [choice.taken for choice in found.choices.values()] == [3, 0, 1, 0]
    assert {found.original.get(name, name) for name in found.states} == {"more", "y"}
    assert set(found.states.values()) == {((), 0)}


def test_the_weights_of_a_body_are_held_once(tmp_path: Path):
    found = written(opened(counting_loop(tmp_path / "m.onnx", turns=3)), {"x": random([2])})

    read_by_adds = {node.inputs[1] for node in found.candidate.graph.nodes}
    assert len(read_by_adds) == 1
    assert found.original[read_by_adds.pop()] == "inner"


def test_a_loop_that_never_runs_has_nothing_inside(tmp_path: Path):
    candidate = opened(counting_loop(tmp_path / "m.onnx", turns=0))

    assert candidate.written_out({"x": random([2])}, output="y", choices={}) is None


def test_a_loop_that_is_too_long_to_be_searched_stays_one_node(tmp_path: Path):
    turns = MOST_ITERATED_NODES // 6  # the body has six nodes
    feeds = {"x": random([2])}

    assert (
        opened(counting_loop(tmp_path / "m.onnx", turns=turns)).written_out(feeds, output="y", choices={}) is not None
    )
    longer = opened(counting_loop(tmp_path / "n.onnx", turns=turns + 1))
    assert longer.written_out(feeds, output="y", choices={}) is None


def test_a_loop_goes_on_for_as_long_as_it_is_told(tmp_path: Path):
    candidate = opened(counting_loop(tmp_path / "m.onnx", turns=3))
    x = random([2])

    longer = candidate.written_out({"x": x}, output="y", choices={((), 0): 5})

    assert longer is not None
    computed = longer.candidate.probe({"x": x}, fetch=["y"], cuts={})["y"]
    np.testing.assert_allclose(computed, x + 5 * np.array([0.5, -1.0], np.float32), rtol=1e-6)


@pytest.mark.parametrize("read_backwards", [0, 1])
@pytest.mark.parametrize("written_backwards", [0, 1])
def test_a_scan_reads_and_writes_along_its_axes(read_backwards: int, written_backwards: int, tmp_path: Path):
    body = helper.make_graph(
        [
            make("Add", ["before", "slice"], ["after"], name="add"),
            make("Mul", ["after", "other"], ["item"], name="mul"),
        ],
        "body",
        [value("before", [2]), value("slice", [2]), value("other", [2])],
        [value("after", [2]), value("item", [2])],
    )
    scan = make(
        "Scan", ["zero", "x", "z"], ["last", "y"], name="scan", body=body, num_scan_inputs=2,
        scan_input_axes=[1, 0], scan_input_directions=[read_backwards, 0],
        scan_output_axes=[1], scan_output_directions=[written_backwards],
    )  # fmt: skip
    path = save(
        tmp_path / "m.onnx",
        [scan],
        inputs=[value("x", [2, 4]), value("z", [4, 2])],
        outputs=["last", "y"],
        weights={"zero": np.zeros(2, np.float32)},
    )

    found = assert_same(path, {"x": random([2, 4]), "z": random([4, 2], seed=1)}, outputs=["last", "y"])

    assert [place for place in places(found) if "mul" in place] == [f"scan[{k}]/body/mul" for k in range(4)]


def test_functions_are_written_out_with_the_attributes_of_the_call_or_their_defaults(tmp_path: Path):
    bend = make("LeakyRelu", ["a"], ["b"], name="bend")
    bend.attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
    inner = helper.make_function(
        "own", "Inner", ["a"], ["b"], [bend], [helper.make_opsetid("", 18)], [],
        [helper.make_attribute("slope", 0.25)],
    )  # fmt: skip
    outer = helper.make_function(
        "own", "Outer", ["p"], ["q"],
        [make("Inner", ["p"], ["half"], name="inner", domain="own"), make("Neg", ["half"], ["q"], name="neg")],
        [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)],
    )  # fmt: skip
    nodes = [
        make("Inner", ["x"], ["h"], name="first", domain="own", slope=0.5),
        make("Outer", ["h"], ["y"], name="second", domain="own"),
    ]
    path = save(tmp_path / "m.onnx", nodes, inputs=[value("x", [5])], outputs=["y"], functions=[inner, outer])

    found = assert_same(path, {"x": random([5])})

    assert places(found) == [
        "first/own:Inner/bend",
        "second/own:Outer/inner/own:Inner/bend",
        "second/own:Outer/neg",
    ]


def test_a_piece_begins_at_what_it_is_fed(tmp_path: Path):
    nodes = [
        make("Exp", ["x"], ["h"], name="exp"),
        make("Cast", ["x"], ["c"], name="cast", to=BOOL),
        make("If", ["c"], ["g"], name="if", then_branch=branch("Exp", "a"), else_branch=branch("Neg", "b")),
        make("Add", ["g", "h"], ["y"], name="add"),
    ]
    path = save(tmp_path / "m.onnx", nodes, inputs=[value("x", [])], outputs=["y"])

    found = opened(path).written_out(
        {"x": np.array(2.0, np.float32), "c": np.zeros((), np.bool_), "h": np.array(1.0, np.float32)},
        output="y",
        choices={},
    )

    assert found is not None
    assert places(found) == ["if/else_branch/neg", "add"]


def test_a_model_without_bodies_is_not_written_out(tmp_path: Path):
    path = save(tmp_path / "m.onnx", [make("Exp", ["x"], ["y"])], inputs=[value("x", [2])], outputs=["y"])

    assert opened(path).written_out({"x": random([2])}, output="y", choices={}) is None
