"""What the numbers of a report depend on besides the model: versions, machine, threads, providers."""

import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["describe_environment"]

DISTRIBUTIONS = ("torch", "onnx", "numpy", "onnx-graphsurgeon", "onnxscript", "transformers", "ml_dtypes")
# One import name, several distributions; whoever installs two of them runs the one that was installed last.
RUNTIME_DISTRIBUTIONS = (
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-directml",
    "onnxruntime-openvino",
    "onnxruntime-qnn",
    "onnxruntime-training",
)
# Variables that change how many threads add up a sum, or in which order.
VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MKL_NUM_THREADS", "KMP_AFFINITY", "CUDA_VISIBLE_DEVICES")


def describe_environment(*, providers: Sequence[str], level: int) -> dict[str, object]:
    """Plain data for `core.report.Report.environment`; equal on equal machines, without times or host names.

    Args:
        providers: What the candidate ran on.
        level: Its optimisation level.
    """
    return {
        "bisect_onnx": sys.modules["bisect_onnx"].__version__,
        "python": platform.python_version(),
        "versions": {name: found for name in DISTRIBUTIONS if (found := _version(name)) is not None},
        "onnxruntime": {name: found for name in RUNTIME_DISTRIBUTIONS if (found := _version(name)) is not None},
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": _threads(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "providers": list(providers),
        "available_providers": _available_providers(),
        "level": level,
    }


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """The processor's own name; None when the system does not tell."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return platform.processor() or None
    fields: Mapping[str, str] = {
        key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in lines) if colon
    }
    # Arm kernels give "Model" or nothing but numbers.
    return fields.get("model name") or fields.get("Model") or platform.processor() or None


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _threads() -> dict[str, int]:
    """Threads of torch, if this process has it loaded; asking is no reason to load it."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    return {"torch_intra_op": int(torch.get_num_threads()), "torch_inter_op": int(torch.get_num_interop_threads())}


def _available_providers() -> list[str]:
    runtime = sys.modules.get("onnxruntime")
    return [] if runtime is None else [str(name) for name in runtime.get_available_providers()]
