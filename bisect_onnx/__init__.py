"""Find out why an ONNX model does not agree with the PyTorch model it came from."""

__all__ = ["__version__"]

__version__ = "0.1.0"
