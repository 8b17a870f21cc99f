"""The audit of initializers that are several parameters, or a part of one."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bisect_onnx.pipeline.weight_audit import differing
from bisect_onnx.readers import onnx_file

RNG = np.random.default_rng(2)
STATE = {
    f"{part}.{kind}": RNG.standard_normal((4, 4) if kind == "weight" else (4,)).astype(np.float32)
    for part in ("query", "key", "value")
    for kind in ("weight", "bias")
}


def written(path: Path, weight: np.ndarray, bias: np.ndarray) -> onnx_file.OnnxFile:
    """A linear layer with query, key and value fused, as optimisers write it."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 12])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return onnx_file.read(path)


def together(kind: str) -> np.ndarray:
    return np.concatenate([STATE[f"{part}.{kind}"] for part in ("query", "key", "value")])


def test_fused_parameters_of_the_reference_are_recognised(tmp_path: Path):
    file = written(tmp_path / "m.onnx", np.ascontiguousarray(together("weight").T), together("bias"))

    assert differing(file.graph, file.initializers, reference=STATE, epsilons={}) == []


def test_fused_parameters_that_were_rounded_are_recognised(tmp_path: Path):
    rounded = [array.astype(np.float16).astype(np.float32) for array in (together("weight").T.copy(), together("bias"))]
    file = written(tmp_path / "m.onnx", *rounded)

    assert differing(file.graph, file.initializers, reference=STATE, epsilons={}) == []


def test_fused_parameters_of_another_checkpoint_are_told_with_what_they_should_be(tmp_path: Path):
    file = written(tmp_path / "m.onnx", np.ascontiguousarray(together("weight").T) * np.float32(1.1), together("bias"))

    (pair,) = differing(file.graph, file.initializers, reference=STATE, epsilons={})

    assert (pair.row.initializer, pair.row.transform) == ("w", "concat, transpose")
    assert pair.row.parameter == "query.weight + key.weight + value.weight"
    assert pair.row.error == pytest.approx(0.1, rel=1e-3)
    np.testing.assert_array_equal(pair.parameter, together("weight").T)
