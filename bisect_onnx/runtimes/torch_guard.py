"""Puts the caller's module and torch's global state back, bit for bit, after a run."""

import random
from collections.abc import Iterator, MutableMapping, MutableSequence, MutableSet
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from bisect_onnx.runtimes.torch_structure import tensors_in

__all__ = [
    "ModuleSnapshot", "RandomState", "eval_mode", "mode_dependent", "other_random_state", "same_bits",
    "training_modules", "untouched",
]  # fmt: skip


def training_modules(module: nn.Module) -> tuple[str, ...]:
    """Paths of the submodules in training mode, in order; the root's path is ""."""
    return tuple(path for path, child in module.named_modules() if child.training)


def mode_dependent(module: nn.Module) -> tuple[str, ...]:
    """Paths of torch's own layers in training mode that compute something else than in evaluation mode."""
    return tuple(path for path, child in module.named_modules() if child.training and _differs_in_training(child))


def _differs_in_training(layer: nn.Module) -> bool:
    """Whether a layer of torch's, as it is configured, heeds its mode; False for what is not torch's."""
    match layer:
        case nn.modules.dropout._DropoutNd():  # the base class of all of them, and the only one
            return bool(layer.p > 0)
        case nn.modules.batchnorm._NormBase():  # as above; of instance norms as well
            return bool(layer.track_running_stats)
        case nn.RReLU():
            return bool(layer.lower != layer.upper)
        case nn.RNNBase():
            return bool(layer.dropout > 0 and layer.num_layers > 1)
        case nn.MultiheadAttention():
            return bool(layer.dropout > 0)
        case _:
            return False


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block; each submodule's own flag afterwards."""
    flags = [(child, child.training) for child in module.modules()]
    try:
        module.eval()
        yield
    finally:
        for child, training in flags:
            child.training = training


class RandomState:
    """The generators of torch (CPU, and CUDA where it is in use), numpy and Python."""

    def __init__(self) -> None:
        self._torch = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if _cuda_in_use() else None
        self._numpy = np.random.get_state()
        self._python = random.getstate()

    def restore(self) -> None:
        torch.set_rng_state(self._torch)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)
        np.random.set_state(self._numpy)
        random.setstate(self._python)


def _cuda_in_use() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]  # torch leaves it without types


# Where runs with other random numbers begin; any number serves that no program seeds its generators with.
OTHER_SEED = 0x51CE_D0D0


@contextmanager
def other_random_state() -> Iterator[None]:
    """Other random numbers inside the block than the caller would draw; the caller's state afterwards."""
    before = RandomState()
    try:
        torch.default_generator.manual_seed(OTHER_SEED)
        if _cuda_in_use():  # seeding it otherwise would leave a trace for the time it starts
            torch.cuda.manual_seed_all(OTHER_SEED)
        np.random.seed(OTHER_SEED)
        random.seed(OTHER_SEED)
        yield
    finally:
        before.restore()


class GlobalState:
    """Torch's process-wide settings that a forward may change."""

    _AUTOCAST_DEVICES = ("cpu", "cuda")

    def __init__(self) -> None:
        self._random = RandomState()
        self._dtype = torch.get_default_dtype()
        self._grad = torch.is_grad_enabled()
        self._deterministic = torch.are_deterministic_algorithms_enabled()
        self._warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
        self._autocast = {
            device: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
            for device in self._AUTOCAST_DEVICES
        }
        self._autocast_cache = torch.is_autocast_cache_enabled()

    def restore(self) -> None:
        self._random.restore()
        torch.set_default_dtype(self._dtype)
        torch.set_grad_enabled(self._grad)
        now = (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())
        if now != (self._deterministic, self._warn_only):
            # Only then: the call imports torch's compiler, which takes seconds.
            torch.use_deterministic_algorithms(self._deterministic, warn_only=self._warn_only)
        for device, (enabled, dtype) in self._autocast.items():
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(self._autocast_cache)


class TensorSnapshot:
    """One tensor of the module: its memory, flags, gradient and, when copied, its elements."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self._memory = tensor.detach()
        self._grad = tensor.grad if tensor.is_leaf else None
        self._requires_grad = tensor.requires_grad
        self._elements: torch.Tensor | None = None

    def copy_elements(self) -> None:
        """Copy the elements unless that was done before."""
        if self._elements is None:
            self._elements = self._memory.clone()

    @property
    def changed(self) -> bool:
        """Whether the elements differ from the copy."""
        return self._elements is not None and not same_bits(self._memory, self._elements)

    def restore(self) -> None:
        tensor = self.tensor
        if not _same_memory(tensor, self._memory):
            tensor.data = self._memory
        if self.changed:
            assert self._elements is not None
            with torch.inference_mode(mode=self._memory.is_inference()), torch.no_grad():
                self._memory.copy_(self._elements)
        if tensor.is_leaf:
            if tensor.requires_grad != self._requires_grad:
                tensor.requires_grad_(self._requires_grad)
            if tensor.grad is not self._grad:
                tensor.grad = self._grad


def _same_memory(first: torch.Tensor, second: torch.Tensor) -> bool:
    if first.layout is not torch.strided or second.layout is not torch.strided:
        return first.layout is second.layout
    return first.data_ptr() == second.data_ptr() and first.shape == second.shape and first.stride() == second.stride()


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Equality of the bit patterns, so NaN equals itself and -0.0 differs from 0.0."""
    if first.shape != second.shape or first.dtype is not second.dtype:
        return False
    if first.layout is not torch.strided:
        return bool(torch.equal(first.to_dense(), second.to_dense()))
    with torch.no_grad():
        bits = [tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in (first, second)]
    return bool(torch.equal(bits[0], bits[1]))


