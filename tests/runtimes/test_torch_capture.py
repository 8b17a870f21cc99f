import itertools
import linecache

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

from bisect_onnx.core.graph import ValueKind
from bisect_onnx.core.tensor import fingerprint
from bisect_onnx.errors import (
    FeedsDoNotFitModuleError,
    ReferenceFailedError,
    ReferenceNotRepeatableError,
    UninitializedModuleError,
)
from bisect_onnx.runtimes.torch_eager import EagerReference
from tests.runtimes.torch_models import (
    PLENTY,
    Attention,
    Interleaved,
    Mixture,
    Recurrent,
    Residual,
    SliceWrite,
    Structured,
    Thrice,
    captured,
    mixture_feeds,
    node_of,
    normal,
    seeded,
)

CASES = [
    (Residual, {"image": normal(2, 3, 5, 5)}),
    (SliceWrite, {"x": normal(3, 4)}),
    (Interleaved, {"x": normal(2, 3)}),
    (Thrice, {"x": normal(3, 4)}),
    (Recurrent, {"x": normal(2, 4, 3)}),
    (Attention, {"x": normal(2, 5, 8)}),
    (Mixture, mixture_feeds()),
]
every_case = pytest.mark.parametrize(("kind", "feeds"), CASES, ids=[kind.__name__ for kind, _ in CASES])


@every_case
def test_the_captured_outputs_are_those_of_the_untouched_run(kind, feeds):
    reference = EagerReference(seeded(kind), description="module")
    truth = reference.run(feeds)

    capture = reference.capture(feeds, max_bytes=PLENTY)

    outputs = capture.fetch(capture.graph.outputs)
    for name, value in zip(reference.output_names, capture.graph.outputs, strict=True):
        np.testing.assert_allclose(outputs[value], truth[name], atol=2e-6)


@every_case
def test_values_beyond_the_budget_are_those_within_it(kind, feeds):
    reference = EagerReference(seeded(kind), description="module")
    names = list(reference.capture(feeds, max_bytes=PLENTY).graph.values)

    kept = reference.capture(feeds, max_bytes=PLENTY)
    fetched = reference.capture(feeds, max_bytes=0)

    assert list(fetched.graph.values) == names
    first, second = kept.fetch(names), fetched.fetch(names)
    for name in names:
        assert first[name].tobytes() == second[name].tobytes()
        assert kept.fingerprints[name].probes.tobytes() == fingerprint(first[name]).probes.tobytes()
        assert fetched.fingerprints[name].probes.tobytes() == fingerprint(first[name]).probes.tobytes()


@pytest.mark.parametrize("budget", [0, 1500, 4000])
def test_kept_activations_stay_within_the_budget(budget):
    reference = EagerReference(seeded(Residual), description="module")

    capture = reference.capture({"image": normal(2, 3, 5, 5)}, max_bytes=budget)

    kept = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for name, tensor in capture._vault.kept.items()
        if capture.graph.kind(name) is ValueKind.ACTIVATION and tensor.numel()
    }
    assert sum(kept.values()) <= budget
    assert bool(kept) == (budget > 0)


@every_case
def test_each_value_is_made_before_it_is_read(kind, feeds):
    graph = captured(seeded(kind), feeds).graph

    known = {name for name in graph.values if graph.producer(name) is None}
    for node in graph.nodes:
        missing = set(node.real_inputs()) - known - set(node.outputs)
        assert not missing
        known |= set(node.outputs)
    assert len({name for node in graph.nodes for name in node.outputs}) == sum(
        len(node.outputs) for node in graph.nodes
    )


def test_an_in_place_activation_keeps_the_value_it_overwrote():
    capture = captured(seeded(Residual), {"image": normal(2, 3, 5, 5)})

    relu = node_of(capture.graph, "aten.relu_")
    values = capture.fetch([*relu.inputs, *relu.outputs])

    before, after = values[relu.inputs[0]], values[relu.outputs[0]]
    assert (before < 0).any()
    assert (after == np.maximum(before, 0)).all()


