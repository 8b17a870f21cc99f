"""Which module is running: its path and which call of it this is, without touching the modules."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from bisect_onnx.runtimes.torch_tape import ModuleCall

__all__ = ["ModuleStack", "without_fused_kernels"]


class ModuleStack:
    """Follows a run through torch's global module hooks, so the modules' own hook tables stay as they are."""

    def __init__(self, module: nn.Module, *, names_of: Callable[[Any], tuple[str, ...]]) -> None:
        """Prepare to follow one run.

        Args:
            module: The root.
            names_of: The values that the tensors in a module's arguments or result hold at that moment.
        """
        self.finished: list[ModuleCall] = []
        self._names_of = names_of
        self._paths = {id(child): path for path, child in module.named_modules()}
        self._counts: dict[str, int] = {}
        self._running: list[ModuleCall] = []

    def current(self) -> ModuleCall | None:
        """The innermost call in progress; None outside the module."""
        return self._running[-1] if self._running else None

    @contextmanager
    def following(self) -> Iterator[None]:
        """Keep track of calls inside the block."""
        before = module_hooks.register_module_forward_pre_hook(self._start)
        after = module_hooks.register_module_forward_hook(self._finish, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def _start(self, module: nn.Module, args: Any) -> None:
        path = self._paths.get(id(module))
        if path is None:
            return
        number = self._counts[path] = self._counts.get(path, 0) + 1
        call = ModuleCall(path=path, class_name=_class_name(module), number=number, inputs=self._names_of(args))
        self._running.append(call)

    def _finish(self, module: nn.Module, args: Any, result: Any) -> None:
        if id(module) in self._paths and self._running:
            call = self._running.pop()
            self.finished.append(dataclasses.replace(call, outputs=self._names_of(result)))


def _class_name(module: nn.Module) -> str:
    original = getattr(module, "original_name", None)  # TorchScript modules are all RecursiveScriptModule
    if isinstance(module, torch.jit.ScriptModule) and isinstance(original, str):
        return original
    return type(module).__qualname__


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
