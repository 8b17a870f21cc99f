"""Every exception this package raises on purpose, with the exit status each ends the program with.

BisectOnnxError
├── UsageError (2)                        bad usage or unreadable input
│   ├── OpeningError                      REF, the side that is right, cannot be opened
│   │   ├── ReferenceNotFoundError        no such file or package
│   │   ├── ReferenceFormError            the text or object is no form of REF
│   │   ├── ReferenceImportError          the user's file does not import
│   │   ├── FactoryNotFoundError          it imports, but has no such attribute
│   │   ├── FactoryFailedError            the factory raised
│   │   ├── FactoryResultError            the factory returned something else than a module
│   │   ├── ReferenceUnreadableError      a model file that its library cannot read
│   │   └── UninitializedModuleError      lazy parameters
│   ├── WeightsError                      --weights cannot be loaded into the module
│   │   ├── WeightsNotFoundError
│   │   ├── WeightsFormatError            not a state dict, or a kind of file we do not read
│   │   ├── WeightsUnreadableError
│   │   ├── WeightsNeedPickleError        more than tensors inside; names --unsafe-load
│   │   ├── WeightsMismatchError          keys or shapes do not match
│   │   └── WeightsNotApplicableError     the reference carries its own weights
│   ├── FeedsError                        the inputs do not fit the model
│   │   ├── FeedsNotFoundError
│   │   ├── FeedsFormatError              a kind of file or object we do not read
│   │   ├── FeedsUnreadableError
│   │   ├── FeedsNeedPickleError          object arrays
│   │   ├── FeedNamesError                missing, extra or misnamed
│   │   ├── FeedCountError                a tuple of another length than the model has inputs
│   │   ├── FeedShapeError
│   │   ├── FeedDtypeError
│   │   ├── EmptyFeedError                an axis of length zero
│   │   ├── ShapeOptionError              --shape names no input, or another rank
│   │   ├── RandomFeedError               nothing sensible can be drawn for this type
│   │   ├── InputPairingError             candidate's and reference's inputs cannot be told apart
│   │   └── FeedsDoNotFitModuleError      arrays and forward arguments do not match
│   ├── ModelFileError                    an ONNX file cannot be read
│   │   ├── ModelNotFoundError            nothing there, or a folder
│   │   ├── NotAnOnnxFileError            garbage, empty, cut short, another format
│   │   └── ExternalDataError             its weights file is missing or too short
│   ├── RuntimeOptionError                an option of the candidate's runtime
│   │   ├── UnknownProviderError          not in this build
│   │   ├── UnknownSessionOptionError
│   │   ├── SessionOptionValueError
│   │   ├── OptimizationLevelError
│   │   └── CustomOpsError                an operator library that does not load
│   ├── RecordingError                    recorded activations that cannot be used
│   └── OutputPathError                   a file of ours cannot go where it was asked to
└── RuntimeTroubleError (3)               a runtime failed, or no answer was possible
    ├── ProviderNotGrantedError           the session runs without the provider that was asked for
    ├── ModelNotLoadedError               the runtime refuses the model
    ├── RuntimeFailedError                the runtime loaded a model and failed while it ran it
    ├── RuntimeNotInstalledError          the adapter exists, its library does not
    ├── ReferenceFailedError              the reference's forward raised
    ├── ReferenceNotRepeatableError       a second pass made other values
    ├── TemporarySpaceError               no room for the weights that probes share
    └── DemoNotBuiltError                 the demo's files could not be written or exported
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar


class BisectOnnxError(Exception):
    """Base of everything this package raises on purpose."""

    exit_code: ClassVar[int]


class UsageError(BisectOnnxError):
    """Bad usage or unreadable input."""

    exit_code = 2


class RuntimeTroubleError(BisectOnnxError):
    """A runtime failed, or no answer was possible."""

    exit_code = 3


def page(what: str, *, where: str, expected: str, got: str, next_step: str) -> str:
    """The text of an error: one line that says what, then where, expected, got and the next step."""
    rows = (("where", where), ("expected", expected), ("got", got), ("next", next_step))
    return "\n".join((what, *(f"  {label + ':':<10}{text}" for label, text in rows)))


def listing(names: Sequence[str], *, limit: int = 5) -> str:
    """Names for a message: quoted, comma-separated, the rest counted."""
    shown = ", ".join(repr(name) for name in names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown or "none"


# --- the reference ---------------------------------------------------------------------------------------------------

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


# --- the checkpoint --------------------------------------------------------------------------------------------------


class WeightsError(UsageError):
    """``--weights`` cannot be loaded into the module."""


class WeightsNotFoundError(WeightsError):
    def __init__(self, *, path: Path) -> None:
        super().__init__(
            page(
                f"the checkpoint {path.name!r} does not exist",
                where=str(path),
                expected="a state dict in a .pt, .pth, .bin, .ckpt or .safetensors file",
                got="a folder" if path.is_dir() else "no such file",
                next_step="check the path given to --weights",
            )
        )


class WeightsFormatError(WeightsError):
    """The file is readable, and is not a state dict."""

    def __init__(self, *, path: Path, got: str, next_step: str) -> None:
        super().__init__(
            page(
                f"the checkpoint {path.name!r} holds no state dict",
                where=str(path),
                expected='tensors by parameter name, or those under "state_dict" or "model"',
                got=got,
                next_step=next_step,
            )
        )


class WeightsUnreadableError(WeightsError):
    def __init__(self, *, path: Path, detail: str) -> None:
        super().__init__(
            page(
                f"the checkpoint {path.name!r} cannot be read",
                where=str(path),
                expected="a complete file written by torch.save or safetensors",
                got=detail,
                next_step="copy or save the file again; compare its size with the original",
            )
        )


class WeightsNeedPickleError(WeightsError):
    """The checkpoint holds more than tensors; loading it would run code from the file."""

    def __init__(self, *, path: Path, detail: str) -> None:
        super().__init__(
            page(
                f"the checkpoint {path.name!r} holds more than tensors, and loading it could run code from the file",
                where=str(path),
                expected="a file that torch.load(weights_only=True) accepts",
                got=detail,
                next_step="save module.state_dict() alone, or add --unsafe-load if you trust the file",
            )
        )


class WeightsMismatchError(WeightsError):
    """Keys or shapes do not match the module; nothing was loaded."""

    def __init__(
        self,
        *,
        path: Path,
        module: str,
        matched: int,
        missing: Sequence[str],
        unexpected: Sequence[str],
        shapes: Sequence[str],
        next_step: str,
    ) -> None:
        wanted = matched + len(missing) + len(shapes)
        found = [f"{matched} of them match"]
        if missing:
            found.append(f"{len(missing)} missing from the file: {listing(missing)}")
        if unexpected:
            found.append(f"{len(unexpected)} unknown to the module: {listing(unexpected)}")
        if shapes:
            found.append(f"{len(shapes)} of another shape: {'; '.join(shapes[:5])}")
        super().__init__(
            page(
                f"the checkpoint {path.name!r} does not fit the module {module}",
                where=str(path),
                expected=f"the keys of the module's state dict ({wanted}), shapes equal",
                got="; ".join(found),
                next_step=next_step,
            )
        )


class WeightsNotApplicableError(WeightsError):
    """The reference carries its own weights."""

    def __init__(self, *, path: Path, kind: str) -> None:
        super().__init__(
            page(
                f"the checkpoint {path.name!r} cannot be loaded into {kind}",
                where="--weights",
                expected="a reference that is an nn.Module: file.py:factory or package.module:factory",
                got=f"{kind}, which carries its own weights",
                next_step="leave --weights out, or give the factory that builds the module",
            )
        )


# --- the feeds -------------------------------------------------------------------------------------------------------

FEED_FORMS = (
    "an .npz with one array per input, an .npy for a one-input model, a .pt of tensors, "
    "or a folder of input_0.pb, input_1.pb, ..."
)


class FeedsError(UsageError):
    """The inputs do not fit the model."""


class FeedsNotFoundError(FeedsError):
    def __init__(self, *, path: Path) -> None:
        super().__init__(
            page(
                f"the feeds {path.name!r} do not exist",
                where=str(path),
                expected=FEED_FORMS,
                got="no such file or folder",
                next_step="check the path given to --inputs, or leave it out for seeded random inputs",
            )
        )


class FeedsFormatError(FeedsError):
    """A kind of file or object we do not read."""

    def __init__(self, *, where: str, got: str, next_step: str) -> None:
        super().__init__(
            page(
                "the feeds are of a kind that cannot be read",
                where=where,
                expected=f"{FEED_FORMS}; in Python a mapping, a tuple or one tensor or array",
                got=got,
                next_step=next_step,
            )
        )


class FeedsUnreadableError(FeedsError):
    def __init__(self, *, path: Path, kind: str, detail: str) -> None:
        super().__init__(
            page(
                f"the feeds {path.name!r} cannot be read",
                where=str(path),
                expected=kind,
                got=detail,
                next_step="write the file again and compare its size with the original",
            )
        )


class FeedsNeedPickleError(FeedsError):
    """Object arrays: reading them could run code from the file, and no model takes them."""

    def __init__(self, *, where: str, got: str) -> None:
        super().__init__(
            page(
                "the feeds need pickle, which could run code from the file",
                where=where,
                expected="arrays or tensors of numbers, bools or strings",
                got=got,
                next_step="save each input as one plain array, e.g. np.savez('feeds.npz', x=np.stack(parts))",
            )
        )


class FeedNamesError(FeedsError):
    """Missing, extra or misnamed inputs; ``guesses`` are pairs (given, meant)."""

    def __init__(
        self,
        *,
        where: str,
        signature: Sequence[str],
        missing: Sequence[str],
        extra: Sequence[str],
        guesses: Sequence[tuple[str, str]],
    ) -> None:
        found = []
        if missing:
            found.append(f"missing {listing(missing)}")
        if extra:
            found.append(f"unknown {listing(extra)}")
        if guesses:
            step = "rename " + ", ".join(f"{given!r} to {meant!r}" for given, meant in guesses)
        elif missing:
            step = f"add {listing(missing)} to the feeds"
        else:
            step = f"remove {listing(extra)} from the feeds"
        super().__init__(
            page(
                "the feeds do not name the model's inputs",
                where=where,
                expected=f"one array for each of {listing(signature, limit=20)}",
                got="; ".join(found),
                next_step=step,
            )
        )


class FeedCountError(FeedsError):
    """A tuple of another length than the model has inputs."""

    def __init__(self, *, where: str, signature: Sequence[str], count: int) -> None:
        super().__init__(
            page(
                "the feeds have another length than the model has inputs",
                where=where,
                expected=f"{len(signature)} in this order: {listing(signature, limit=20)}",
                got=f"{count}",
                next_step="give one array per input in order, or name them (a mapping in Python, an .npz on disk)",
            )
        )


class FeedShapeError(FeedsError):
    """An input of another shape than the signature's; symbolic axes carry their name."""

    def __init__(self, *, where: str, name: str, expected: str, got: str, problem: str) -> None:
        super().__init__(
            page(
                f"the input {name!r} has the wrong shape: {problem}",
                where=where,
                expected=expected,
                got=got,
                next_step="give an array of the expected shape; named axes may have any length",
            )
        )


