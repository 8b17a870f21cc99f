"""Small files that ONNX Runtime's optimisers break: right at level 0, and wrong, refused or failing above it."""

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from tests.onnx_models import Array, save, value

__all__ = ["averaged_integers", "broadcast_scale", "clipped_double"]

make = helper.make_node


def clipped_double(path: Path, *, pairs: int = 1, opset: int = 18) -> Path:
    """Relu and Clip in float64, which no session of level 1 or higher starts on; ``pairs`` of them in a row."""
    nodes, before = [], "x"
    for number in range(pairs):
        after = "y" if number == pairs - 1 else f"c{number}"
        nodes += [
            make("Relu", [before], [f"r{number}"], name=f"relu{number}"),
            make("Clip", [f"r{number}", "low", "high"], [after], name=f"clip{number}"),
        ]
        before = after
    weights: dict[str, Array] = {"low": np.array(0.1), "high": np.array(1.5)}
    inputs = [value("x", [2, 3], kind=TensorProto.DOUBLE)]
    return save(path, nodes, inputs=inputs, outputs=["y"], weights=weights, opset=opset)


def broadcast_scale(path: Path, *, scale: int = 4, size: int = 1) -> Path:
    """x over its root mean square, of an axis of ``size``, times a vector of ``scale`` that widens the axis."""
    nodes = [
        make("Pow", ["x", "two"], ["p"], name="pow"),
        make("ReduceMean", ["p", "axes"], ["v"], keepdims=1, name="mean"),
        make("Add", ["v", "eps"], ["ve"], name="add"),
        make("Sqrt", ["ve"], ["s"], name="sqrt"),
        make("Div", ["x", "s"], ["n"], name="div"),
        make("Mul", ["n", "scale"], ["y"], name="mul"),
    ]
    weights: dict[str, Array] = {
        "two": np.array(2, np.float32),
        "eps": np.array(1e-5, np.float32),
        "axes": np.array([-1]),
        "scale": np.arange(1, scale + 1, dtype=np.float32),
    }
    return save(path, nodes, inputs=[value("x", [2, 3, size])], outputs=["y"], weights=weights, opset=18)


def averaged_integers(path: Path) -> Path:
    """An average of 2 x 2 between quantisers: halves of a step are common, and rounded where the kernel rounds."""
    quantise, dequantise = "QuantizeLinear", "DequantizeLinear"
    nodes = [
        make(quantise, ["x", "step", "zero"], ["xq"], name="quantise_x"),
        make(dequantise, ["xq", "step", "zero"], ["xd"], name="dequantise_x"),
        make("AveragePool", ["xd"], ["p"], kernel_shape=[2, 2], name="pool"),
        make(quantise, ["p", "step", "zero"], ["pq"], name="quantise_pool"),
        make(dequantise, ["pq", "step", "zero"], ["y"], name="dequantise_pool"),
    ]
    weights: dict[str, Array] = {"step": np.array(0.0625, np.float32), "zero": np.array(3, np.uint8)}
    return save(path, nodes, inputs=[value("x", [1, 2, 8, 8])], outputs=["y"], weights=weights)
