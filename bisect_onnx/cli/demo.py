"""``bisect-onnx demo``."""

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bisect_onnx.cli import options
from bisect_onnx.cli.presentation import Presentation, with_presentation

if TYPE_CHECKING:
    from bisect_onnx.pipeline.demo import DemoFiles

__all__ = ["demo"]


@with_presentation
def demo(
    *,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Where to put the files. Default: a fresh temporary folder."),
    ] = None,
    presentation: Presentation,
) -> None:
    """Build a small segmentation net, export it, plant a fault in one of its three resizes, and run locate on it.

    Exit status: that of locate, so 1 when the fault is found.
    """
    from bisect_onnx.cli.output import check_json_target, stdout_for_the_report
    from bisect_onnx.cli.progress import say
    from bisect_onnx.cli.run import locate_and_show
    from bisect_onnx.pipeline import demo as example
    from bisect_onnx.pipeline.request import LocateRequest

    check_json_target(presentation.json_target, force=presentation.force, inputs=())
    if folder is not None:
        options.check_demo_folder(folder, names=example.FILE_NAMES, force=presentation.force)
    target = folder or Path(tempfile.mkdtemp(prefix="bisect-onnx-demo-"))
    say(f"building the demo in {target}")
    with stdout_for_the_report():
        files = example.build(target)
    request = LocateRequest(
        candidate=files.model, reference=files.reference, weights=files.weights, inputs=files.inputs
    )
    say(f"$ {_command(files)}")
    raise typer.Exit(locate_and_show(request, presentation))


def _command(files: "DemoFiles") -> str:
    """What a user would type to get this answer."""
    words = ["bisect-onnx", "locate", str(files.model), "--reference", files.reference]
    words += ["--weights", str(files.weights), "--inputs", str(files.inputs)]
    return shlex.join(words)
