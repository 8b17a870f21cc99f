"""The options of the command line: their names, help texts and the parsing that typer does not do."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from bisect_onnx.cli import parsing
from bisect_onnx.errors import OptimizationLevelError, OutputPathError, listing

__all__ = [
    "DEFAULT_PROVIDERS",
    "AllOpen",
    "Atol",
    "Candidate",
    "CandidateValues",
    "CustomOps",
    "Feeds",
    "Force",
    "JsonTarget",
    "KeepList",
    "Level",
    "MaxMemory",
    "Metric",
    "Module",
    "Providers",
    "Quiet",
    "Reference",
    "Rtol",
    "Samples",
    "Seed",
    "SessionOptions",
    "Shapes",
    "Strategy",
    "Threshold",
    "Top",
    "UnsafeLoad",
    "Verbose",
    "Weights",
    "check_demo_folder",
    "check_level",
    "one_or_several",
    "parse_bytes",
    "parse_pairs",
    "parse_shapes",
]

DEFAULT_PROVIDERS = ("CPUExecutionProvider",)

LEVELS = (0, 1, 2, 3, 99)

Candidate = Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The ONNX model under test.", show_default=False)]
Reference = Annotated[
    str,
    typer.Option(
        "--reference",
        "-r",
        metavar="REF",
        help="The side that is right: path/to/file.py:factory, package.module:factory, model.pt2, a TorchScript "
        "archive, other.onnx, or recorded activations.npz.",
        show_default=False,
    ),
]
Feeds = Annotated[
    list[Path] | None,
    typer.Option(
        "--inputs",
        "-i",
        metavar="FEEDS",
        help="Inputs: .npz with one array per input, .npy, .pt of tensors, or a folder of input_0.pb ... Without it, "
        "seeded random inputs are drawn from the model's signature, and the report says so. Repeatable: every sample "
        "is run, and the worst one is located.",
        show_default=False,
    ),
]
Samples = Annotated[bool, typer.Option("--samples", help="The first axis of every input counts samples.")]
Module = Annotated[
    str | None,
    typer.Option(
        "--module",
        metavar="PATH",
        help="Compare one submodule alone, on what it is given in a run of the whole. MODEL.onnx may be the file of "
        "the whole, or one exported from the submodule.",
        show_default=False,
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option("--weights", metavar="FILE", help="Checkpoint to load into the reference.", show_default=False),
]
UnsafeLoad = Annotated[
    bool, typer.Option("--unsafe-load", help="Allow a checkpoint that can run code while it is loaded.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of the random inputs.")]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="NAME=1,3,224,224", help="Shape of one random input; repeatable.", show_default=False
    ),
]
Providers = Annotated[
    list[str] | None,
    typer.Option(
        "--provider",
        metavar="NAME",
        help="Execution provider, in full or short (cpu, cuda); repeatable, in order of preference. Default: cpu.",
        show_default=False,
    ),
]
Level = Annotated[
    int,
    typer.Option(
        "--level", metavar="0|1|2|3|99", help="ONNX Runtime's optimisation level; 0 is none, 99 is all of them."
    ),
]
SessionOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--session-option",
        metavar="KEY=VALUE",
        help="A session option or config entry; repeatable.",
        show_default=False,
    ),
]
CustomOps = Annotated[
    list[Path] | None,
    typer.Option("--custom-ops", metavar="LIB", help="Custom operator library; repeatable.", show_default=False),
]
CandidateValues = Annotated[
    Path | None,
    typer.Option(
        "--candidate-values",
        metavar="VALUES.npz",
        help="A capture of MODEL.onnx on another machine: what it computed there is the candidate, on the inputs that "
        "it was captured with.",
        show_default=False,
    ),
]
Strategy = Annotated[
    Literal["auto", "scan", "bisect"],
    typer.Option("--strategy", help="Test all segments at once, bisect the graph, or choose by the budget."),
]
Atol = Annotated[
    float | None,
    typer.Option("--atol", metavar="F", min=0, help="Absolute tolerance of your own.", show_default=False),
]
Rtol = Annotated[
    float | None,
    typer.Option("--rtol", metavar="F", min=0, help="Relative tolerance of your own.", show_default=False),
]
Metric = Annotated[
    Literal["scaled", "max_abs", "max_rel", "rmse", "relative_l2", "cosine", "snr_db", "max_ulp", "mismatched"] | None,
    typer.Option("--metric", help="Judge by this figure; needs --threshold.", show_default=False),
]
Threshold = Annotated[
    float | None,
    typer.Option("--threshold", metavar="F", help="The limit of --metric.", show_default=False),
]
KeepList = Annotated[
    Path | None,
    typer.Option(
        "--keep-list",
        metavar="FILE",
        help="For a candidate in a lower precision: write the nodes to keep in the higher one so that the outputs come "
        "inside the tolerance given by --atol, --rtol or --metric; one name a line.",
        show_default=False,
    ),
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="512MiB",
        help="Memory for kept values. Default: half of what the machine has free.",
        show_default=False,
    ),
]
JsonTarget = Annotated[
    Path | None,
    typer.Option("--json", metavar="PATH|-", help="Write the report as JSON; - is stdout.", show_default=False),
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that are not an earlier report.")]
AllOpen = Annotated[bool, typer.Option("--all", help="Show every node.")]
Top = Annotated[
    int | None,
    typer.Option("--top", metavar="N", min=1, help="Show the N worst nodes as a table.", show_default=False),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict line only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Add search steps, alignment, timing and environment.")]


def one_or_several(given: Sequence[Path]) -> Path | list[Path] | None:
    """FEEDS as `pipeline.request.LocateRequest.inputs` takes them."""
    return list(given) if len(given) > 1 else next(iter(given), None)


def parse_shapes(given: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """See `parsing.parse_shapes`."""
    with _as_bad_parameter():
        return parsing.parse_shapes(given)


def parse_pairs(given: Sequence[str]) -> dict[str, str]:
    """See `parsing.parse_pairs`."""
    with _as_bad_parameter():
        return parsing.parse_pairs(given)


def parse_bytes(text: str | None) -> int | None:
    """See `parsing.parse_bytes`."""
    with _as_bad_parameter():
        return parsing.parse_bytes(text)


@contextlib.contextmanager
def _as_bad_parameter() -> Iterator[None]:
    try:
        yield
    except parsing.UnusableTextError as error:
        raise typer.BadParameter(str(error), param_hint=error.option) from error


def check_demo_folder(folder: Path, *, names: Sequence[str], force: bool) -> None:
    """Refuse to write over files of the user's that happen to have the names of the demo's."""
    if folder.exists() and not folder.is_dir():
        got = "a file"
    elif (taken := [name for name in names if (folder / name).exists()]) and not force:
        got = f"it already holds {listing(taken)}"
    else:
        return
    raise OutputPathError(
        option="--dir",
        path=folder,
        expected="a folder without files of these names",
        got=got,
        next_step="name another folder" + ("" if got == "a file" else ", or replace those files with --force"),
    )


def check_level(level: int) -> None:
    if level not in LEVELS:
        raise OptimizationLevelError(level=level)
