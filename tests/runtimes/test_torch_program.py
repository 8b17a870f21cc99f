import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from bisect_onnx.errors import FeedsDoNotFitModuleError, ReferenceFailedError, ReferenceUnreadableError
from bisect_onnx.runtimes.torch_eager import EagerReference
from bisect_onnx.runtimes.torch_program import ProgramReference, load_program, load_torchscript
from tests.runtimes.torch_models import PLENTY, Residual, SliceWrite, node_of, normal, seeded


class Nested(nn.Module):
    """Arguments in containers, a keyword, a module called twice, and a region without gradients."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, extras, *, scale=None):
        with torch.no_grad():
            y = self.layer(torch.tanh(self.layer(x)))
        return {"y": y * scale, "sum": (y + extras["bias"],)}


@pytest.fixture
def nested() -> tuple[nn.Module, torch.export.ExportedProgram, dict[str, np.ndarray]]:
    module = seeded(Nested)
    args, kwargs = (torch.from_numpy(normal(2, 4)), {"bias": torch.ones(4)}), {"scale": torch.full((1,), 3.0)}
    feeds = {"x": normal(2, 4), "extras_bias": np.ones(4, np.float32), "scale": np.full(1, 3, np.float32)}
    return module, torch.export.export(module, args, kwargs), feeds


def test_a_program_runs_on_the_leaves_of_its_arguments(nested):
    module, program, feeds = nested
    reference = ProgramReference(program, description="program")

    outputs = reference.run(feeds)

    assert reference.input_names == ("x", "extras_bias", "scale")
    assert tuple(outputs) == ("y", "sum.0")
    with torch.no_grad():
        truth = module(torch.from_numpy(feeds["x"]), {"bias": torch.ones(4)}, scale=torch.full((1,), 3.0))
    np.testing.assert_array_equal(outputs["y"], truth["y"].numpy())


def test_a_programs_calls_know_their_module_and_line(nested):
    _, program, feeds = nested

    reference = ProgramReference(program, description="program")
    capture = reference.capture(feeds, max_bytes=PLENTY)

    first, second = (node_of(capture.graph, "aten.addmm", number=number) for number in (0, 1))
    assert (first.module, first.module_class) == ("layer", "Linear")
    assert first.inputs[0] == "layer.bias"
    assert second.name.startswith("layer")
    assert first.source is not None
    assert first.source.file == str(Path(__file__).absolute())
    assert first.source.code == "y = self.layer(torch.tanh(self.layer(x)))"
    outputs = capture.fetch(capture.graph.outputs)
    for name, value in zip(reference.output_names, capture.graph.outputs, strict=True):
        np.testing.assert_array_equal(outputs[value], reference.run(feeds)[name])


def test_a_program_goes_through_a_file(tmp_path):
    module = seeded(SliceWrite)
    torch.export.save(torch.export.export(module, (torch.from_numpy(normal(3, 4)),)), tmp_path / "m.pt2")

    reference = load_program(tmp_path / "m.pt2")

    assert set(reference.parameters) >= {"layer.weight", "layer.bias"}
    capture = reference.capture({"x": normal(3, 4)}, max_bytes=0)
    name = capture.graph.outputs[0]
    np.testing.assert_array_equal(capture.fetch([name])[name], reference.run({"x": normal(3, 4)})["output_0"])
    exact = capture.exact([name], given=None, seed=None)[name]
    np.testing.assert_allclose(exact, capture.fetch([name])[name], rtol=1e-4, atol=1e-6)


def test_feeds_of_a_program_are_checked(nested):
    _, program, feeds = nested

    with pytest.raises(FeedsDoNotFitModuleError) as caught:
        ProgramReference(program, description="program").run({"x": feeds["x"]})

    assert "x, extras_bias, scale" in str(caught.value)


@pytest.mark.parametrize("how", [torch.jit.script, lambda module: torch.jit.trace(module, torch.ones(2, 3, 5, 5))])
@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_torchscript_archive_is_seen_call_by_call(tmp_path, how):
    module, feeds = seeded(Residual), {"image": normal(2, 3, 5, 5)}
    torch.jit.save(how(module), tmp_path / "m.pt")

    reference = load_torchscript(tmp_path / "m.pt")

    assert reference.input_names == ("image",)
    assert set(reference.parameters) == set(module.state_dict())
    capture = reference.capture(feeds, max_bytes=PLENTY)
    assert [node.op_type for node in capture.graph.nodes].count("aten.convolution") == 2
    assert node_of(capture.graph, "aten.convolution").inputs[1] == "first.weight"
    assert {node.module for node in capture.graph.nodes} == {None}
    assert {node.source for node in capture.graph.nodes} == {None}
    name = capture.graph.outputs[0]
    with torch.no_grad():
        truth = module(torch.from_numpy(feeds["image"])).numpy()
    np.testing.assert_allclose(capture.fetch([name])[name], truth, atol=1e-6)


@pytest.mark.parametrize("load", [load_program, load_torchscript])
def test_a_file_that_torch_cannot_read_is_named(tmp_path, load):
    broken = tmp_path / "broken.pt"
    broken.write_bytes(b"PK\x03\x04 and nothing else")

    with pytest.raises(ReferenceUnreadableError) as caught:
        load(broken)

    assert str(broken) in str(caught.value)
    assert f"with this version of torch ({torch.__version__})" in str(caught.value)


def archive(folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's word on the traces it still makes
        torch.jit.save(torch.jit.trace(seeded(Residual), torch.from_numpy(normal(2, 3, 4, 4))), folder / "m.pt")
    return folder / "m.pt"


def exported(folder: Path) -> Path:
    torch.export.save(torch.export.export(seeded(Residual), (torch.from_numpy(normal(2, 3, 4, 4)),)), folder / "m.pt2")
    return folder / "m.pt2"


@pytest.mark.parametrize(("save", "load"), [(archive, load_torchscript), (exported, load_program)])
def test_a_file_can_be_read_where_warnings_are_errors(save, load, tmp_path: Path):
    path = save(tmp_path)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reference = load(path)
        filters = list(warnings.filters)

        assert len(reference.run(dict.fromkeys(reference.input_names, normal(2, 3, 4, 4)))) == 1
        assert warnings.filters == filters


class Cautious(nn.Module):
    def forward(self, x):
        warnings.warn("mind the gap", UserWarning, stacklevel=1)
        return x


def test_a_warning_of_the_users_forward_is_theirs():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ReferenceFailedError, match="UserWarning: mind the gap"):
            EagerReference(Cautious(), description="module").run({"x": normal(2)})
