"""Turn what a factory returned, or what a Python caller passed, into a torch module and its example inputs."""

import contextlib
import copy
import dataclasses
import inspect
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from bisect_onnx.errors import FactoryResultError, ReferenceFormError, WeightsNotApplicableError
from bisect_onnx.runtimes.base import Reference
from bisect_onnx.runtimes.torch_checkpoint import load_weights
from bisect_onnx.runtimes.user_code import UserAttribute, call_factory

__all__ = ["TorchModel", "build_module", "is_torch_model", "open_in_memory", "required_inputs"]

# The factory's random numbers are its own: seeded, so that two runs see one model, and put back afterwards.
FACTORY_SEED = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TorchModel:
    """A module ready to run; ``example_inputs`` is as the factory returned it, None when it gave none."""

    module: torch.nn.Module
    example_inputs: object
    notes: tuple[str, ...]


def build_module(found: UserAttribute, *, weights: Path | None, unsafe_load: bool) -> TorchModel:
    """The module that a REF's attribute is or makes, with the checkpoint loaded into it."""
    with kept_random_state():
        result = found.value
        if inspect.isclass(result) or (callable(result) and not isinstance(result, torch.nn.Module)):
            result = call_factory(found)
        module, example_inputs = _take_apart(found.address.text, result)
    notes: tuple[str, ...] = ()
    if weights is not None:
        if isinstance(module, torch.jit.ScriptModule):
            raise WeightsNotApplicableError(path=weights, kind="a TorchScript module")
        if module is found.value:  # a module object lives on in the user's Python module
            module = copy.deepcopy(module)
        notes = load_weights(module, weights, unsafe=unsafe_load)
    return TorchModel(module=module, example_inputs=example_inputs, notes=notes)


def is_torch_model(value: object) -> bool:
    """Whether `open_in_memory` takes the object."""
    return isinstance(value, (torch.nn.Module, torch.export.ExportedProgram)) or (
        callable(value) and not inspect.isclass(value)
    )


def open_in_memory(value: object, *, weights: Path | None, unsafe_load: bool) -> tuple[Reference, TorchModel | None]:
    """The adapter for a caller's own object, which stays as it is: weights go into a deep copy."""
    if isinstance(value, torch.export.ExportedProgram):
        from bisect_onnx.runtimes.torch_program import ProgramReference

        if weights is not None:
            raise WeightsNotApplicableError(path=weights, kind="an ExportedProgram")
        return ProgramReference(value, description="ExportedProgram"), None
    if isinstance(value, torch.jit.ScriptModule):
        if weights is not None:
            raise WeightsNotApplicableError(path=weights, kind="a TorchScript module")
        return eager(value, description=f"{value.original_name} (TorchScript)"), None
    if isinstance(value, torch.nn.Module):
        notes: tuple[str, ...] = ()
        if weights is not None:
            value = copy.deepcopy(value)
            notes = load_weights(value, weights, unsafe=unsafe_load)
        model = TorchModel(module=value, example_inputs=None, notes=notes)
        return eager(value, description=type(value).__name__), model
    if callable(value) and not inspect.isclass(value):
        name = getattr(value, "__name__", type(value).__name__)
        if weights is not None:
            raise WeightsNotApplicableError(path=weights, kind=f"the function {name}")
        module = function_module(value)
        return eager(module, description=name), TorchModel(module=module, example_inputs=None, notes=())
    raise ReferenceFormError(
        reference=repr(value)[:60],
        got=f"an object of type {type(value).__qualname__}",
        next_step="pass an nn.Module, an ExportedProgram, a ScriptModule, a function of tensors, or one of those texts",
    )


def eager(module: torch.nn.Module, *, description: str) -> Reference:
    from bisect_onnx.runtimes.torch_eager import EagerReference

    return EagerReference(module, description=description)


def function_module(function: Callable[..., object]) -> torch.nn.Module:
    """A module whose forward is ``function``, signature included."""
    module = torch.nn.Module()
    module.forward = function
    return module


def required_inputs(module: torch.nn.Module) -> tuple[str, ...] | None:
    """Parameters of ``forward`` that have no default; None when the signature does not tell."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return tuple(
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    )


@contextlib.contextmanager
def kept_random_state() -> Iterator[None]:
    """Seed the generators for the user's factory and put their states back."""
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the user's code may use it
    try:
        used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call] # torch leaves it untyped
        with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if used else ()):
            random.seed(FACTORY_SEED)
            np.random.seed(FACTORY_SEED)  # noqa: NPY002 - the user's code may use it
            torch.manual_seed(FACTORY_SEED)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002 - the user's code may use it


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
