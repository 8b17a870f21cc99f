"""Another ONNX file as the reference: every value open, arrays kept or made again."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from bisect_onnx.core.tensor import fingerprint
from bisect_onnx.readers.onnx_file import read
from bisect_onnx.runtimes.onnx_model import OnnxReference
from tests.onnx_models import mixed_net, random, save, value

FEEDS = {"x": random((1, 3, 8, 8))}
PLENTY = 1 << 30


@pytest.fixture
def reference(tmp_path: Path) -> OnnxReference:
    return OnnxReference(read(mixed_net(tmp_path / "m.onnx")))


def test_it_says_what_it_is_and_names_its_ends(reference: OnnxReference) -> None:
    assert reference.description == "m.onnx (ONNX Runtime, level 0, CPU)"
    assert (reference.input_names, reference.output_names) == (("x",), ("silu", "mean"))
    assert set(reference.parameters) >= {"stem.weight", "scale", "flat_shape"}


def test_a_capture_knows_every_value_of_the_graph(reference: OnnxReference) -> None:
    capture = reference.capture(FEEDS, max_bytes=PLENTY)

    assert set(capture.fingerprints) == set(capture.graph.values)
    assert capture.fingerprints["x"].mean == fingerprint(FEEDS["x"]).mean
    assert capture.fingerprints["q.weight"].shape == (16, 32)


@pytest.mark.parametrize("max_bytes", [0, 5_000, PLENTY])
def test_arrays_are_the_same_whether_kept_or_made_again(reference: OnnxReference, max_bytes: int) -> None:
    everything = reference.capture(FEEDS, max_bytes=PLENTY).fetch(["stem", "scores", "silu"])

    capture = reference.capture(FEEDS, max_bytes=max_bytes)
    found = capture.fetch(["silu", "x", "stem", "q.weight", "scores"])

    assert list(found) == ["silu", "x", "stem", "q.weight", "scores"]
    assert all(found[name].tobytes() == array.tobytes() for name, array in everything.items())
    assert np.array_equal(found["x"], FEEDS["x"])
    assert capture.fingerprints["silu"].rms == fingerprint(everything["silu"]).rms


def test_what_is_fetched_may_be_changed_by_the_caller(reference: OnnxReference) -> None:
    capture = reference.capture(FEEDS, max_bytes=PLENTY)

    capture.fetch(["stem"])["stem"][:] = 0

    assert capture.fetch(["stem"])["stem"].any()


def test_later_changes_of_the_fed_array_do_not_reach_a_capture(reference: OnnxReference) -> None:
    fed = FEEDS["x"].copy()
    capture = reference.capture({"x": fed}, max_bytes=0)
    before = capture.fetch(["stem"])["stem"]

    fed[:] = 0

    assert np.array_equal(capture.fetch(["stem"])["stem"], before)


def test_a_sequence_is_absent_and_does_not_stop_the_rest(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["pieces"], axis=0),
        helper.make_node("ConcatFromSequence", ["pieces"], ["y"], axis=0),
    ]
    path = save(tmp_path / "m.onnx", nodes, inputs=[value("x", [2, 2])], outputs=["y", "pieces"])
    reference = OnnxReference(read(path))
    feeds = {"x": random((2, 2))}

    capture = reference.capture(feeds, max_bytes=PLENTY)

    assert set(capture.fingerprints) == {"x", "y"}
    assert list(capture.fetch(["pieces", "y"])) == ["y"]
    assert list(reference.run(feeds)) == list(reference.output_names) == ["y", "pieces[0]", "pieces[1]"]


def test_it_repeats_nothing_in_float64_and_is_as_open_as_it_gets(reference: OnnxReference) -> None:
    capture = reference.capture(FEEDS, max_bytes=PLENTY)

    assert capture.exact(["stem"], given=None, seed=None) == {}
    assert capture.open_up(["stem"], given=["x"]) is capture
