"""Values that depend on no input are put in question like any other: scales, masks, start values, tables, queries."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional

import bisect_onnx
from bisect_onnx.core.report import Report, Status
from fixtures.export import export

pytestmark = pytest.mark.slow

Change = Callable[[onnx.NodeProto], None]


class Attention(nn.Module):
    """The old exporter computes its scale and its causal mask from shapes, inside the graph."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        query, key, value = (layer(x).view(2, 6, 4, 4).transpose(1, 2) for layer in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(2, 6, 16))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(6, 5, batch_first=True)

    def forward(self, x):
        return self.gru(x)[0]


class Queries(nn.Module):
    def __init__(self):
        super().__init__()
        self.learned = nn.Parameter(torch.randn(3, 8))
        self.mix, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        queries = torch.tanh(self.mix(self.learned))
        return torch.softmax(queries @ self.key(x).transpose(-1, -2), -1) @ x


class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("frequencies", 1 / 10000 ** (torch.arange(0, 8, 2) / 8))
        self.frequencies: torch.Tensor

    def forward(self, x):
        turns = torch.arange(x.shape[1])[:, None] * self.frequencies
        both = torch.cat([turns, turns], -1)
        cosine, sine = both.cos(), both.sin()

        def rotated(y):
            first, second = y.chunk(2, -1)
            return y * cosine + torch.cat([-second, first], -1) * sine

        return torch.softmax(rotated(self.key(x)) @ rotated(self.value(x)).transpose(-1, -2), -1) @ x


SHAPES = {Attention: (2, 6, 16), Recurrent: (2, 4, 6), Queries: (2, 4, 8), Rotary: (2, 6, 8)}


def located(kind: type[nn.Module], tmp_path: Path, *, op_type: str, change: Change) -> tuple[Report, str]:
    """Change the first node of a kind in the old exporter's file; the report and the node's name."""
    torch.manual_seed(0)
    module = kind().eval()
    inputs = {"x": torch.randn(SHAPES[kind])}
    options: dict[str, Any] = {"dynamic_axes": {"x": {0: "batch", 1: "length"}}} if kind in (Recurrent, Rotary) else {}
    if kind is Queries:
        options["do_constant_folding"] = False
    path = export(module, inputs, tmp_path / "m.onnx", exporter="torchscript", **options)
    healthy = bisect_onnx.locate(module, path, inputs, level=0)
    assert healthy.status is Status.PARITY
    model = onnx.load(path)
    node = next(node for node in model.graph.node if node.op_type == op_type)
    change(node)
    onnx.save(model, path)
    return bisect_onnx.locate(module, path, inputs, level=0), node.name


def exchange(node: onnx.NodeProto) -> None:
    first, second = node.input[-2:]
    node.input[-2], node.input[-1] = second, first


def turn_over(node: onnx.NodeProto) -> None:
    node.attribute[0].i = 1 - node.attribute[0].i


def become(op_type: str) -> Change:
    def change(node: onnx.NodeProto) -> None:
        node.op_type = op_type

    return change


def fill_with(number: float) -> Change:
    def change(node: onnx.NodeProto) -> None:
        node.attribute[0].t.CopyFrom(numpy_helper.from_array(np.array([number], np.float32)))

    return change


CASES = {
    "a scale divided the wrong way around": (Attention, "Div", exchange),
    "a mask of the wrong triangle": (Attention, "Trilu", turn_over),
    "a mask with its branches exchanged": (Attention, "Where", exchange),
    "a learned query through another activation": (Queries, "Tanh", become("Softsign")),
    "a rotary table of the other function": (Rotary, "Cos", become("Sin")),
    "a rotary table of sums": (Rotary, "Mul", become("Add")),
}


@pytest.mark.parametrize("case", CASES)
def test_the_node_is_named_and_not_its_reader(case: str, tmp_path: Path):
    kind, op_type, change = CASES[case]

    report, node = located(kind, tmp_path, op_type=op_type, change=change)

    assert report.status is Status.LOCATED, report.summary
    assert report.culprit is not None
    assert [culprit.node for culprit in report.culprits] == [node]
    assert report.culprit.confidence == "certified"


def test_two_readers_of_one_wrong_scale_are_one_accusation(tmp_path: Path):
    report, node = located(Attention, tmp_path, op_type="Sqrt", change=become("Exp"))  # no reference call hints at it

    assert len(report.culprits) == 1, report.summary
    assert node in report.culprits[0].group
    assert report.status is Status.SUSPECTED


def test_a_start_value_is_suspected_before_the_recurrent_node_that_reads_it(tmp_path: Path):
    report, node = located(Recurrent, tmp_path, op_type="ConstantOfShape", change=fill_with(0.3))

    assert report.culprit is not None
    assert report.culprit.node == node
    assert report.culprit.confidence == "suspected"  # what computes its shape was not cleared
    assert {"Shape", "GRU"} <= {name.rsplit("/", 1)[-1].split("_")[0] for name in report.culprit.group}
