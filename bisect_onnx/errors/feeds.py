"""The inputs cannot be read, or do not fit the two sides."""

from collections.abc import Sequence
from pathlib import Path

from bisect_onnx.errors.base import RuntimeTroubleError, UsageError, listing, page

__all__ = [
    "FEED_FORMS",
    "EmptyFeedError",
    "FeedCountError",
    "FeedDtypeError",
    "FeedNamesError",
    "FeedShapeError",
    "FeedsDoNotFitModuleError",
    "FeedsError",
    "FeedsFormatError",
    "FeedsNeedPickleError",
    "FeedsNotFoundError",
    "FeedsUnreadableError",
    "InputPairingError",
    "RandomFeedError",
    "SampleFailedError",
    "SamplesError",
    "ShapeOptionError",
]


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
        self.name = name


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


class SamplesError(FeedsError):
    """The feeds cannot be taken apart into samples, or samples make no sense here."""

    def __init__(self, *, where: str, expected: str, got: str, next_step: str) -> None:
        super().__init__(
            page(
                "the inputs cannot be taken as several samples",
                where=where,
                expected=expected,
                got=got,
                next_step=next_step,
            )
        )


class SampleFailedError(RuntimeTroubleError):
    """One side failed on one of several samples; ``detail`` is its whole text."""

    def __init__(self, *, label: str, detail: str) -> None:
        super().__init__(
            page(
                f"the sample {label} could not be run: {detail.partition(chr(10))[0]}",
                where=label,
                expected="a run to the end on every sample",
                got="; ".join(line.strip() for line in detail.splitlines()[1:]) or detail,
                next_step=f"run locate on {label} alone, or leave it out",
            )
        )
