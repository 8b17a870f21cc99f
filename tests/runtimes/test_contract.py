"""What the pipeline may rely on, whichever adapter it talks to."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bisect_onnx.core.graph import ValueKind
from bisect_onnx.errors import RuntimeNotInstalledError
from bisect_onnx.readers.onnx_file import read
from bisect_onnx.runtimes.base import Candidate, Reference
from bisect_onnx.runtimes.onnx_model import OnnxReference
from bisect_onnx.runtimes.ort import OrtCandidate
from bisect_onnx.runtimes.recorded import RecordedReference
from bisect_onnx.runtimes.registry import RUNTIMES, load_runtime
from tests.onnx_models import mixed_net, random

FEEDS = {"x": random((1, 3, 8, 8))}


def make_candidate(folder: Path) -> OrtCandidate:
    file = read(mixed_net(folder / "m.onnx"))
    return OrtCandidate(file, providers=["cpu"], level=0, session_options={}, custom_ops=())


def make_onnx_reference(folder: Path) -> Reference:
    return OnnxReference(read(mixed_net(folder / "m.onnx")))


def make_recorded(folder: Path) -> Reference:
    model = make_candidate(folder)
    outputs = model.run(FEEDS)
    np.savez(folder / "v.npz", allow_pickle=False, **outputs)
    return RecordedReference(folder / "v.npz")


REFERENCES = pytest.mark.parametrize("make", [make_onnx_reference, make_recorded])
Make = Callable[[Path], Reference]


@REFERENCES
def test_outputs_have_the_names_that_were_announced_and_repeat(tmp_path: Path, make: Make) -> None:
    reference = make(tmp_path)

    first, second = reference.run(FEEDS), reference.run(FEEDS)

    assert tuple(first) == tuple(second) == reference.output_names
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


@REFERENCES
def test_feeds_are_never_changed(tmp_path: Path, make: Make) -> None:
    reference = make(tmp_path)
    fed = {"x": FEEDS["x"].copy()}

    reference.run(fed)
    reference.capture(fed, max_bytes=0)

    assert fed["x"].tobytes() == FEEDS["x"].tobytes()


@REFERENCES
def test_a_capture_holds_every_output_with_its_fingerprint(tmp_path: Path, make: Make) -> None:
    reference = make(tmp_path)
    outputs = reference.run(FEEDS)

    capture = reference.capture(FEEDS, max_bytes=0)

    for name, array in capture.fetch(list(outputs)).items():
        assert array.tobytes() == outputs[name].tobytes()
        assert capture.fingerprints[name].shape == array.shape
        assert capture.graph.values[name].kind is ValueKind.ACTIVATION


def test_the_candidate_is_a_candidate(tmp_path: Path) -> None:
    model: Candidate = make_candidate(tmp_path)
    fed = {"x": FEEDS["x"].copy()}

    outputs = model.run(fed)
    probed = model.probe(fed, fetch=list(model.graph.outputs), cuts={})

    assert tuple(outputs) == tuple(probed) == model.graph.outputs
    assert fed["x"].tobytes() == FEEDS["x"].tobytes()
    assert set(model.parameters) == {n for n in model.graph.values if n in model.parameters}
    assert all(model.parameters[name].shape == model.graph.values[name].shape for name in model.parameters)


@pytest.mark.parametrize("name", sorted(RUNTIMES))
def test_every_registered_adapter_can_be_loaded(name: str) -> None:
    assert load_runtime(name).__name__ == RUNTIMES[name].partition(":")[2]


def test_a_missing_library_is_named_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named 'onnxruntime.capi' ({name})", name="onnxruntime.capi")

    monkeypatch.setattr("importlib.import_module", missing)

    with pytest.raises(RuntimeNotInstalledError) as caught:
        load_runtime("ort")

    assert str(caught.value) == (
        "the runtime 'ort' needs the package 'onnxruntime'\n"
        "  where:    this Python environment\n"
        "  expected: onnxruntime installed\n"
        "  got:      no such package\n"
        "  next:     pip install onnxruntime (or onnxruntime-gpu, for CUDA)"
    )


def test_a_module_of_ours_that_is_missing_is_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUNTIMES, "ort", "bisect_onnx.runtimes.gone:Gone")

    with pytest.raises(ModuleNotFoundError):
        load_runtime("ort")