def test_a_slice_write_gives_the_whole_tensor_a_new_value():
    capture = captured(seeded(SliceWrite), {"x": normal(3, 4)})
    graph = capture.graph
    old, added = node_of(graph, "aten.addmm").outputs[0], node_of(graph, "aten.add")

    values = capture.fetch([old, added.inputs[0]])

    expected = values[old].copy()
    expected[:, 0] = 0.5
    expected[:, 1:3] *= 2
    assert (values[added.inputs[0]] == expected).all()
    written = {node_of(graph, "aten.fill_").outputs[0], node_of(graph, "aten.mul_").outputs[0]}
    assert {old, *written} <= graph.ancestors([added.inputs[0]])


def test_a_view_is_renewed_only_by_writes_that_touch_its_elements():
    capture = captured(seeded(Interleaved), {"x": normal(2, 3)})
    graph = capture.graph
    before, after = node_of(graph, "aten.add").inputs[0], node_of(graph, "aten.mul").inputs[0]

    values = capture.fetch([before, after])

    assert (values[before] == 0).all()
    assert node_of(graph, "aten.sin").outputs[0] not in graph.ancestors([before])
    np.testing.assert_allclose(values[after], np.cos(normal(2, 3)), rtol=1e-6)
    assert node_of(graph, "aten.cos").outputs[0] in graph.ancestors([after])


def test_an_alias_that_no_call_made_is_known_by_its_elements():
    class Data(nn.Module):
        def forward(self, x):
            y = x * 2
            y.data.add_(1)
            return y * 3

    capture = captured(Data(), {"x": normal(2, 2)})

    assert "aten.add_" in {node.op_type for node in capture.graph.nodes}
    assert node_of(capture.graph, "aten.add_").outputs[0] in node_of(capture.graph, "aten.mul", number=1).inputs


def test_every_call_of_a_module_has_names_of_its_own():
    graph = captured(seeded(Thrice), {"x": normal(3, 4)}).graph

    tanh = [node for node in graph.nodes if node.op_type == "aten.tanh"]

    assert [node.name for node in tanh] == ["block.1/aten.tanh#2", "block.1@2/aten.tanh#5", "block.1@3/aten.tanh#8"]
    assert {node.module for node in tanh} == {"block.1"}
    assert {node.module_class for node in tanh} == {"Tanh"}


def test_modules_are_listed_with_the_values_they_took_and_gave():
    capture = captured(seeded(Residual), {"image": normal(2, 3, 5, 5)})

    act = [call for call in capture.modules if call.path == "act"]

    assert [call.number for call in act] == [1, 2]
    relu = node_of(capture.graph, "aten.relu_")
    assert act[0].inputs == relu.inputs
    assert act[0].outputs == relu.outputs


def test_recurrent_layers_are_seen_step_by_step():
    graph = captured(seeded(Recurrent), {"x": normal(2, 4, 3)}).graph

    in_lstm = [node.op_type for node in graph.nodes if node.module == "lstm"]

    assert not any("lstm" in op or "rnn" in op for op in in_lstm)
    assert in_lstm.count("aten.sigmoid_") == 2 * 4 * 3  # directions, steps, gates


def test_attention_is_seen_without_its_fused_kernels():
    graph = captured(seeded(Attention), {"x": normal(2, 5, 8)}).graph

    operators = {node.op_type for node in graph.nodes}

    assert {"aten.bmm", "aten.gelu", "aten.native_layer_norm"} <= operators
    assert not any("transformer_encoder" in op or "scaled_dot" in op for op in operators)


def test_a_call_carries_its_line_and_arguments():
    graph = captured(seeded(Residual), {"image": normal(2, 3, 5, 5)}).graph

    conv, add = node_of(graph, "aten.convolution"), node_of(graph, "aten.add_")

    assert conv.inputs == ("image", "first.weight", "first.bias")
    assert conv.attributes["padding"] == (1, 1)
    assert conv.attributes["groups"] == 1
    assert conv.torch_op == "aten.convolution.default"
    assert add.source is not None
    assert add.source.file.endswith("torch_models.py")
    assert add.source.code == "inner += skip" == linecache.getline(add.source.file, add.source.line).strip()
    assert conv.source is not None
    assert conv.source.code == "skip = self.act(self.norm(self.first(image)))"


