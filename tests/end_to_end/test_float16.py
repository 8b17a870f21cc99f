"""What float16 cannot hold: the CPU computes it in float32 between Casts, and the reference may be the wrong side."""

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

import bisect_onnx
from bisect_onnx.core.compare import Array
from bisect_onnx.core.report import ReasonCode, Stage, Status
from fixtures.export import export
from tests.end_to_end.at_work import assert_valid
from tests.onnx_models import random, save, value

pytestmark = pytest.mark.slow


def rms_norm(path: Path, *, half: bool, scale: float = 300.0, last: float = 1.0) -> Path:
    """Squares of about 90,000, beyond float16, whose root is well inside it."""
    dtype, kind = (np.float16, TensorProto.FLOAT16) if half else (np.float32, TensorProto.FLOAT)
    make = helper.make_node
    nodes = [
        make("MatMul", ["x", "first"], ["h"], name="first"),
        make("Mul", ["h", "scale"], ["big"], name="scale"),
        make("Mul", ["big", "big"], ["square"], name="square"),
        make("ReduceMean", ["square", "axes"], ["mean"], name="mean"),
        make("Sqrt", ["mean"], ["root"], name="root"),
        make("Div", ["big", "root"], ["even"], name="divide"),
        make("MatMul", ["even", "second"], ["z"], name="second"),
        make("Mul", ["z", "last"], ["y"], name="last"),
    ]
    weights: dict[str, Array] = {
        "first": (random((16, 16)) / 4).astype(dtype),
        "second": (random((16, 16), seed=1) / 4).astype(dtype),
        "scale": np.array(scale, dtype=dtype),
        "last": np.array(last, dtype=dtype),
        "axes": np.array([-1]),
    }
    return save(path, nodes, inputs=[value("x", [4, 16], kind=kind)], outputs=["y"], weights=weights)


def test_squares_that_overflow_only_where_they_are_exposed_accuse_nobody(tmp_path: Path):
    reference, candidate = rms_norm(tmp_path / "r.onnx", half=False), rms_norm(tmp_path / "c.onnx", half=True)

    report = bisect_onnx.locate(reference, candidate, {"x": random((4, 16), seed=2)}, level=0, atol=1e-6)

    assert_valid(report)
    assert (report.status, report.stage) == (Status.ACCUMULATION, Stage.PRECISION)
    rows = {row.node: row for row in report.nodes}
    assert rows["square"].reason_code is ReasonCode.TAP_ONLY
    assert rows["square"].reason == "not finite where it is exposed, and right where it is read"


def test_a_node_whose_result_float16_cannot_hold_at_an_output_is_located(tmp_path: Path):
    reference = rms_norm(tmp_path / "r.onnx", half=False, last=60000.0)
    candidate = rms_norm(tmp_path / "c.onnx", half=True, last=60000.0)

    report = bisect_onnx.locate(reference, candidate, {"x": random((4, 16), seed=2)}, level=0)

    assert_valid(report)
    assert (report.status, report.stage) == (Status.LOCATED, Stage.PRECISION)
    assert [culprit.node for culprit in report.culprits] == ["last"]


class Overflowing(nn.Module):
    """Its squares are beyond float16 in torch, and infinity over infinity is no number."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        h = self.layer(x) * 3000
        h = h * h
        return h / h.mean(-1, keepdim=True)


def test_a_reference_that_overflows_in_float16_is_the_suspect(tmp_path: Path):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = Overflowing().eval().half()
    x = torch.from_numpy(random((4, 16), seed=2)).half()
    path = export(module, {"x": x}, tmp_path / "half.onnx", exporter="dynamo")

    report = bisect_onnx.locate(module, path, {"x": x}, level=0)

    assert_valid(report)
    assert (report.status, report.exit_code) == (Status.INCONCLUSIVE, 3)
    assert report.culprits == ()
    (finding,) = report.findings
    assert finding.code == "PR003"
    assert "the reference itself overflows: aten.mul gives values beyond float16" in finding.message
