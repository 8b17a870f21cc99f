"""Recorded activations as the reference: arrays by name, plain ones only."""

from pathlib import Path

import numpy as np
import pytest

from bisect_onnx.core.graph import ValueKind
from bisect_onnx.errors import RecordingError
from bisect_onnx.runtimes.recorded import RecordedReference
from tests.onnx_models import Array, random

X, HIDDEN, Y = random((2, 3)), random((4,), seed=1), np.array([1, 2], dtype=np.int64)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.savez(tmp_path / "values.npz", x=X, hidden=HIDDEN, y=Y)
    return tmp_path / "values.npz"


def test_every_array_but_the_fed_ones_is_an_output(path: Path) -> None:
    outputs = RecordedReference(path).run({"x": X})

    assert {name: array.tolist() for name, array in outputs.items()} == {"hidden": HIDDEN.tolist(), "y": Y.tolist()}


def test_a_capture_has_values_and_no_nodes(path: Path) -> None:
    capture = RecordedReference(path).capture({"x": X}, max_bytes=0)

    assert capture.graph.nodes == ()
    assert {name: (entry.kind, entry.shape) for name, entry in capture.graph.values.items()} == {
        "x": (ValueKind.INPUT, (2, 3)),
        "hidden": (ValueKind.ACTIVATION, (4,)),
        "y": (ValueKind.ACTIVATION, (2,)),
    }
    assert capture.fetch(["y"])["y"].dtype == np.int64
    assert capture.fingerprints["hidden"].size == 4
    assert capture.exact(["y"], given=None, seed=None) == {}
    assert capture.open_up(["y"], given=["x"]) is capture


@pytest.mark.parametrize("fed", [X + 1, X[:1], X.astype(np.float64)])
def test_a_recording_of_another_input_is_refused(path: Path, fed: Array) -> None:
    reference = RecordedReference(path)

    for attempt in (reference.run, lambda feeds: reference.capture(feeds, max_bytes=0)):
        with pytest.raises(RecordingError) as caught:
            attempt({"x": fed})

        assert str(caught.value) == (
            "the recording 'values.npz' cannot be used as a reference\n"
            f"  where:    {path}\n"
            "  expected: the recorded input 'x' equal to the one that is fed\n"
            f"  got:      another array (float32[2, 3], fed {fed.dtype}{list(fed.shape)})\n"
            "  next:     feed the inputs of the recording: --inputs values.npz"
        )


def test_a_file_that_needs_pickle_is_refused_by_the_name_of_the_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", good=X, bad=np.array([{"a": 1}], dtype=object))

    with pytest.raises(RecordingError) as caught:
        RecordedReference(tmp_path / "v.npz")

    assert str(caught.value) == (
        "the recording 'v.npz' cannot be used as a reference\n"
        f"  where:    {tmp_path}/v.npz\n"
        "  expected: plain arrays; pickled objects can run code and are never loaded\n"
        "  got:      an object array under 'bad'\n"
        "  next:     save it again with a plain dtype, e.g. numpy.asarray(value, dtype=numpy.float32)"
    )


def test_missing_damaged_and_empty_files_are_told_apart(path: Path, tmp_path: Path) -> None:
    content = path.read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[: len(content) // 2])
    flipped = bytearray(content)
    flipped[content.index(X.tobytes())] ^= 0xFF
    (tmp_path / "flipped.npz").write_bytes(flipped)
    np.savez(tmp_path / "empty.npz")

    got = {}
    for name in ("none.npz", "cut.npz", "flipped.npz", "empty.npz"):
        with pytest.raises(RecordingError) as caught:
            RecordedReference(tmp_path / name)
        got[name] = str(caught.value).split("got:")[1].split("\n")[0].strip()

    assert got == {
        "none.npz": "no such file",
        "cut.npz": f"{len(content) // 2} bytes that are no zip archive",
        "flipped.npz": "damage at 'x': Bad CRC-32 for file 'x.npy'",
        "empty.npz": "no arrays",
    }
