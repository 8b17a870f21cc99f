"""A checkpoint cannot be loaded into the reference."""

from collections.abc import Sequence
from pathlib import Path

from bisect_onnx.errors.base import UsageError, listing, page

__all__ = [
    "WeightsError",
    "WeightsFormatError",
    "WeightsMismatchError",
    "WeightsNeedPickleError",
    "WeightsNotApplicableError",
    "WeightsNotFoundError",
    "WeightsUnreadableError",
]


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