def test_kinds_tell_what_depends_on_an_input():
    class Kinds(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 3))
            self.table = torch.ones(3)

        def forward(self, x):
            return x @ self.weight.t() @ torch.exp(self.weight) + torch.zeros_like(x) + self.table

    graph = captured(Kinds(), {"x": normal(2, 3)}).graph

    def kind(op_type: str) -> ValueKind:
        return graph.kind(node_of(graph, op_type).outputs[0])

    assert graph.kind("x") is ValueKind.INPUT
    assert graph.kind("weight") is ValueKind.PARAMETER
    assert graph.kind("table") is ValueKind.PARAMETER
    assert kind("aten.t") is ValueKind.PARAMETER
    assert kind("aten.exp") is ValueKind.CONSTANT
    assert kind("aten.zeros_like") is ValueKind.CONSTANT
    assert kind("aten.mm") is ValueKind.ACTIVATION


def test_outputs_are_named_by_their_place():
    reference = EagerReference(Structured(), description="module")

    outputs = reference.run({"x": normal(2)})

    assert tuple(outputs) == ("heads.scores", "heads.boxes", "pair.0", "pair.1.0") == reference.output_names
    assert tuple(EagerReference(nn.Identity(), description="module").run({"input": normal(1)})) == ("output_0",)


def test_parameters_share_memory_with_the_module():
    module = seeded(Residual)

    parameters = EagerReference(module, description="module").parameters

    assert set(parameters) == set(module.state_dict())
    assert np.shares_memory(parameters["first.weight"], module.state_dict()["first.weight"].numpy())


def test_a_tensor_kept_as_an_attribute_is_a_parameter_once_seen():
    reference = EagerReference(seeded(Mixture), description="module")
    assert "scale" not in reference.parameters

    capture = reference.capture(mixture_feeds(), max_bytes=PLENTY)

    np.testing.assert_allclose(reference.parameters["scale"], np.linspace(0.5, 1.5, 8), rtol=1e-6)
    assert "scale" in capture.graph.values


def test_bfloat16_goes_in_and_out():
    module = nn.Linear(3, 2).to(torch.bfloat16)
    feed = normal(4, 3).astype(ml_dtypes.bfloat16)
    reference = EagerReference(module, description="module")

    output = reference.run({"input": feed})["output_0"]

    assert output.dtype == ml_dtypes.bfloat16
    with torch.no_grad():
        expected = module(torch.from_numpy(feed.astype(np.float32)).to(torch.bfloat16)).float().numpy()
    np.testing.assert_array_equal(output.astype(np.float32), expected)
    assert reference.parameters["weight"].dtype == ml_dtypes.bfloat16


def test_feeds_are_bound_by_name_by_order_or_by_an_example():
    class Call(nn.Module):
        def forward(self, a, b, *, c=None):
            return a - b if c is None else a - b * c[0]

    one, two, three = (np.full(1, value, np.float32) for value in (1, 2, 3))
    module = Call()

    by_name = EagerReference(module, description="module")
    by_order = EagerReference(module, description="module", bind_order=("input.1", "input.2"))
    by_example = EagerReference(module, description="module", inputs_example={"a": one, "b": two, "c": [three]})

    assert by_name.input_names == ("a", "b")
    assert by_name.run({"b": two, "a": one})["output_0"] == -1
    assert by_order.run({"input.2": two, "input.1": one})["output_0"] == -1
    assert by_example.input_names == ("a", "b", "c.0")
    assert by_example.run({"a": one, "b": two, "c.0": three})["output_0"] == -5


