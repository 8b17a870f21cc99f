"""The options that say how a report is shown: defined once, given to every command that shows one."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bisect_onnx.cli import options

__all__ = ["Presentation", "with_presentation"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Presentation:
    """How the user wants to see a report."""

    json_target: Path | None  # "-" is stdout, None is no JSON
    force: bool
    all_open: bool
    top: int | None
    quiet: bool
    verbose: bool


def _presentation(
    *,
    json: options.JsonTarget = None,
    force: options.Force = False,
    all_open: options.AllOpen = False,
    top: options.Top = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> Presentation:
    return Presentation(json_target=json, force=force, all_open=all_open, top=top, quiet=quiet, verbose=verbose)


def with_presentation(command: Callable[..., None]) -> Callable[..., None]:
    """Put the options of `Presentation` behind those of ``command``, which gets them as one ``presentation``.

    Typer reads the options of a command from its signature, so the wrapper is given the joined one.
    """
    shown = inspect.signature(_presentation).parameters
    own = [item for item in inspect.signature(command).parameters.values() if item.name != "presentation"]

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        presentation = _presentation(**{name: given.pop(name) for name in shown})
        command(**given, presentation=presentation)

    signature = inspect.Signature(
        [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in [*own, *shown.values()]],
        return_annotation=None,
    )
    wrapper.__signature__ = signature  # type: ignore[attr-defined]  # functions take any attribute
    wrapper.__annotations__ = {name: item.annotation for name, item in signature.parameters.items()}
    return wrapper
