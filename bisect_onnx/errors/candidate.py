"""The ONNX file cannot be read, or its runtime refuses it or an option."""

from collections.abc import Sequence
from pathlib import Path

from bisect_onnx.errors.base import RuntimeTroubleError, UsageError, listing, page

__all__ = [
    "CommandNotInstalledError",
    "CustomOpsError",
    "ExternalDataError",
    "ModelFileError",
    "ModelNotFoundError",
    "ModelNotLoadedError",
    "NotAnOnnxFileError",
    "OptimizationLevelError",
    "ProviderNotGrantedError",
    "RuntimeFailedError",
    "RuntimeNotInstalledError",
    "RuntimeOptionError",
    "SessionOptionValueError",
    "UnknownProviderError",
    "UnknownSessionOptionError",
]


class ModelFileError(UsageError):
    """An ONNX file cannot be read."""


class ModelNotFoundError(ModelFileError):
    """There is no file at the path of the model; ``got`` says what is there."""

    def __init__(self, *, path: Path, got: str) -> None:
        super().__init__(
            page(
                f"the model {path.name!r} does not exist",
                where=str(path),
                expected="an ONNX file",
                got=got,
                next_step="check the path",
            )
        )


class NotAnOnnxFileError(ModelFileError):
    """The bytes are no ONNX model."""

    def __init__(self, *, path: Path, got: str, next_step: str) -> None:
        super().__init__(
            page(
                f"{path.name!r} is not a readable ONNX model",
                where=str(path),
                expected="a ModelProto with at least one node or output",
                got=got,
                next_step=next_step,
            )
        )


class ExternalDataError(ModelFileError):
    """The file that holds a model's weights is missing, or ends too early."""

    def __init__(self, *, model: Path, tensor: str, data: Path, needed: int, problem: str) -> None:
        super().__init__(
            page(
                f"the weights file {data.name!r} of {model.name!r} cannot serve tensor {tensor!r}",
                where=str(data),
                expected=f"at least {needed} bytes",
                got=problem,
                next_step="copy the weights file again, beside the model and under this name",
            )
        )


class RuntimeOptionError(UsageError):
    """An option of the candidate's runtime is unknown or has an impossible value."""


class UnknownProviderError(RuntimeOptionError):
    """This build of ONNX Runtime has no such execution provider."""

    def __init__(self, *, provider: str, available: Sequence[str], short: Sequence[str]) -> None:
        super().__init__(
            page(
                f"the execution provider {provider!r} is not in this build of ONNX Runtime",
                where="--provider",
                expected=f"one of {listing(available, limit=20)}",
                got=repr(provider),
                next_step=f"name one of those (short: {', '.join(short)}), or install the build that has it",
            )
        )


class ProviderNotGrantedError(RuntimeTroubleError):
    """The session runs, but without the provider that was asked for."""

    def __init__(self, *, provider: str, got: Sequence[str]) -> None:
        super().__init__(
            page(
                f"ONNX Runtime did not give the session {provider!r}",
                where="--provider",
                expected=provider,
                got=listing(got),
                next_step="check that its device and libraries are on this machine, or use --provider cpu",
            )
        )


class UnknownSessionOptionError(RuntimeOptionError):
    """No session option is called that."""

    def __init__(self, *, option: str, known: Sequence[str]) -> None:
        super().__init__(
            page(
                f"ONNX Runtime has no session option {option!r}",
                where="--session-option",
                expected=f"one of {', '.join(known)}, or a config entry such as session.disable_prepacking",
                got=repr(option),
                next_step="correct the name before the equals sign",
            )
        )


class SessionOptionValueError(RuntimeOptionError):
    """A session option with a value that it cannot have."""

    def __init__(self, *, option: str, value: str, expected: str) -> None:
        super().__init__(
            page(
                f"the session option {option!r} cannot be {value!r}",
                where="--session-option",
                expected=expected,
                got=repr(value),
                next_step="correct the value behind the equals sign",
            )
        )


class OptimizationLevelError(RuntimeOptionError):
    """ONNX Runtime has no such optimisation level."""

    def __init__(self, *, level: int) -> None:
        super().__init__(
            page(
                f"ONNX Runtime has no optimisation level {level}",
                where="--level",
                expected="0 (none), 1 (basic), 2 (extended), 3 (layout) or 99 (all)",
                got=str(level),
                next_step="use one of those",
            )
        )


class CustomOpsError(RuntimeOptionError):
    """A custom operator library is not there or does not load."""

    def __init__(self, *, library: Path, problem: str) -> None:
        super().__init__(
            page(
                f"the custom operator library {library.name!r} does not load",
                where=str(library),
                expected="a shared library that exports RegisterCustomOps",
                got=problem,
                next_step="check the path given to --custom-ops and what the library was built against",
            )
        )


class ModelNotLoadedError(RuntimeTroubleError):
    """The runtime refuses the model; ``detail`` is the first line it says."""

    def __init__(self, *, path: Path, configuration: str, detail: str) -> None:
        super().__init__(
            page(
                f"ONNX Runtime cannot load {path.name!r}",
                where=f"{path} ({configuration})",
                expected="a model that this runtime starts",
                got=detail,
                next_step="see the node it names; --level 0 and --provider cpu tell whether the configuration matters",
            )
        )
        self.detail = detail


class RuntimeFailedError(RuntimeTroubleError):
    """The runtime loaded a model and failed while it ran it."""

    def __init__(self, *, runtime: str, path: Path, fetching: str, detail: str) -> None:
        super().__init__(
            page(
                f"{runtime} failed while it ran {path.name!r}",
                where=fetching,
                expected="a run to the end",
                got=detail,
                next_step="check that the inputs are ones the model was made for (shapes, ranges, indices)",
            )
        )
        self.detail = detail


class CommandNotInstalledError(UsageError):
    """A command of the whole program where only `capture` can run."""

    def __init__(self, *, command: str) -> None:
        super().__init__(
            page(
                f"the command {command!r} needs packages that are not installed",
                where="this Python environment",
                expected="all that bisect-onnx depends on; without it there is only 'capture'",
                got="no package 'typer'",
                next_step="pip install bisect-onnx with its dependencies, or run: bisect-onnx capture --help",
            )
        )


class RuntimeNotInstalledError(RuntimeTroubleError):
    """The adapter exists, but the library it needs does not."""

    def __init__(self, *, runtime: str, package: str, install: str) -> None:
        super().__init__(
            page(
                f"the runtime {runtime!r} needs the package {package!r}",
                where="this Python environment",
                expected=f"{package} installed",
                got="no such package",
                next_step=install,
            )
        )
