"""Random programs of views and in-place writes, held against what PyTorch itself computes."""

from collections.abc import Callable

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.runtimes.torch_models import captured, normal

VIEWS = ("select", "slice", "step", "transpose", "flatten", "expand")
WRITES = ("add", "scale", "fill", "copy", "relu", "assign")
READS = ("sin", "sum", "cat")

steps = st.lists(
    st.tuples(st.sampled_from((*VIEWS, *WRITES, *READS)), st.integers(0, 30), st.integers(0, 30)),
    min_size=1,
    max_size=14,
)


class Program(nn.Module):
    """Each step takes tensors from a pool by number and adds its result to the pool, or writes to one."""

    def __init__(self, program: list[tuple[str, int, int]]):
        super().__init__()
        self.program = program

    def forward(self, x):
        pool = [x, x * 2]
        for kind, first, second in self.program:
            step(kind, pool, tensor=pool[first % len(pool)], other=pool[second % len(pool)])
        return pool[1:]


def step(kind: str, pool: list[torch.Tensor], *, tensor: torch.Tensor, other: torch.Tensor) -> None:
    if kind in WRITES:
        if 0 in tensor.stride() and tensor.numel() > 1:
            return  # an expanded tensor cannot be written to
        write(kind, tensor, other)
        return
    results: dict[str, Callable[[], torch.Tensor]] = {
        "select": lambda: tensor[-1] if tensor.dim() else tensor.view(1),
        "slice": lambda: tensor[1:] if tensor.dim() and tensor.shape[0] > 1 else tensor.view_as(tensor),
        "step": lambda: tensor[..., ::2] if tensor.dim() else tensor.unsqueeze(0),
        "transpose": lambda: tensor.transpose(0, -1) if tensor.dim() else tensor.detach(),
        "flatten": lambda: tensor.reshape(-1),  # a view or a copy, as strides have it
        "expand": lambda: tensor.unsqueeze(0).expand(2, *tensor.shape),
        "sin": lambda: torch.sin(tensor),
        "sum": tensor.sum,
        "cat": lambda: torch.cat([tensor.flatten(), other.flatten()]),
    }
    pool.append(results[kind]())


def write(kind: str, tensor: torch.Tensor, other: torch.Tensor) -> None:
    number = other.flatten()[0].clone()
    if kind == "add":
        tensor.add_(number)
    elif kind == "scale":
        tensor.mul_(0.5)
    elif kind == "fill":
        tensor.fill_(0.25)
    elif kind == "copy":
        tensor.copy_(torch.cos(tensor))
    elif kind == "relu":
        torch.relu_(tensor)
    elif tensor.dim():
        tensor[0] = number


@settings(max_examples=60, deadline=None)
@given(steps)
def test_every_version_of_a_written_tensor_is_recorded_and_can_be_repeated(program):
    module, x = Program(program), normal(3, 4)
    with torch.no_grad():
        single = [tensor.numpy() for tensor in module(torch.from_numpy(x.copy()))]
        double = [tensor.numpy() for tensor in module(torch.from_numpy(x.astype(np.float64)))]

    capture = captured(module, {"x": x})
    names = capture.graph.outputs
    recorded, exact = capture.fetch(names), capture.exact(names, given=None, seed=None)
    opened = capture.open_up(names, given=("x",)).fetch(names)

    for name, narrow, wide in zip(names, single, double, strict=True):
        np.testing.assert_array_equal(recorded[name], narrow)
        np.testing.assert_allclose(exact[name], wide, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(opened[name], narrow, rtol=1e-5, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(steps)
def test_every_recorded_call_follows_from_what_it_read(program):
    capture = captured(Program(program), {"x": normal(3, 4)})
    names = [name for node in capture.graph.nodes for name in node.outputs]

    recorded, repeated = capture.fetch(names), capture.exact(names, given=list(capture.graph.values), seed=None)

    for name in names:
        np.testing.assert_allclose(repeated[name], recorded[name], rtol=1e-5, atol=1e-5, err_msg=name)
