"""How many terms an operator sums per element, from its shapes and attributes."""

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
        (25, "InstanceNormalization", [(2, 8, 5, 5), (8,), (8,)]),
        (25, "GlobalAveragePool", [(1, 8, 5, 5)]),
        (60, "MeanVarianceNormalization", [(3, 7, 4, 5)]),  # axes 0, 2 and 3
        (20, "CumSum", [(3, 20), ()]),  # the axis is not known
        (2, "Sum", [(3, 20), (3, 20)]),
        (16, "Resize", [(1, 3, 4, 4)]),
        (16, "GridSample", [(1, 3, 4, 4), (1, 2, 2, 2)]),
    ],
)  # fmt: skip
def test_terms_come_from_the_shapes(expected, op_type, shapes):
    assert terms(op_type, *shapes) == expected


def test_a_transposed_gemm_sums_over_the_other_axis():
    assert terms("Gemm", (2, 3), (2, 4), transA=1) == 2
    assert terms("Gemm", (2, 3), (4, 3), transB=1) == 3


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "LpNormalization"])
def test_a_normalised_axis_is_one_axis_and_the_others_are_batches(op_type):
    shape = (2, 12, 40, 50)

    assert terms(op_type, shape) == 50
    assert [terms(op_type, shape, axis=axis) for axis in (-1, 1, -2, 0)] == [50, 12, 40, 2]


@pytest.mark.parametrize("op_type", ["LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"])
def test_a_layer_normalises_the_axes_from_the_given_one(op_type):
    shape = (2, 3, 4, 5)

    assert terms(op_type, shape) == 5
    assert [terms(op_type, shape, axis=axis) for axis in (-1, 3, 2, -3)] == [5, 5, 20, 60]


def test_a_group_normalises_its_own_channels():
    assert terms("GroupNormalization", (2, 6, 4, 5), (6,), num_groups=3) == 40
    assert terms("GroupNorm", (2, 4, 5, 6), (6,), groups=6) == 20  # of com.microsoft, channels last


def test_a_mean_and_variance_take_the_axes_named():
    assert terms("MeanVarianceNormalization", (3, 7, 4, 5), axes=(-1,)) == 5


def test_a_transposed_convolution_sums_over_its_group_and_what_overlaps():
    assert terms("ConvTranspose", (1, 8, 4, 4), (8, 3, 3, 3), group=4) == 2 * 9
    assert terms("ConvTranspose", (1, 8, 4, 4), (8, 3, 4, 3), strides=(2, 2)) == 8 * 2 * 2


def test_a_fused_product_sums_over_the_other_axis_when_transposed():
    assert terms("FusedMatMul", (2, 3, 5), (2, 3, 4), transA=1) == 3
    assert terms("FusedMatMul", (5,), (5, 4), transA=1) == 5  # a vector has no other axis


@pytest.mark.parametrize(
    ("expected", "equation", "shapes"),
    [
        (8, "bhid,bhjd->bhij", [(2, 4, 5, 8), (2, 4, 64, 8)]),
        (64, "bhij,bhjd->bhid", [(2, 4, 5, 64), (2, 4, 64, 8)]),
        (1, "i,j->ij", [(5,), (7,)]),
        (35, "ij->", [(5, 7)]),
        (5, "ii", [(5, 5)]),  # a trace: without an arrow a letter that occurs twice is summed
        (5, "ij, jk", [(3, 5), (5, 4)]),
        (1, "ji", [(3, 5)]),
        (6, "...ij,...jk->...ik", [(2, 9, 3, 6), (2, 9, 6, 4)]),
        (12, "a...bc->a...", [(2, 9, 3, 4)]),
    ],
)
def test_an_einsum_sums_over_the_letters_its_result_lacks(expected, equation, shapes):
    assert terms("Einsum", *shapes, equation=equation) == expected


def test_attention_sums_over_a_head_and_twice_over_the_keys():
    assert terms("Attention", (2, 4, 10, 64), (2, 4, 30, 64), (2, 4, 30, 64)) == 64 + 2 * 30
    assert terms("Attention", (2, 10, 64), (64, 192)) == 64 + 2 * 64  # of com.microsoft: the second are weights
    assert terms("Attention", None, None) == 1


def test_shapes_are_only_looked_up_where_they_count():
    looked_up = []
    add = Node(index=0, name="n", op_type="Add", inputs=("x", "w"), outputs=("y",))
    product = Node(index=0, name="n", op_type="MatMul", inputs=("x", "w"), outputs=("y",))

    def shape_of(name):
        looked_up.append(name)
        return (2, 3)

    assert (terms_per_element(add, shape_of), looked_up) == (1, [])
    assert (terms_per_element(product, shape_of), looked_up) == (3, ["x"])


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
    assert terms("LRN", (1, 30, 8, 8), size=5) == 5
    assert terms("AveragePool", (1, 3, 8, 8)) == 1


def test_a_node_with_a_body_may_sum_over_everything_it_reads():
    body = Graph(name="b", inputs=(), outputs=(), nodes=(), values={})
    node = Node(index=0, name="n", op_type="If", inputs=("x", "y"), outputs=("out",), subgraphs=(body,))

    assert terms_per_element(node, lambda name: {"x": (2, 3), "y": (50,)}[name]) == 50


@pytest.mark.parametrize(
    "op_type",
    [
        "MatMul",
        "Conv",
        "LSTM",
        "Softmax",
        "ReduceSum",
        "Loop",
        "Gemm",
        "AveragePool",
        "ConvTranspose",
        "LayerNormalization",
        "GlobalAveragePool",
        "Einsum",
        "CumSum",
    ],
)
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
    assert terms("Softmax", (0, 3), axis=0) == 0


def test_an_axis_that_does_not_exist_counts_as_elementwise():
    assert terms("Softmax", (2, 3), axis=5) == 1
