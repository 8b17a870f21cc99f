"""Turn what a factory returned, or what a Python caller passed, into a torch module and its example inputs."""

import contextlib
import copy
import dataclasses
import functools
import inspect
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from bisect_onnx.errors import FactoryResultError, FeedCountError, ReferenceFormError, WeightsNotApplicableError
from bisect_onnx.runtimes.base import Reference
from bisect_onnx.runtimes.torch_checkpoint import load_weights
from bisect_onnx.runtimes.user_code import FactoryAddress, call_factory, load_attribute

__all__ = ["EagerModel", "TorchModel", "build_module", "named_leaves", "open_in_memory", "wrap"]

# The factory's random numbers are its own: seeded, so that two runs see one model, and put back afterwards.
FACTORY_SEED = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TorchModel:
    """A module ready to run; ``example_inputs`` is as the factory returned it, None when it gave none."""

    module: torch.nn.Module
    description: str
    example_inputs: object
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EagerModel:
    """A module behind its adapter, with what is known of its call.

    ``leaves`` are the tensors inside example inputs that hold more than a flat row of tensors, by the
    adapter's names for them; None for a flat row. ``required`` is None when the signature does not tell.
    """

    reference: Reference
    call_order: tuple[str, ...]
    required: tuple[str, ...] | None
    leaves: Mapping[str, object] | None


def build_module(address: FactoryAddress, *, weights: Path | None, unsafe_load: bool) -> TorchModel:
    """The module that a REF's attribute is or makes, with the checkpoint loaded into it."""
    with kept_random_state():
        found = load_attribute(address)
        result = found.value
        if inspect.isclass(result) or (callable(result) and not isinstance(result, torch.nn.Module)):
            result = call_factory(found)
        module, example_inputs = _take_apart(address.text, result)
    notes: tuple[str, ...] = ()
    if weights is not None:
        if isinstance(module, torch.jit.ScriptModule):
            raise WeightsNotApplicableError(path=weights, kind="a TorchScript module")
        if module is found.value:  # a module object lives on in the user's Python module
            module = copy.deepcopy(module)
        notes = load_weights(module, weights, unsafe=unsafe_load)
    return TorchModel(module=unwrapped(module), description=address.text, example_inputs=example_inputs, notes=notes)


def open_in_memory(value: object, *, weights: Path | None, unsafe_load: bool) -> TorchModel | Reference:
    """A caller's own object, which stays as it is: weights go into a deep copy. A program comes with its adapter."""
    if isinstance(value, torch.export.ExportedProgram):
        from bisect_onnx.runtimes.torch_program import ProgramReference

        if weights is not None:
            raise WeightsNotApplicableError(path=weights, kind="an ExportedProgram")
        return ProgramReference(value, description="ExportedProgram")
    if isinstance(value, torch.jit.ScriptModule):
        if weights is not None:
            raise WeightsNotApplicableError(path=weights, kind="a TorchScript module")
        return TorchModel(module=value, description=str(value.original_name), example_inputs=None, notes=())
    if isinstance(value, torch.nn.Module):
        notes: tuple[str, ...] = ()
        if weights is not None:
            value = copy.deepcopy(value)
            notes = load_weights(value, weights, unsafe=unsafe_load)
        module = unwrapped(value)
        return TorchModel(module=module, description=type(module).__name__, example_inputs=None, notes=notes)
    if callable(value) and not inspect.isclass(value):
        name = getattr(value, "__name__", type(value).__name__)
        if weights is not None:
            raise WeightsNotApplicableError(path=weights, kind=f"the function {name}")
        return TorchModel(module=function_module(value), description=name, example_inputs=None, notes=())
    raise ReferenceFormError(
        reference=repr(value)[:60],
        got=f"an object of type {type(value).__qualname__}",
        next_step="pass an nn.Module, an ExportedProgram, a ScriptModule, a function of tensors, or one of those texts",
    )


def wrap(model: TorchModel, *, inputs: object) -> EagerModel:
    """The adapter for a module.

    Args:
        model: The module.
        inputs: What a Python caller gave as inputs, or the factory's examples; None when they come from disk.
    """
    from bisect_onnx.runtimes.torch_eager import EagerReference

    example = None if inputs is None or is_flat(inputs) else call_arguments(model.module, inputs)
    reference = EagerReference(model.module, description=model.description, inputs_example=example)
    if example is None:
        parameters = forward_parameters(model.module)
        return EagerModel(
            reference=reference,
            call_order=() if parameters is None else tuple(parameters),
            required=None if parameters is None else tuple(name for name, needed in parameters.items() if needed),
            leaves=None,
        )
    leaves = dict(zip(reference.input_names, arrays_in(example), strict=True))
    return EagerModel(
        reference=reference, call_order=reference.input_names, required=reference.input_names, leaves=leaves
    )


def is_flat(inputs: object) -> bool:
    """Whether inputs are one tensor, or a row or mapping of tensors and nothing else."""
    if isinstance(inputs, Mapping):
        return all(is_array(item) for item in inputs.values())
    if isinstance(inputs, list | tuple):
        return all(is_array(item) for item in inputs)
    return True  # one tensor; anything else is refused as feeds


