"""The side that is right cannot be opened, or fails while it runs."""

from collections.abc import Sequence
from pathlib import Path

from bisect_onnx.errors.base import RuntimeTroubleError, UsageError, listing, page

__all__ = [
    "FACTORY_RESULTS",
    "REFERENCE_FORMS",
    "CandidateValuesError",
    "FactoryFailedError",
    "FactoryNotFoundError",
    "FactoryResultError",
    "OpeningError",
    "RecordingError",
    "ReferenceFailedError",
    "ReferenceFormError",
    "ReferenceImportError",
    "ReferenceNotFoundError",
    "ReferenceNotRepeatableError",
    "ReferenceUnreadableError",
    "SubmoduleNotCalledError",
    "SubmoduleNotFoundError",
    "SubmodulePartError",
    "UninitializedModuleError",
]


REFERENCE_FORMS = (
    "path/to/file.py:factory, package.module:factory, model.pt2, a TorchScript archive, other.onnx or activations.npz"
)


FACTORY_RESULTS = "an nn.Module, or a tuple (nn.Module, example inputs)"


class OpeningError(UsageError):
    """REF, the side that is right, cannot be opened."""


class ReferenceNotFoundError(OpeningError):
    """The text of REF names a file or package that is not there."""

    def __init__(self, *, reference: str, where: str, got: str, similar: Sequence[str]) -> None:
        super().__init__(
            page(
                f"the reference {reference!r} does not exist",
                where=where,
                expected=REFERENCE_FORMS,
                got=got,
                next_step=f"did you mean {listing(similar)}?" if similar else "check the text given to --reference",
            )
        )


class ReferenceFormError(OpeningError):
    """The text or object is no form of REF; ``got`` says what it is instead."""

    def __init__(self, *, reference: str, got: str, next_step: str) -> None:
        super().__init__(
            page(
                f"the reference {reference!r} cannot be used as one",
                where="--reference",
                expected=REFERENCE_FORMS,
                got=got,
                next_step=next_step,
            )
        )


class ReferenceImportError(OpeningError):
    """The user's file or package does not import; ``line`` is where in their code, "FILE, line N: CODE"."""

    def __init__(self, *, reference: str, line: str, problem: str, next_step: str) -> None:
        super().__init__(
            page(
                f"the reference {reference!r} does not import",
                where=line,
                expected="a module that imports without an error",
                got=problem,
                next_step=next_step,
            )
        )


class FactoryNotFoundError(OpeningError):
    """The module imports, but has no attribute of that name."""

    def __init__(
        self, *, reference: str, module: str, name: str, nearest: Sequence[str], defined: Sequence[str]
    ) -> None:
        super().__init__(
            page(
                f"the reference {reference!r} names a factory that does not exist",
                where=module,
                expected=f"a function, class or module object called {name!r}",
                got=f"it defines {listing(defined)}",
                next_step=f"did you mean {listing(nearest)}?" if nearest else "name one of those after the colon",
            )
        )


class FactoryFailedError(OpeningError):
    """The factory raised; ``line`` is the innermost line of the user's own code."""

    def __init__(self, *, reference: str, line: str, problem: str) -> None:
        super().__init__(
            page(
                f"the factory of the reference {reference!r} raised an error",
                where=line,
                expected=f"called without arguments, it returns {FACTORY_RESULTS}",
                got=problem,
                next_step="run the factory on its own in Python until it returns the module",
            )
        )


class FactoryResultError(OpeningError):
    """The factory returned something else than a module."""

    def __init__(self, *, reference: str, got: str) -> None:
        super().__init__(
            page(
                f"the factory of the reference {reference!r} returned something else than a module",
                where=reference,
                expected=FACTORY_RESULTS,
                got=got,
                next_step="return the module itself; weights can be given apart with --weights FILE",
            )
        )


