"""Find out why an ONNX model does not agree with the PyTorch model it came from."""

from bisect_onnx.pipeline.api import capture, locate

__all__ = ["__version__", "capture", "locate"]

__version__ = "0.1.0"