def test_names_that_a_forward_takes_as_any_keyword_are_passed_by_name():
    class Open(nn.Module):
        def forward(self, a, **others):
            return a - others["b"]

    feeds = {"b": np.ones(1, np.float32), "a": np.full(1, 3, np.float32)}

    assert EagerReference(Open(), description="module").run(feeds)["output_0"] == 2


def test_a_value_without_elements_is_absent():
    class Sparse(nn.Module):
        def forward(self, x):
            return torch.sparse.mm(x.to_sparse(), x)

    capture = captured(Sparse(), {"x": normal(2, 2)})
    sparse = node_of(capture.graph, "aten._to_sparse").outputs[0]

    assert sparse in capture.graph.values
    assert capture.fetch([sparse]) == {}
    assert capture.exact([sparse], given=None, seed=None) == {}


def test_feeds_that_do_not_fit_are_named():
    reference = EagerReference(nn.Linear(3, 2), description="module", bind_order=("x",))

    with pytest.raises(FeedsDoNotFitModuleError) as caught:
        reference.run({"x": normal(1, 3), "mask": normal(1)})

    assert "expected" in str(caught.value)
    assert "x, mask" in str(caught.value)


def test_a_forward_that_raises_is_reported_with_its_words():
    reference = EagerReference(nn.Linear(3, 2), description="model.py:build")

    for attempt in (reference.run, lambda feeds: reference.capture(feeds, max_bytes=PLENTY)):
        with pytest.raises(ReferenceFailedError) as caught:
            attempt({"input": normal(1, 4)})
        assert "model.py:build" in str(caught.value)
        assert "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x4 and 3x2)" in str(caught.value)


def test_a_lazy_module_is_refused_before_its_first_run():
    with pytest.raises(UninitializedModuleError) as caught:
        EagerReference(nn.LazyLinear(2), description="model.py:build")

    assert "parameter 'weight'" in str(caught.value)


def test_a_reference_that_takes_another_path_the_second_time_says_so():
    turns = itertools.count()

    class Counting(nn.Module):
        def forward(self, x):
            return torch.sin(x) if next(turns) % 2 == 0 else torch.cos(x)

    capture = EagerReference(Counting(), description="module").capture({"x": normal(2)}, max_bytes=0)

    with pytest.raises(ReferenceNotRepeatableError) as caught:
        capture.fetch(capture.graph.outputs)

    assert "'aten.sin#0'" in str(caught.value)


def test_random_calls_repeat_in_a_later_pass():
    module = nn.Dropout(0.5).train()
    capture = EagerReference(module, description="module").capture({"input": normal(50)}, max_bytes=0)
    torch.rand(3)  # other people draw numbers in between

    first = capture.fetch(capture.graph.outputs)
    second = capture.fetch(capture.graph.outputs)

    name = capture.graph.outputs[0]
    np.testing.assert_array_equal(first[name], second[name])
    np.testing.assert_array_equal(capture.fingerprints[name].probes, fingerprint(first[name]).probes)


def test_fetched_arrays_are_the_callers_to_keep():
    capture = captured(seeded(Thrice), {"x": normal(3, 4)})
    name = capture.graph.outputs[0]

    capture.fetch([name])[name][:] = 7

    assert not (capture.fetch([name])[name] == 7).any()


def test_compiled_functions_run_as_they_were_written():
    doubled = torch.compile(lambda t: t.sin() + 1, backend="eager")

    class Compiled(nn.Module):
        def forward(self, x):
            return doubled(x)

    graph = captured(Compiled(), {"x": normal(2)}).graph

    assert [node.op_type for node in graph.nodes] == ["aten.sin", "aten.add"]
    assert torch.compile is not None
    assert torch.compile.__module__ == "torch"


def test_the_calls_of_a_branch_are_recorded():
    class Branch(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x,))

    positive = captured(Branch(), {"x": np.ones(2, np.float32)}).graph
    negative = captured(Branch(), {"x": -np.ones(2, np.float32)}).graph

    assert "aten.sin" in {node.op_type for node in positive.nodes}
    assert "aten.cos" in {node.op_type for node in negative.nodes}
