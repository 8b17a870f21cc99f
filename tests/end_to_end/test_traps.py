"""Equal numbers that are not equal quantities: other places, earlier values, masks, twins, zeros."""

import functools
import inspect
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import bisect_onnx
from bisect_onnx.core.report import Report, Status
from fixtures.effect import counts, outputs, scaled
from fixtures.export import export
from fixtures.faults import FAULTS
from fixtures.nets import NETS
from fixtures.trial import Trial, Variant, prepared
from tests.end_to_end import traps
from tests.end_to_end.at_work import EXPORTERS, NAMES, accused, assert_proven, assert_valid, file_of, labels, locate

pytestmark = pytest.mark.slow

# Files of a few nets in which each kind of fault is seen; scripts/campaign tries all.
OTHER_PLACES = [
    ("transpose_perm", "postnorm", "torchscript"),
    ("transpose_perm", "recurrent", "dynamo"),
    ("transpose_perm", "sampling", "dynamo"),
    ("concat_order", "detector", "torchscript"),
    ("concat_order", "llama_block", "torchscript"),
    ("concat_order", "window", "dynamo"),
    ("depth_to_space_mode", "sampling", "dynamo"),
    ("split_outputs", "detector", "torchscript"),
    ("split_outputs", "prenorm", "dynamo"),
    ("split_outputs", "gpt2", "torchscript"),
]


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize(("kind", "net", "exporter"), OTHER_PLACES)
def test_the_same_numbers_in_other_places_acquit_nobody(
    kind: str, net: str, exporter: str, names: str, export_folder: Path, tmp_path: Path
):
    trial = Trial(net=net, exporter=exporter, variant=Variant(names), kind=kind, seed=1)
    case = prepared(trial, folder=export_folder)
    assert case is not None
    assert case.planted is not None

    report = locate(net, file_of(case.model, tmp_path / "m.onnx"))

    assert_proven(report, labels(case.planted, names=names), planted=case.planted.description)


@functools.cache
def features() -> dict[str, torch.Tensor]:
    return {"features": torch.randn(5, 6, generator=torch.Generator().manual_seed(2))}


def losing(lost: str | None) -> torch.nn.Module:
    module = traps.Losing(lost).eval()
    module.load_state_dict(traps.seeded_module(traps.Losing).state_dict())
    return module


@pytest.mark.parametrize("strategy", ["scan", "bisect"])
@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("lost", traps.LOSABLE)
def test_a_lost_operation_is_named_and_no_node_accused(
    lost: str, exporter: str, names: str, strategy: str, tmp_path: Path
):
    model = onnx.load(export(losing(lost), features(), tmp_path / "m.onnx", exporter=exporter))
    path = file_of(model, tmp_path / "faulty.onnx", names=names)

    report = bisect_onnx.locate(losing(None), path, features(), level=0, strategy=strategy)

    assert_valid(report)
    assert accused(report) == []
    assert (report.status, report.exit_code) == (Status.SUSPECTED, 1)
    assert report.missing_operation is not None
    source = report.missing_operation.source
    assert source is not None
    assert (source.file, source.code) == (inspect.getfile(traps), traps.LOST_LINES[lost])
    assert_between_neighbours(report, path)


def assert_between_neighbours(report: Report, path: Path) -> None:
    """The two values that are named stand next to each other in the file: one is computed from the other."""
    gap = report.missing_operation
    assert gap is not None
    graph = onnx.load(path).graph
    if gap.before in {value.name for value in graph.output}:
        return  # what should stand behind the last node stands in front of nothing
    reader = next(node for node in graph.node if gap.before in node.output)
    assert gap.after in reader.input


@pytest.mark.parametrize("strategy", ["scan", "bisect"])
@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("exporter", EXPORTERS)
def test_the_whole_of_the_module_that_loses_is_parity(exporter: str, names: str, strategy: str, tmp_path: Path):
    model = onnx.load(export(losing(None), features(), tmp_path / "m.onnx", exporter=exporter))
    path = file_of(model, tmp_path / "healthy.onnx", names=names)

    report = bisect_onnx.locate(losing(None), path, features(), level=0, strategy=strategy)

    assert report.status is Status.PARITY


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("net", NETS)
def test_a_skipped_node_of_a_net_lets_nobody_be_accused(net: str, names: str, export_folder: Path, tmp_path: Path):
    first, *others = NETS[net].exporters if names == "named" else NETS[net].exporters[::-1]
    trials = (
        Trial(net=net, exporter=exporter, variant=Variant(names), kind="skipped", seed=0)
        for exporter in (first, *others)  # in the file of one exporter, the nodes that are drawn are left out unseen
    )
    case = next(case for trial in trials if (case := prepared(trial, folder=export_folder)) is not None)
    assert case.planted is not None

    report = locate(net, file_of(case.model, tmp_path / "m.onnx"))

    gap = report.missing_operation
    assert (accused(report), report.status) == ([], Status.SUSPECTED), case.planted.description
    assert gap is not None
    assert names == "stripped" or gap.after == case.planted.missing_after, case.planted.description


