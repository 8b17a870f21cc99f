"""Is it the checkpoint? A file exported from other weights than the reference has now."""

from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

import bisect_onnx
from bisect_onnx.core.finding import Confidence
from bisect_onnx.core.report import Report, Stage, Status, Strategy
from bisect_onnx.pipeline.weight_audit import batch_norm_epsilons, differing
from bisect_onnx.readers import onnx_file
from fixtures.export import export
from tests.end_to_end.at_work import assert_valid


class Convolutions(nn.Module):
    """Each BatchNorm is folded into the convolution before it when the file is written."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3, eps=1e-3), nn.Tanh()) for _ in range(5))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result


class Tied(nn.Module):
    """The last product reads the table of the embedding; linear layers are stored turned over."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 6)
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(5))
        self.head = nn.Linear(6, 7, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.table(x)
        for layer in self.layers:
            y = torch.tanh(layer(y))
        logits: torch.Tensor = self.head(y)
        return logits


CASES = {
    "folded": (Convolutions, lambda: torch.randn(2, 3, 5, 5)),
    "tied": (Tied, lambda: torch.randint(0, 7, (2, 4))),
}


def trained(name: str) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    build, draw = CASES[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        module, x = build().eval(), draw()
        move(module, by=0.3)
        return module, {"x": x}


def move(module: nn.Module, *, by: float) -> None:
    """One more epoch; running figures move as well, and variances stay positive."""
    with torch.no_grad():
        for tensor in (*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())):
            tensor.mul_(1 + by * torch.rand_like(tensor)).add_(by * torch.rand_like(tensor) / 9)


@pytest.fixture(scope="module", params=sorted(CASES))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    module, inputs = trained(request.param)
    path = tmp_path_factory.mktemp("weights") / "m.onnx"
    return module, inputs, export(module, inputs, path, exporter="torchscript"), request.param


def test_the_weights_of_the_file_itself_are_recognised(case):
    module, _, path, _ = case
    file = onnx_file.read(path)
    state = {name: tensor.numpy() for name, tensor in module.state_dict().items()}

    assert differing(file.graph, file.initializers, reference=state, epsilons=batch_norm_epsilons(module)) == []


def test_a_file_from_before_the_last_epoch_is_told_as_weights_without_a_search(case):
    _, inputs, path, name = case
    newer, _ = trained(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        move(newer, by=0.1)

    report = bisect_onnx.locate(newer, path, inputs)

    assert_valid(report)
    assert (report.status, report.stage, report.exit_code) == (Status.SUSPECTED, Stage.WEIGHTS, 1)
    assert (report.culprits, report.nodes, report.missing_operation) == ((), (), None)
    assert (report.search.strategy, report.search.probes) == (Strategy.WEIGHTS, 0)
    (finding,) = report.findings
    assert (finding.code, finding.cause, finding.confidence) == ("WT001", "K19", Confidence.PROVEN)
    assert len(report.weights) == (10 if name == "folded" else 12)  # the tied table is in the file twice
    assert all(row.error is not None and 0.01 < row.error < 0.5 for row in report.weights)
    assert parameters(report) == expected(name)
    assert report.summary.startswith(
        f"1 of 1 outputs differs, because the file has other weights than the reference: {len(report.weights)} "
        "initializers are not what the reference has there ("
    )
    assert report.next_steps[:2] == (
        "Export again from the checkpoint that the reference uses, or load the exported one with --weights.",
        "Then compare again:",
    )


def parameters(report: Report) -> set[str | None]:
    return {row.parameter for row in report.weights}


def expected(name: str) -> set[str]:
    kinds = ("weight", "bias")
    if name == "folded":
        return {f"layers.{i}.0.{kind} with layers.{i}.1 folded in" for i in range(5) for kind in kinds}
    return {f"layers.{i}.{kind}" for i in range(5) for kind in kinds} | {"table.weight"}


def test_a_fault_in_the_graph_beside_other_weights_is_no_matter_of_weights_alone(case, tmp_path: Path):
    """With the reference's parameters in place the outputs still differ, so the node is searched."""
    _, inputs, path, name = case
    newer, _ = trained(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        move(newer, by=0.1)
    model = onnx.load(path)
    next(node for node in model.graph.node if node.op_type == "Tanh").op_type = "Sigmoid"
    onnx.save(model, tmp_path / "m.onnx")

    report = bisect_onnx.locate(newer, tmp_path / "m.onnx", inputs)

    assert_valid(report)
    assert report.search.strategy is not Strategy.WEIGHTS
    assert all(finding.code != "WT001" for finding in report.findings)
    assert report.culprits
