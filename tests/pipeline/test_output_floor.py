"""Noise of outputs whose calls cannot be repeated in float64: healthy files agree, and faults stay faults."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import bisect_onnx
from bisect_onnx.core.report import Status
from bisect_onnx.core.tolerance import unit_roundoff
from bisect_onnx.pipeline.output_floor import independent_roundings, one_step
from bisect_onnx.readers.onnx_file import read
from bisect_onnx.runtimes.ort import OrtCandidate

IMAGE = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)


def offset_net(path: Path, *, offset: float, shift: float = 0.0) -> Path:
    """A convolution whose bias the norm behind it takes away again: folding the two changes the rounding."""
    rng = np.random.default_rng(0)
    bias = (offset + rng.standard_normal(8)).astype(np.float32)
    weights = {
        "w": rng.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "b": bias,
        "scale": np.full(8, 1.3, np.float32),
        "zero": np.zeros(8, np.float32),
        "mean": bias + np.float32(shift),
        "var": np.full(8, 27, np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "zero", "mean", "var"], ["n"]),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, IMAGE.shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 8, 16, 16])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_what_the_optimisers_round_otherwise_in_an_ill_conditioned_file_is_noise(tmp_path: Path):
    path = offset_net(tmp_path / "m.onnx", offset=1000)

    report = bisect_onnx.locate(path, path, {"x": IMAGE})

    (row,) = report.outputs
    assert row.error is not None
    assert row.error.scaled is not None
    assert row.error.scaled > 8 * np.sqrt(3) * unit_roundoff("float32")  # what three roundings explain
    assert (report.status, report.stage) == (Status.PARITY, None)


@pytest.mark.parametrize("shift", [0.05, -0.5])
def test_a_fault_in_an_ill_conditioned_file_is_no_noise(shift: float, tmp_path: Path):
    path = offset_net(tmp_path / "m.onnx", offset=1000)
    faulty = offset_net(tmp_path / "faulty.onnx", offset=1000, shift=shift)

    report = bisect_onnx.locate(path, faulty, {"x": IMAGE})

    assert report.status is not Status.PARITY
    assert report.culprit is not None
    assert report.culprit.op_type == "BatchNormalization"


def test_operators_that_round_independently_add_up_by_their_squares(tmp_path: Path):
    file = read(offset_net(tmp_path / "m.onnx", offset=0))
    model = OrtCandidate(file, providers=("cpu",), level=0, session_options={}, custom_ops=())

    # 27 products are summed by the convolution; the norm and the Relu are elementwise.
    expected = np.sqrt((1 + np.sqrt(26) / 2) ** 2 + 1 + 1)
    assert independent_roundings("y", model=model, shapes={}, roundoff=1.0) == pytest.approx(expected)


def test_a_step_is_one_unit_in_the_last_place_both_ways_and_leaves_other_numbers():
    array = np.array([1.0, -3.5, 0.0, np.inf, np.nan] * 20, np.float32)
    moved = one_step(array, seed=0)

    finite = np.isfinite(array)
    gap = moved[finite].astype(np.float64) - array[finite]
    assert {-1.0, 1.0} == set(np.sign(gap))
    assert np.array_equal(np.abs(gap) <= np.spacing(np.abs(array[finite])), np.ones(60, bool))
    assert np.array_equal(moved[~finite], array[~finite], equal_nan=True)
    ids = np.arange(4)
    assert one_step(ids, seed=0) is ids
