"""A model of 3 GiB whose weights lie in a file beside it: what is read, what is written, and what a kill leaves."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import psutil
import torch
from onnx import helper
from torch import nn

import bisect_onnx
from scripts.bench_arithmetic import Stopwatch, table

__all__ = ["LARGE_BYTES", "build", "large_model"]

WIDTH: Final = 8192
LAYERS: Final = 12
LAYER_BYTES: Final = 4 * WIDTH * WIDTH
LARGE_BYTES: Final = LAYERS * LAYER_BYTES
SEED: Final = 0
GUILTY: Final = 2 * (LAYERS // 2) + 1  # the activation of a layer in the middle
WEIGHTS: Final = "weights.bin"

# How often the child that is to be killed is looked at, and how long it has to reach its first probe.
LOOK_SECONDS: Final = 0.05
PATIENCE_SECONDS: Final = 300


class Layers(nn.Module):
    """Linear layers without bias whose weights are views of a mapped file."""

    def __init__(self, weights: Path) -> None:
        super().__init__()
        mapped = np.memmap(weights, dtype=np.float32, mode="c", shape=(LAYERS, WIDTH, WIDTH))
        self.weights = nn.ParameterList(nn.Parameter(torch.from_numpy(layer), requires_grad=False) for layer in mapped)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = torch.tanh(torch.matmul(x, weight))
        return x


def build(folder: str) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """The module of a folder that `large_model` filled, and its inputs."""
    generator = torch.Generator().manual_seed(SEED)
    return Layers(Path(folder) / WEIGHTS).eval(), {"x": torch.randn(2, WIDTH, generator=generator)}


def large_model(*, scratch: Path) -> Iterator[str]:
    """Locate a fault in it, then kill a second `locate` in the middle and see what a third one finds."""
    folder = scratch / "large"
    folder.mkdir()
    path = _write(folder)
    before = _listing(folder)
    module, inputs = build(str(folder))
    watch = Stopwatch()
    with _watched() as seen, watch.timing("locate on 3 GiB"):
        report = bisect_onnx.locate(module, path, inputs, strategy="scan")
    yield from table(watch.spans)
    named = None if report.culprit is None else report.culprit.index
    yield f"  {report.status.value}, node {named} (planted in node {GUILTY}), {report.search.runs} runs"
    yield f"  most in the temporary folder at one time: {seen['temporary'] / 2**20:.1f} MiB"
    yield f"  most memory of its own: {seen['own'] / 2**20:.0f} MiB, with {LARGE_BYTES / 2**20:.0f} MiB of weights"
    yield f"  beside the user's files: {'nothing changed' if _listing(folder) == before else 'CHANGED'}"
    left = _after_a_kill(folder, path)
    yield f"  a killed run left {left} folder(s); after the next run: {len(_temporary())}"


def _write(folder: Path) -> Path:
    """The weights, layer by layer, and a file that points at them; one Tanh is another function."""
    generator = np.random.default_rng(SEED)
    tensors, nodes, value = [], [], "x"
    with (folder / WEIGHTS).open("wb") as stream:
        for number in range(LAYERS):
            layer = generator.standard_normal((WIDTH, WIDTH), dtype=np.float32)
            layer /= np.float32(WIDTH**0.5)
            stream.write(layer.tobytes())
            tensors.append(_pointing(f"weights.{number}", number))
            nodes.append(helper.make_node("MatMul", [value, f"weights.{number}"], [f"m{number}"]))
            nodes.append(helper.make_node("Tanh", [f"m{number}"], [f"t{number}"]))
            value = f"t{number}"
    nodes[GUILTY].op_type = "Softsign"
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, WIDTH])],
        [helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, [2, WIDTH])],
        tensors,
    )
    path = folder / "large.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()
    )
    return path


def _pointing(name: str, number: int) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=[WIDTH, WIDTH])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entries = {"location": WEIGHTS, "offset": number * LAYER_BYTES, "length": LAYER_BYTES}
    for key, entry in entries.items():
        tensor.external_data.add(key=key, value=str(entry))
    return tensor


def _listing(folder: Path) -> Mapping[str, tuple[int, int]]:
    return {entry.name: (entry.stat().st_size, entry.stat().st_mtime_ns) for entry in sorted(folder.iterdir())}


def _temporary() -> list[Path]:
    return sorted(Path(tempfile.gettempdir()).glob("bisect-onnx-*"))


@contextlib.contextmanager
def _watched() -> Iterator[dict[str, int]]:
    """The largest size of our temporary folders, and of this process's own memory, looked at ten times a second."""
    seen = {"temporary": 0, "own": 0}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            sizes = 0
            for folder in _temporary():
                with contextlib.suppress(OSError):
                    sizes += sum(entry.stat().st_size for entry in folder.rglob("*") if entry.is_file())
            seen["temporary"] = max(seen["temporary"], sizes)
            seen["own"] = max(seen["own"], psutil.Process().memory_info().rss - psutil.Process().memory_info().shared)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def _after_a_kill(folder: Path, path: Path) -> int:
    """How many temporary folders a killed run leaves; another run has been made when this returns."""
    script = (
        "import sys, bisect_onnx; from scripts.bench_large import build; "
        "bisect_onnx.locate(*(lambda m, i: (m, sys.argv[2], i))(*build(sys.argv[1])), strategy='scan')"
    )
    command = [sys.executable, "-c", script, str(folder), str(path)]
    already = len(_temporary())
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(_temporary()) == already and child.poll() is None and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    left = len(_temporary()) - already
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return left
