"""What `capture` says when it is done; plain text, as the machine it runs on may have no library for more."""

import shlex
from collections.abc import Iterator
from typing import TextIO

from bisect_onnx.core.recording import Captured
from bisect_onnx.render import rows
from bisect_onnx.render.escapes import safe

__all__ = ["write_captured"]

# Reasons that are shown; the file has all of them.
MOST_SHOWN = 8


def write_captured(captured: Captured, stream: TextIO) -> None:
    stream.write("".join(f"{safe(line)}\n" for line in _lines(captured)))


def _lines(captured: Captured) -> Iterator[str]:
    recording = captured.recording
    values = rows.count(captured.values, "value")
    outputs = rows.count(len(recording.outputs), "output")
    yield f"recorded {values} and {outputs} of {captured.model} in {captured.path} ({rows.size(captured.bytes)})"
    yield f"  ran on:   {', '.join(recording.providers)}, level {recording.level}"
    yield f"  inputs:   {recording.source}"
    if recording.skipped:
        yield f"  left out: {rows.count(len(recording.skipped), 'value')}"
        yield from (f"            {name!r}: {why}" for name, why in list(recording.skipped.items())[:MOST_SHOWN])
    for name, distance in recording.moved.items():
        yield f"  moved:    {name!r} by {rows.precise(float(distance))} (over its rms) while values were exposed"
    command = ["bisect-onnx", "locate", str(captured.model), "--reference", "REF"]
    yield "  next:     where the reference is, ask (the model and this file are needed there):"
    yield f"            {shlex.join([*command, '--candidate-values', str(captured.path)])}"
