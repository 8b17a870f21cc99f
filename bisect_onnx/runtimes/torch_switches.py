"""Torch's global switches that hide calls from a recorder: off for a run, then back as they were."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

__all__ = ["without_compilation", "without_fused_kernels"]


@contextmanager
def without_compilation() -> Iterator[None]:
    """Run compiled functions as they were written, and compile no new ones (`torch.cond` would, at each call)."""
    compile_before = torch.compile
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:  # nothing is compiled without it, and importing it takes seconds
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        torch.compile = _leave_alone
        try:
            yield
        finally:
            torch.compile = compile_before


def _leave_alone(model: Callable[..., Any] | None = None, **_: object) -> Any:
    """Stands for `torch.compile`, as a function and as a decorator with arguments."""
    return model if model is not None else _leave_alone


@contextmanager
def without_fused_kernels() -> Iterator[None]:
    """Switch off, for the block, what hides calls inside one kernel; the switches are put back after.

    These are the transformer fast path, fused attention, and the recurrent kernels of oneDNN and cuDNN (only
    while a recurrent module runs: convolutions keep their fast kernels). cuDNN benchmarking and TF32 go too,
    because with them two equal runs may differ.
    """
    fastpath = torch.backends.mha.get_fastpath_enabled()
    cudnn = torch.backends.cudnn
    benchmark, cudnn_tf32, matmul_tf32 = cudnn.benchmark, cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    recurrent = _RecurrentKernels()
    before = module_hooks.register_module_forward_pre_hook(recurrent.enter)
    after = module_hooks.register_module_forward_hook(recurrent.leave, always_call=True)
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        cudnn.benchmark, cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = False, False, False
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            yield
    finally:
        before.remove()
        after.remove()
        recurrent.restore()
        torch.backends.mha.set_fastpath_enabled(fastpath)
        cudnn.benchmark, cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = benchmark, cudnn_tf32, matmul_tf32


class _RecurrentKernels:
    """Switches oneDNN and cuDNN off while an `nn.RNNBase` runs."""

    def __init__(self) -> None:
        self._depth = 0
        self._saved = (torch._C._get_mkldnn_enabled(), torch._C._get_cudnn_enabled())

    def enter(self, module: nn.Module, args: Any) -> None:
        if isinstance(module, nn.RNNBase):
            self._depth += 1
            torch._C._set_mkldnn_enabled(False)
            torch._C._set_cudnn_enabled(False)

    def leave(self, module: nn.Module, args: Any, result: Any) -> None:
        if isinstance(module, nn.RNNBase):
            self._depth -= 1
            if self._depth <= 0:
                self.restore()

    def restore(self) -> None:
        self._depth = 0
        torch._C._set_mkldnn_enabled(self._saved[0])
        torch._C._set_cudnn_enabled(self._saved[1])
