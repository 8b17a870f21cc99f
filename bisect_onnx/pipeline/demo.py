"""The demo: a real export of a small net, with a fault planted in one of its three resizes."""

import dataclasses
import subprocess
import sys
from pathlib import Path

from bisect_onnx.errors import DemoNotBuiltError
from bisect_onnx.pipeline.demo_source import SOURCE

__all__ = ["FILE_NAMES", "DemoFiles", "build"]

FILE_NAMES = ("segmentation.py", "segmentation.pt", "segmentation.onnx", "image.npz")

# The second of three: neither the first node that could be accused nor the last.
FAULTY_RESIZE = 1
RIGHT_MODES = ("half_pixel", "pytorch_half_pixel")
WRONG_MODE = "align_corners"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DemoFiles:
    """What a user would have in hand; ``faulty_node`` is what the demo expects to be found."""

    model: Path
    reference: str  # REF of the command line
    weights: Path
    inputs: Path
    faulty_node: str


def build(folder: Path) -> DemoFiles:
    """Write the net, export it and plant the fault; files of these names in ``folder`` are replaced."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / FILE_NAMES[0]
        source.write_text(SOURCE, encoding="utf-8")
    except OSError as error:
        raise DemoNotBuiltError(folder=folder, detail=error.strerror or str(error)) from error
    _export(source)
    model = folder / "segmentation.onnx"
    return DemoFiles(
        model=model,
        reference=f"{source}:build",
        weights=folder / "segmentation.pt",
        inputs=folder / "image.npz",
        faulty_node=_plant(model),
    )


def _export(source: Path) -> None:
    """Export in a process of its own: the exporter is talkative and changes global state.

    Imported, not run: the file then names its classes segmentation.Up and not __main__.Up.
    """
    done = subprocess.run(
        [sys.executable, "-c", "import segmentation; segmentation.main()"],
        cwd=source.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise DemoNotBuiltError(folder=source.parent, detail=lines[-1])


def _plant(path: Path) -> str:
    """Give one Resize another coordinate mode, as a converter with a bug would; the node's name."""
    import onnx

    model = onnx.load(path)
    resizes = [(index, node) for index, node in enumerate(model.graph.node) if node.op_type == "Resize"]
    index, node = resizes[FAULTY_RESIZE]
    mode = next(attribute for attribute in node.attribute if attribute.name == "coordinate_transformation_mode")
    assert mode.s.decode() in RIGHT_MODES, "the exporter writes what the net computes"
    mode.s = WRONG_MODE.encode()
    onnx.save(model, path)
    return node.name or f"#{index}:{node.op_type}"
