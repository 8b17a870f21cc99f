import random

import numpy as np
import pytest
import torch
from torch import nn

from bisect_onnx.errors import ReferenceFailedError
from bisect_onnx.runtimes import torch_eager
from bisect_onnx.runtimes.torch_eager import EagerReference
from bisect_onnx.runtimes.torch_guard import eval_mode, training_modules, untouched
from tests.runtimes.torch_models import PLENTY, normal


class Meddler(nn.Module):
    """Changes all that a forward can change, and raises at the end when told to."""

    def __init__(self, *, raises: bool):
        super().__init__()
        self.raises = raises
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.tail = nn.Linear(4, 4)
        self.frozen = nn.Linear(4, 4).requires_grad_(requires_grad=False)
        self.steps = nn.Buffer(torch.zeros(2))
        self.scratch = nn.Buffer(torch.ones(3), persistent=False)
        self.cache = torch.zeros(4)
        self.history = [torch.zeros(1)]
        self.settings = {"scale": 1.0}
        self.norm.register_forward_hook(lambda *_: None)
        self.tail.eval()

    def forward(self, x):
        y = self.drop(self.norm(x))
        self.steps.add_(1)
        self.register_buffer("scratch", torch.full((3,), 9.0), persistent=False)
        self.cache.copy_(y[0])
        self.history.append(y)
        self.settings["scale"] = 2.0
        self.fresh = y
        self.tail.weight.mul_(2)
        self.tail.bias.data = torch.zeros(4)
        self.frozen.requires_grad_(requires_grad=True)
        self.tail.weight.grad = None
        self.tail.register_forward_hook(lambda *_: None)
        self.train(not self.training)
        x.zero_()
        draw()
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(mode=True)
        torch.set_autocast_enabled("cpu", enabled=True)
        torch.set_grad_enabled(mode=True)
        if self.raises:
            raise ValueError("after all that")
        return y


def draw() -> None:
    torch.rand(1)
    np.random.seed(5)  # noqa: NPY002  # the global generator, as user code has it
    random.random()


def numpy_generator() -> str:
    return repr(np.random.get_state())  # noqa: NPY002  # the global generator, as user code has it


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().numpy().tobytes()


def module_state(module: nn.Module) -> list[object]:
    state: list[object] = []
    for path, child in module.named_modules():
        state += [path, child.training, list(vars(child)), list(child._forward_hooks), list(child._forward_pre_hooks)]
        state += [list(child._forward_hooks_with_kwargs), list(child._forward_hooks_always_called)]
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        grad = None if tensor.grad is None else bits(tensor.grad)
        state += [name, id(tensor), tensor.data_ptr(), bits(tensor), tensor.requires_grad, grad]
    return state


def plain_state(module: Meddler) -> list[object]:
    return [
        bits(module.cache), id(module.cache), [bits(item) for item in module.history], dict(module.settings),
        hasattr(module, "fresh"), list(module.state_dict()),
    ]  # fmt: skip


def global_state() -> list[object]:
    return [
        torch.get_rng_state().numpy().tobytes(), numpy_generator(),
        random.getstate(), torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(),
        torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_grad_enabled(),
        torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled(),
        torch._C._get_mkldnn_enabled(), torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32,
        list(nn.modules.module._global_forward_hooks), list(nn.modules.module._global_forward_pre_hooks), torch.compile,
    ]  # fmt: skip


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("opened_up", [False, True])
def test_a_run_leaves_no_trace_in_module_or_process(raises, opened_up):
    torch.manual_seed(0)
    module = Meddler(raises=raises)
    module.tail.weight.grad = torch.ones(4, 4)
    feed = normal(3, 4)
    before = module_state(module), plain_state(module), global_state(), feed.tobytes()
    reference = EagerReference(module, description="module")

    for _ in range(2):
        if raises:
            with pytest.raises(ReferenceFailedError, match="after all that"):
                _once(reference, feed, opened_up=opened_up)
        else:
            _once(reference, feed, opened_up=opened_up)

        after = module_state(module), plain_state(module), global_state(), feed.tobytes()
        assert after == before


def _once(reference: EagerReference, feed: np.ndarray, *, opened_up: bool) -> None:
    if opened_up:
        capture = reference.capture({"x": feed}, max_bytes=0)
        capture.fetch(list(capture.graph.values))
        capture.exact(capture.graph.outputs, given=None, seed=3)
        capture.open_up(capture.graph.outputs, given=capture.graph.inputs)
    else:
        reference.run({"x": feed})


class Accumulating(nn.Module):
    total: torch.Tensor
    count: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(2))
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total = self.total + x
        self.count.add_(1)
        return self.total / self.count


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_scripted_modules_buffers_are_put_back():
    module = torch.jit.script(Accumulating())
    reference = EagerReference(module, description="module")

    first, second = (reference.run({"x": normal(2)})["output_0"] for _ in range(2))

    np.testing.assert_array_equal(first, second)
    assert {name: bits(buffer) for name, buffer in module.named_buffers()} == {
        "total": bits(torch.zeros(2)),
        "count": bits(torch.zeros(1)),
    }


@pytest.mark.parametrize("limit", [1 << 40, 0])
def test_parameters_that_a_forward_writes_to_are_put_back_in_large_models_too(monkeypatch, limit):
    class Growing(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x):
            self.weight.mul_(2)
            return x * self.weight

    monkeypatch.setattr(torch_eager, "COPIED_BYTES", limit)
    module = Growing()
    reference = EagerReference(module, description="module")

    outputs = [reference.run({"x": normal(3)})["output_0"] for _ in range(3)]

    for output in outputs:
        np.testing.assert_array_equal(output, 2 * normal(3))
    assert bits(module.weight) == bits(torch.ones(3))


def test_a_kept_capture_does_not_follow_the_restored_buffers():
    module = nn.BatchNorm1d(4)
    capture = EagerReference(module, description="module").capture({"input": normal(3, 4)}, max_bytes=PLENTY)

    old = capture.fetch(["running_mean"])["running_mean"]
    written = [
        name for node in capture.graph.nodes for name in node.outputs if capture.graph.values[name].shape == (4,)
    ]
    values = capture.fetch(written)

    assert (old == 0).all()
    expected = 0.1 * normal(3, 4).mean(axis=0)
    assert any(np.abs(value - expected).max() < 1e-6 for value in values.values())


def test_the_guard_restores_after_any_exception():
    module = nn.Linear(2, 2)
    before = module_state(module)

    def interrupted() -> None:
        with untouched(module), torch.no_grad():
            module.weight.fill_(3)
            module.eval()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert module_state(module) == before


def test_training_modules_are_named_by_path():
    module = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout())).eval()
    module.get_submodule("1.0").train()

    assert training_modules(module) == ("1.0",)
    assert training_modules(nn.Sequential(nn.ReLU())) == ("", "0")


def test_eval_mode_gives_each_submodule_its_own_flag_back():
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.BatchNorm1d(2))
    module[1].eval()

    def failing() -> None:
        with eval_mode(module):
            assert training_modules(module) == ()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()

    assert training_modules(module) == ("", "0", "2")