def call_arguments(module: torch.nn.Module, inputs: object) -> object:
    """Inputs as a call takes them; a mapping that ends a row holds keyword arguments, as in torch.onnx.export."""
    if isinstance(inputs, list | tuple) and inputs and isinstance(inputs[-1], Mapping):
        with contextlib.suppress(TypeError, ValueError):  # then it is an argument that happens to be a mapping
            bound = inspect.signature(module.forward).bind(*inputs[:-1], **inputs[-1])
            return dict(bound.arguments)
    return inputs


def arrays_in(inputs: object) -> Iterator[object]:
    """Tensors and arrays inside nested rows and mappings, in order."""
    if is_array(inputs):
        yield inputs
    elif isinstance(inputs, list | tuple):
        for item in inputs:
            yield from arrays_in(item)
    elif isinstance(inputs, Mapping):
        for item in inputs.values():
            yield from arrays_in(item)


def named_leaves(module: torch.nn.Module, inputs: object, *, names: Sequence[str], where: str) -> dict[str, object]:
    """The tensors and arrays of nested inputs by the names that those of another call of this form got.

    Raises:
        FeedCountError: The inputs are nested in another form.
    """
    leaves = list(arrays_in(call_arguments(module, inputs)))
    if len(leaves) != len(names):
        raise FeedCountError(where=where, signature=names, count=len(leaves))
    return dict(zip(names, leaves, strict=True))


def is_array(value: object) -> bool:
    return isinstance(value, torch.Tensor | np.ndarray)


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """The module inside those that only spread a batch over devices."""
    while isinstance(module, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
        module = module.module
    return module


def function_module(function: Callable[..., object]) -> torch.nn.Module:
    """A module whose forward is ``function``, signature included.

    The modules that the function calls are its children: their mode, buffers and parameters are looked after
    as those of any module, and a module in training mode is found.
    """
    module = torch.nn.Module()
    for name, child in modules_behind(function).items():
        module.add_module(f"{name}_" if hasattr(module, name) else name, child)
    module.training = False  # of this wrapper alone: nothing in it heeds the mode
    module.forward = function
    return module


def modules_behind(function: Callable[..., object]) -> dict[str, torch.nn.Module]:
    """The modules that a function, a method, a partial or a callable object holds or names, by its word for them."""
    if isinstance(function, functools.partial):
        held = {str(place): value for place, value in enumerate(function.args)} | function.keywords
        return _modules_among(held) | modules_behind(function.func)
    if inspect.ismethod(function):
        owner = function.__self__
        held = {"self": owner} if isinstance(owner, torch.nn.Module) else getattr(owner, "__dict__", {})
        return _modules_among(held) | modules_behind(function.__func__)
    if inspect.isfunction(function):
        names = inspect.getclosurevars(function)
        return _modules_among({**names.globals, **names.nonlocals})
    return _modules_among(getattr(function, "__dict__", {}))


def _modules_among(held: Mapping[str, object]) -> dict[str, torch.nn.Module]:
    return {name: value for name, value in held.items() if isinstance(value, torch.nn.Module)}


def forward_parameters(module: torch.nn.Module) -> dict[str, bool] | None:
    """Parameters of ``forward`` in order, and whether each needs a value; None when it takes any number."""
    if isinstance(module, torch.jit.ScriptModule):
        schema = module.forward.schema  # type: ignore[attr-defined] # a ScriptMethod, which torch leaves untyped
        arguments = schema.arguments[1:]  # the first is the module
        return {argument.name: not argument.has_default_value() for argument in arguments}
    parameters = inspect.signature(module.forward).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return {
        parameter.name: parameter.default is parameter.empty
        for parameter in parameters
        if parameter.kind is not parameter.VAR_KEYWORD
    }


@contextlib.contextmanager
def kept_random_state() -> Iterator[None]:
    """Seed the generators for the user's factory and put their states back."""
    python, legacy = random.getstate(), np.random.get_state()
    try:
        used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call] # torch leaves it untyped
        with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if used else ()):
            random.seed(FACTORY_SEED)
            np.random.seed(FACTORY_SEED)
            torch.manual_seed(FACTORY_SEED)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)


def _take_apart(reference: str, result: object) -> tuple[torch.nn.Module, object]:
    if isinstance(result, torch.nn.Module):
        return result, None
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], torch.nn.Module):
        return result[0], result[1]
    raise FactoryResultError(reference=reference, got=_describe(result))


def _describe(result: object) -> str:
    if result is None:
        return "None: the function has no return statement, or returned nothing"
    if inspect.isclass(result) and issubclass(result, torch.nn.Module):
        return f"the class {result.__name__} itself, not an instance: write {result.__name__}()"
    if isinstance(result, tuple):
        kinds = ", ".join(type(item).__name__ for item in result)
        return f"a tuple of {len(result)} ({kinds})"
    if isinstance(result, dict):
        return f"a dict with {len(result)} keys; a state dict is given with --weights FILE beside the factory"
    return f"an object of type {type(result).__module__}.{type(result).__qualname__}".replace("builtins.", "")
