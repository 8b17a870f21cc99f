"""``--module PATH``: one submodule alone, on what it is given in a run of the whole."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn

import bisect_onnx
from bisect_onnx.core.report import Report, Status
from bisect_onnx.errors import SamplesError, SubmoduleNotCalledError, SubmoduleNotFoundError, SubmodulePartError
from fixtures.export import quiet
from fixtures.strip import strip
from tests.end_to_end.at_work import assert_valid

pytestmark = pytest.mark.slow

NAMES = ["named", "stripped"]


class Block(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.first = nn.Linear(size, 2 * size)
        self.second = nn.Linear(2 * size, size)

    def forward(self, x, *, scale):
        return x + self.second(torch.tanh(self.first(self.norm(x)))) * scale


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(8) for _ in range(3))
        self.shared = nn.Linear(8, 8)
        self.spare = nn.Linear(8, 8)

    def forward(self, x):
        for place, block in enumerate(self.blocks):
            x = torch.sigmoid(self.shared(block(x, scale=x.mean(-1, keepdim=True) + place)))
        return x


def net() -> Any:  # torch's own types do not know what a module's children are
    torch.manual_seed(0)
    return Net().eval()


X = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)


def whole_file(path: Path, *, names: str = "named", dynamo: bool = True) -> onnx.ModelProto:
    with quiet():
        torch.onnx.export(net(), (torch.from_numpy(X),), path, dynamo=dynamo, verbose=False, external_data=False)
    model = onnx.load(path)
    model = strip(model) if names == "stripped" else model
    onnx.save(model, path)
    return model


def scaled_weight(model: onnx.ModelProto, like: torch.Tensor, path: Path) -> None:
    """Write the model with the weight that equals ``like`` 1% too large."""
    wanted = like.detach().numpy()
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if any(array.shape == form.shape and (array == form).all() for form in (wanted, wanted.T)):
            tensor.CopyFrom(numpy_helper.from_array(array * np.float32(1.01), tensor.name))
            onnx.save(model, path)
            return
    raise AssertionError("no such weight")


def reader_of_scaled(model: onnx.ModelProto, like: torch.Tensor) -> set[int]:
    wanted = like.detach().numpy() * np.float32(1.01)
    names = {
        tensor.name
        for tensor in model.graph.initializer
        for array in [numpy_helper.to_array(tensor)]
        if any(array.shape == form.shape and (array == form).all() for form in (wanted, wanted.T))
    }
    return {place for place, node in enumerate(model.graph.node) if names & set(node.input)}


def locate(path: Path, module: str, **options: Any) -> Report:
    report = bisect_onnx.locate(net(), path, {"x": X}, module=module, level=0, **options)
    assert_valid(report)
    return report


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("dynamo", [True, False])
def test_a_fault_inside_is_located_in_the_file_of_the_whole(names, dynamo, tmp_path: Path):
    path = tmp_path / "m.onnx"
    model = whole_file(path, names=names, dynamo=dynamo)
    scaled_weight(model, net().blocks[1].second.weight, path)

    report = locate(path, "blocks.1")

    assert report.status is Status.LOCATED
    assert {culprit.index for culprit in report.culprits} == reader_of_scaled(model, net().blocks[1].second.weight)
    assert report.culprits[0].module == "blocks.1.second"
    label = model.graph.node[report.culprits[0].index].name or f"#{report.culprits[0].index}:MatMul"
    assert report.culprits[0].node.split(":")[0] == label.split(":")[0]


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("faulty", [0, 2])
def test_a_fault_elsewhere_in_the_file_of_the_whole_does_not_matter(faulty, names, tmp_path: Path):
    path = tmp_path / "m.onnx"
    scaled_weight(whole_file(path, names=names), net().blocks[faulty].second.weight, path)

    report = locate(path, "blocks.1")

    assert report.status is Status.PARITY
    assert "; only 'blocks.1' was compared, " in report.summary
    assert [row.source for row in report.inputs] == ["caller, what 'blocks.1' is given"] * len(report.inputs)


def own_file(path: Path) -> onnx.ModelProto:
    inputs = (torch.from_numpy(X),)
    with quiet():
        torch.onnx.export(
            net().blocks[1], inputs, path, kwargs={"scale": torch.ones(2, 5, 1)}, dynamo=True, verbose=False,
            external_data=False,
        )  # fmt: skip
    return onnx.load(path)


def test_a_file_exported_from_the_submodule_is_compared_on_its_inputs_in_the_whole(tmp_path: Path):
    path = tmp_path / "m.onnx"
    model = own_file(path)
    healthy = locate(path, "blocks.1")
    scaled_weight(model, net().blocks[1].first.weight, path)

    report = locate(path, "blocks.1")

    assert healthy.status is Status.PARITY
    assert healthy.summary.endswith("; only 'blocks.1' was compared, in a file of its own")
    assert [(row.name, row.source) for row in healthy.inputs] == [
        ("x", "caller, what 'blocks.1' is given"),
        ("scale", "caller, what 'blocks.1' is given"),
    ]
    assert healthy.inputs[0].range != (X.min(), X.max())
    assert (report.status, report.culprits[0].module) == (Status.LOCATED, "blocks.1.first")
    assert {culprit.index for culprit in report.culprits} == reader_of_scaled(model, net().blocks[1].first.weight)


def test_of_several_calls_the_first_is_compared_and_that_is_said(tmp_path: Path):
    path = tmp_path / "m.onnx"
    scaled_weight(whole_file(path), net().shared.weight, path)

    report = locate(path, "shared")

    assert (report.status, report.culprits[0].module) == (Status.LOCATED, "shared")
    assert report.summary.endswith(", the first of its 3 calls")


def test_the_whole_is_left_as_it_was(tmp_path: Path):
    path = tmp_path / "m.onnx"
    own_file(path)
    module = net()
    hooks = [dict(child._forward_pre_hooks) for child in module.modules()]
    bits = [parameter.detach().numpy().tobytes() for parameter in module.parameters()]

    bisect_onnx.locate(module, path, {"x": X}, module="blocks.1")

    assert [dict(child._forward_pre_hooks) for child in module.modules()] == hooks
    assert [parameter.detach().numpy().tobytes() for parameter in module.parameters()] == bits
    assert not any(child._forward_pre_hooks_with_kwargs for child in module.modules())


def test_a_path_that_does_not_exist_names_those_that_are_near(tmp_path: Path):
    whole_file(tmp_path / "m.onnx")

    with pytest.raises(SubmoduleNotFoundError) as caught:
        locate(tmp_path / "m.onnx", "block.1")

    assert str(caught.value) == (
        "the reference has no submodule 'block.1'\n"
        "  where:    --module, in Net\n"
        "  expected: the path of a submodule: 'blocks', 'blocks.0', 'blocks.0.norm', 'blocks.0.first', "
        "'blocks.0.second' and 10 more\n"
        "  got:      'block.1'\n"
        "  next:     did you mean 'blocks.1', 'blocks.2', 'blocks.0'?"
    )


def test_a_submodule_that_is_never_called_is_told(tmp_path: Path):
    whole_file(tmp_path / "m.onnx")

    with pytest.raises(SubmoduleNotCalledError) as caught:
        locate(tmp_path / "m.onnx", "spare")

    assert str(caught.value).startswith("the submodule 'spare' is never called\n")
    assert caught.value.exit_code == 2


def test_a_reference_without_submodules_is_told(tmp_path: Path):
    whole_file(tmp_path / "m.onnx")

    with pytest.raises(SubmoduleNotFoundError, match="which has no submodules"):
        bisect_onnx.locate(tmp_path / "m.onnx", tmp_path / "m.onnx", {"x": X}, module="blocks.1")


def test_a_file_of_the_submodule_needs_inputs_of_the_whole(tmp_path: Path):
    own_file(tmp_path / "m.onnx")

    with pytest.raises(
        SubmodulePartError, match="got:      a file of the submodule alone, and no inputs for the whole"
    ):
        bisect_onnx.locate(net(), tmp_path / "m.onnx", module="blocks.1")


def test_several_samples_are_not_for_one_submodule(tmp_path: Path):
    whole_file(tmp_path / "m.onnx")

    with pytest.raises(SamplesError, match="where:    --module"):
        locate(tmp_path / "m.onnx", "blocks.1", samples=True)
