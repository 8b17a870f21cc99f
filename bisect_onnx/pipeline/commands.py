"""A request as a command that can be pasted: on the command line, or in Python when something lives in memory."""

import dataclasses
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bisect_onnx.pipeline.request import LocateRequest

__all__ = ["as_command"]

# Options of `LocateRequest` that have one value, by their flags; `reference` and `inputs` are written apart.
FLAGS = {
    "module": "--module", "weights": "--weights", "seed": "--seed", "level": "--level", "strategy": "--strategy",
    "atol": "--atol", "rtol": "--rtol", "metric": "--metric", "threshold": "--threshold", "max_memory": "--max-memory",
    "keep_list": "--keep-list", "candidate_values": "--candidate-values",
}  # fmt: skip


def as_command(request: LocateRequest, **changes: Any) -> str:
    """How to ask ``request`` with ``changes`` to its fields; options at their defaults are left out unless changed."""
    changed = dataclasses.replace(request, **changes)
    in_memory = not isinstance(changed.reference, str | Path) or not all(
        isinstance(source, str | Path | None) for source in _sources(changed.inputs)
    )
    return _in_python(changed, set(changes)) if in_memory else _in_shell(changed, set(changes))


def _in_shell(request: LocateRequest, changes: set[str]) -> str:
    words = ["bisect-onnx", "locate", str(request.candidate), "--reference", str(request.reference)]
    if request.inputs is not None:
        words += [word for source in _sources(request.inputs) for word in ("--inputs", str(source))]
    if request.samples:
        words.append("--samples")
    for name, value in _telling(request, changes):
        if name in FLAGS:
            words += [FLAGS[name], str(value)]
    if request.force:
        words.append("--force")
    if request.unsafe_load:
        words.append("--unsafe-load")
    for name, shape in request.shapes.items():
        words += ["--shape", f"{name}={','.join(map(str, shape))}"]
    if "providers" in dict(_telling(request, changes)):
        words += [word for provider in request.providers for word in ("--provider", provider)]
    for key, value in request.session_options.items():
        words += ["--session-option", f"{key}={value}"]
    words += [word for library in request.custom_ops for word in ("--custom-ops", str(library))]
    return shlex.join(words)


def _in_python(request: LocateRequest, changes: set[str]) -> str:
    """What is in memory has no name here: it is called ``model`` and ``inputs``."""
    reference = repr(str(request.reference)) if isinstance(request.reference, str | Path) else "model"
    arguments = [reference, repr(str(request.candidate))]
    if request.inputs is not None:
        on_disk = all(isinstance(source, str | Path) for source in _sources(request.inputs))
        arguments.append(_literal(request.inputs) if on_disk else "inputs")
    for name, value in _telling(request, changes):
        arguments.append(f"{name}={_literal(value)}")
    return f"bisect_onnx.locate({', '.join(arguments)})"


def _sources(inputs: object) -> list[object]:
    """Several samples apart; anything else is one."""
    return inputs if isinstance(inputs, list) else [inputs]


def _literal(value: object) -> str:
    if isinstance(value, Path):
        return repr(str(value))
    if isinstance(value, tuple | list):
        return repr([str(item) if isinstance(item, Path) else item for item in value])
    return repr(value)


def _telling(request: LocateRequest, changes: set[str]) -> Iterator[tuple[str, object]]:
    """Options that are not at their default, and those that were changed to something."""
    for field in dataclasses.fields(request):
        value = getattr(request, field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if field.name in ("candidate", "reference", "inputs") or value is None:
            continue
        if value != default or field.name in changes:
            yield field.name, value
