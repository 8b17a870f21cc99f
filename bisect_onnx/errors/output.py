"""A file of ours cannot be written."""

from pathlib import Path

from bisect_onnx.errors.base import RuntimeTroubleError, UsageError, page

__all__ = [
    "DemoNotBuiltError",
    "KeepListToleranceError",
    "OutputPathError",
    "TemporarySpaceError",
]


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


class KeepListToleranceError(UsageError):
    """Which nodes are to be kept in the higher precision is asked without saying how near the outputs must come."""

    def __init__(self, *, path: Path) -> None:
        super().__init__(
            page(
                f"no tolerance is given for the nodes that are to be kept in {path.name!r}",
                where="--keep-list",
                expected="--atol, --rtol, or --metric with --threshold: how near the outputs are to come",
                got="none of them",
                next_step="add --atol 1e-3, or whatever your use of the outputs allows",
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
