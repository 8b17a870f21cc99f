"""What an engineer types: model.py, a checkpoint, a model.onnx, and one command."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import onnx
import pytest
import torch

from fixtures.faults import FAULTS
from fixtures.strip import strip
from tests.end_to_end.at_work import SCHEMA

pytestmark = pytest.mark.slow

MODEL = """
import torch
from torch import nn


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Conv2d(3, 8, 3, padding=1)
        self.leave = nn.Conv2d(8, 4, 1)

    def forward(self, image):
        print("a forward that talks")
        x = torch.relu(self.enter(image))
        x = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.leave(x)


def build():
    return Small()
"""

RESIZE_LINE = next(number for number, line in enumerate(MODEL.splitlines(), start=1) if "interpolate" in line)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model.py, weights.pt, image.npz and the faithful model.onnx."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "model.py").write_text(MODEL, encoding="utf-8")
    script = (
        "import torch, model\n"
        "torch.manual_seed(1)\n"
        "net = model.build().eval()\n"
        "torch.save(net.state_dict(), 'weights.pt')\n"
        "image = torch.randn(1, 3, 9, 7)\n"
        "import numpy; numpy.savez('image.npz', image=image.numpy())\n"
        "torch.onnx.export(net, (image,), 'model.onnx', dynamo=True, input_names=['image'], verbose=False)\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=folder, check=True, capture_output=True, env=environment())
    return folder


@pytest.fixture(scope="module")
def faulty(healthy: Path) -> str:
    planted = FAULTS["resize_coordinate"].plant(onnx.load(healthy / "model.onnx"), 0)
    assert planted is not None
    onnx.save(planted.model, healthy / "faulty.onnx")
    onnx.save(strip(planted.model), healthy / "stripped.onnx")
    return str(planted.model.graph.node[planted.nodes[0]].name)


def environment() -> dict[str, str]:
    root = Path(__file__).parents[2]
    return os.environ | {"COLUMNS": "200", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root), "PYTHONWARNINGS": "ignore"}


def locate(folder: Path, candidate: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bisect_onnx", "locate", candidate, "--reference", "model.py:build"]
    command += ["--weights", "weights.pt", "--inputs", "image.npz", *arguments]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, env=environment())


def test_a_fault_is_shown_with_its_node_module_and_source_line(healthy: Path, faulty: str):
    done = locate(healthy, "faulty.onnx")

    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith(f"✗ LOCATED: {faulty} (Resize) introduces the error")
    assert f"model.py:{RESIZE_LINE}" in done.stdout
    assert 'mode="bilinear", align_corners=False' in done.stdout
    assert "coordinate_transformation_mode" in done.stdout
    assert "a forward that talks" not in done.stdout
    assert "Traceback" not in done.stderr


def test_a_file_without_names_shows_the_same_place(healthy: Path, faulty: str):
    done = locate(healthy, "stripped.onnx")

    assert done.returncode == 1, done.stderr
    assert re.match(r"✗ LOCATED: #\d+:Resize introduces the error", done.stdout)
    assert f"model.py:{RESIZE_LINE}" in done.stdout


def test_json_on_stdout_is_the_report_and_nothing_else(healthy: Path, faulty: str):
    done = locate(healthy, "faulty.onnx", "--json", "-")

    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    assert (report["status"], report["culprit"]["node"]) == ("located", faulty)
    source = report["culprit"]["source"]
    assert (source["file"], source["line"]) == (str(healthy / "model.py"), RESIZE_LINE)


def test_a_faithful_file_ends_with_0(healthy: Path):
    done = locate(healthy, "model.onnx")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("✓ PARITY: the output agrees with the reference")


def test_without_inputs_random_ones_are_drawn_and_said(healthy: Path, faulty: str):
    command = [sys.executable, "-m", "bisect_onnx", "locate", "faulty.onnx", "-r", "model.py:build", "--json", "-"]
    command += ["--weights", "weights.pt", "--strategy", "bisect"]

    done = subprocess.run(command, cwd=healthy, check=False, capture_output=True, text=True, env=environment())

    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert report["culprit"]["node"] == faulty
    assert [row["source"] for row in report["inputs"]] == ["random (seed 0)"]
    assert report["search"]["strategy"] == "bisect"
    assert report["search"]["steps"]


def test_other_weights_than_the_file_has_are_told_as_weights(healthy: Path):
    state = torch.load(healthy / "weights.pt", weights_only=True)
    state["leave.weight"] = state["leave.weight"] * np.float32(1.25)
    torch.save(state, healthy / "newer.pt")

    done = locate(healthy, "model.onnx", "--weights", "newer.pt", "--json", "-")

    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert (report["status"], report["stage"]) == ("located", "weights")
    assert report["culprit"]["op_type"] == "Conv"
    assert [row["parameter"] for row in report["weights"]] == ["leave.weight"]
