"""A fault in a branch, an iteration or a function is reported as the inner node, with the way to it."""

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn

import bisect_onnx
from bisect_onnx.core.graph import nested_label
from bisect_onnx.core.report import Culprit, Report, Status
from fixtures.strip import strip
from tests.end_to_end import bodies
from tests.end_to_end.at_work import assert_valid, told
from tests.end_to_end.bodies import edited, inner_nodes, rows
from tests.end_to_end.traps import seeded_module

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the exporters, about themselves
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

Edit = Callable[[onnx.NodeProto], None]

looping = functools.cache(lambda: bodies.scripted(bodies.Looping, inputs=rows(4)))
branching = functools.cache(lambda: bodies.scripted(bodies.Branching, inputs=rows(4)))
gated = functools.cache(lambda: bodies.called(bodies.Gated, inputs=rows(4)))

POSITIVE, NEGATIVE = 0.5, -0.5
INT64 = onnx.TensorProto.INT64


def another(op_type: str) -> Edit:
    def edit(node: onnx.NodeProto) -> None:
        node.op_type = op_type

    return edit


def reading(*names: str) -> Edit:
    def edit(node: onnx.NodeProto) -> None:
        node.input[:] = names

    return edit


def the(op_type: str, model: onnx.ModelProto) -> str:
    """The name of the one inner node of that type."""
    (name,) = [node.name for node in inner_nodes(model) if node.op_type == op_type]
    return name


def locate(build: Callable[[], nn.Module], model: onnx.ModelProto, x: torch.Tensor, *, folder: Path) -> Report:
    path = folder / "m.onnx"
    onnx.save(model, path)
    report = bisect_onnx.locate(seeded_module(build), path, (x,), level=0)
    assert_valid(report)
    return report


def proven(report: Report) -> Culprit:
    """The only culprit, which is certified."""
    assert report.status is Status.LOCATED, told(report)
    (culprit,) = report.culprits
    assert culprit.confidence == "certified"
    return culprit


def place(culprit: Culprit) -> str:
    return nested_label(culprit.path, culprit.node)


HEALTHY: list[tuple[Callable[[], nn.Module], Callable[[], onnx.ModelProto], torch.Tensor]] = [
    (bodies.Looping, looping, rows(4)),
    (bodies.Branching, branching, rows(4, shift=POSITIVE)),
    (bodies.Branching, branching, rows(4, shift=NEGATIVE)),
    (bodies.Gated, gated, rows(4, shift=POSITIVE)),
    (bodies.Gated, gated, rows(4, shift=NEGATIVE)),
    (bodies.Recurrent, bodies.recurrent, rows(5)),
    (bodies.Layered, bodies.layered, rows(4)),
    (bodies.Growing, bodies.growing, rows(3)),
    (bodies.Stopping, bodies.stopping, rows(3)),
]


@pytest.mark.parametrize(("build", "file", "x"), HEALTHY)
def test_a_healthy_body_is_at_parity(
    build: Callable[[], nn.Module], file: Callable[[], onnx.ModelProto], x: torch.Tensor, tmp_path: Path
):
    assert locate(build, file(), x, folder=tmp_path).status is Status.PARITY


BRANCHES = [
    (bodies.Branching, branching, POSITIVE, "Sigmoid", "HardSigmoid", "then_branch"),
    (bodies.Branching, branching, NEGATIVE, "Tanh", "Softsign", "else_branch"),
    (bodies.Branching, branching, NEGATIVE, "Sub", "Add", "else_branch"),
    (bodies.Gated, gated, POSITIVE, "Sigmoid", "HardSigmoid", "then_branch"),
    (bodies.Gated, gated, NEGATIVE, "Tanh", "Softsign", "else_branch"),
]


@pytest.mark.parametrize(("build", "file", "shift", "right", "wrong", "branch"), BRANCHES)
def test_the_node_of_the_branch_that_was_taken_is_named(
    build: Callable[[], nn.Module],
    file: Callable[[], onnx.ModelProto],
    shift: float,
    right: str,
    wrong: str,
    branch: str,
    tmp_path: Path,
):
    name = the(right, file())
    model = edited(file(), name, another(wrong))
    (outer,) = [index for index, node in enumerate(model.graph.node) if node.op_type == "If"]

    culprit = proven(locate(build, model, rows(4, shift=shift), folder=tmp_path))

    assert culprit.node == name
    assert (culprit.op_type, culprit.index) == (wrong, outer)
    assert [(step.index, step.graph, step.iteration) for step in culprit.path] == [(outer, branch, None)]