class ModuleSnapshot:
    """Everything a forward may change in a module tree.

    Buffers and tensors in plain attributes are copied at once. Parameters are copied when
    ``copies_parameters`` says so, or by `preserve` before a write that a recorder has seen coming.
    """

    def __init__(self, module: nn.Module, *, copies_parameters: bool) -> None:
        self._attributes = [(child, _attributes_of(child)) for child in module.modules()]
        self._parameters = [TensorSnapshot(parameter) for parameter in module.parameters()]
        self._by_memory: dict[int, list[TensorSnapshot]] = {}
        for snapshot in self._parameters:
            self._by_memory.setdefault(snapshot.tensor.untyped_storage().data_ptr(), []).append(snapshot)
        known = {id(snapshot.tensor) for snapshot in self._parameters}
        self._others: list[TensorSnapshot] = []
        for tensor in _other_tensors(module):
            if id(tensor) not in known:
                known.add(id(tensor))
                self._others.append(TensorSnapshot(tensor))
        for snapshot in (*self._others, *(self._parameters if copies_parameters else ())):
            snapshot.copy_elements()

    def preserve(self, tensor: torch.Tensor) -> None:
        """Copy the parameters that share memory with ``tensor``, which is about to be written."""
        for snapshot in self._by_memory.get(tensor.untyped_storage().data_ptr(), ()):
            snapshot.copy_elements()

    def parameters_changed(self) -> bool:
        return any(snapshot.changed for snapshot in self._parameters)

    def restore(self) -> None:
        for child, attributes in self._attributes:
            _restore_attributes(child, attributes)
        for snapshot in (*self._parameters, *self._others):
            snapshot.restore()


def _other_tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    """Buffers, and tensors that modules keep in plain attributes or containers."""
    yield from module.buffers()
    for child in module.modules():
        if not isinstance(child, torch.jit.ScriptModule):
            for name, value in vars(child).items():
                if name not in ("_parameters", "_modules"):
                    yield from tensors_in(value)


def _attributes_of(module: nn.Module) -> dict[str, tuple[Any, Any]]:
    """Each attribute, with a shallow copy of it where it is a container."""
    if isinstance(module, torch.jit.ScriptModule):  # its attributes live in C++; numbers among them are not followed
        buffers = {name: (buffer, None) for name, buffer in module.named_buffers(recurse=False)}
        return {"training": (module.training, None), **buffers}
    return {name: (value, _shallow_copy(value)) for name, value in vars(module).items()}


def _shallow_copy(value: object) -> object:
    if isinstance(value, int | str | float | None):  # most attributes; testing for the abstract classes takes long
        return None
    if isinstance(value, MutableMapping):
        return dict(value)
    if isinstance(value, MutableSequence):
        return list(value)
    return set(value) if isinstance(value, MutableSet) else None


def _restore_attributes(module: nn.Module, saved: dict[str, tuple[Any, Any]]) -> None:
    if isinstance(module, torch.jit.ScriptModule):
        for name, (value, _) in saved.items():
            now = getattr(module, name)
            moved = not _same_memory(now, value) if isinstance(value, torch.Tensor) else now != value
            if moved:
                setattr(module, name, value)
        return
    attributes = vars(module)
    for name in [name for name in attributes if name not in saved]:
        del attributes[name]
    for name, (value, content) in saved.items():
        if attributes.get(name, _MISSING) is not value:
            attributes[name] = value
        if content is not None:
            _restore_content(value, content)


_MISSING = object()


def _restore_content(container: Any, content: Any) -> None:
    if isinstance(content, dict):
        same = len(container) == len(content) and all(
            key is old and value is content[old] for (key, value), old in zip(container.items(), content, strict=True)
        )
        if not same:
            container.clear()
            container.update(content)
    elif isinstance(content, list):
        if len(container) != len(content) or any(a is not b for a, b in zip(container, content, strict=True)):
            container[:] = content
    elif container != content:
        container.clear()
        container |= content


@contextmanager
def untouched(module: nn.Module, *, copies_parameters: bool = True) -> Iterator[ModuleSnapshot]:
    """Run a block and leave the module and torch's global state bit-identical, also when it raises."""
    everywhere = GlobalState()
    snapshot = ModuleSnapshot(module, copies_parameters=copies_parameters)
    try:
        yield snapshot
    finally:
        snapshot.restore()
        everywhere.restore()
