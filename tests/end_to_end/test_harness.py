"""Is it you? Two sides that differ only because the module was left in training mode."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
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


def with_other_activation(path: Path) -> Path:
    """The file with its first Relu replaced: a fault for every reference."""
    model = onnx.load(path)
    relu = next(node for node in model.graph.node if node.op_type == "Relu")
    relu.op_type = "Sigmoid"
    onnx.save(model, path)
    return path


WRAPPERS = {
    "lambda": lambda module: lambda x: module(x) + 0,
    "bound method": lambda module: module.forward,
    "data parallel": nn.DataParallel,
    "partial": lambda module: functools.partial(call, module),
}


def call(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = module(x)
    return y


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=list(WRAPPERS))
def test_a_wrapper_whose_mode_has_no_effect_is_no_finding(wrap, tmp_path: Path):
    module, inputs = built(with_dropout)
    path = with_other_activation(export(module, inputs, tmp_path / "m.onnx", exporter="dynamo"))

    report = bisect_onnx.locate(wrap(module), path, tuple(inputs.values()))

    assert (report.status, report.findings) == (Status.LOCATED, ())
    assert report.culprit is not None
    assert report.culprit.op_type == "Sigmoid"
    assert not any(child.training for child in module.modules())


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=list(WRAPPERS))
def test_a_module_inside_a_wrapper_is_found_in_training_mode_and_left_as_it_was(wrap, tmp_path: Path):
    module, inputs = built(with_batch_norm)
    path = export(module, inputs, tmp_path / "m.onnx", exporter="dynamo")
    module.train()
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}

    report = bisect_onnx.locate(wrap(module), path, tuple(inputs.values()))

    assert (report.status, [finding.code for finding in report.findings]) == (Status.HARNESS, ["HN001"])
    assert all(child.training for child in module.modules())
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in module.named_buffers())


def test_only_layers_that_heed_their_mode_are_named(tmp_path: Path):
    module, inputs = built(with_dropout)
    path = export(module, inputs, tmp_path / "m.onnx", exporter="dynamo")
    module.train()

    finding = bisect_onnx.locate(module, path, inputs).findings[0]

    assert finding.facts["mode_dependent"] == ["2"]
    assert finding.message == (
        "the reference was compared in training mode (2); in evaluation mode every output agrees"
    )


class Noisy(nn.Module):
    def __init__(self, *, source: str, scale: float = 1.0) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 8)
        self.source, self.scale = source, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x)
        if self.source == "torch":
            return y + self.scale * torch.rand_like(y)
        if self.source == "dropout":
            return nn.functional.dropout(y, 0.5)
        if self.source == "numpy":
            return y + float(np.random.rand())  # noqa: NPY002  # the global generator, as user code has it
        return y


def numpy_state() -> Any:
    state: Any = np.random.get_state()  # noqa: NPY002  # the global generator, as user code has it
    return state[1]


@pytest.mark.parametrize("source", ["torch", "dropout", "numpy"])
def test_a_reference_that_draws_random_numbers_accuses_nobody(source: str, tmp_path: Path):
    module, inputs = built(lambda: Noisy(source="none"))
    path = export(module, inputs, tmp_path / "m.onnx", exporter="torchscript")
    assert isinstance(module, Noisy)
    module.source = source
    before = torch.get_rng_state(), numpy_state().copy()

    report = bisect_onnx.locate(module, path, inputs)

    assert (report.status, report.culprits, report.exit_code) == (Status.INCONCLUSIVE, (), 3)
    (finding,) = report.findings
    assert (finding.code, finding.cause) == ("HN002", "K13")
    assert finding.message == (
        "the reference (Noisy) draws random numbers: it gives others when it is run again on the same inputs"
    )
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(numpy_state(), before[1])


def test_random_numbers_below_the_noise_floor_are_no_problem(tmp_path: Path):
    module, inputs = built(lambda: Noisy(source="torch", scale=1e-8))
    assert isinstance(module, Noisy)
    module.source = "none"
    path = export(module, inputs, tmp_path / "m.onnx", exporter="torchscript")
    planted = FAULTS["weight_scaled"].plant(onnx.load(path), 0)
    assert planted is not None
    onnx.save(planted.model, path)
    module.source = "torch"

    report = bisect_onnx.locate(module, path, inputs)

    assert report.status is Status.LOCATED
    assert report.culprit is not None
    assert report.culprit.index == planted.nodes[0]


class Several(nn.Module):
    """Three outputs, two of one shape."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = self.inner(x)
        return y, torch.relu(y), y.sum(1)


def with_outputs(path: Path, places: list[int]) -> Path:
    """The file with those of its outputs, in that order."""
    model = onnx.load(path)
    outputs = [model.graph.output[place] for place in places]
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ([1, 0, 2], "{0!r} is the reference's 'output_1', {1!r} is the reference's 'output_0'"),
        ([2, 1, 0], "{0!r} is the reference's 'output_2', {2!r} is the reference's 'output_0'"),
        ([0, 2], "{1!r} is the reference's 'output_2'"),
        ([2], "{0!r} is the reference's 'output_2'"),
    ],
)
def test_outputs_in_other_places_are_the_answer(places: list[int], message: str, tmp_path: Path):
    module, inputs = built(Several)
    path = with_outputs(export(module, inputs, tmp_path / "m.onnx", exporter="dynamo"), places)
    names = [value.name for value in onnx.load(path).graph.output]

    report = bisect_onnx.locate(module, path, inputs)

    assert_valid(report)
    assert (report.status, report.stage, report.culprits, report.exit_code) == (Status.HARNESS, Stage.HARNESS, (), 1)
    (finding,) = report.findings
    assert (finding.code, finding.cause, finding.confidence) == ("HN003", "K26", Confidence.PROVEN)
    assert finding.message == "outputs were compared with others than their own: " + message.format(*names)
    assert finding.counterfactual is not None
    assert finding.counterfactual.output_after is not None
    assert finding.counterfactual.output_after < 1e-5


def test_a_fault_behind_exchanged_outputs_is_still_found(tmp_path: Path):
    module, inputs = built(Several)
    path = with_outputs(export(module, inputs, tmp_path / "m.onnx", exporter="dynamo"), [1, 0, 2])
    model = onnx.load(path)
    last = next(node for node in model.graph.node if node.output[0] == model.graph.output[2].name)
    assert last.op_type == "ReduceSum"
    last.op_type = "ReduceMean"
    onnx.save(model, path)

    report = bisect_onnx.locate(module, path, inputs)

    assert [culprit.op_type for culprit in report.culprits] == ["ReduceMean"]
    assert [finding.code for finding in report.findings] == ["HN003"]


def test_outputs_that_nothing_pairs_accuse_nobody(tmp_path: Path):
    module, inputs = built(Several)
    path = with_outputs(export(module, inputs, tmp_path / "m.onnx", exporter="dynamo"), [2, 0])

    class Other(Several):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            y = self.inner(x) * 3
            return y.cos(), y.sin(), y.sum(1).exp()

    other = Other()
    other.load_state_dict(module.state_dict())
    report = bisect_onnx.locate(other, path, inputs)

    assert all(
        row.reason is not None and "neither names nor shapes say that the two belong together" in row.reason
        for row in report.outputs
    )
    assert all(culprit.confidence == "suspected" for culprit in report.culprits)
