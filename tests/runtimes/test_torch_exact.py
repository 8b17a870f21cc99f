import random
from collections.abc import Iterable

import numpy as np
import pytest
import torch
from torch import nn

from bisect_onnx.core.compare import MASK_CONSTANT, Array
from bisect_onnx.runtimes.torch_eager import EagerReference
from bisect_onnx.runtimes.torch_exact import ExactRun, repeat_call
from bisect_onnx.runtimes.torch_exact_cache import ExactCache, Origin
from tests.runtimes.test_torch_capture import CASES, every_case
from tests.runtimes.torch_models import (
    PLENTY,
    Interleaved,
    Mixture,
    Recurrent,
    Residual,
    SliceWrite,
    captured,
    float_activations,
    mixture_feeds,
    node_of,
    normal,
    seeded,
)


def size_of(*arrays: Array) -> float:
    """The largest rms of the arrays, masks and non-finite elements left out."""
    kept = [array.astype(np.float64).ravel() for array in arrays if array.size]
    kept = [array[np.isfinite(array) & (np.abs(array) < MASK_CONSTANT)] for array in kept]
    return max([1e-30, *(float(np.sqrt(np.mean(array**2))) for array in kept if array.size)])


def gap(first: Array, second: Array) -> float:
    first, second = first.astype(np.float64), second.astype(np.float64)
    with np.errstate(all="ignore"):
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        return float(np.max(np.where(same, 0, np.abs(first - second)), initial=0))


@every_case
def test_each_call_repeated_on_its_own_inputs_gives_its_own_result(kind, feeds):
    capture = captured(seeded(kind), feeds)
    graph = capture.graph

    tested = 0
    for node in graph.nodes:
        names = float_activations(graph, node)
        exact = capture.exact(names, given=node.real_inputs(), seed=None)
        assert set(exact) == set(names)
        recorded, inputs = capture.fetch(names), capture.fetch(node.real_inputs())
        for name in names:
            assert exact[name].dtype == np.float64
            assert gap(exact[name], recorded[name]) <= 1e-5 * size_of(recorded[name], *inputs.values()), name
            tested += 1
    assert tested


@every_case
def test_values_that_are_given_and_wanted_are_made_from_what_was_recorded(kind, feeds):
    capture = captured(seeded(kind), feeds)
    graph = capture.graph
    names = [name for node in graph.nodes for name in float_activations(graph, node)]

    at_once = capture.exact(names, given=list(graph.values), seed=None)

    one = node_of(graph, graph.nodes[-1].op_type)
    for name in float_activations(graph, one):
        alone = capture.exact([name], given=one.real_inputs(), seed=None)
        np.testing.assert_array_equal(at_once[name], alone[name])
    assert set(at_once) == set(names)


@every_case
def test_a_repetition_from_the_inputs_stays_near_the_run_and_is_closer_to_the_truth(kind, feeds):
    capture = captured(seeded(kind), feeds)
    outputs = [name for name in capture.graph.outputs if (capture.graph.values[name].dtype or "").startswith("float")]

    exact = capture.exact(outputs, given=None, seed=None)

    recorded = capture.fetch(outputs)
    for name in outputs:
        assert gap(exact[name], recorded[name]) <= 2e-5 * size_of(recorded[name])


def test_the_repetition_agrees_with_the_module_in_float64():
    module, image = seeded(Residual), normal(2, 3, 5, 5)
    capture = captured(module, {"image": image})

    exact = capture.exact(capture.graph.outputs, given=None, seed=None)[capture.graph.outputs[0]]

    with torch.no_grad():
        truth = module.double()(torch.from_numpy(image).double()).numpy()
    np.testing.assert_allclose(exact, truth, rtol=1e-12, atol=1e-14)


def test_dtypes_written_into_the_model_do_not_narrow_the_repetition():
    class Narrowing(nn.Module):
        def forward(self, x):
            y = x.to(torch.float16).float() / 3
            y = torch.softmax(y, 0, dtype=torch.float32) + torch.full((3,), 1 / 3, dtype=torch.float32)
            return y.sum(0, dtype=torch.float32) + torch.arange(3) / 7

    x = np.array([0.1, 0.7, -0.3], np.float32)
    capture = captured(Narrowing(), {"x": x})

    exact = capture.exact(capture.graph.outputs, given=None, seed=None)[capture.graph.outputs[0]]

    powers = np.exp(x.astype(np.float64) / 3)
    expected = (powers / powers.sum() + 1 / 3).sum() + np.arange(3) / 7
    np.testing.assert_allclose(exact, expected, rtol=1e-14)


