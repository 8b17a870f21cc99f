"""Load a checkpoint into a module: tensors only unless told otherwise, every key and shape accounted for."""

import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bisect_onnx.errors import (
    WeightsFormatError,
    WeightsMismatchError,
    WeightsNeedPickleError,
    WeightsNotFoundError,
    WeightsUnreadableError,
    listing,
)

__all__ = ["is_saved_by_torch", "load_weights", "refused_object"]

# Where training scripts put the state dict, the most specific name first.
NESTS = ("state_dict", "model_state_dict", "model", "module", "net", "params")
# Wrappers that lengthen every key: DataParallel, Lightning, torch.compile, and their usual attribute names.
PREFIXES = ("module.", "model.", "_orig_mod.", "net.", "module._orig_mod.", "model._orig_mod.")

# Old torch.save wrote a plain pickle; new ones are zip files.
PICKLE_MARK = b"\x80"

State = Mapping[str, Any]


def load_weights(module: torch.nn.Module, path: Path, *, unsafe: bool) -> tuple[str, ...]:
    """Load ``path`` into ``module``, all or nothing.

    Args:
        module: Changed in place; a caller that must keep it passes a copy.
        path: ``.safetensors``, or anything ``torch.load`` reads.
        unsafe: Unpickle objects other than tensors, which can run code from the file.

    Returns:
        Notes for the user: which part of the file was taken, and casts.
    """
    if not path.is_file():
        raise WeightsNotFoundError(path=path)
    content = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path, unsafe=unsafe)
    state, notes = _state_dict(content, path=path)
    own = module.state_dict()
    _check(own, state, path=path, module=type(module).__name__)
    casts = sum(1 for key, value in own.items() if _is_cast(value, state[key]))
    if casts:
        notes = (*notes, f"{casts} tensors of {path.name} were converted to the module's dtype")
    # Parameters without storage cannot be copied into; they take the checkpoint's tensors themselves.
    on_meta = any(tensor.is_meta for tensor in (*module.parameters(), *module.buffers()))
    try:
        module.load_state_dict(dict(state), strict=True, assign=on_meta)
    except RuntimeError as error:  # a hook of the module's own has another opinion of the keys
        raise WeightsFormatError(
            path=path, got=_first_line(error), next_step="load it in the factory, as the module wants it"
        ) from error
    return notes


def _read_safetensors(path: Path) -> object:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ModuleNotFoundError as error:
        raise WeightsFormatError(
            path=path,
            got="a .safetensors file, and the package 'safetensors' is not installed",
            next_step="pip install safetensors",
        ) from error
    try:
        return load_file(path, device="cpu")
    except (SafetensorError, OSError, ValueError) as error:
        raise WeightsUnreadableError(path=path, detail=_first_line(error)) from error


def _read_torch(path: Path, *, unsafe: bool) -> object:
    if is_torchscript(path):
        raise WeightsFormatError(
            path=path,
            got="a TorchScript archive, which is a whole model",
            next_step=f"give it as the reference: --reference {path.name}",
        )
    if not is_saved_by_torch(path):
        raise WeightsUnreadableError(
            path=path, detail=f"{path.stat().st_size} bytes that are no file of torch.save, or cut off"
        )
    try:
        return torch.load(path, map_location="cpu", weights_only=not unsafe)
    except pickle.UnpicklingError as error:
        if unsafe or (reason := refused_object(error)) is None:
            # torch's own text is about its switches, and says nothing of the damage.
            raise WeightsUnreadableError(path=path, detail="a pickle that is damaged or cut off") from error
        raise WeightsNeedPickleError(path=path, detail=reason) from error
    except (Exception, SystemExit) as error:
        raise WeightsUnreadableError(path=path, detail=f"{type(error).__name__}: {_first_line(error)}") from error


def is_torchscript(path: Path) -> bool:
    """Whether the file is a TorchScript archive, told by its content."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        parts = [name.split("/") for name in archive.namelist()]
    return any(name[-1] == "constants.pkl" for name in parts) and any("code" in name[:-1] for name in parts)


def is_saved_by_torch(path: Path) -> bool:
    """Whether the file begins as those of torch.save do."""
    with path.open("rb") as file:
        return zipfile.is_zipfile(path) or file.read(1) == PICKLE_MARK


def refused_object(error: pickle.UnpicklingError) -> str | None:
    """What torch refused to unpickle; None when the file is damaged rather than refused."""
    found = re.search(r"GLOBAL (\S+) was not an allowed global|Unsupported class (\S+)", str(error))
    return f"an object of {found[1] or found[2]}" if found is not None else None


def _state_dict(content: object, *, path: Path) -> tuple[State, tuple[str, ...]]:
    if isinstance(content, torch.nn.Module):
        return content.state_dict(), (f"{path.name} holds a whole module; its state dict was taken",)
    if not isinstance(content, Mapping):
        raise WeightsFormatError(
            path=path, got=f"an object of {_type_name(content)}", next_step="save module.state_dict() instead"
        )
    if _holds_tensors(content):
        return content, ()
    for name in NESTS:
        inner = content.get(name)
        if isinstance(inner, torch.nn.Module):
            inner = inner.state_dict()
        if isinstance(inner, Mapping) and _holds_tensors(inner):
            others = [str(key) for key in content if key != name]
            note = f"the state dict was taken from {name!r} in {path.name}"
            return inner, (f"{note}, which also holds {listing(others)}" if others else note,)
    raise WeightsFormatError(
        path=path,
        got=f"a mapping with {listing([str(key) for key in content])}",
        next_step="save module.state_dict() alone",
    )


def _holds_tensors(content: Mapping[Any, Any]) -> bool:
    return (
        bool(content)
        and all(isinstance(key, str) for key in content)
        and any(isinstance(value, torch.Tensor) for value in content.values())
    )


def _check(own: State, given: State, *, path: Path, module: str) -> None:
    missing = [key for key in own if key not in given]
    unexpected = [str(key) for key in given if key not in own]
    shared = [key for key in own if key in given]
    shapes = [
        f"{key}: the module has {tuple(own[key].shape)}, the file {tuple(given[key].shape)}"
        for key in shared
        if _shape(own[key]) != _shape(given[key])
    ]
    if missing or unexpected or shapes:
        raise WeightsMismatchError(
            path=path,
            module=module,
            matched=len(shared) - len(shapes),
            missing=missing,
            unexpected=unexpected,
            shapes=shapes,
            next_step=_advice(own, given) or "build the module with the options that the checkpoint was trained with",
        )


def _advice(own: State, given: State) -> str | None:
    """How a prefix explains the difference of the keys; None when none does."""
    if set(given) == set(own):
        return None
    for prefix in PREFIXES:
        if {key.removeprefix(prefix) for key in given} == set(own):
            return (
                f"every key in the file begins with {prefix!r}; save it without: "
                f"{{k.removeprefix({prefix!r}): v for k, v in state.items()}}"
            )
        if {key.removeprefix(prefix) for key in own} == set(given):
            return f"every key of the module begins with {prefix!r}; let the factory return the module inside"
    return None


def _shape(value: object) -> tuple[int, ...] | None:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None


def _is_cast(own: object, given: object) -> bool:
    return isinstance(own, torch.Tensor) and isinstance(given, torch.Tensor) and own.dtype != given.dtype


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
