"""Open REF, the side that is right: tell which form it has and hand it to the adapter for that form."""

import dataclasses
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bisect_onnx.errors import (
    ReferenceFormError,
    ReferenceNotFoundError,
    ReferenceUnreadableError,
    WeightsNotApplicableError,
    listing,
)
from bisect_onnx.runtimes.base import Candidate, Reference
from bisect_onnx.runtimes.user_code import FactoryAddress, require_file, similar_files, split_factory

if TYPE_CHECKING:
    from bisect_onnx.runtimes.torch_factory import TorchModel

__all__ = ["OpenedReference", "open_reference"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenedReference:
    """A reference ready to run."""

    reference: Reference
    call_order: tuple[str, ...]  # every input it may take; empty when it takes whatever it is given, in order
    required_inputs: tuple[str, ...] | None = None  # those without a default; None when only a run can tell
    example_inputs: object = None  # what the factory or the file gave as inputs; None when neither did
    leaves: Mapping[str, object] | None = None  # a caller's nested inputs, flat and named; None if not nested
    module: Any = None  # the nn.Module; None when the reference is none in this process
    runtime: Candidate | None = None  # probes the reference, when it is an ONNX file
    recording: Path | None = None  # the file, when the reference is one of recorded values
    notes: tuple[str, ...] = ()


def open_reference(
    ref: object, *, weights: Path | None = None, unsafe_load: bool = False, inputs: object = None
) -> OpenedReference:
    """Open a reference of any form.

    Args:
        ref: The text of REF, a path, or a model in memory (module, exported program, function of tensors).
        weights: Checkpoint to load into the module; a caller's own module is copied first.
        unsafe_load: Let the checkpoint unpickle more than tensors, which can run code from the file.
        inputs: As the user gave them. Only how they are nested is read: a module that takes a tuple of
            states can be called no other way.

    Raises:
        OpeningError: REF cannot be opened.
        WeightsError: The checkpoint cannot be loaded.
    """
    nested = None if isinstance(inputs, str | Path) else inputs
    if not isinstance(ref, str | Path):
        return _open_object(ref, weights=weights, unsafe_load=unsafe_load, inputs=nested)
    address = split_factory(str(ref))
    if address is not None and not Path(str(ref)).exists():
        return _open_factory(address, weights=weights, unsafe_load=unsafe_load, inputs=nested)
    opened = _open_file(Path(ref))
    if weights is not None:
        raise WeightsNotApplicableError(path=weights, kind=f"the model file {Path(ref).name!r}")
    return opened


def _open_object(value: object, *, weights: Path | None, unsafe_load: bool, inputs: object) -> OpenedReference:
    from bisect_onnx.runtimes import torch_factory

    model = torch_factory.open_in_memory(value, weights=weights, unsafe_load=unsafe_load)
    if not isinstance(model, torch_factory.TorchModel):
        return _as_is(model)
    return _wrapped(model, inputs=inputs)


def _open_factory(
    address: FactoryAddress, *, weights: Path | None, unsafe_load: bool, inputs: object
) -> OpenedReference:
    require_file(address)  # before torch, so that a wrong path is told at once
    from bisect_onnx.runtimes import torch_factory

    return _wrapped(torch_factory.build_module(address, weights=weights, unsafe_load=unsafe_load), inputs=inputs)


def _wrapped(model: "TorchModel", *, inputs: object) -> OpenedReference:
    from bisect_onnx.runtimes import torch_factory

    eager = torch_factory.wrap(model, inputs=model.example_inputs if inputs is None else inputs)
    nested_examples = inputs is None and eager.leaves is not None
    return OpenedReference(
        reference=eager.reference,
        call_order=eager.call_order,
        required_inputs=eager.required,
        example_inputs=eager.leaves if nested_examples else model.example_inputs,
        leaves=None if inputs is None else eager.leaves,
        module=model.module,
        notes=model.notes,
    )


def _as_is(reference: Reference) -> OpenedReference:
    return OpenedReference(reference=reference, call_order=tuple(reference.input_names))


def _open_file(path: Path) -> OpenedReference:
    if not path.exists():
        raise ReferenceNotFoundError(
            reference=str(path), where=str(path), got="no such file", similar=similar_files(path.parent, path.name)
        )
    if path.is_dir():
        raise ReferenceFormError(
            reference=str(path), got="a folder", next_step="name the model file, or file.py:factory, inside it"
        )
    if path.suffix == ".py":
        raise _no_factory_named(path)
    if path.suffix == ".onnx":
        from bisect_onnx.readers import onnx_file
        from bisect_onnx.runtimes.onnx_model import OnnxReference

        onnx_reference = OnnxReference(onnx_file.read(path))
        return dataclasses.replace(_as_is(onnx_reference), runtime=onnx_reference.runtime)
    if path.suffix == ".npz":
        from bisect_onnx.runtimes.recorded import RecordedReference

        return dataclasses.replace(_as_is(RecordedReference(path)), recording=path)
    return _as_is(_open_torch_file(path))


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
    scripted = any(name.endswith("constants.pkl") for name in names)
    if not scripted and path.suffix != ".pt2" and any(name.endswith("data.pkl") for name in names):
        raise ReferenceFormError(
            reference=str(path),
            got="a checkpoint written by torch.save: tensors without the code of a model",
            next_step=f"give the code too: --reference file.py:factory --weights {path.name}",
        )
    from bisect_onnx.runtimes import torch_program

    return torch_program.load_torchscript(path) if scripted else torch_program.load_program(path)


def _no_factory_named(path: Path) -> ReferenceFormError:
    from bisect_onnx.readers import python_file

    found = python_file.top_level_names(path)
    return ReferenceFormError(
        reference=str(path),
        got=f"a Python file without ':NAME'; it offers {listing(found)}",
        next_step=f"name what returns the module, e.g. {path}:{found[0]}" if found else f"add ':NAME' to {path}",
    )