@pytest.mark.parametrize(("right", "wrong"), [("Sigmoid", "HardSigmoid"), ("Tanh", "Softsign")])
def test_a_fault_in_the_branch_that_is_not_taken_is_not_seen(right: str, wrong: str, tmp_path: Path):
    model = edited(branching(), the(right, branching()), another(wrong))
    shift = NEGATIVE if right == "Sigmoid" else POSITIVE

    assert locate(bodies.Branching, model, rows(4, shift=shift), folder=tmp_path).status is Status.PARITY


def test_a_node_that_is_wrong_in_every_iteration_is_named_in_the_first(tmp_path: Path):
    model = edited(looping(), the("Tanh", looping()), another("Softsign"))

    report = locate(bodies.Looping, model, rows(4), folder=tmp_path)

    culprit = proven(report)
    assert place(culprit) == "/Loop[0]/body//Tanh"
    assert report.summary == "/Loop[0]/body//Tanh (Softsign) introduces the error"
    assert culprit.index == [node.name for node in model.graph.node].index("/Loop")
    assert culprit.error.introduced is not None
    assert culprit.impact == pytest.approx(1.0, abs=1e-4)
    assert [(row.node, row.path) for row in report.nodes if row.path] == [("/Tanh", culprit.path)]


def test_a_file_without_names_is_answered_by_positions(tmp_path: Path):
    model = strip(edited(looping(), the("Tanh", looping()), another("Softsign")))

    culprit = proven(locate(bodies.Looping, model, rows(4), folder=tmp_path))

    (loop,) = [(index, node) for index, node in enumerate(model.graph.node) if node.op_type == "Loop"]
    inner = [node.op_type for node in loop[1].attribute[0].g.node].index("Softsign")
    assert place(culprit) == f"#{loop[0]}:Loop[0]/body/#{inner}:Softsign"


def test_a_node_that_matters_from_a_later_iteration_on_is_named_there(tmp_path: Path):
    x = rows(4) * 0.7
    model = edited(looping(), the("Clip", looping()), another("Clip"))
    (limit,) = [n for n in model.graph.node if n.op_type == "Constant" and _number(n) == 4.0 and _is_double(n)]
    (reader,) = [node for node in inner_nodes(model) if limit.output[0] in node.input]
    limit.attribute[0].t.CopyFrom(numpy_helper.from_array(np.array(3.0)))
    first = _first_turn_beyond(3.0, x)
    assert first == 2

    culprit = proven(locate(bodies.Looping, model, x, folder=tmp_path))

    assert place(culprit) == f"/Loop[{first}]/body/{reader.name}"


def _number(node: onnx.NodeProto) -> float:
    return float(numpy_helper.to_array(node.attribute[0].t).reshape(-1)[0])


def _is_double(node: onnx.NodeProto) -> bool:
    return bool(node.attribute[0].t.data_type == onnx.TensorProto.DOUBLE)


def _first_turn_beyond(limit: float, x: torch.Tensor) -> int:
    """The first turn of `Looping` whose values pass ``limit``."""
    module = seeded_module(bodies.Looping)
    assert isinstance(module, bodies.Looping)
    x = module.enter(x)
    for turn in range(4):
        x = torch.tanh(module.turn(x)) * 0.5 + x * 1.5
        if bool((x > limit).any()):
            return turn
        x = torch.clamp(x, -4.0, 4.0)
    return -1


SCANS = [
    ("bend", another("Softsign"), "scan[0]/body/bend"),
    # The first state is zero: what is made of it is right whatever it is multiplied with.
    ("keep", reading("before", "read.weight"), "scan[1]/body/keep"),
    ("sum", another("Sub"), "scan[1]/body/sum"),
]


@pytest.mark.parametrize(("name", "edit", "expected"), SCANS)
def test_a_step_of_a_scan_is_named(name: str, edit: Edit, expected: str, tmp_path: Path):
    report = locate(bodies.Recurrent, edited(bodies.recurrent(), name, edit), rows(5), folder=tmp_path)

    culprit = proven(report)
    assert place(culprit) == expected
    assert culprit.impact == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("direction", ["scan_input_directions", "scan_output_directions"])
