"""Small ONNX models, made by hand, for tests of readers and runtimes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]

OPSET = 18
IR_VERSION = 9  # the newest that the oldest supported runtime loads


def tensor(name: str, array: Array) -> TensorProto:
    return numpy_helper.from_array(array, name=name)


def value(name: str, shape: Sequence[int | str] | None, *, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    *,
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    weights: Mapping[str, Array] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
    opset: int = OPSET,
) -> Path:
    """Write a model; outputs have no declared type, as the runtime infers it."""
    graph = helper.make_graph(
        nodes,
        "small",
        list(inputs),
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [tensor(name, array) for name, array in (weights or {}).items()],
    )
    domains = sorted({node.domain for node in nodes} - {""})
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION, functions=list(functions))
    path.write_bytes(model.SerializeToString())
    return path


def random(shape: Sequence[int], *, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def mixed_net(path: Path) -> Path:
    """Convolution with relu, then one attention block: 1x3x8x8 in, weights above and below 1 KiB."""
    make = helper.make_node
    nodes = [
        make("Conv", ["x", "stem.weight", "stem.bias"], ["stem"], name="stem", pads=[1, 1, 1, 1]),
        make("Relu", ["stem"], ["active"], name="relu"),
        make("Constant", [], ["flat_shape"], value=tensor("", np.array([1, 16, 64], dtype=np.int64))),
        make("Reshape", ["active", "flat_shape"], ["flat"]),
        make("Transpose", ["flat"], ["tokens"], perm=[0, 2, 1]),
        make("LayerNormalization", ["tokens", "norm.weight", "norm.bias"], ["normed"], axis=-1),
        make("MatMul", ["normed", "q.weight"], ["q"]),
        make("MatMul", ["normed", "k.weight"], ["k"]),
        make("MatMul", ["normed", "v.weight"], ["v"]),
        make("Transpose", ["k"], ["k_t"], perm=[0, 2, 1]),
        make("MatMul", ["q", "k_t"], ["scores"]),
        make("Constant", [], ["scale"], value_float=0.25),
        make("Mul", ["scores", "scale"], ["scaled"]),
        make("Softmax", ["scaled"], ["weights"], axis=-1),
        make("MatMul", ["weights", "v"], ["context"]),
        make("Add", ["tokens", "context"], ["residual"]),
        make("Sigmoid", ["residual"], ["gate"]),
        make("Mul", ["residual", "gate"], ["silu"]),
        make("ReduceMean", ["silu"], ["mean"], keepdims=0),
    ]
    weights = {
        "stem.weight": random((16, 3, 3, 3), seed=1),
        "stem.bias": random((16,), seed=2),
        "norm.weight": random((16,), seed=3),
        "norm.bias": random((16,), seed=4),
        "q.weight": random((16, 32), seed=5),
        "k.weight": random((16, 32), seed=6),
        "v.weight": random((16, 16), seed=7),
    }
    return save(path, nodes, inputs=[value("x", [1, 3, 8, 8])], outputs=["silu", "mean"], weights=weights)


def with_external_data(path: Path, *, source: Path, threshold: int) -> Path:
    """The same model with tensors of ``threshold`` bytes and more in a file beside it."""
    model = onnx.load(source)
    onnx.save_model(model, path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=threshold)
    return path


def branching_net(path: Path) -> Path:
    """An If and a Loop whose bodies read outer values: `doubled` in both, `w` in the If."""
    make = helper.make_node
    then_body = helper.make_graph(
        [make("Add", ["doubled", "w"], ["then_sum"], name="inner_add")], "then", [], [value("then_sum", None)]
    )
    else_body = helper.make_graph([make("Neg", ["doubled"], ["else_neg"])], "else", [], [value("else_neg", None)])
    loop_body = helper.make_graph(
        [
            make("Identity", ["keep_going"], ["go_on"]),
            make("Add", ["carried", "doubled"], ["carried_next"]),
            make("Identity", ["carried_next"], ["scanned"]),
        ],
        "body",
        [
            value("step", [], kind=TensorProto.INT64),
            value("keep_going", [], kind=TensorProto.BOOL),
            value("carried", [4]),
        ],
        [value("go_on", [], kind=TensorProto.BOOL), value("carried_next", [4]), value("scanned", [4])],
    )
    nodes = [
        make("Add", ["x", "x"], ["doubled"], name="double"),
        make("If", ["flag"], ["branched"], name="choose", then_branch=then_body, else_branch=else_body),
        make("Loop", ["trips", "", "branched"], ["last", "all"], name="repeat", body=loop_body),
        make("Exp", ["last"], ["y"], name="exp"),
    ]
    return save(
        path,
        nodes,
        inputs=[value("x", [4]), value("flag", [], kind=TensorProto.BOOL)],
        outputs=["y", "all"],
        weights={"w": random((4,), seed=1), "trips": np.array(3, dtype=np.int64)},
    )
