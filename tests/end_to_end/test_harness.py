"""Is it you? Two sides that differ only because the module was left in training mode."""

from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

import bisect_onnx
from bisect_onnx.core.finding import Confidence
from bisect_onnx.core.report import Stage, Status
from fixtures.export import export
from fixtures.faults import FAULTS
from fixtures.nets.net import randomised
from tests.end_to_end.at_work import assert_valid

pytestmark = pytest.mark.slow


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 5))


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 5))


def without_effect() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 5))


def built(build) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        module = randomised(build())
        return module, {"x": torch.randn(9, 6)}


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize(("build", "layer"), [(with_dropout, "2"), (with_batch_norm, "1")], ids=["dropout", "norm"])
def test_a_module_left_in_training_mode_is_the_answer(build, layer: str, exporter: str, tmp_path: Path):
    module, inputs = built(build)
    path = export(module, inputs, tmp_path / "m.onnx", exporter=exporter)
    module.train()
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}

    report = bisect_onnx.locate(module, path, inputs)

    assert_valid(report)
    assert (report.status, report.stage, report.exit_code) == (Status.HARNESS, Stage.HARNESS, 1)
    assert (report.culprits, report.missing_operation) == ((), None)
    (finding,) = report.findings
    assert (finding.cause, finding.confidence) == ("K26", Confidence.PROVEN)
    assert finding.facts["training_modules"] == ["", "0", "1", "2", "3"]
    assert finding.counterfactual is not None
    assert finding.counterfactual.output_before is not None
    assert finding.counterfactual.output_after is not None
    assert finding.counterfactual.output_before > 1e-3
    assert finding.counterfactual.output_after < 1e-5
    assert all(child.training for child in module.modules())
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in module.named_buffers())


def test_only_the_submodules_in_training_mode_are_listed(tmp_path: Path):
    module, inputs = built(with_dropout)
    path = export(module, inputs, tmp_path / "m.onnx", exporter="torchscript")
    module.get_submodule("2").train()

    report = bisect_onnx.locate(module, path, inputs)

    assert report.status is Status.HARNESS
    assert report.findings[0].facts["training_modules"] == ["2"]
    assert "(2)" in report.summary
    assert [child.training for child in module.modules()] == [False, False, False, True, False]


def test_training_mode_without_an_effect_is_parity(tmp_path: Path):
    module, inputs = built(without_effect)
    path = export(module, inputs, tmp_path / "m.onnx", exporter="dynamo")
    module.train()

    report = bisect_onnx.locate(module, path, inputs)

    assert (report.status, report.exit_code, report.findings) == (Status.PARITY, 0, ())
    assert all(child.training for child in module.modules())


@pytest.mark.parametrize("build", [with_dropout, with_batch_norm], ids=["dropout", "norm"])
def test_a_fault_behind_the_training_mode_is_still_found(build, tmp_path: Path):
    module, inputs = built(build)
    healthy = onnx.load(export(module, inputs, tmp_path / "m.onnx", exporter="dynamo"))
    planted = FAULTS["weight_scaled"].plant(healthy, 0)
    assert planted is not None
    onnx.save(planted.model, tmp_path / "faulty.onnx")
    module.train()

    report = bisect_onnx.locate(module, tmp_path / "faulty.onnx", inputs)

    assert report.culprit is not None
    assert (report.status, report.culprit.index) == (Status.LOCATED, planted.nodes[0])
    assert [finding.code for finding in report.findings] == ["HN001"]
    assert all(child.training for child in module.modules())
