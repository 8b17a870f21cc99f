"""The reference runtime for PyTorch modules: an untouched run, and an opened-up one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from bisect_onnx.core.graph import ValueKind
from bisect_onnx.errors import ReferenceFailedError, UninitializedModuleError
from bisect_onnx.runtimes.torch_arrays import Array, holds_array, to_numpy, to_tensor, view_as_numpy
from bisect_onnx.runtimes.torch_binding import ArgumentBinding, Binding
from bisect_onnx.runtimes.torch_capture import TorchCapture
from bisect_onnx.runtimes.torch_guard import RandomState, other_random_state, same_bits, untouched
from bisect_onnx.runtimes.torch_modules import ModuleTracker, Tracker
from bisect_onnx.runtimes.torch_recorder import Recorder, WriteWatcher
from bisect_onnx.runtimes.torch_structure import name_outputs, tensors_in
from bisect_onnx.runtimes.torch_switches import without_compilation, without_fused_kernels
from bisect_onnx.runtimes.torch_tape import Tape
from bisect_onnx.runtimes.torch_vault import Vault

__all__ = ["EagerReference"]


class EagerReference:
    """See `bisect_onnx.runtimes.base.Reference`. ``output_names`` is empty until the first run."""

    def __init__(
        self,
        module: nn.Module,
        *,
        description: str,
        inputs_example: object = None,
        bind_order: Sequence[str] | None = None,
    ) -> None:
        """Wrap a module; nothing is run.

        Args:
            module: Runs in the mode it is in, and is left bit-identical by every method.
            description: Shown to the user, e.g. "model.py:build".
            inputs_example: A tuple or mapping of forward arguments when some of them are nested or not
                tensors; only its structure is used.
            bind_order: Names of the feeds in call order, when they are not the forward's own names.
        """
        refuse_uninitialized(module, description=description)
        self.description = description
        self.path = ""  # of the module in a whole: what begins the paths of its calls
        self._module = module
        self._binding: ArgumentBinding = Binding(module, example=inputs_example, bind_order=bind_order)
        self.input_names: tuple[str, ...] = self._binding.names
        self.output_names: tuple[str, ...] = ()
        self.changed_inputs: frozenset[str] = frozenset()
        self._named = _named_tensors(module)
        self._attribute_names: dict[int, str] | None = None
        self._constants: dict[str, torch.Tensor] = {}
        self._guard = _ParameterGuard(module)

    @property
    def parameters(self) -> Mapping[str, Array]:
        """State dict entries, other buffers, and tensor attributes that a capture met; memory is shared."""
        return {
            name: view_as_numpy(tensor)
            for name, tensor in (*self._named.items(), *self._constants.items())
            if holds_array(tensor)
        }

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """See `Reference.run`."""
        args, kwargs, inputs = self._binding.arguments(feeds, device=self._device())
        with self._guard.untouched_run(), torch.no_grad():
            with self._translating_failures():
                outputs = name_outputs(self._module(*args, **kwargs))
            arrays = {name: to_numpy(tensor) for name, tensor in outputs.items()}
        self.output_names = tuple(arrays)
        self.changed_inputs = frozenset(
            name for name, tensor in inputs.items() if not same_bits(tensor.cpu(), to_tensor(feeds[name]))
        )
        return arrays

    def rerun(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """See `Reference.rerun`."""
        with other_random_state():
            return self.run(feeds)

    def capture(self, feeds: Mapping[str, Array], *, max_bytes: int) -> TorchCapture:
        """See `Reference.capture`. ``graph.outputs`` are in the order of ``output_names``."""
        kept = {name: np.array(array, copy=True) for name, array in feeds.items()}
        randomness = RandomState()

        def repeat(names: frozenset[str]) -> Mapping[str, torch.Tensor]:
            with _random_state(randomness):
                vault = Vault(max_bytes=None, wanted=names)
                self._record(kept, vault)
            return vault.kept

        vault = Vault(max_bytes=max_bytes)
        tape = self._record(kept, vault)
        return TorchCapture(name=self.description, tape=tape, vault=vault, repeat=repeat)

    def _record(self, feeds: Mapping[str, Array], vault: Vault) -> Tape:
        """One opened-up run."""
        args, kwargs, inputs = self._binding.arguments(feeds, device=self._device())
        tracker = self._tracker()
        recorder = Recorder(vault=vault, place=tracker.place, name_constant=self._name_constant)
        with untouched(self._module, copies_parameters=False) as snapshot, torch.no_grad():
            recorder.watch_writes(snapshot.preserve)
            for name, tensor in self._named.items():
                recorder.register(tensor, name, kind=ValueKind.PARAMETER)
            for name, tensor in inputs.items():
                recorder.register(tensor, name, kind=ValueKind.INPUT)
            with (
                without_fused_kernels(),
                without_compilation(),
                tracker.following(recorder.read_all),
                recorder,
                self._translating_failures(),
            ):
                result = tracker.call(*args, **kwargs)
            outputs = name_outputs(result)
            recorder.tape.inputs = tuple(inputs)
            recorder.tape.outputs = recorder.read_all(outputs)
            recorder.tape.modules = tracker.finished
            vault.settle()
        self.output_names = tuple(outputs)
        return recorder.tape

    def _tracker(self) -> Tracker:
        return ModuleTracker(self._module, path=self.path)

    @contextmanager
    def _translating_failures(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise ReferenceFailedError(
                description=self.description, detail=f"{type(error).__name__}: {error}"
            ) from error

    def _device(self) -> torch.device | None:
        first = next(iter(self._named.values()), None)
        return None if first is None else first.device

    def _name_constant(self, tensor: torch.Tensor) -> str | None:
        """The path of a tensor that a module keeps outside its state dict; None for a literal."""
        if self._attribute_names is None:
            self._attribute_names = dict(_attribute_names(self._module))
        name = self._attribute_names.get(id(tensor))
        if name is not None:
            self._constants[name] = tensor
        return name


# Up to this size the first run copies the parameters first; a larger model may not fit into memory twice.
COPIED_BYTES = 2 << 30


class _ParameterGuard:
    """Puts parameters back that a forward writes to, at the price of a copy only where that happens.

    Whether it happens is learnt in the first run. From the second run on, a module that wrote to none is
    trusted to go on so.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._large = sum(parameter.nbytes for parameter in module.parameters()) > COPIED_BYTES
        self._writes = True

    @contextmanager
    def untouched_run(self) -> Iterator[None]:
        with untouched(self._module, copies_parameters=self._writes and not self._large) as snapshot:
            if self._writes and self._large:
                with WriteWatcher(snapshot.preserve):
                    yield
            else:
                yield
            self._writes = self._writes and snapshot.parameters_changed()


def refuse_uninitialized(module: nn.Module, *, description: str) -> None:
    """A lazy module changes its class at its first run, which could not be undone."""
    for name, parameter in (*module.named_parameters(), *module.named_buffers()):
        if isinstance(parameter, nn.parameter.UninitializedParameter | nn.parameter.UninitializedBuffer):
            raise UninitializedModuleError(description=description, parameter=name)


def _named_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """State dict entries and other buffers by name; tied ones under each of their names."""
    parameters = module.named_parameters(remove_duplicate=False)
    return dict((*parameters, *module.named_buffers(remove_duplicate=False)))


def _attribute_names(module: nn.Module) -> Iterator[tuple[int, str]]:
    for path, child in module.named_modules():
        for name, value in vars(child).items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            for index, tensor in enumerate(tensors_in(value)):
                label = f"{path}.{name}" if path else name
                yield id(tensor), label if isinstance(value, torch.Tensor) else f"{label}.{index}"


@contextmanager
def _random_state(wanted: RandomState) -> Iterator[None]:
    before = RandomState()
    wanted.restore()
    try:
        yield
    finally:
        before.restore()
