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

__all__ = ["ModuleTracker", "NamesOf", "Tracker"]


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

    def __init__(self, module: nn.Module, *, path: str = "") -> None:
        """``path`` begins the paths of all modules: where ``module`` stands in a whole."""
        self.finished: list[ModuleCall] = []
        self._module = module
        self._sources = SourceFinder(stop=ModuleTracker.call.__code__)
        self._paths = {id(child): name for name, child in module.named_modules(prefix=path)}
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