def test_a_choice_made_in_the_run_is_not_made_again():
    class Choosing(nn.Module):
        def forward(self, x):
            # The two sums round to one float32 and differ in float64, so that the arg-max would flip.
            sums = torch.stack([x[0] + x[1], x[0] + x[2]])
            return x[3:][sums.argmax()]

    capture = captured(Choosing(), {"x": np.array([1, 1e-9, 2e-9, 10, 20], np.float32)})

    exact = capture.exact(capture.graph.outputs, given=None, seed=None)

    assert exact[capture.graph.outputs[0]] == capture.fetch(capture.graph.outputs)[capture.graph.outputs[0]] == 10


def test_random_numbers_are_those_of_the_run():
    capture = EagerReference(nn.Dropout(0.5).train(), description="module").capture(
        {"input": normal(40)}, max_bytes=PLENTY
    )
    name = capture.graph.outputs[0]

    exact = capture.exact([name], given=None, seed=None)[name]

    np.testing.assert_allclose(exact, capture.fetch([name])[name], rtol=1e-6)


def test_only_the_calls_between_given_and_wanted_run():
    capture = captured(seeded(SliceWrite), {"x": normal(3, 4)})
    product = node_of(capture.graph, "aten.addmm").outputs[0]
    name = capture.graph.outputs[0]

    from_product = capture.exact([name], given=[product], seed=None)[name]

    expected = capture.fetch([product])[product].astype(np.float64)
    expected[:, 0] = 0.5
    expected[:, 1:3] *= 2
    np.testing.assert_array_equal(from_product, expected + 1)


def test_interleaved_writes_are_laid_over_each_other():
    x = normal(2, 3)
    capture = captured(seeded(Interleaved), {"x": x})
    whole = capture.graph.outputs[0]

    exact = capture.exact([whole], given=None, seed=None)[whole]

    wide = x.astype(np.float64)
    np.testing.assert_allclose(exact, np.stack([np.sin(wide), np.cos(wide)], axis=-1).reshape(2, 6), rtol=1e-15)


def test_seeds_round_reproducibly_and_within_the_original_precision():
    capture = captured(seeded(Recurrent), {"x": normal(2, 4, 3)})
    name = capture.graph.outputs[0]

    exact = capture.exact([name], given=None, seed=None)[name]
    one, again, two = (capture.exact([name], given=None, seed=seed)[name] for seed in (1, 1, 2))

    np.testing.assert_array_equal(one, again)
    assert (one != two).any()
    assert 1e-10 < gap(one, exact) < 1e-5


def test_a_single_call_is_perturbed_by_at_most_half_a_unit_in_the_last_place():
    class Sine(nn.Module):
        def forward(self, x):
            return torch.sin(x).view(-1)

    capture = captured(Sine(), {"x": normal(30, 10)})
    name = capture.graph.outputs[0]

    exact = capture.exact([name], given=None, seed=None)[name]
    rounded = capture.exact([name], given=None, seed=7)[name]

    relative = np.abs(rounded / exact - 1)
    assert relative.max() <= 2.0**-24 * (1 + 1e-6)
    assert relative.max() > 2.0**-25


def test_operators_that_round_nothing_are_not_perturbed():
    class Moving(nn.Module):
        def forward(self, x):
            return torch.cat([torch.relu(x), x.flip(0)]).clamp(max=0.5).t()

    capture = captured(Moving(), {"x": normal(3, 4)})
    name = capture.graph.outputs[0]

    rounded = capture.exact([name], given=None, seed=7)[name]

    np.testing.assert_array_equal(rounded, capture.fetch([name])[name].astype(np.float64))


def test_a_call_without_a_float64_form_is_absent_and_so_is_what_needs_it():
    class Bits(nn.Module):
        def forward(self, x):
            exponent = x.view(torch.int32).view(torch.float32)
            return exponent + 1, x + 1

    capture = captured(Bits(), {"x": normal(4)})
    broken, fine = capture.graph.outputs

    exact = capture.exact([broken, fine], given=None, seed=None)
    given = capture.exact([broken], given=[node_of(capture.graph, "aten.view", number=1).outputs[0]], seed=None)

    assert set(exact) == {fine}
    assert set(given) == {broken}


def answers(run: ExactRun, questions: Iterable[tuple[list[str], list[str]]]) -> list[dict[str, Array]]:
    return [run.values(fetch, given=given) for fetch, given in questions]


