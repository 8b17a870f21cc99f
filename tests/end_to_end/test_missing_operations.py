"""An operation that the file lacks: no node is accused, and the place is told."""

from pathlib import Path

import onnx
import pytest

import bisect_onnx
from bisect_onnx.core.report import Stage, Status
from fixtures.nets import NETS
from fixtures.strip import strip
from tests.end_to_end.at_work import assert_valid, feeds_of, healthy

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("names", ["named", "stripped"])
def test_a_quotient_lost_before_its_rounding(names: str, tmp_path: Path):
    model = healthy("integers", "dynamo", tmp_path)
    div = next(node for node in model.graph.node if node.op_type == "Div")
    floor = next(node for node in model.graph.node if div.output[0] in node.input)
    assert floor.op_type == "Floor"
    floor.input[0] = div.input[0]
    model.graph.node.remove(div)
    model = strip(model) if names == "stripped" else model
    floor = next(node for node in model.graph.node if node.op_type == "Floor")
    onnx.save(model, tmp_path / "m.onnx")
    module, _ = NETS["integers"].build(0)

    report = bisect_onnx.locate(module, tmp_path / "m.onnx", feeds_of("integers"), level=0)

    assert_valid(report)
    assert (report.status, report.stage, report.culprits) == (Status.SUSPECTED, Stage.EXPORT, ())
    assert report.missing_operation is not None
    assert (report.missing_operation.after, report.missing_operation.before) == (floor.input[0], floor.output[0])
    assert report.missing_operation.source is not None
    assert "rounding_mode" in (report.missing_operation.source.code or "")


@pytest.mark.parametrize("names", ["named", "stripped"])
def test_a_transposition_lost_between_a_recurrent_node_and_its_reshape(names: str, tmp_path: Path):
    model = healthy("recurrent", "torchscript", tmp_path)
    second = [node for node in model.graph.node if node.op_type == "LSTM"][1]
    transpose = next(node for node in model.graph.node if second.output[0] in node.input)
    reshape = next(node for node in model.graph.node if transpose.output[0] in node.input)
    assert (transpose.op_type, reshape.op_type) == ("Transpose", "Reshape")
    reshape.input[0] = second.output[0]
    model.graph.node.remove(transpose)
    model = strip(model) if names == "stripped" else model
    second = [node for node in model.graph.node if node.op_type == "LSTM"][1]
    reshape = next(node for node in model.graph.node if second.output[0] in node.input)
    onnx.save(model, tmp_path / "m.onnx")
    module, _ = NETS["recurrent"].build(0)

    report = bisect_onnx.locate(module, tmp_path / "m.onnx", feeds_of("recurrent"), level=0)

    assert (report.status, report.culprits) == (Status.SUSPECTED, ())
    assert report.missing_operation is not None
    assert (report.missing_operation.after, report.missing_operation.before) == (second.output[0], reshape.output[0])
