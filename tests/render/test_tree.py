"""The tree of errors opens where the culprit is and folds what is healthy, without losing a node."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_onnx.core.compare import Verdict
from bisect_onnx.core.graph import PathStep
from bisect_onnx.core.report import ReasonCode, Status
from bisect_onnx.render.tree import Line, Mark, node_place, reason_words, tree_lines
from tests.report_builders import culprit, layer_rows, node, report, untested, with_culprits


def outline(lines: list[Line]) -> list[str]:
    return [f"{'  ' * len(line.depth_guides)}{line.label} [{line.mark.value}] {line.note}".rstrip() for line in lines]


def test_the_culprit_is_opened_with_its_neighbours_and_the_rest_is_folded():
    assert outline(tree_lines(with_culprits(culprit()))) == [
        "model [CULPRIT] 18 nodes: 1 CULPRIT, 5 pass the error on, 9 fine, 3 untested",
        "  encoder [fine] 6 nodes, fine",
        "  decoder [CULPRIT]",
        "    up1 [fine]",
        "      node_Resize_61 [fine]",
        "      conv: node_conv2d_3 [fine]",
        "      node_add [fine]",
        "    up2 [CULPRIT]",
        "      node_Shape_66 [untested] shape arithmetic",
        "      node_Concat_68 [untested] shape arithmetic",
        "      node_Resize_69 [CULPRIT]",
        "      conv: node_conv2d_4 [passes the error on]",
        "      node_add_1 [passes the error on]",
        "  head [passes the error on] 4 nodes: 3 pass the error on, 1 untested",
    ]


def test_a_folded_branch_shows_its_worst_errors():
    folded = next(line for line in tree_lines(with_culprits(culprit())) if line.label == "encoder")
    inside = [row for row in layer_rows(faulty=True) if (row.module or "").startswith("encoder")]

    assert folded.introduced == max(row.introduced for row in inside if row.introduced is not None)
    assert folded.accumulated == max(row.accumulated for row in inside if row.accumulated is not None)


def test_an_opened_module_repeats_no_figures():
    opened = next(line for line in tree_lines(with_culprits(culprit())) if line.label == "decoder")

    assert (opened.inherited, opened.introduced, opened.accumulated) == (None, None, None)


def test_all_opens_every_node():
    lines = tree_lines(with_culprits(culprit()), all_open=True)

    shown = [line.label.rpartition(": ")[2] for line in lines if line.op_type is not None]
    assert sorted(shown) == sorted(row.node for row in layer_rows(faulty=True))


def test_a_node_over_its_threshold_is_shown_even_when_nobody_accuses_it():
    rows = tuple(node(at, f"n{at}", "Relu", module=f"layer.{at}") for at in range(8))
    over = dataclasses.replace(rows[5], introduced=1.0)

    lines = tree_lines(report(Status.ACCUMULATION, nodes=(*rows[:5], over, *rows[6:])))

    assert [line.label for line in lines if line.mark is Mark.OVER and line.op_type] == ["5: n5"]


def test_not_a_number_is_over_any_threshold():
    lines = tree_lines(report(Status.SUSPECTED, nodes=(node(0, "n", "Log", introduced=math.nan),)))

    assert lines[-1].mark is Mark.OVER


def test_the_rest_of_the_segment_is_shown_and_named_as_such():
    group = ("node_Mul_77", "node_Sigmoid_76")
    accused = culprit(node="node_Mul_77", op_type="Mul", index=17, group=group, module="head")

    lines = tree_lines(with_culprits(accused, nodes=layer_rows(faulty=False)))

    marks = {line.label: line.mark for line in lines if line.op_type}
    assert marks["node_Mul_77"] is Mark.CULPRIT
    assert marks["node_Sigmoid_76"] is Mark.SEGMENT


def test_an_accusation_without_a_certificate_is_a_suspect_not_a_culprit():
    lines = tree_lines(with_culprits(culprit(confidence="suspected"), status=Status.SUSPECTED))

    assert {line.mark for line in lines} & {Mark.CULPRIT, Mark.SUSPECT} == {Mark.SUSPECT}


def test_no_node_passes_an_error_on_above_the_culprit():
    lines = tree_lines(with_culprits(culprit()), all_open=True)
    labels = [line.label for line in lines if line.op_type]
    at = labels.index("node_Resize_69")

    assert Mark.CARRIES not in {line.mark for line in lines if line.op_type and labels.index(line.label) < at}


def test_without_an_accusation_the_error_starts_where_it_is_introduced():
    rows = tuple(node(at, f"n{at}", "Relu", accumulated=1.0 if at >= 2 else 1e-7) for at in range(4))
    rows = (*rows[:2], dataclasses.replace(rows[2], introduced=1.0), rows[3])

    lines = tree_lines(report(Status.SUSPECTED, nodes=rows), all_open=True)

    assert [line.mark for line in lines[1:]] == [Mark.FINE, Mark.FINE, Mark.OVER, Mark.CARRIES]


def test_growth_within_every_floor_starts_nowhere():
    rows = tuple(node(at, f"n{at}", "Relu", accumulated=1.0) for at in range(4))

    lines = tree_lines(report(Status.ACCUMULATION, nodes=rows), all_open=True)

    assert {line.mark for line in lines} == {Mark.FINE}


def test_a_node_of_the_segment_is_not_called_inside_a_segment_too():
    accused = culprit(node="node_Mul_77", op_type="Mul", index=17, group=("node_Mul_77", "node_Sigmoid_76"))

    lines = tree_lines(with_culprits(accused, nodes=layer_rows(faulty=False)), all_open=True)

    assert next(line.note for line in lines if line.label == "node_Sigmoid_76") == ""


def test_nodes_of_unknown_module_stand_under_a_heading_of_their_own():
    rows = (node(0, "a", "Relu", module=None), node(1, "b", "Relu", module=""), node(2, "c", "Relu", module=None))

    assert outline(tree_lines(report(Status.PARITY, nodes=rows), all_open=True)) == [
        "model [fine] 3 nodes, fine",
        "  (no module) [fine]",
        "    a [fine]",
        "    c [fine]",
        "  b [fine]",
    ]


def test_a_chain_of_single_modules_shares_a_line():
    rows = tuple(node(at, f"n{at}", "Relu", module="net.body.block") for at in range(2))

    assert outline(tree_lines(report(Status.PARITY, nodes=rows))) == [
        "model [fine] 2 nodes, fine",
        "  net.body.block [fine] 2 nodes, fine",
    ]


def test_many_healthy_layers_share_a_line():
    rows = tuple(node(at, f"n{at}", "Relu", module=f"layers.{at // 2}") for at in range(24))

    lines = tree_lines(report(Status.LOCATED, nodes=rows))

    assert outline(lines)[1:] == ["  layers [fine] 24 nodes, fine"]
    bad = dataclasses.replace(rows[0], introduced=1.0)
    assert "    1 ... 11 [fine] 11 modules, 22 nodes, fine" in outline(
        tree_lines(report(Status.LOCATED, nodes=(bad, *rows[1:])))
    )


def test_a_node_in_a_body_has_the_way_to_it_before_its_name():
    steps = (
        PathStep(node="Loop_3", index=3, graph="body", iteration=2),
        PathStep(node="If_1", index=1, graph="then_branch"),
    )

    row = node(0, "Add_0", "Add", path=steps)

    assert node_place(row) == "Loop_3[2]/body/If_1/then_branch/Add_0"


@pytest.mark.parametrize("code", list(ReasonCode))
def test_every_reason_is_said_in_words(code):
    (line,) = tree_lines(
        report(Status.PARITY, nodes=(untested(0, "n", "Shape", module="", code=code),)), all_open=True
    )[1:]

    assert line.note
    assert "_" not in line.note


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (None, "inside a segment"),
        ("of node_Mul_77", "inside a segment: of node_Mul_77"),
        ("inside a segment: one call of the reference", "inside a segment: one call of the reference"),
    ],
)
def test_a_reason_is_not_said_twice(reason, words):
    row = untested(0, "n", "Sigmoid", module="", code=ReasonCode.INSIDE_SEGMENT, reason=reason)

    assert reason_words(row, in_full=True) == words
    assert reason_words(row, in_full=False) == "inside a segment"


@given(
    st.lists(
        st.tuples(st.sampled_from([None, "", "a", "a.b", "a.b.c", "d", "a.e"]), st.floats(0, 1e-5), st.booleans()),
        min_size=1,
        max_size=40,
    )
)
def test_every_node_is_on_exactly_one_line_or_counted_in_one_fold(drawn):
    rows = tuple(
        node(
            at, f"n{at}", "Relu", module=module, introduced=figure, verdict=Verdict.MATCH if good else Verdict.MISMATCH
        )
        for at, (module, figure, good) in enumerate(drawn)
    )

    lines = tree_lines(report(Status.PARITY, nodes=rows))

    nodes = sum(1 for line in lines if line.op_type is not None)
    folded = sum(_folded_nodes(line.note) for line in lines[1:] if line.op_type is None and line.introduced is not None)
    assert nodes + folded == len(rows)


def _folded_nodes(note: str) -> int:
    words = note.replace(",", "").replace(":", "").split()
    return int(words[next(at for at, word in enumerate(words) if word in ("node", "nodes")) - 1])