@every_case
@pytest.mark.parametrize("seed", [None, 1])
def test_what_was_asked_before_changes_no_answer(kind, feeds, seed):
    capture = captured(seeded(kind), feeds)
    names = [name for node in capture.graph.nodes for name in float_activations(capture.graph, node)]
    draw = random.Random(0)
    questions = [(draw.sample(names, 1), draw.sample(names, draw.randrange(min(4, len(names))))) for _ in range(30)]

    kept = answers(ExactRun(capture._tape, capture.tensors, seed=seed, max_bytes=None), questions)
    few = answers(ExactRun(capture._tape, capture.tensors, seed=seed, max_bytes=1_000), questions)
    fresh = [
        ExactRun(capture._tape, capture.tensors, seed=seed, max_bytes=0).values(fetch, given=given)
        for fetch, given in questions
    ]

    for one, other, expected in zip(kept, few, fresh, strict=True):
        assert list(one) == list(other) == list(expected)
        for name, array in expected.items():
            np.testing.assert_array_equal(one[name], array)
            np.testing.assert_array_equal(other[name], array)


def test_a_value_that_is_given_and_kept_is_read_as_recorded():
    capture = captured(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Tanh()), {"input": normal(3, 4)})
    first, second = (node_of(capture.graph, "aten.tanh", number=number).outputs[0] for number in (0, 1))
    kept = capture.exact([first, second], given=None, seed=None)

    again = capture.exact([first, second], given=[first], seed=None)

    recorded = capture.fetch([first])[first].astype(np.float64)
    np.testing.assert_array_equal(again[first], kept[first])
    np.testing.assert_allclose(again[second], np.tanh(recorded), rtol=1e-14)
    assert gap(again[second], kept[second]) > 1e-10


def test_a_call_is_repeated_once_for_each_set_of_given_values(monkeypatch):
    capture = captured(nn.Sequential(*(nn.Tanh() for _ in range(6))), {"input": normal(3, 4)})
    chain = [node.outputs[0] for node in capture.graph.nodes]
    repeated: list[str] = []

    def counted(call, *args, **kwargs):
        repeated.append(call.name)
        return repeat_call(call, *args, **kwargs)

    monkeypatch.setattr("bisect_onnx.runtimes.torch_exact.repeat_call", counted)

    def calls(fetch, given):
        repeated.clear()
        capture.exact(fetch, given=given, seed=None)
        return len(repeated)

    assert calls([chain[3]], None) == 4
    assert calls([chain[3]], None) == 0
    assert calls([chain[5]], None) == 2
    assert calls([chain[4]], [chain[5]]) == 0  # what is given lies below
    assert calls([chain[5]], [chain[1]]) == 4
    assert calls([chain[5]], [chain[0], chain[1]]) == 0  # the nearest counts


def test_what_is_kept_stays_within_the_bytes_allowed():
    cache = ExactCache(max_bytes=100)

    def origin(name: str) -> Origin:
        return (name, frozenset())

    for name in "abc":
        cache.keep(origin(name), torch.zeros(4, dtype=torch.float64))
    assert [origin(name) in cache for name in "abc"] == [True, True, True]
    assert cache[origin("a")] is not None  # asked for, so "b" is the oldest now
    cache.keep(origin("d"), torch.zeros(1, dtype=torch.float64))
    assert [origin(name) in cache for name in "abcd"] == [True, False, True, True]
    cache.keep(origin("e"), torch.zeros(100, dtype=torch.float64)[:1])  # a view keeps all of its storage
    assert origin("e") not in cache
    assert cache.bytes == 32 + 32 + 8


def test_a_repetition_draws_nothing_from_the_callers_generator():
    capture = captured(seeded(Mixture), mixture_feeds())
    before = torch.get_rng_state()

    capture.exact(capture.graph.outputs, given=None, seed=1)

    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_half_precision_module_is_repeated_exactly(dtype):
    module = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2)).to(dtype)
    wide = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2)).double()
    wide.load_state_dict({name: tensor.double() for name, tensor in module.state_dict().items()})
    reference = EagerReference(module, description="module")
    feed = reference.parameters["0.weight"][:3]
    capture = reference.capture({"input": feed}, max_bytes=PLENTY)

    exact = capture.exact(capture.graph.outputs, given=None, seed=None)[capture.graph.outputs[0]]

    with torch.no_grad():
        truth = wide(torch.from_numpy(feed.astype(np.float64))).numpy()
    np.testing.assert_allclose(exact, truth, rtol=1e-12)


def test_the_cases_cover_in_place_writes_and_views_of_them():
    operators = {node.op_type for kind, feeds in CASES for node in captured(seeded(kind), feeds).graph.nodes}

    assert {"aten.relu_", "aten.copy_", "aten.as_strided_scatter", "aten.unsafe_split"} <= operators
