"""A candidate in a lower precision: a ranking when it differs a little everywhere, a culprit when one node is wrong."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static
from onnxruntime.transformers.float16 import convert_float_to_float16
from torch import nn

import bisect_onnx
from bisect_onnx.core.compare import Array
from bisect_onnx.core.report import Report, Stage, Status
from fixtures.export import export, quiet
from fixtures.strip import strip
from tests.end_to_end.at_work import accused, assert_valid

pytestmark = pytest.mark.slow

ATOL = 1e-5  # no lower precision reaches it on this net, a float32 file does


class Net(nn.Module):
    """Convolutions with a residual, a GELU, a norm and a softmax."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, 8, 3, padding=1) for channels in (3, 8))
        self.wide, self.square, self.head = nn.Linear(512, 32), nn.Linear(32, 32), nn.Linear(32, 10)
        self.norm = nn.LayerNorm(32)

    def forward(self, x):
        h = torch.relu(self.first(x))
        h = (h + torch.relu(self.second(h))).flatten(1)
        h = nn.functional.gelu(self.wide(h))
        return torch.softmax(self.head(self.norm(h + self.square(h))), -1)


def net() -> Net:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Net().eval()


def feeds(seed: int = 0) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).standard_normal((2, 3, 8, 8)).astype(np.float32)}


@pytest.fixture(scope="module")
def float32(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("precision") / "float32.onnx"
    export(net(), {"x": torch.from_numpy(feeds()["x"])}, path, exporter="dynamo", opset=18)
    model = onnx.load(path)
    del model.graph.value_info[:]  # the exporter's shapes of weights that it transposed keep the quantiser out
    onnx.save(model, path)
    return path


def in_float16(float32: Path, **options: object) -> onnx.ModelProto:
    model = onnx.shape_inference.infer_shapes(onnx.load(float32))
    with quiet():  # it tells each weight that it rounds to the smallest float16
        converted: onnx.ModelProto = convert_float_to_float16(model, keep_io_types=True, **options)
    return converted


class Calibration(CalibrationDataReader):  # type: ignore[misc]  # it has no types
    """A few inputs of the kind that the net is fed with."""

    def __init__(self) -> None:
        self.samples: Iterator[dict[str, Array]] = iter([feeds(seed) for seed in range(4)])

    def get_next(self) -> dict[str, Array] | None:
        return next(self.samples, None)


def float16_file(float32: Path, path: Path) -> Path:
    onnx.save(in_float16(float32), path)
    return path


def dynamic_file(float32: Path, path: Path) -> Path:
    with quiet():
        quantize_dynamic(float32, path, weight_type=QuantType.QInt8)
    return path


def qdq_file(float32: Path, path: Path) -> Path:
    with quiet():
        quantize_static(float32, path, Calibration())
    return path


FORMATS = {"float16": float16_file, "dynamic int8": dynamic_file, "QDQ int8": qdq_file}


@pytest.mark.parametrize("reference", ["file", "module"])
@pytest.mark.parametrize("made", FORMATS.values(), ids=FORMATS)
def test_a_healthy_conversion_is_ranked_and_nobody_is_accused(
    made: Callable[[Path, Path], Path], reference: str, float32: Path, tmp_path: Path
):
    path = made(float32, tmp_path / "low.onnx")

    report = locate(path, float32 if reference == "file" else net())

    assert (report.status, report.stage) == (Status.ACCUMULATION, Stage.PRECISION)
    assert report.culprits == ()
    impacts = [row.impact for row in report.nodes if row.impact is not None]
    assert len(impacts) >= 5
    assert all(0 <= impact <= 1 for impact in impacts)
    assert max(impacts) > 0.9  # that of what ends in the output


def norm(model: onnx.ModelProto) -> onnx.NodeProto:
    node = nth(model, "LayerNormalization")
    del node.attribute[:]
    node.attribute.append(helper.make_attribute("epsilon", 0.5))
    return node


def activation(model: onnx.ModelProto) -> onnx.NodeProto:
    node = nth(model, "Relu", 1)
    node.op_type = "Sigmoid"
    return node


def form(model: onnx.ModelProto) -> onnx.NodeProto:
    node = nth(model, "Erf")
    node.op_type = "Tanh"
    return node


def sign(model: onnx.ModelProto) -> onnx.NodeProto:
    node = nth(model, "Add")
    node.op_type = "Sub"
    return node


def weight(model: onnx.ModelProto) -> onnx.NodeProto:
    node = nth(model, "Gemm", 1)
    (tensor,) = (tensor for tensor in model.graph.initializer if tensor.name == node.input[1])
    array = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array((array * 1.1).astype(array.dtype), tensor.name))
    return node