class FeedDtypeError(FeedsError):
    """An input of another dtype; nothing is cast silently."""

    def __init__(self, *, where: str, name: str, expected: str, got: str) -> None:
        super().__init__(
            page(
                f"the input {name!r} has the wrong dtype",
                where=where,
                expected=expected,
                got=got,
                next_step=f"cast it where you make it, e.g. array.astype({expected!r}); nothing is cast silently",
            )
        )


class EmptyFeedError(FeedsError):
    """An axis of length zero: every output would be compared over no elements."""

    def __init__(self, *, where: str, name: str, shape: Sequence[int]) -> None:
        axes = [str(axis) for axis, length in enumerate(shape) if length == 0]
        super().__init__(
            page(
                f"the input {name!r} is empty",
                where=where,
                expected="at least one element on every axis, so that there is something to compare",
                got=f"shape {tuple(shape)}: axis {', '.join(axes)} has length 0",
                next_step="give an input with a length of 1 or more there",
            )
        )


class ShapeOptionError(FeedsError):
    """``--shape`` names no input, contradicts the signature, or meets feeds that have a shape already."""

    def __init__(self, *, name: str, expected: str, got: str, next_step: str) -> None:
        super().__init__(
            page(
                f"--shape for {name!r} cannot be used",
                where="--shape",
                expected=expected,
                got=got,
                next_step=next_step,
            )
        )


