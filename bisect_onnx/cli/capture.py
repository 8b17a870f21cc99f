"""``bisect-onnx capture``."""

from pathlib import Path
from typing import Annotated

import typer

from bisect_onnx.cli import options

__all__ = ["capture"]


def capture(
    *,
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The ONNX model to run.", show_default=False)],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="VALUES.npz", help="Where to write the values.", show_default=False),
    ],
    inputs: Annotated[
        Path | None,
        typer.Option(
            "--inputs",
            "-i",
            metavar="FEEDS",
            help="Inputs: .npz with one array per input, .npy, .pt of tensors, or a folder of input_0.pb ... Without "
            "it, seeded random inputs are drawn from the model's signature.",
            show_default=False,
        ),
    ] = None,
    seed: options.Seed = 0,
    shape: options.Shapes = None,
    provider: options.Providers = None,
    level: options.Level = 99,
    session_option: options.SessionOptions = None,
    custom_ops: options.CustomOps = None,
    max_memory: options.MaxMemory = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is no earlier capture.")] = False,
) -> None:
    """Record what an ONNX model computes on this machine, for a locate on another one.

    Needs numpy, onnx and ONNX Runtime only. The file takes the inputs, the result of every node, the outputs, and
    what the run depended on; there, locate takes it with --candidate-values.

    Exit status: 0 written; 2 bad usage or unreadable input; 3 the runtime failed; 70 a fault of ours; 130 interrupted.
    """
    shapes = options.parse_shapes(shape or ())
    session_options = options.parse_pairs(session_option or ())
    max_bytes = options.parse_bytes(max_memory)
    options.check_level(level)

    from bisect_onnx.cli.run_capture import capture_and_show
    from bisect_onnx.pipeline.capture import CaptureRequest

    capture_and_show(
        CaptureRequest(
            model=model,
            output=output,
            inputs=inputs,
            seed=seed,
            shapes=shapes,
            providers=tuple(provider) if provider else options.DEFAULT_PROVIDERS,
            level=level,
            session_options=session_options,
            custom_ops=tuple(custom_ops or ()),
            max_memory=max_bytes,
            force=force,
        )
    )
