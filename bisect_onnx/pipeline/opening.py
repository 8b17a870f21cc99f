"""Open REF, the side that is right: tell which form it has and hand it to the adapter for that form."""

import dataclasses
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from bisect_onnx.errors import (
    ReferenceFormError,
    ReferenceNotFoundError,
    ReferenceUnreadableError,
    WeightsNotApplicableError,
    listing,
)
from bisect_onnx.runtimes.base import Reference
from bisect_onnx.runtimes.user_code import FactoryAddress, load_attribute, similar_files, split_factory

if TYPE_CHECKING:
    from torch.nn import Module

__all__ = ["OpenedReference", "open_reference"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenedReference:
    """A reference ready to run.

    ``module`` is None when the reference is no nn.Module in this process. ``required_inputs`` are those that
    must have a value; None when only a run can tell.
    """

    reference: Reference
    example_inputs: object = None  # as the factory returned it: a tensor, a tuple, a mapping
    module: "Module | None" = None
    required_inputs: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


def open_reference(ref: object, *, weights: Path | None = None, unsafe_load: bool = False) -> OpenedReference:
    """Open a reference of any form.

    Args:
        ref: The text of REF, a path, or a model in memory (module, exported program, function of tensors).
        weights: Checkpoint to load into the module; a caller's own module is copied first.
        unsafe_load: Let the checkpoint unpickle more than tensors, which can run code from the file.

    Raises:
        OpeningError: REF cannot be opened.
        WeightsError: The checkpoint cannot be loaded.
    """
    if not isinstance(ref, str | Path):
        return _open_object(ref, weights=weights, unsafe_load=unsafe_load)
    address = split_factory(str(ref))
    if address is not None and not Path(str(ref)).exists():
        return _open_factory(address, weights=weights, unsafe_load=unsafe_load)
    opened = _open_file(Path(ref))
    if weights is not None:
        raise WeightsNotApplicableError(path=weights, kind=f"the model file {Path(ref).name!r}")
    return opened


def _open_object(value: object, *, weights: Path | None, unsafe_load: bool) -> OpenedReference:
    from bisect_onnx.runtimes import torch_factory

    reference, model = torch_factory.open_in_memory(value, weights=weights, unsafe_load=unsafe_load)
    if model is None:
        return OpenedReference(reference=reference)
    return OpenedReference(
        reference=reference,
        module=model.module,
        required_inputs=torch_factory.required_inputs(model.module),
        notes=model.notes,
    )


def _open_factory(address: FactoryAddress, *, weights: Path | None, unsafe_load: bool) -> OpenedReference:
    found = load_attribute(address)  # before torch, so that a wrong path is told at once
    from bisect_onnx.runtimes import torch_factory

    model = torch_factory.build_module(found, weights=weights, unsafe_load=unsafe_load)
    return OpenedReference(
        reference=torch_factory.eager(model.module, description=address.text),
        example_inputs=model.example_inputs,
        module=model.module,
        required_inputs=torch_factory.required_inputs(model.module),
        notes=model.notes,
    )


def _open_file(path: Path) -> OpenedReference:
    if not path.exists():
        raise ReferenceNotFoundError(reference=str(path), path=path, similar=similar_files(path.parent, path.name))
    if path.is_dir():
        raise ReferenceFormError(
            reference=str(path), got="a folder", next_step="name the model file, or file.py:factory, inside it"
        )
    if path.suffix == ".py":
        raise _no_factory_named(path)
    if path.suffix == ".onnx":
        from bisect_onnx.readers import onnx_file
        from bisect_onnx.runtimes.onnx_model import OnnxReference

        return OpenedReference(reference=OnnxReference(onnx_file.read(path)))
    if path.suffix == ".npz":
        from bisect_onnx.runtimes.recorded import RecordedReference

        return OpenedReference(reference=RecordedReference(path))
    return OpenedReference(reference=_open_torch_file(path))


def _open_torch_file(path: Path) -> Reference:
    """A ``.pt2``, or a TorchScript archive of any suffix: both are zip files, told apart by what is inside."""
    if path.suffix not in {".pt2", ".pt", ".pth", ".ts", ".torchscript", ".ptc", ".jit", ".zip"}:
        raise ReferenceFormError(
            reference=str(path),
            got=f"a file whose suffix is {path.suffix!r}" if path.suffix else "a file without a suffix",
            next_step="give one of those forms; for a state dict give file.py:factory and --weights FILE",
        )
    if not zipfile.is_zipfile(path):
        raise ReferenceUnreadableError(
            path=path,
            kind="an exported program or a TorchScript archive, both of which are zip files",
            detail=f"{path.stat().st_size} bytes that are no complete zip file",
            next_step="save the file again; if it is a state dict, give file.py:factory and --weights FILE",
        )
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    from bisect_onnx.runtimes import torch_program

    if any(name.endswith("constants.pkl") for name in names):
        return torch_program.load_torchscript(path)
    if path.suffix != ".pt2" and any(name.endswith("data.pkl") for name in names):
        raise ReferenceFormError(
            reference=str(path),
            got="a checkpoint written by torch.save: tensors without the code of a model",
            next_step=f"give the code too: --reference file.py:factory --weights {path.name}",
        )
    return torch_program.load_program(path)


def _no_factory_named(path: Path) -> ReferenceFormError:
    from bisect_onnx.readers import python_file

    found = python_file.top_level_names(path)
    return ReferenceFormError(
        reference=str(path),
        got=f"a Python file without ':NAME'; it defines {listing(found)}",
        next_step=f"name what returns the module, e.g. {path}:{found[0]}" if found else f"add ':NAME' to {path}",
    )