@pytest.mark.parametrize("names", NAMES)
def test_a_node_that_reads_past_what_the_file_computes_is_accused_and_nothing_is_missing(
    names: str, export_folder: Path, tmp_path: Path
):
    """A group norm's scale is applied to the norm's input; the normalised value is there, and nobody reads it."""
    trial = Trial(net="sampling", exporter="torchscript", variant=Variant(names), kind="rewired", seed=21)
    case = prepared(trial, folder=export_folder)
    assert case is not None
    unread = {name for node in case.model.graph.node for name in node.output}
    unread -= {name for node in case.model.graph.node for name in node.input}
    assert unread - {value.name for value in case.model.graph.output}

    report = locate("sampling", file_of(case.model, tmp_path / "m.onnx"))

    assert report.missing_operation is None
    assert case.planted is not None
    assert_proven(report, labels(case.planted, names=names), planted=case.planted.description)


@functools.cache
def sentence() -> dict[str, torch.Tensor]:
    tokens = torch.randint(0, 20, (2, 7), generator=torch.Generator().manual_seed(4))
    mask = torch.ones(2, 7, dtype=torch.int64)
    mask[1, 4:] = 0
    return {"tokens": tokens, "mask": mask}


@functools.cache
def repeating(exporter: str, folder: Path) -> onnx.ModelProto:
    module = traps.seeded_module(traps.Repeating)
    return onnx.load(export(module, sentence(), folder / f"repeating-{exporter}.onnx", exporter=exporter))


@pytest.mark.parametrize("strategy", ["scan", "bisect"])
@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("exporter", EXPORTERS)
def test_masks_twins_and_zeros_make_no_false_pair(
    exporter: str, names: str, strategy: str, export_folder: Path, tmp_path: Path
):
    path = file_of(repeating(exporter, export_folder), tmp_path / "m.onnx", names=names)
    module = traps.seeded_module(traps.Repeating)

    usual = bisect_onnx.locate(module, path, sentence(), strategy=strategy)
    tight = bisect_onnx.locate(module, path, sentence(), level=0, strategy=strategy, atol=1e-12)

    assert usual.status is Status.PARITY
    assert (tight.status, accused(tight), tight.missing_operation) == (Status.ACCUMULATION, [], None)


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "kind",
    ["weight_scaled", "weight_stale", "bias_shifted", "arithmetic", "softmax_axis", "mask_fill"],
)
def test_a_fault_among_masks_twins_and_zeros_is_found(
    kind: str, seed: int, exporter: str, names: str, export_folder: Path, tmp_path: Path
):
    healthy = repeating(exporter, export_folder)
    planted = FAULTS[kind].plant(healthy, seed)
    assert planted is not None
    path = file_of(planted.model, tmp_path / "m.onnx", names=names)

    report = bisect_onnx.locate(traps.seeded_module(traps.Repeating), path, sentence(), level=0)

    assert_valid(report)
    if seen_in(healthy, planted.model):
        assert_proven(report, labels(planted, names=names), planted=planted.description)
    else:
        assert (report.status, accused(report)) == (Status.PARITY, []), planted.description


def seen_in(healthy: onnx.ModelProto, faulty: onnx.ModelProto) -> bool:
    feeds = {name: tensor.numpy() for name, tensor in sentence().items()}
    pairs = zip(outputs(healthy, feeds), outputs(faulty, feeds), strict=True)
    return any(counts(scaled(*pair)) for pair in pairs)


class Noisy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 5)

    def forward(self, x):
        return self.layer(x + torch.randn_like(x))


def test_a_reference_that_does_not_repeat_blames_no_node(tmp_path: Path):
    noisy = Noisy().eval()
    inputs = {"x": torch.ones(2, 6)}
    path = export(torch.nn.Sequential(noisy.layer).eval(), inputs, tmp_path / "m.onnx", exporter="torchscript")

    report = bisect_onnx.locate(noisy, path, {"x": np.ones((2, 6), np.float32)})

    assert (report.status, report.exit_code, report.culprits) == (Status.INCONCLUSIVE, 3, ())
    assert report.findings[0].facts["side"] == "reference"
    calls = report.findings[0].facts["calls"]
    assert isinstance(calls, list)
    assert [call.partition(".py:")[0] for call in calls] == [f"aten.randn_like at {__file__.removesuffix('.py')}"]