class RandomFeedError(FeedsError):
    """Nothing sensible can be drawn for this type of input."""

    def __init__(self, *, where: str, name: str, got: str, next_step: str) -> None:
        super().__init__(
            page(
                f"no random value can be drawn for the input {name!r}",
                where=where,
                expected="a tensor of floats, integers or bools with a known rank",
                got=got,
                next_step=next_step,
            )
        )


class InputPairingError(FeedsError):
    """The candidate's inputs cannot be paired with the reference's."""

    def __init__(
        self, *, where: str, candidate: Sequence[str], reference: Sequence[str], problem: str, next_step: str
    ) -> None:
        super().__init__(
            page(
                f"the inputs of the two sides cannot be paired: {problem}",
                where=where,
                expected=f"the reference's inputs {listing(reference, limit=20)}",
                got=f"the candidate's inputs {listing(candidate, limit=20)}",
                next_step=next_step,
            )
        )


# --- the candidate file and its runtime ------------------------------------------------------------------------------


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


class FeedsDoNotFitModuleError(FeedsError):
    """The arrays do not go into the forward call."""

    def __init__(self, *, expected: Sequence[str], got: Sequence[str]) -> None:
        super().__init__(
            page(
                "the inputs do not fit the reference's forward",
                where="the reference module",
                expected=", ".join(expected) or "no inputs",
                got=", ".join(got) or "no inputs",
                next_step="name the arrays as the forward's arguments, or give them as a tuple in call order",
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


# --- what we write ---------------------------------------------------------------------------------------------------


class OutputPathError(UsageError):
    """A file that we were asked to write cannot go there; said before the work starts wherever that is possible."""

    def __init__(self, *, option: str, path: Path, expected: str, got: str, next_step: str) -> None:
        super().__init__(
            page(
                f"{option} cannot write {(path.name or str(path))!r}",
                where=str(path),
                expected=expected,
                got=got,
                next_step=next_step,
            )
        )


class TemporarySpaceError(RuntimeTroubleError):
    """The weights that probes share cannot be written to the folder for temporary files."""

    def __init__(self, *, folder: Path, problem: str) -> None:
        super().__init__(
            page(
                "the weights cannot be laid out for probing",
                where=str(folder),
                expected="room for one copy of the model's weights",
                got=problem,
                next_step="free some space, or set TMPDIR (Windows: TEMP) to a folder on the model's disk",
            )
        )


class DemoNotBuiltError(RuntimeTroubleError):
    """The demo's files could not be written, or its net could not be exported."""

    def __init__(self, *, folder: Path, detail: str) -> None:
        super().__init__(
            page(
                "the demo could not be built",
                where=str(folder),
                expected="a folder that can be written, and a PyTorch with its ONNX exporter",
                got=detail,
                next_step="name another folder with --dir; for an export that fails, run segmentation.py there",
            )
        )