def nth(model: onnx.ModelProto, kind: str, number: int = 0) -> onnx.NodeProto:
    nodes: list[onnx.NodeProto] = [node for node in model.graph.node if node.op_type == kind]
    return nodes[number]


@pytest.mark.parametrize("reference", ["file", "module"])
@pytest.mark.parametrize("names", ["named", "stripped"])
@pytest.mark.parametrize("fault", [norm, activation, form, sign, weight])
def test_one_wrong_node_of_a_float16_file_is_located(
    fault: Callable[[onnx.ModelProto], onnx.NodeProto], names: str, reference: str, float32: Path, tmp_path: Path
):
    model = copy.deepcopy(in_float16(float32))
    place = list(model.graph.node).index(fault(model))
    path = tmp_path / "wrong.onnx"
    onnx.save(strip(model) if names == "stripped" else model, path)

    report = locate(path, float32 if reference == "file" else net())

    assert report.status is Status.LOCATED, report.summary
    assert [culprit.index for culprit in report.culprits] == [place], accused(report)
    assert report.stage is (Stage.WEIGHTS if fault is weight else Stage.EXPORT)
    assert report.culprits[0].impact is not None
    assert report.culprits[0].impact >= 0.5
    assert report.culprits[0].certificate.complete


def test_a_quantiser_whose_range_is_far_too_small_is_located(float32: Path, tmp_path: Path):
    path = qdq_file(float32, tmp_path / "low.onnx")
    model = onnx.load(path)
    (node,) = (node for node in model.graph.node if node.name == "layer_norm_QuantizeLinear")
    (scale,) = (tensor for tensor in model.graph.initializer if tensor.name == node.input[1])
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) / np.float32(20), scale.name))
    onnx.save(model, path)

    named, by_values = locate(path, float32), locate(path, net())

    assert (named.status, named.stage) == (Status.LOCATED, Stage.PRECISION)
    assert accused(named) == ["layer_norm_QuantizeLinear"]
    # Without names in common the pairs rest on values that are off by percents: nothing is called proven.
    assert by_values.status is not Status.LOCATED


def test_a_round_trip_through_float16_is_a_fault_of_a_float32_file(float32: Path, tmp_path: Path):
    model = onnx.load(float32)
    reader = nth(model, "LayerNormalization")
    place = list(model.graph.node).index(reader)
    trip = [
        helper.make_node("Cast", [reader.input[0]], ["half"], name="down", to=onnx.TensorProto.FLOAT16),
        helper.make_node("Cast", ["half"], ["back"], name="up", to=onnx.TensorProto.FLOAT),
    ]
    reader.input[0] = "back"
    nodes = [*model.graph.node[:place], *trip, *model.graph.node[place:]]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    path = tmp_path / "trip.onnx"
    onnx.save(model, path)

    report = locate(path, net(), atol=None)

    assert report.status is Status.LOCATED, report.summary
    assert set(accused(report)) <= {"down", "up"}


def locate(path: Path, reference: Path | nn.Module, **options: object) -> Report:
    report = bisect_onnx.locate(
        str(reference) if isinstance(reference, Path) else reference,
        path,
        feeds(),
        **{"level": 0, "atol": ATOL} | options,  # type: ignore[arg-type]  # options of many types
    )
    assert_valid(report)
    return report
