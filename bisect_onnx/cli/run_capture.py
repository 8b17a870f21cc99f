"""Capture and say what was written: what both ways of parsing the command share."""

import sys

from bisect_onnx.cli.interrupts import interrupts_after_imports
from bisect_onnx.cli.output import stdout_for_the_report
from bisect_onnx.cli.progress import progress
from bisect_onnx.pipeline.capture import CaptureRequest, capture
from bisect_onnx.render.captured import write_captured

__all__ = ["capture_and_show"]


def capture_and_show(request: CaptureRequest) -> None:
    with stdout_for_the_report(), interrupts_after_imports(), progress(quiet=False, verbose=False) as listen:
        captured = capture(request, on_event=listen)
    write_captured(captured, sys.stdout)
    sys.stdout.flush()