def test_a_scan_that_runs_the_wrong_way_is_the_scans_own_fault(direction: str, tmp_path: Path):
    model = bodies.recurrent()
    model.graph.node[0].attribute.append(helper.make_attribute(direction, [1]))

    report = locate(bodies.Recurrent, model, rows(5), folder=tmp_path)

    assert {(culprit.node, culprit.path) for culprit in report.culprits} == {("scan", ())}


def test_a_fault_in_a_function_is_one_fault_however_often_it_is_called(tmp_path: Path):
    model = edited(bodies.layered(), "gate", another("HardSigmoid"))

    culprit = proven(locate(bodies.Layered, model, rows(4), folder=tmp_path))

    assert place(culprit) == "one/own:Block/gate"
    assert culprit.index == 0


def test_an_attribute_of_a_call_is_wrong_in_that_call_alone(tmp_path: Path):
    model = bodies.layered()
    model.graph.node[1].attribute[0].f = 0.4

    culprit = proven(locate(bodies.Layered, model, rows(4), folder=tmp_path))

    assert place(culprit) == "two/own:Block/bend"


GROWTH = [("bend", another("Softsign")), ("append", reading("row", "state"))]


@pytest.mark.parametrize(("name", "edit"), GROWTH)
def test_a_state_that_grows_is_looked_at_in_each_iteration(name: str, edit: Edit, tmp_path: Path):
    culprit = proven(locate(bodies.Growing, edited(bodies.growing(), name, edit), rows(3), folder=tmp_path))

    assert place(culprit) == f"loop[0]/body/{name}"


def test_a_loop_that_decides_by_itself_when_to_end_is_looked_into(tmp_path: Path):
    model = edited(bodies.stopping(), "wave", another("Tanh"))

    culprit = proven(locate(bodies.Stopping, model, rows(3), folder=tmp_path))

    assert place(culprit) == "loop[0]/body/wave"


@pytest.mark.parametrize("limit", [20.0, 200.0])
def test_a_loop_that_ends_at_the_wrong_time_is_suspected_with_what_decides(limit: float, tmp_path: Path):
    report = locate(bodies.Stopping, bodies.stopping(limit=limit), rows(3), folder=tmp_path)

    assert report.status is Status.SUSPECTED
    (culprit,) = report.culprits
    assert (culprit.node, culprit.path) == ("loop", ())
    assert culprit.group[:3] == ("loop", "total", "less")
    assert report.missing_operation is None


@pytest.mark.parametrize("turns", [2, 3, 5, 6])
def test_a_wrong_number_of_turns_is_the_loops_own_fault(turns: int, tmp_path: Path):
    model = onnx.ModelProto()
    model.CopyFrom(looping())
    (number,) = [n for n in model.graph.node if n.op_type == "Constant" and n.attribute[0].t.data_type == INT64]
    number.attribute[0].t.CopyFrom(numpy_helper.from_array(np.array(turns, np.int64)))

    culprit = proven(locate(bodies.Looping, model, rows(4), folder=tmp_path))

    assert (culprit.node, culprit.path) == ("/Loop", ())


@pytest.mark.parametrize("shift", [POSITIVE, NEGATIVE])
def test_a_wrong_branch_is_nothing_that_its_nodes_did(shift: float, tmp_path: Path):
    model = onnx.ModelProto()
    model.CopyFrom(branching())
    (compare,) = [node for node in model.graph.node if node.op_type == "Greater"]
    compare.op_type = "Less"

    culprit = proven(locate(bodies.Branching, model, rows(4, shift=shift), folder=tmp_path))

    assert (culprit.node, culprit.path) == (compare.name, ())


@pytest.mark.parametrize("shift", [POSITIVE, NEGATIVE])
def test_exchanged_branches_are_the_fault_of_the_if(shift: float, tmp_path: Path):
    model = onnx.ModelProto()
    model.CopyFrom(branching())
    (node,) = [node for node in model.graph.node if node.op_type == "If"]
    first, second = node.attribute
    first.name, second.name = second.name, first.name

    culprit = proven(locate(bodies.Branching, model, rows(4, shift=shift), folder=tmp_path))

    assert (culprit.node, culprit.path) == (node.name, ())


def test_a_scan_that_is_too_long_to_be_searched_is_accused_as_a_whole(tmp_path: Path):
    model = edited(bodies.recurrent(steps=30), "bend", another("Softsign"))

    culprit = proven(locate(bodies.Recurrent, model, rows(30), folder=tmp_path))

    assert (culprit.node, culprit.path) == ("scan", ())
