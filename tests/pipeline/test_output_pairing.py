"""Which output is compared with which: by names, by order, and by values when those two mislead."""

import numpy as np
import pytest

from bisect_onnx.pipeline.output_pairing import OutputPair, PairedBy, belonging, pair_outputs, reassigned

RNG = np.random.default_rng(7)
TALL = RNG.standard_normal((3, 8)).astype(np.float32)
WIDE = RNG.standard_normal((3, 8)).astype(np.float32)
FLAT = RNG.standard_normal(3).astype(np.float32)


def partners(pairs: list[OutputPair]) -> list[str | None]:
    return [pair.reference for pair in pairs]


def test_outputs_are_paired_by_name_when_every_name_is_known():
    pairs = pair_outputs(("b", "a"), ("a", "b"))

    assert [(pair.candidate, pair.reference, pair.by) for pair in pairs] == [
        ("b", "b", PairedBy.NAME),
        ("a", "a", PairedBy.NAME),
    ]


def test_outputs_are_paired_in_order_when_a_name_is_unknown():
    pairs = pair_outputs(("x", "a", "y"), ("a", "b"))

    assert partners(pairs) == ["a", "b", None]
    assert {pair.by for pair in pairs} == {PairedBy.ORDER}


def test_the_values_of_a_recording_have_names_and_no_order():
    assert partners(pair_outputs(("x", "a"), ("b", "a"), ordered=False)) == [None, "a"]


@pytest.mark.parametrize(
    ("truth", "observed", "expected"),
    [
        ([TALL, FLAT], [WIDE, FLAT], {"0", "1"}),  # all fit
        ([TALL, FLAT], [WIDE.T, FLAT], {"0", "1"}),  # one does not, and nothing else is left for it
        ([TALL, FLAT], [FLAT, TALL], set()),  # two do not
        ([TALL], [WIDE.T], {"0"}),  # the only outputs
        ([TALL, WIDE, FLAT], [TALL, FLAT], set()),  # one was dropped, and which is not said
        ([TALL, FLAT], [WIDE], {"0"}),  # one was dropped, and the other fits nowhere else
        ([TALL, WIDE], [TALL], set()),
        ([TALL], [WIDE, FLAT], {"0"}),
    ],
)
def test_an_order_is_relied_on_when_it_leaves_no_choice(truth, observed, expected):
    reference = {f"r{place}": array for place, array in enumerate(truth)}
    candidate = {str(place): array for place, array in enumerate(observed)}

    assert belonging(pair_outputs(tuple(candidate), tuple(reference)), truth=reference, observed=candidate) == expected


def test_names_are_relied_on_whatever_the_shapes():
    truth, observed = {"a": TALL, "b": FLAT}, {"a": FLAT, "b": TALL}

    assert belonging(pair_outputs(("a", "b"), ("a", "b")), truth=truth, observed=observed) == {"a", "b"}


def moved(truth: dict[str, np.ndarray], observed: dict[str, np.ndarray]) -> list[str | None] | None:
    found = reassigned(pair_outputs(tuple(observed), tuple(truth)), truth=truth, observed=observed)
    return None if found is None else partners(found)


def test_outputs_in_another_order_are_recognised():
    truth = {"r0": TALL, "r1": WIDE, "r2": FLAT}

    assert moved(truth, {"x": WIDE, "y": TALL * np.float32(1 + 1e-6), "z": FLAT}) == ["r1", "r0", "r2"]
    assert moved(truth, {"x": FLAT, "y": WIDE, "z": TALL}) == ["r2", "r1", "r0"]


def test_the_outputs_that_are_left_after_others_were_dropped_are_recognised():
    truth = {"r0": TALL, "r1": WIDE, "r2": FLAT}

    assert moved(truth, {"x": TALL, "y": FLAT}) == ["r0", "r2"]
    assert moved(truth, {"x": FLAT}) == ["r2"]


def test_outputs_that_exchanged_their_names_are_recognised():
    assert moved({"a": TALL, "b": WIDE}, {"a": WIDE, "b": TALL}) == ["b", "a"]


def test_two_outputs_that_exchanged_places_are_recognised_beside_one_that_differs():
    truth = {"r0": TALL, "r1": WIDE, "r2": FLAT}

    assert moved(truth, {"x": WIDE, "y": TALL, "z": FLAT + 1}) == ["r1", "r0", "r2"]


@pytest.mark.parametrize(
    "observed",
    [
        {"a": WIDE, "b": TALL + 1},  # not the other way round
        {"a": WIDE},  # equal to an output of another name: it lost an operation
        {"a": TALL + 1, "b": WIDE + 1},
    ],
)
def test_outputs_with_known_names_are_not_taken_for_one_another(observed):
    assert moved({"a": TALL, "b": WIDE}, observed) is None


def test_an_output_that_equals_two_others_moves_none():
    assert moved({"r0": TALL, "r1": WIDE}, {"x": TALL, "y": TALL}) is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.array([1], bool), np.array([0], bool)),
        (np.zeros(5, np.float32), np.ones(5, np.float32)),
        (np.array([1, 2]), np.array([2, 1])),
    ],
)
def test_what_agrees_by_chance_moves_nothing(first, second):
    assert moved({"r0": first, "r1": second}, {"x": second, "y": first}) is None


def test_flags_follow_when_a_telling_output_moves():
    truth = {"r0": np.array([1], bool), "r1": TALL}

    assert moved(truth, {"x": TALL, "y": np.array([1], bool)}) == ["r1", "r0"]
