"""Which module is running: its path and which call of it this is, without touching the modules."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from bisect_onnx.runtimes.torch_sources import SourceFinder
from bisect_onnx.runtimes.torch_tape import ModuleCall, Place

__all__ = ["ModuleTracker", "NamesOf", "Tracker", "without_fused_kernels"]


NamesOf = Callable[[Any], tuple[str, ...]]  # the values that the tensors in a structure hold at that moment


class Tracker(Protocol):
    """Runs a model and knows, at any moment of the run, where in it the run is."""

    finished: list[ModuleCall]

    def following(self, names_of: NamesOf) -> AbstractContextManager[None]:
        """Keep track of what `call` does inside the block."""
        ...

    def call(self, *args: Any, **kwargs: Any) -> object: ...

    def place(self) -> Place: ...


class ModuleTracker:
    """Follows a module through torch's global hooks, so the modules' own hook tables stay as they are."""

    def __init__(self, module: nn.Module) -> None:
        self.finished: list[ModuleCall] = []
        self._module = module
        self._sources = SourceFinder(stop=ModuleTracker.call.__code__)
        self._paths = {id(child): path for path, child in module.named_modules()}
        self._counts: dict[str, int] = {}
        self._running: list[ModuleCall] = []
        self._names_of: NamesOf = lambda _: ()

    def call(self, *args: Any, **kwargs: Any) -> object:
        """Run the module."""
        return self._module(*args, **kwargs)

    def place(self) -> Place:
        """The innermost module call in progress, and the line of user code."""
        module = self._running[-1] if self._running else None
        return Place(
            label="" if module is None else module.label,
            module=module if module is not None and module.exact else None,
            source=self._sources.current(),
        )

    @contextmanager
    def following(self, names_of: NamesOf) -> Iterator[None]:
        """See `Tracker.following`."""
        self._names_of = names_of
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
        # Inside a TorchScript module no hook tells which of its children runs.
        opaque = isinstance(module, torch.jit.ScriptModule) and any(True for _ in module.children())
        call = ModuleCall(
            path=path,
            class_name=_class_name(module),
            number=number,
            inputs=self._names_of(args),
            exact=not opaque,
        )
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
