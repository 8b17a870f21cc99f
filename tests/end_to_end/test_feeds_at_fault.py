"""Is it you? Feeds that the two sides take differently, files that draw, inputs that a run changes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn

import bisect_onnx
from bisect_onnx.core.finding import Confidence
from bisect_onnx.core.report import Report, Stage, Status
from bisect_onnx.errors import FeedShapeError
from fixtures.export import export
from fixtures.nets.net import randomised
from tests.end_to_end.at_work import assert_valid

pytestmark = pytest.mark.slow


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.last = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 5)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.last(torch.tanh(self.left(a)) + self.right(b))
        return y


class Difference(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 5)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.last(a - b)
        return y


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.last(torch.relu(self.stem(x)).mean((2, 3)))
        return y


class Before(nn.Module):
    """Something done to the input before a net that was exported without it."""

    def __init__(self, net: nn.Module, change) -> None:
        super().__init__()
        self.net, self.change = net, change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.net(self.change(x))
        return y


def built(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return randomised(build())


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random(shape, dtype=np.float32))


def exchanged(path: Path, names: dict[str, str]) -> Path:
    """The file with its inputs renamed, as wrong ``input_names`` leave it."""
    model = onnx.load(path)
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = names.get(name, name)
    for value in model.graph.input:
        value.name = names[value.name]
    onnx.save(model, path)
    return path


def assert_harness(report: Report, code: str) -> None:
    assert_valid(report)
    assert (report.status, report.stage, report.exit_code) == (Status.HARNESS, Stage.HARNESS, 1)
    assert (report.culprits, report.missing_operation) == ((), None)
    finding = report.findings[0]
    assert (finding.code, finding.cause, finding.confidence) == (code, "K26", Confidence.PROVEN)
    assert finding.counterfactual is not None
    assert finding.counterfactual.output_after is not None
    assert finding.counterfactual.output_after < 1e-4


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize("names", [{"a": "b", "b": "a"}, {"a": "second", "b": "first"}], ids=["named", "by order"])
def test_two_inputs_of_one_shape_in_each_others_places(names: dict[str, str], exporter: str, tmp_path: Path):
    module, inputs = built(TwoInputs), {"a": numbers(4, 6), "b": numbers(4, 6, seed=1)}
    path = export(module, inputs, tmp_path / "m.onnx", exporter=exporter)
    path = exchanged(path, names)
    if "first" in names.values():
        model = onnx.load(path)
        model.graph.input.append(model.graph.input[0])
        del model.graph.input[0]
        onnx.save(model, path)

    report = bisect_onnx.locate(module, path, inputs)

    assert_harness(report, "HN005")
    assert "takes what the reference has as" in report.findings[0].message


def test_exchanged_operands_of_one_node_are_that_nodes_fault(tmp_path: Path):
    module, inputs = built(Difference), {"a": numbers(4, 6), "b": numbers(4, 6, seed=1)}
    path = export(module, inputs, tmp_path / "m.onnx", exporter="dynamo")
    model = onnx.load(path)
    sub = next(node for node in model.graph.node if node.op_type == "Sub")
    sub.input[0], sub.input[1] = sub.input[1], sub.input[0]
    onnx.save(model, path)

    report = bisect_onnx.locate(module, path, inputs)

    assert (report.status, [culprit.op_type for culprit in report.culprits]) == (Status.LOCATED, ["Sub"])
    assert [(finding.code, finding.confidence) for finding in report.findings] == [("HN005", Confidence.POSSIBLE)]


CHANGES = {
    "divided": (lambda x: x / 255, "HN006"),
    "multiplied": (lambda x: x * 255, "HN006"),
    "reversed": (lambda x: x.flip(1), "HN007"),
    "transposed": (lambda x: x.permute(0, 3, 1, 2), "HN008"),
}


@pytest.mark.parametrize(("change", "code"), list(CHANGES.values()), ids=list(CHANGES))
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_feeds_that_only_one_side_prepares(change, code: str, exporter: str, tmp_path: Path):
    net = built(Pictures)
    path = export(net, {"x": numbers(2, 3, 8, 8)}, tmp_path / "m.onnx", exporter=exporter)
    x = numbers(2, 8, 8, 3) if code == "HN008" else numbers(2, 3, 8, 8) * 255

    report = bisect_onnx.locate(Before(net, change).eval(), path, {"x": x})

    assert_harness(report, code)


def test_feeds_in_the_files_layout_that_the_reference_refuses(tmp_path: Path):
    net = built(Pictures)
    wrapped = Before(net, lambda x: x.permute(0, 3, 1, 2)).eval()
    path = export(wrapped, {"x": numbers(2, 8, 8, 3)}, tmp_path / "m.onnx", exporter="dynamo")

    report = bisect_onnx.locate(net, path, {"x": numbers(2, 8, 8, 3)})

    assert_harness(report, "HN008")
    assert "when the reference's is moved" in report.findings[0].message


def test_a_layout_that_does_not_make_the_sides_agree_is_the_old_error(tmp_path: Path):
    net = built(Pictures)
    path = export(net, {"x": numbers(2, 3, 8, 8)}, tmp_path / "m.onnx", exporter="dynamo")
    other = Before(net, lambda x: x.permute(0, 3, 1, 2).square()).eval()

    with pytest.raises(FeedShapeError, match="the input 'x' has the wrong shape"):
        bisect_onnx.locate(other, path, {"x": numbers(2, 8, 8, 3)})


def test_a_wrong_weight_is_no_matter_of_scale(tmp_path: Path):
    net = built(Pictures)
    path = export(net, {"x": numbers(2, 3, 8, 8)}, tmp_path / "m.onnx", exporter="dynamo")
    model = onnx.load(path)
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == "stem.weight")
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight)[:, ::-1].copy(), weight.name))
    onnx.save(model, path)

    report = bisect_onnx.locate(net, path, {"x": numbers(2, 3, 8, 8)})

    assert (report.status, report.stage) == (Status.LOCATED, Stage.WEIGHTS)
    assert [culprit.op_type for culprit in report.culprits] == ["Conv"]


def test_a_scale_inside_the_file_is_its_nodes_fault(tmp_path: Path):
    wrapped = Before(built(Pictures), lambda x: x / 255).eval()
    x = numbers(2, 3, 8, 8) * 255
    model = onnx.load(export(wrapped, {"x": x}, tmp_path / "m.onnx", exporter="dynamo"))
    div = next(node for node in model.graph.node if node.op_type in ("Div", "Mul"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(1.0, np.float32), "one"))
    div.input[1] = "one"
    onnx.save(model, tmp_path / "m.onnx")

    report = bisect_onnx.locate(wrapped, tmp_path / "m.onnx", {"x": x})

    assert (report.status, [culprit.op_type for culprit in report.culprits]) == (Status.LOCATED, [div.op_type])


def with_node(path: Path, node: onnx.NodeProto, *constants: onnx.TensorProto) -> Path:
    """The file with a node behind its first one: ``node`` reads "" and gives "behind"."""
    model = onnx.load(path)
    first = model.graph.node[0].output[0]
    node.input[0] = first
    for other in model.graph.node[1:]:
        for place, name in enumerate(other.input):
            if name == first:
                other.input[place] = "behind"
    model.graph.node.insert(1, node)
    model.graph.initializer.extend(constants)
    onnx.save(model, path)
    return path


def with_dropout(path: Path, *, ratio: float = 0.3, training: bool = True) -> Path:
    return with_node(
        path,
        helper.make_node("Dropout", ["", "ratio", "training"], ["behind"], name="drop"),
        numpy_helper.from_array(np.array(ratio, np.float32), "ratio"),
        numpy_helper.from_array(np.array(training), "training"),
    )


def test_a_dropout_that_trains_is_the_culprit_at_level_0(tmp_path: Path):
    module, inputs = built(TwoInputs), {"a": numbers(4, 6), "b": numbers(4, 6, seed=1)}
    path = with_dropout(export(module, inputs, tmp_path / "m.onnx", exporter="dynamo"))

    report = bisect_onnx.locate(module, path, inputs, level=0)

    assert_valid(report)
    assert (report.status, report.stage) == (Status.LOCATED, Stage.EXPORT)
    assert [(culprit.node, culprit.index, culprit.confidence) for culprit in report.culprits] == [
        ("drop", 1, "certified")
    ]
    (finding,) = report.findings
    assert (finding.code, finding.cause, finding.confidence) == ("NM002", "K05", Confidence.PROVEN)


def test_a_dropout_that_trains_is_told_where_the_runtime_removed_it(tmp_path: Path):
    module, inputs = built(TwoInputs), {"a": numbers(4, 6), "b": numbers(4, 6, seed=1)}
    path = with_dropout(export(module, inputs, tmp_path / "m.onnx", exporter="dynamo"))

    report = bisect_onnx.locate(module, path, inputs, level=1)

    assert (report.status, report.exit_code) == (Status.PARITY, 0)
    assert [(finding.code, finding.cause, finding.subject) for finding in report.findings] == [("NM001", "K05", "drop")]


@pytest.mark.parametrize(("ratio", "training"), [(0.3, False), (0.0, True)])
@pytest.mark.parametrize("level", [0, 1])
def test_a_dropout_without_an_effect_is_no_finding(ratio: float, training: bool, level: int, tmp_path: Path):  # noqa: FBT001
    module, inputs = built(TwoInputs), {"a": numbers(4, 6), "b": numbers(4, 6, seed=1)}
    path = export(module, inputs, tmp_path / "m.onnx", exporter="dynamo")
    path = with_dropout(path, ratio=ratio, training=training)

    report = bisect_onnx.locate(module, path, inputs, level=level)

    assert (report.status, report.findings) == (Status.PARITY, ())


@pytest.mark.parametrize("seed", [None, 3.0])
def test_a_random_node_is_named_and_nobody_accused(seed: float | None, tmp_path: Path):
    module, inputs = built(TwoInputs), {"a": numbers(4, 6), "b": numbers(4, 6, seed=1)}
    node = helper.make_node("RandomNormalLike", [""], ["behind"], name="noise", seed=seed)
    path = with_node(export(module, inputs, tmp_path / "m.onnx", exporter="dynamo"), node)

    report = bisect_onnx.locate(module, path, inputs)

    assert (report.status, report.culprits, report.exit_code) == (Status.INCONCLUSIVE, (), 3)
    (finding,) = report.findings
    assert (finding.code, finding.cause, finding.facts["nodes"]) == ("HN002", "K13", [1])
    assert finding.message == (
        "the candidate (the ONNX model) draws random numbers in 'noise': it gives others when it is "
        "run again on the same inputs"
    )


def test_a_batch_norm_that_trains_is_the_culprit(tmp_path: Path):
    module = built(WithNorm)
    inputs = {"x": numbers(9, 6)}
    model = onnx.load(export(module, inputs, tmp_path / "m.onnx", exporter="dynamo"))
    norm = next(node for node in model.graph.node if node.op_type == "BatchNormalization")
    norm.attribute.append(helper.make_attribute("training_mode", 1))
    norm.output.extend(["running_mean", "running_var"])
    onnx.save(model, tmp_path / "m.onnx")

    report = bisect_onnx.locate(module, tmp_path / "m.onnx", inputs)

    assert (report.status, [culprit.op_type for culprit in report.culprits]) == (
        Status.LOCATED,
        ["BatchNormalization"],
    )


class WithNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(6), nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.last(torch.tanh(self.norm(x)))
        return y


class InstanceNormed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.relu(self.norm(self.stem(x)))
        return y


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(torch.tanh(self.table(ids)))
        return y


class Folded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.relu(self.norm(self.stem(x)))
        return y


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize("build", [InstanceNormed, Folded, Tied])
def test_what_only_looks_wrong_is_no_finding(build: type[nn.Module], exporter: str, tmp_path: Path):
    module = built(build)
    inputs = {"ids": torch.arange(12).reshape(2, 6)} if build is Tied else {"x": numbers(2, 3, 8, 8)}
    path = export(module, inputs, tmp_path / "m.onnx", exporter=exporter)

    report = bisect_onnx.locate(module, path, inputs, level=0)

    assert (report.status, report.findings) == (Status.PARITY, ())


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.last(x.mul_(2.0))
        return y


def test_a_reference_that_writes_to_its_input_is_told_of_at_parity(tmp_path: Path):
    module, x = built(Writes), numbers(4, 6)
    path = export(module, {"x": x.clone()}, tmp_path / "m.onnx", exporter="dynamo")
    before = x.clone()

    report = bisect_onnx.locate(module, path, {"x": x})

    assert report.status is Status.PARITY
    assert torch.equal(x, before)
    (finding,) = report.findings
    assert (finding.code, finding.facts) == ("HN009", {"side": "reference", "inputs": ["x"]})


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.last(x)
        return y, torch.tanh(y)


def test_an_output_that_the_file_lacks_is_told_of_at_parity(tmp_path: Path):
    module, x = built(Pair), numbers(4, 6)
    model = onnx.load(export(module, {"x": x}, tmp_path / "m.onnx", exporter="dynamo"))
    del model.graph.output[1]
    onnx.save(model, tmp_path / "m.onnx")

    report = bisect_onnx.locate(module, tmp_path / "m.onnx", {"x": x})

    assert report.status is Status.PARITY
    (finding,) = report.findings
    assert finding.code == "HN010"
    assert finding.message == ("the file has 1 of the reference's 2 outputs; compared with nothing: 'output_1'")
