"""Adapters by name, imported on first use: a library that is missing breaks only what needs it."""

import importlib
from collections.abc import Mapping
from typing import Any, Final

from bisect_onnx.errors import RuntimeNotInstalledError

__all__ = ["RUNTIMES", "load_runtime"]

RUNTIMES: Final[Mapping[str, str]] = {
    "ort": "bisect_onnx.runtimes.ort:OrtCandidate",
    "onnx": "bisect_onnx.runtimes.onnx_model:OnnxReference",
    "recorded": "bisect_onnx.runtimes.recorded:RecordedReference",
    "torch": "bisect_onnx.runtimes.torch_eager:EagerReference",
}

# Where the package to install is not called like the module.
INSTALL: Final[Mapping[str, str]] = {
    "onnxruntime": "pip install onnxruntime (or onnxruntime-gpu, for CUDA)",
    "onnx_graphsurgeon": "pip install onnx-graphsurgeon",
}


def load_runtime(name: str) -> Any:
    """Import the adapter called ``name``.

    Raises:
        RuntimeNotInstalledError: The library it needs is not there; says how to install it.
    """
    module_name, _, class_name = RUNTIMES[name].partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "bisect_onnx":
            raise  # a fault of ours; advice to install something would mislead
        install = INSTALL.get(package, f"pip install {package}")
        raise RuntimeNotInstalledError(runtime=name, package=package, install=install) from error
    return getattr(module, class_name)
