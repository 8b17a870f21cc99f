"""Scan and bisection are two ways to one answer."""

import functools
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import bisect_onnx
from bisect_onnx.core.compare import Verdict
from bisect_onnx.core.report import Report, Strategy
from fixtures.export import export
from fixtures.faults import FAULTS
from fixtures.faults.workbench import Workbench
from fixtures.nets import NETS
from fixtures.sample import faults_of_net
from fixtures.trial import Trial, Variant, prepared
from tests.end_to_end.at_work import EXPORTERS, NAMES, accused, assert_proven, assert_valid, file_of, labels, locate

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("net", NETS)
def test_scan_and_bisection_accuse_the_same_node(net: str, names: str, export_folder: Path, tmp_path: Path):
    case = next(faults_of_net(net, folder=export_folder, seed=7, count=1, variant=Variant(names)))
    assert case.planted is not None
    path = file_of(case.model, tmp_path / "m.onnx")
    guilty = labels(case.planted, names=names)

    scan, bisect = (locate(net, path, strategy=strategy) for strategy in ("scan", "bisect"))

    assert_proven(scan, guilty, planted=f"{case.planted.description}, scan")
    assert_proven(bisect, guilty, planted=f"{case.planted.description}, bisect")
    assert accused(scan)[0] == accused(bisect)[0]


class Plain(nn.Module):
    """A chain: each value is computed from the one before it, and none is hidden by the next."""

    def __init__(self, depth: int):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(12, 12) for _ in range(depth))
        for name, parameter in self.named_parameters():
            if name.endswith("weight"):
                nn.init.orthogonal_(parameter, gain=1.4)  # a smaller gain lets a fault die out on its way down

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def plain(depth: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(depth)
        return Plain(depth).eval()


def chain_input() -> dict[str, torch.Tensor]:
    return {"x": torch.randn(3, 12, generator=torch.Generator().manual_seed(0))}


@functools.cache
def exported_chain(depth: int, exporter: str, folder: Path) -> onnx.ModelProto:
    return onnx.load(export(plain(depth), chain_input(), folder / f"chain-{depth}-{exporter}.onnx", exporter=exporter))


def assert_few_probes(report: Report) -> None:
    search = report.search
    assert search.strategy is Strategy.BISECT
    assert search.probes == len(search.steps)
    # Where a segment reads several values, those not asked yet are asked to confirm that all of them agree.
    narrowing = [step for step in search.steps if step.suspects_after < step.suspects_before]
    assert 0 < len(narrowing) <= math.ceil(math.log2(report.alignment.pairs)) + 4
    assert all(step.suspects_after <= step.suspects_before for step in search.steps)
    assert all(first.suspects_after == second.suspects_before for first, second in pairwise(search.steps))
    assert search.steps[-1].suspects_after == 1
    assert {step.verdict for step in search.steps} <= {Verdict.MATCH, Verdict.MISMATCH}
    assert len({step.probe for step in search.steps}) == search.probes


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("depth", [3, 17, 60])
def test_a_bisection_of_a_chain_asks_few_values(
    depth: int, seed: int, exporter: str, names: str, export_folder: Path, tmp_path: Path
):
    planted = FAULTS["weight_stale"].plant(exported_chain(depth, exporter, export_folder), seed)
    assert planted is not None
    path = file_of(planted.model, tmp_path / "m.onnx", names=names)

    report = bisect_onnx.locate(plain(depth), path, chain_input(), level=0, strategy="bisect")

    assert_valid(report)
    assert_proven(report, labels(planted, names=names), planted=planted.description)
    assert_few_probes(report)
    assert report.search.probes <= math.ceil(math.log2(report.alignment.pairs)) + 4


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["weight_scaled", "activation", "bias_shifted"])
@pytest.mark.parametrize("net", ["activation_chain", "deep_stack"])
def test_a_bisection_of_a_deep_net_asks_few_values(net: str, kind: str, seed: int, export_folder: Path, tmp_path: Path):
    trial = Trial(net=net, exporter=EXPORTERS[seed % 2], variant=Variant.STRIPPED, kind=kind, seed=seed)
    case = prepared(trial, folder=export_folder)
    assert case is not None
    assert case.planted is not None

    report = locate(net, file_of(case.model, tmp_path / "m.onnx"), strategy="bisect")

    assert_proven(report, labels(case.planted, names="stripped"), planted=case.planted.description)
    assert_few_probes(report)


class Masked(nn.Module):
    def forward(self, x):
        scaled = x * 0.75
        hidden = torch.exp(torch.relu(torch.clamp(scaled, -1.0, 2.0)))
        return hidden + scaled


# Where everything is clipped, Clip, Relu and Exp agree although the Mul above them is wrong.
SOME_CLIPPED = torch.linspace(-4.0, 6.0, 24).reshape(4, 6)
ALL_CLIPPED = torch.tensor([[-9.0, 8.0, -5.0], [12.0, -7.0, 30.0]])


@pytest.mark.parametrize("strategy", ["scan", "bisect", "auto"])
@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("x", [SOME_CLIPPED, ALL_CLIPPED], ids=["some_clipped", "all_clipped"])
def test_an_agreement_below_a_clip_acquits_nothing_above(
    x: torch.Tensor, exporter: str, names: str, strategy: str, tmp_path: Path
):
    as_written = {"optimize": False} if exporter == "dynamo" else {}  # its optimiser takes a Relu behind a Clip away
    healthy = onnx.load(export(Masked().eval(), {"x": x}, tmp_path / "h.onnx", exporter=exporter, **as_written))
    bench = Workbench(healthy)
    computing = [(place, node) for place, node in bench.each() if node.op_type not in {"Constant", "CastLike"}]
    assert [node.op_type for _, node in computing] == ["Mul", "Clip", "Relu", "Exp", "Add"]
    guilty, mul = computing[0]
    slot = next(slot for slot in (0, 1) if bench.floats(mul, slot) is not None)
    bench.put(guilty, slot, value=np.array(0.8, np.float32))
    path = file_of(bench.model, tmp_path / "m.onnx", names=names)

    report = bisect_onnx.locate(Masked().eval(), path, {"x": x}, level=0, strategy=strategy)

    assert_valid(report)
    label = mul.name if names == "named" else f"#{guilty}:Mul"
    assert_proven(report, [label], planted=f"{label} multiplies by 0.8")
