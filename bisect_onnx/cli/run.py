"""Run one request and show its report: what `locate` and `demo` share."""

from pathlib import Path

from bisect_onnx.cli.interrupts import interrupts_after_imports
from bisect_onnx.cli.output import check_json_target, deliver, stdout_for_the_report
from bisect_onnx.cli.presentation import Presentation
from bisect_onnx.cli.progress import progress
from bisect_onnx.pipeline.request import LocateRequest

__all__ = ["locate_and_show"]


def locate_and_show(request: LocateRequest, presentation: Presentation) -> int:
    """The exit status of the report."""
    check_json_target(presentation.json_target, force=presentation.force, inputs=_files_read(request))
    shown = progress(quiet=presentation.quiet, verbose=presentation.verbose)
    with stdout_for_the_report(), interrupts_after_imports(), shown as listen:
        from bisect_onnx.pipeline.locate import locate

        report = locate(request, on_event=listen)
    from bisect_onnx.render.as_terminal import AsTerminal

    terminal = AsTerminal(
        all_open=presentation.all_open,
        top=presentation.top,
        quiet=presentation.quiet,
        verbose=presentation.verbose,
    )
    deliver(report, terminal=terminal, json_target=presentation.json_target)
    return report.exit_code


def _files_read(request: LocateRequest) -> list[Path]:
    """Every path of the request that may be a file; a reference may name a function behind a colon."""
    inputs = request.inputs if isinstance(request.inputs, list) else [request.inputs]
    named = [request.candidate, request.candidate_values, request.weights, *inputs, *request.custom_ops]
    if isinstance(request.reference, str):
        named += [Path(request.reference), Path(request.reference.rpartition(":")[0])]
    return [path for path in named if isinstance(path, Path) and path != Path()]
