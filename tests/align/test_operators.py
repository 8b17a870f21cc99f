"""Operator names are a preference between equals; what is listed is consistent."""

import pytest

from bisect_onnx.align.operators import MOVEMENT, PASS_THROUGH, same_operator


@pytest.mark.parametrize(
    ("onnx", "reference"),
    [
        ("Relu", "aten.relu.default"), ("Relu", "aten.relu_.default"), ("Relu", "Relu"), ("Conv", "aten.convolution"),
        ("Gemm", "aten.addmm.default"), ("Concat", "aten.cat"), ("Transpose", "aten.permute"), ("Split", "aten.chunk"),
        ("Resize", "aten.upsample_bilinear2d.vec"), ("LSTM", "aten.lstm.input"), ("Softplus", "aten.softplus"),
        ("Identity", "Identity"), ("QuickGelu", "QuickGelu"),
    ],
)  # fmt: skip
def test_a_usual_origin_is_known(onnx, reference):
    assert same_operator(onnx, reference)


@pytest.mark.parametrize(
    ("onnx", "reference"),
    [
        ("Relu", "aten.relu6"),
        ("Add", "aten.mul.Tensor"),
        ("Sub", "Add"),
        ("Conv", ""),
        ("Mul", "aten.silu"),
        ("Add", "a"),
    ],
)
def test_another_operator_is_not(onnx, reference):
    assert not same_operator(onnx, reference)


def test_what_only_moves_or_passes_computes_nothing():
    assert not (MOVEMENT | PASS_THROUGH) & {"Add", "Conv", "Relu", "MatMul", "Softmax", "Resize"}
    assert {"Reshape", "Identity"} <= MOVEMENT & PASS_THROUGH
