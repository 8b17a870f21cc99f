"""A branch that starts at zero (gamma = 0, a zero-initialised norm) still says which of its nodes is wrong."""

from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

import bisect_onnx
from bisect_onnx.core.report import Status
from fixtures.export import export

pytestmark = pytest.mark.slow


class Scaled(nn.Module):
    """Residual branches with a learned scale."""

    def __init__(self, gamma: float):
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(3)
        )
        self.scales = nn.ParameterList(nn.Parameter(gamma * torch.ones(16)) for _ in range(3))

    def forward(self, x):
        for branch, scale in zip(self.branches, self.scales, strict=True):
            x = x + scale * branch(x)
        return x


@pytest.mark.parametrize("gamma", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize(("op_type", "becomes"), [("Mul", "Add"), ("Add", "Max")])
def test_the_wrong_node_of_a_silent_branch_is_named(op_type: str, becomes: str, gamma: float, tmp_path: Path):
    torch.manual_seed(0)
    module, inputs = Scaled(gamma).eval(), {"x": torch.randn(2, 5, 16)}
    path = export(module, inputs, tmp_path / "m.onnx", exporter="dynamo")
    model = onnx.load(path)
    place = [place for place, node in enumerate(model.graph.node) if node.op_type == "Mul"][1]
    node = model.graph.node[place if op_type == "Mul" else place + 1]
    assert node.op_type == op_type
    node.op_type = becomes
    onnx.save(model, path)

    report = bisect_onnx.locate(module, path, inputs, level=0)

    assert report.status is Status.LOCATED, report.summary
    assert [culprit.node for culprit in report.culprits] == [node.name]
    assert report.missing_operation is None
