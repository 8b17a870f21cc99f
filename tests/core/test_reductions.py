"""How many terms an operator sums per element, from its shapes and attributes."""

import math

import pytest

from bisect_onnx.core.graph import Graph, Node
from bisect_onnx.core.reductions import terms_per_element


def terms(
    op_type: str, *shapes: tuple[int, ...] | None, to: tuple[int, ...] | None = None, **attributes: object
) -> int:
    names = tuple(f"in{place}" for place in range(len(shapes)))
    known = dict(zip(names, shapes, strict=True)) | {"out": to}
    node = Node(index=0, name="n", op_type=op_type, inputs=names, outputs=("out",), attributes=attributes)
    return terms_per_element(node, lambda name: known[name])


@pytest.mark.parametrize(
    ("expected", "op_type", "shapes"),
    [
        (1, "Add", [(2, 3), (2, 3)]),
        (1, "ReduceMax", [(2, 3)]),
        (3, "MatMul", [(2, 3), (3, 4)]),
        (7, "MatMul", [(7,), (7, 4)]),
        (64, "MatMul", [(2, 8, 5, 64), (2, 8, 64, 5)]),
        (3, "Gemm", [(2, 3), (3, 4), (4,)]),
        (27, "Conv", [(1, 3, 8, 8), (16, 3, 3, 3), (16,)]),
        (9, "Conv", [(1, 16, 8, 8), (16, 1, 3, 3)]),  # depthwise
        (32, "ConvTranspose", [(1, 8, 4, 4), (8, 3, 2, 2)]),
        (16, "Softmax", [(2, 16)]),
        (96, "LayerNormalization", [(1, 10, 96), (96,)]),
        (60, "GroupNormalization", [(2, 3, 4, 5), (3,)]),
        (16, "Resize", [(1, 3, 4, 4)]),
        (16, "GridSample", [(1, 3, 4, 4), (1, 2, 2, 2)]),
    ],
)  # fmt: skip
def test_terms_come_from_the_shapes(expected, op_type, shapes):
    assert terms(op_type, *shapes) == expected


def test_a_transposed_gemm_sums_over_the_other_axis():
    assert terms("Gemm", (2, 3), (2, 4), transA=1) == 2
    assert terms("Gemm", (2, 3), (4, 3), transB=1) == 3


@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_a_recurrent_layer_sums_over_inputs_and_state_at_every_step(op_type, gates):
    steps, batch, inputs, hidden = 10, 3, 4, 8
    weights = (1, gates * hidden, inputs)

    assert terms(op_type, (steps, batch, inputs), weights) == steps * (inputs + hidden)
    assert terms(op_type, (batch, steps, inputs), weights, layout=1) == steps * (inputs + hidden)


def test_a_reduction_sums_what_its_output_lacks():
    assert terms("ReduceMean", (2, 3, 4), to=(2, 1, 4)) == 3
    assert terms("ReduceSum", (2, 3, 4), to=()) == 24
    assert terms("ReduceSum", (2, 3, 4)) == 24  # the output's shape is not known
    assert terms("GlobalAveragePool", (1, 8, 5, 5), to=(1, 8, 1, 1)) == 25


def test_a_pool_sums_over_its_window():
    assert terms("AveragePool", (1, 3, 8, 8), kernel_shape=(3, 2)) == 6
    assert terms("AveragePool", (1, 3, 8, 8)) == 1


def test_a_node_with_a_body_may_sum_over_everything_it_reads():
    body = Graph(name="b", inputs=(), outputs=(), nodes=(), values={})
    node = Node(index=0, name="n", op_type="If", inputs=("x", "y"), outputs=("out",), subgraphs=(body,))

    assert terms_per_element(node, lambda name: {"x": (2, 3), "y": (50,)}[name]) == 50


@pytest.mark.parametrize("op_type", ["MatMul", "Conv", "LSTM", "Softmax", "ReduceSum", "Loop", "Gemm", "AveragePool"])
def test_unknown_and_scalar_shapes_count_as_elementwise(op_type):
    assert terms(op_type, None, None) == 1
    assert terms(op_type) == 1
    assert terms(op_type, (), ()) == 1


def test_an_omitted_input_has_no_shape():
    node = Node(index=0, name="n", op_type="Conv", inputs=("x", ""), outputs=("out",))

    assert terms_per_element(node, {"x": (1, 2, 3, 4)}.__getitem__) == 1


def test_an_empty_axis_sums_nothing():
    assert terms("MatMul", (2, 0), (0, 3)) == 0
    assert terms("ReduceSum", (2, 0), to=(2,)) == 1
    assert math.isfinite(terms("Softmax", (0, 3)))