class ReferenceUnreadableError(OpeningError):
    """A model file that its library cannot read."""

    def __init__(self, *, path: Path, kind: str, detail: str, next_step: str) -> None:
        super().__init__(
            page(
                f"the reference {path.name!r} cannot be read",
                where=str(path),
                expected=kind,
                got=detail,
                next_step=next_step,
            )
        )


class UninitializedModuleError(OpeningError):
    """The module has lazy parameters that its first run would create."""

    def __init__(self, *, description: str, parameter: str) -> None:
        super().__init__(
            page(
                "the reference has parameters that do not exist yet",
                where=f"{description}, parameter {parameter!r}",
                expected="a module whose parameters all have a shape",
                got="a lazy parameter",
                next_step="run the module once on an input, or load its weights, before handing it over",
            )
        )


class RecordingError(UsageError):
    """A file of recorded activations cannot serve as the reference."""

    def __init__(self, *, path: Path, expected: str, got: str, next_step: str) -> None:
        super().__init__(
            page(
                f"the recording {path.name!r} cannot be used as a reference",
                where=str(path),
                expected=expected,
                got=got,
                next_step=next_step,
            )
        )


class CandidateValuesError(UsageError):
    """A capture that cannot stand for the candidate."""

    def __init__(self, *, path: Path, expected: str, got: str, next_step: str) -> None:
        super().__init__(
            page(
                f"the values {path.name!r} cannot stand for the candidate",
                where=f"--candidate-values {path}",
                expected=expected,
                got=got,
                next_step=next_step,
            )
        )


class ReferenceFailedError(RuntimeTroubleError):
    """The reference's forward raised."""

    def __init__(self, *, description: str, detail: str) -> None:
        super().__init__(
            page(
                "the reference failed while it ran",
                where=description,
                expected="a run to the end",
                got=detail,
                next_step="run the module on these inputs yourself; mind shapes, dtypes and the order of arguments",
            )
        )


class ReferenceNotRepeatableError(RuntimeTroubleError):
    """Another pass over the reference did not make the values of the first."""

    def __init__(self, *, value: str, missing: int, wanted: int) -> None:
        super().__init__(
            page(
                "the reference took another path when it was run again",
                where=f"value {value!r}",
                expected=f"{wanted} values made again",
                got=f"{missing} of them missing",
                next_step="make the forward repeat for equal inputs, or raise --max-memory so that one pass is enough",
            )
        )


class SubmoduleNotFoundError(OpeningError):
    """The reference has no such part; ``known`` is None when it has no parts that can be named."""

    def __init__(self, *, path: str, root: str, near: Sequence[str], known: Sequence[str] | None) -> None:
        if known is None:
            expected, got = "a reference that is an nn.Module", f"{root}, which has no submodules"
            next_step = "give the module itself as the reference: file.py:factory or package.module:factory"
        else:
            expected, got = f"the path of a submodule: {listing(known)}", f"{path!r}"
            next_step = f"did you mean {listing(near)}?" if near else "see the names in module.named_modules()"
        super().__init__(
            page(
                f"the reference has no submodule {path!r}",
                where=f"--module, in {root}",
                expected=expected,
                got=got,
                next_step=next_step,
            )
        )


class SubmoduleNotCalledError(OpeningError):
    """The submodule exists, and the run of the whole does not call it."""

    def __init__(self, *, path: str, root: str) -> None:
        super().__init__(
            page(
                f"the submodule {path!r} is never called",
                where=f"--module, in a run of {root}",
                expected="a call of it, whose inputs both sides are then given",
                got="none: the forward uses its parts or its parameters, or another branch ran",
                next_step="name a module that calls it or that it calls, or give inputs that take its branch",
            )
        )


class SubmodulePartError(RuntimeTroubleError):
    """The submodule's part of the file of the whole cannot be told, or its inputs are unknown."""

    def __init__(self, *, path: str, where: str, got: str, next_step: str) -> None:
        super().__init__(
            page(
                f"the submodule {path!r} cannot be compared alone",
                where=where,
                expected="values of the file that stand for its inputs and for its results",
                got=got,
                next_step=next_step,
            )
        )
