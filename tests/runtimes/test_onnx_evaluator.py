"""The onnx reference evaluator on a part of a file: what it gives, and when it is not asked."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bisect_onnx.readers import onnx_file
from bisect_onnx.runtimes.onnx_evaluator import NotEvaluatedError, evaluate

X = np.array([[1.0, -2.0], [3.0, -4.0]], np.float32)


def written(path: Path, *nodes: onnx.NodeProto) -> onnx_file.OnnxFile:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])],
        [numpy_helper.from_array(np.array([10.0, 20.0], np.float32), "w")],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return onnx_file.read(path)


def test_nodes_are_computed_with_their_initializers(tmp_path: Path):
    file = written(
        tmp_path / "m.onnx", helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Mul", ["r", "w"], ["y"])
    )

    found = evaluate(file, file.graph.nodes, inputs={"x": X}, output="y", shapes={})

    np.testing.assert_array_equal(found, np.array([[10.0, 0.0], [30.0, 0.0]], np.float32))
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_an_operator_that_it_does_not_know_has_a_reason(tmp_path: Path):
    file = written(tmp_path / "m.onnx", helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft"))

    with pytest.raises(NotEvaluatedError, match="Node type 'QuickGelu' from domain"):
        evaluate(file, file.graph.nodes, inputs={"x": X}, output="y", shapes={})


def test_a_segment_that_would_take_long_is_not_run(tmp_path: Path):
    file = written(tmp_path / "m.onnx", helper.make_node("Relu", ["x"], ["y"], name="large"))

    with pytest.raises(NotEvaluatedError) as caught:
        evaluate(file, file.graph.nodes, inputs={"x": X}, output="y", shapes={"y": (1 << 12, 1 << 12)})

    assert str(caught.value) == "it is written in Python, and would take about 17 s, most of it for large"
