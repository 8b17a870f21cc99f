import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.runtimes.test_torch_capture import every_case
from tests.runtimes.test_torch_exact import gap, size_of
from tests.runtimes.torch_models import SliceWrite, Thrice, captured, float_activations, node_of, normal, seeded


class One(nn.Module):
    """A module of one function."""

    def __init__(self, function, *parts: nn.Module):
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.function = function

    def forward(self, x):
        return self.function(x, *self.parts)


def opened_operators(function, *parts: nn.Module, shape: tuple[int, ...] = (2, 4)) -> list[str]:
    """Operators inside the last call, in order; its result is checked."""
    torch.manual_seed(0)
    capture = captured(One(function, *parts).eval(), {"x": normal(*shape)})
    node = capture.graph.nodes[-1]
    opened = capture.open_up(node.outputs[:1], given=node.real_inputs())
    recorded, repeated = capture.fetch(node.outputs[:1]), opened.fetch(node.outputs[:1])
    name = node.outputs[0]
    assert gap(recorded[name], repeated[name]) <= 1e-6 * size_of(recorded[name])
    return [inner.op_type.removeprefix("aten.") for inner in opened.graph.nodes]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (functional.gelu, ["mul", "erf", "add", "mul", "mul"]),
        (lambda x: functional.gelu(x, approximate="tanh"), ["pow", "mul", "add", "mul", "mul", "tanh", "add", "mul"]),
        (functional.silu, ["sigmoid", "mul"]),
        (lambda x: functional.silu(x * 1, inplace=True), ["sigmoid", "mul"]),
        (lambda x: functional.softmax(x, 1), ["amax", "sub", "exp", "sum", "div"]),
        (functional.hardswish, ["add", "clamp", "clamp", "div", "mul"]),
        (functional.softplus, ["exp", "log1p", "gt", "where"]),
        (functional.mish, ["exp", "log1p", "gt", "where", "tanh", "mul"]),
        (lambda x: x.var(1), ["mean", "sub", "mul", "mean", "mul"]),
        (torch.sin, ["sin"]),
        (torch.t, ["t"]),
    ],
)
def test_functions_show_their_steps(function, expected):
    assert opened_operators(function) == expected


def test_a_linear_layer_shows_its_product():
    assert opened_operators(lambda x, layer: layer(x), nn.Linear(4, 3)) == ["mm", "add"]


def test_a_convolution_shows_its_product():
    steps = opened_operators(lambda x, layer: layer(x), nn.Conv2d(2, 3, 3), shape=(1, 2, 5, 5))

    assert steps == ["convolution", "view", "add"]


def test_norms_show_mean_deviation_and_variance():
    layer = opened_operators(lambda x, norm: norm(x), nn.LayerNorm(4))
    group = opened_operators(lambda x, norm: norm(x), nn.GroupNorm(2, 4), shape=(2, 4, 3))
    batch = opened_operators(lambda x, norm: norm(x), nn.BatchNorm1d(4))

    assert layer[:7] == ["mean", "sub", "mul", "mean", "add", "sqrt", "div"]
    assert group[1:8] == ["mean", "sub", "mul", "mean", "add", "sqrt", "div"]
    assert [step for step in batch if step != "view"][:4] == ["sub", "add", "sqrt", "div"]


@every_case
def test_the_whole_run_opened_up_computes_the_same(kind, feeds):
    capture = captured(seeded(kind), feeds)
    outputs = [name for name in capture.graph.outputs if (capture.graph.values[name].dtype or "").startswith("float")]

    opened = capture.open_up(outputs, given=capture.graph.inputs)

    assert opened.graph.outputs == tuple(outputs)
    recorded, repeated = capture.fetch(outputs), opened.fetch(outputs)
    for name in outputs:
        assert gap(recorded[name], repeated[name]) <= 2e-5 * size_of(recorded[name])


@every_case
def test_values_on_the_way_keep_their_names(kind, feeds):
    capture = captured(seeded(kind), feeds)
    outputs = [name for name in capture.graph.outputs if (capture.graph.values[name].dtype or "").startswith("float")]
    opened = capture.open_up(outputs, given=capture.graph.inputs)
    by_floats = {read for node in capture.graph.nodes if float_activations(capture.graph, node) for read in node.inputs}
    on_the_way = [
        name
        for node in capture.graph.nodes
        for name in float_activations(capture.graph, node)
        if name in by_floats and name in opened.graph.values
    ]

    recorded, repeated = capture.fetch(on_the_way), opened.fetch(on_the_way)

    assert len(on_the_way) >= len(capture.graph.nodes) // 4
    for name in on_the_way:
        assert gap(recorded[name], repeated[name]) <= 1e-4 * size_of(recorded[name]), name
        assert opened.fingerprints[name].shape == recorded[name].shape


def test_inner_values_are_named_after_the_call_they_are_inside_of():
    capture = captured(seeded(Thrice), {"x": normal(3, 4)})
    product = node_of(capture.graph, "aten.addmm", number=1)

    opened = capture.open_up(product.outputs, given=product.real_inputs())

    inner = node_of(opened.graph, "aten.mm")
    assert inner.name == "block.0@2/aten.addmm#4/aten.mm#0"
    assert inner.module == "block.0"
    assert inner.source == product.source


def test_what_lies_above_the_given_values_is_not_repeated():
    capture = captured(seeded(Thrice), {"x": normal(3, 4)})
    middle, last = node_of(capture.graph, "aten.tanh", number=1), node_of(capture.graph, "aten.addmm", number=2)

    opened = capture.open_up(last.outputs, given=middle.outputs)

    assert [node.op_type for node in opened.graph.nodes] == ["aten.mm", "aten.add"]
    assert opened.graph.inputs == middle.outputs


def test_an_opened_capture_can_be_repeated_in_float64():
    capture = captured(One(functional.gelu), {"x": normal(3, 4)})
    opened = capture.open_up(capture.graph.outputs, given=("x",))
    erf = node_of(opened.graph, "aten.erf").outputs[0]

    exact = opened.exact([erf], given=None, seed=None)

    np.testing.assert_allclose(exact[erf], opened.fetch([erf])[erf], rtol=1e-6)


def test_a_write_through_a_view_is_opened_up_too():
    capture = captured(seeded(SliceWrite), {"x": normal(3, 4)})
    product = node_of(capture.graph, "aten.addmm").outputs[0]

    opened = capture.open_up(capture.graph.outputs, given=[product])

    name = capture.graph.outputs[0]
    np.testing.assert_array_equal(opened.fetch([name])[name], capture.fetch([name])[name])
    assert product in opened.graph.ancestors([name])
