"""Which ATen calls an ONNX operator usually stands for; a preference between equals, never evidence alone."""

from typing import Final

__all__ = ["KEEPS_ALL", "MASKING", "MOVEMENT", "PASS_THROUGH", "is_part", "same_operator"]

# Move elements, compute nothing.
MOVEMENT: Final = frozenset({
    "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Concat", "Split", "Slice", "DepthToSpace",
    "SpaceToDepth", "Expand", "Tile", "Identity", "Gather", "GatherElements", "GatherND", "ReverseSequence",
    "Pad", "ConcatFromSequence", "SplitToSequence", "SequenceAt",
})  # fmt: skip

# May leave every element as it was.
PASS_THROUGH: Final = frozenset({"Identity", "Dropout", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})

# Give their input on; an Identity may stand where something should be computed.
KEEPS_ALL: Final = PASS_THROUGH - {"Identity"}

# Operators that can hide an error above them: many inputs give one output (a Gather, by wrapping an index).
MASKING: Final = frozenset({
    "Abs", "And", "ArgMax", "ArgMin", "Ceil", "Clip", "Equal", "Floor", "Gather", "GlobalMaxPool", "Greater",
    "GreaterOrEqual", "HardSigmoid", "Less", "LessOrEqual", "Max", "MaxPool", "Min", "Not", "Or", "ReduceMax",
    "ReduceMin", "Relu", "Round", "Sign", "Softmax", "TopK", "Where",
})  # fmt: skip

_ATEN: Final[dict[str, frozenset[str]]] = {
    onnx: frozenset(aten.split())
    for onnx, aten in {
        "Abs": "abs", "Add": "add addmm baddbmm bias", "And": "logical_and bitwise_and", "ArgMax": "argmax",
        "ArgMin": "argmin", "AveragePool": "avg_pool2d avg_pool1d avg_pool3d _adaptive_avg_pool2d mean",
        "BatchNormalization": "native_batch_norm _native_batch_norm_legit_no_training "
        "batch_norm _native_batch_norm_legit",
        "Cast": "_to_copy to", "Ceil": "ceil", "Clip": "clamp hardtanh clamp_min clamp_max relu6",
        "Concat": "cat stack", "Conv": "convolution conv2d conv1d", "ConvTranspose": "convolution", "Cos": "cos",
        "CumSum": "cumsum", "DepthToSpace": "pixel_shuffle", "Div": "div", "Elu": "elu", "Equal": "eq", "Erf": "erf",
        "Exp": "exp", "Expand": "expand", "Flatten": "view reshape", "Floor": "floor floor_divide remainder",
        "Gather": "embedding index_select select index", "GatherElements": "gather", "Gelu": "gelu",
        "Gemm": "addmm mm", "GlobalAveragePool": "mean _adaptive_avg_pool2d", "Greater": "gt", "GreaterOrEqual": "ge",
        "GridSample": "grid_sampler_2d grid_sampler", "GroupNormalization": "native_group_norm",
        "HardSigmoid": "hardsigmoid", "HardSwish": "hardswish",
        "InstanceNormalization": "native_batch_norm native_group_norm", "IsInf": "isinf", "IsNaN": "isnan",
        "LayerNormalization": "native_layer_norm", "LeakyRelu": "leaky_relu", "Less": "lt", "LessOrEqual": "le",
        "Log": "log", "LogSoftmax": "_log_softmax", "MatMul": "mm bmm matmul addmm", "Max": "maximum",
        "MaxPool": "max_pool2d_with_indices max_pool2d", "Min": "minimum", "Mish": "mish", "Mod": "remainder fmod",
        "Mul": "mul", "Neg": "neg", "Not": "logical_not bitwise_not", "Or": "logical_or bitwise_or",
        "PRelu": "_prelu_kernel prelu",
        "Pad": "constant_pad_nd reflection_pad2d reflection_pad1d replication_pad2d replication_pad1d", "Pow": "pow",
        "RMSNormalization": "_fused_rms_norm rms_norm", "Reciprocal": "reciprocal",
        "ReduceL1": "linalg_vector_norm norm", "ReduceL2": "linalg_vector_norm norm", "ReduceLogSumExp": "logsumexp",
        "ReduceMax": "amax max", "ReduceMean": "mean", "ReduceMin": "amin min", "ReduceProd": "prod",
        "ReduceSum": "sum", "Relu": "relu", "Reshape": "view reshape _unsafe_view",
        "Resize": "upsample_bilinear2d upsample_nearest2d upsample_bicubic2d "
        "upsample_nearest1d upsample_linear1d _upsample_nearest_exact2d _upsample_bilinear2d_aa",
        "Round": "round", "ScatterElements": "scatter scatter_add", "ScatterND": "index_put as_strided_scatter",
        "Selu": "selu", "Sigmoid": "sigmoid", "Sin": "sin", "Slice": "slice", "Softmax": "_softmax _safe_softmax",
        "Softplus": "softplus", "Split": "split split_with_sizes chunk", "Sqrt": "sqrt", "Squeeze": "squeeze view",
        "Sub": "sub rsub", "Tanh": "tanh", "Tile": "repeat tile", "TopK": "topk", "Transpose": "transpose permute t",
        "Trilu": "tril triu", "Unsqueeze": "unsqueeze view", "Where": "where masked_fill",
        "Xor": "logical_xor bitwise_xor",
    }.items()
}  # fmt: skip


def same_operator(onnx_op: str, reference_op: str) -> bool:
    """Whether a reference call ("aten.silu_", or an ONNX operator itself) is a usual origin of ``onnx_op``."""
    name = reference_op.removeprefix("aten.").split(".")[0].rstrip("_")
    return onnx_op == reference_op or name in _ATEN.get(onnx_op, frozenset()) or name == onnx_op.lower()


def is_part(onnx_op: str, reference_op: str) -> bool:
    """Whether the call does more than the operator: product and sum in one."""
    return onnx_op in ("Add", "MatMul") and reference_op.removeprefix("aten.") in ("addmm", "baddbmm")
