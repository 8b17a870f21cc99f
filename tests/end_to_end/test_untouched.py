"""The caller's module, arrays, random state and switches are bit-identical afterwards, however locate ends."""

import copy
import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import bisect_onnx
from bisect_onnx.core.events import Event, ProbeDone, StageFinished, StageStarted
from bisect_onnx.core.report import Status
from bisect_onnx.errors import BisectOnnxError
from fixtures.export import export
from fixtures.faults import FAULTS

pytestmark = pytest.mark.slow


class Touchy(nn.Module):
    """Everything that a forward may leave traces in."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.5)
        self.second = nn.Linear(8, 6)
        self.register_buffer("calls", torch.zeros(()))
        self.calls: torch.Tensor
        self.register_buffer("scratch", torch.zeros(3), persistent=False)
        self.seen: list[tuple[int, ...]] = []
        self.trouble: Callable[[], object] = bool  # does nothing

    def forward(self, x, shift):
        self.trouble()
        self.calls += 1
        self.seen.append(tuple(x.shape))
        self.last = x
        x = self.drop(torch.relu(self.norm(self.first(x))))
        torch.rand(1), np.random.rand(1), random.random()  # noqa: NPY002 - as user code does
        return self.second(x) + shift


def touchy() -> Touchy:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        module = Touchy().eval()
        assert module.norm.running_mean is not None
        module.norm.running_mean.uniform_(-1, 1)
    module.first.bias.requires_grad = False
    module.second.weight.grad = torch.full_like(module.second.weight, 0.25)
    module.drop.eval()
    module.register_forward_hook(lambda _module, _args, _out: None)
    module.norm.register_forward_pre_hook(lambda _module, _args: None)
    module.second.weight.register_hook(lambda grad: grad)
    return module


def inputs_of() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shift = torch.randn(6, generator=generator).requires_grad_()
    return {"x": torch.randn(5, 6, generator=generator), "shift": shift}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("touchy") / "healthy.onnx"
    module = touchy()
    pure = {name: tensor.detach() for name, tensor in inputs_of().items()}
    return export(copy.deepcopy(module), pure, path, exporter="torchscript")


@pytest.fixture(scope="module")
def faulty(healthy: Path) -> Path:
    planted = FAULTS["weight_scaled"].plant(onnx.load(healthy), 0)
    assert planted is not None
    path = healthy.with_name("faulty.onnx")
    onnx.save(planted.model, path)
    return path


def bits(value: torch.Tensor | np.ndarray[Any, Any] | None) -> object:
    if value is None:
        return None
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    return (str(value.dtype), value.shape, value.tobytes())


HOOKS = [name for name in vars(nn.Module()) if name.endswith("_hooks") or "hooks_" in name]


def traces(module: nn.Module) -> dict[str, object]:
    """All that a caller could find changed, by a name that a failing test shows."""
    found: dict[str, object] = {}
    for path, child in module.named_modules():
        found[f"{path}.training"] = child.training
        found[f"{path}.attributes"] = sorted(vars(child))
        for name in HOOKS:
            found[f"{path}.{name}"] = [(key, id(hook)) for key, hook in getattr(child, name).items()]
    for name, parameter in module.named_parameters():
        found[name] = (id(parameter), parameter.data_ptr(), bits(parameter), parameter.requires_grad)
        found[f"{name}.grad"] = (id(parameter.grad), bits(parameter.grad))
        found[f"{name}.hooks"] = dict(parameter._backward_hooks or {})
        found[f"{name}.version"] = parameter._version
    for name, buffer in module.named_buffers():
        found[name] = (id(buffer), buffer.data_ptr(), bits(buffer))
    if isinstance(module, Touchy):
        found["seen"] = list(module.seen)
    return found


def surroundings() -> dict[str, object]:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - the state that must come back
    return {
        "torch": bits(torch.get_rng_state()),
        "numpy": (kind, bits(np.asarray(keys)), *rest),
        "python": random.getstate(),
        "grad": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "flash": torch.backends.cuda.flash_sdp_enabled(),
        "efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),
        "math": torch.backends.cuda.math_sdp_enabled(),
        "mkldnn": torch.backends.mkldnn.enabled,
        "dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "global hooks": len(nn.modules.module._global_forward_hooks),
        "errors of numpy": np.geterr(),
    }


@dataclasses.dataclass(frozen=True)
class Before:
    """What was there before the call."""

    module: nn.Module
    inputs: Mapping[str, Any]
    traces: dict[str, object]
    arrays: dict[str, object]
    around: dict[str, object]

    def assert_unchanged(self) -> None:
        assert surroundings() == self.around
        assert traces(self.module) == self.traces
        assert {name: bits(value) for name, value in self.inputs.items()} == self.arrays
        for value in self.inputs.values():
            assert getattr(value, "grad", None) is None


def before(module: nn.Module, inputs: Mapping[str, Any]) -> Before:
    arrays = {name: bits(value) for name, value in inputs.items()}
    return Before(module=module, inputs=inputs, traces=traces(module), arrays=arrays, around=surroundings())


@pytest.fixture(params=["tensors", "arrays"])
def inputs(request) -> Mapping[str, Any]:
    given = inputs_of()
    return given if request.param == "tensors" else {name: value.detach().numpy() for name, value in given.items()}


def test_after_parity(healthy: Path, inputs: Mapping[str, Any]):
    module = touchy()
    state = before(module, inputs)

    report = bisect_onnx.locate(module, healthy, inputs)

    assert report.status is Status.PARITY
    state.assert_unchanged()


@pytest.mark.parametrize("strategy", ["scan", "bisect"])
def test_after_a_located_fault(faulty: Path, inputs: Mapping[str, Any], strategy: str):
    module = touchy()
    state = before(module, inputs)

    report = bisect_onnx.locate(module, faulty, inputs, strategy=strategy)

    assert report.status is Status.LOCATED
    state.assert_unchanged()


@pytest.mark.parametrize(("file", "status"), [("healthy", Status.HARNESS), ("faulty", Status.LOCATED)])
def test_of_a_module_in_training_mode(file: str, status: Status, inputs: Mapping[str, Any], request):
    module = touchy().train()
    module.norm.eval()  # each submodule has its own flag
    state = before(module, inputs)

    report = bisect_onnx.locate(module, request.getfixturevalue(file), inputs)

    assert report.status is status
    state.assert_unchanged()


@pytest.mark.parametrize("good_calls", [0, 1, 2])
def test_when_the_forward_raises(good_calls: int, faulty: Path, inputs: Mapping[str, Any]):
    module = touchy()
    left = iter(range(good_calls))

    def trouble() -> None:
        if next(left, None) is None:
            raise RuntimeError("no more")

    module.trouble = trouble
    state = before(module, inputs)

    with pytest.raises(BisectOnnxError):
        bisect_onnx.locate(module, faulty, inputs)

    state.assert_unchanged()


@pytest.mark.parametrize(
    "options",
    [
        {"providers": ["NoSuchExecutionProvider"]},
        {"session_options": {"no_such_option": "1"}},
        {"candidate": "missing.onnx"},
        {"inputs": {"x": np.zeros((5, 7), np.float32), "shift": np.zeros(6, np.float32)}},
        {"inputs": {"x": np.zeros((5, 6), np.float32)}},
        {"weights": "missing.pt"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_when_the_request_is_wrong(options: dict[str, Any], faulty: Path):
    module = touchy()
    asked: dict[str, Any] = {"candidate": faulty, "inputs": inputs_of()} | options
    state = before(module, asked["inputs"])

    with pytest.raises(BisectOnnxError):
        bisect_onnx.locate(module, asked.pop("candidate"), **asked)

    state.assert_unchanged()


def moments() -> Iterator[tuple[type[Event], str]]:
    for stage in ("open", "confirm", "preflight", "capture", "align", "search", "certify"):
        yield StageStarted, stage
        yield StageFinished, stage


@pytest.mark.parametrize("training", [False, True], ids=["eval", "training"])
@pytest.mark.parametrize(("kind", "stage"), list(moments()))
def test_when_the_user_interrupts(kind: type[Event], stage: str, training: bool, faulty: Path):  # noqa: FBT001
    module = touchy().train(training)
    inputs = inputs_of()
    state = before(module, inputs)

    def interrupt(event: Event) -> None:
        if isinstance(event, kind) and not isinstance(event, ProbeDone) and getattr(event, "stage", None) == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bisect_onnx.locate(module, faulty, inputs, on_event=interrupt)

    state.assert_unchanged()


class WritesItsInput(nn.Module):
    """What is fed is changed in place: the caller's array must not be."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        x.mul_(2.0)
        return self.layer(x)


class Pure(WritesItsInput):
    def forward(self, x):
        return self.layer(x * 2.0)


@pytest.mark.parametrize("form", ["tensors", "arrays"])
def test_of_a_module_that_writes_its_input(form: str, tmp_path: Path):
    module = WritesItsInput().eval()
    pure = Pure().eval()
    pure.load_state_dict(module.state_dict())
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    path = export(pure, {"x": x}, tmp_path / "m.onnx", exporter="torchscript")
    inputs: dict[str, Any] = {"x": x if form == "tensors" else x.numpy().copy()}
    state = before(module, inputs)

    report = bisect_onnx.locate(module, path, inputs)

    assert report.status is Status.PARITY
    state.assert_unchanged()
