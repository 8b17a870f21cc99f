"""A capture holds what the model computes, without changing it, and says what it left out."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import bisect_onnx
from bisect_onnx.core.recording import METADATA, Recording
from bisect_onnx.errors import FeedsNotFoundError, ModelNotLoadedError, OutputPathError, RecordingError
from bisect_onnx.pipeline.inputs import feeds_of_file
from bisect_onnx.readers import onnx_file
from bisect_onnx.readers.feeds_file import read_npz
from bisect_onnx.readers.onnx_outline import outline
from bisect_onnx.readers.onnx_tensors import slim
from bisect_onnx.readers.recording_file import read_arrays, read_record
from bisect_onnx.readers.signature import read_signature
from bisect_onnx.runtimes import ort_recorder, ort_run, ort_session
from bisect_onnx.runtimes.ort import OrtCandidate
from bisect_onnx.runtimes.recorded import RecordedReference
from tests.onnx_models import Array, branching_net, mixed_net, random, save, value, with_external_data

make = helper.make_node
X = random((1, 3, 8, 8))


def arrays_of(path: Path) -> dict[str, Array]:
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files if name != METADATA}


def assert_same(found: dict[str, Array], expected: dict[str, Array]) -> None:
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        assert found[name].tobytes() == array.tobytes(), name


def test_a_capture_has_the_inputs_the_result_of_every_node_and_the_outputs(tmp_path: Path):
    model = mixed_net(tmp_path / "m.onnx")
    file = onnx_file.read(model)
    run = OrtCandidate(file, providers=["cpu"], level=0, session_options={}, custom_ops=())
    names = [name for node in file.graph.nodes if node.op_type != "Constant" for name in node.real_outputs()]

    captured = bisect_onnx.capture(model, tmp_path / "v.npz", {"x": X}, level=0)

    expected = run.probe({"x": X}, fetch=names, cuts={}) | run.run({"x": X}) | {"x": X}
    found = arrays_of(captured.path)
    assert sorted(found) == sorted(expected)
    assert all(np.abs(found[name] - expected[name]).max() < 1e-5 for name in expected)
    assert_same({n: found[n] for n in ("silu", "mean")}, run.run({"x": X}))
    assert captured.recording == read_record(captured.path)
    assert (captured.values, captured.recording.outputs, captured.recording.inputs) == (15, ("silu", "mean"), ("x",))
    assert captured.recording.providers == ("CPUExecutionProvider",)
    assert captured.recording.environment["machine"]


def test_equal_runs_make_equal_files(tmp_path: Path):
    model = mixed_net(tmp_path / "m.onnx")

    files = [bisect_onnx.capture(model, tmp_path / name, {"x": X}).path for name in ("a.npz", "b.npz")]

    assert files[0].read_bytes() == files[1].read_bytes()


def test_what_does_not_fit_the_memory_comes_from_several_sessions(tmp_path: Path):
    model = with_external_data(tmp_path / "m.onnx", source=mixed_net(tmp_path / "inline.onnx"), threshold=64)

    whole = bisect_onnx.capture(model, tmp_path / "whole.npz", {"x": X}, level=0)
    pieces = bisect_onnx.capture(model, tmp_path / "pieces.npz", {"x": X}, level=0, max_memory=10_000)

    assert whole.recording.sessions == 1
    assert pieces.recording.sessions > 5
    assert_same(arrays_of(pieces.path), arrays_of(whole.path))
    assert list(whole.recording.model.weights) == ["m.onnx.data"]


def test_other_weights_make_another_model(tmp_path: Path):
    model = with_external_data(tmp_path / "m.onnx", source=mixed_net(tmp_path / "inline.onnx"), threshold=64)
    before = bisect_onnx.capture(model, tmp_path / "v.npz", {"x": X}).recording.model
    weights = tmp_path / "m.onnx.data"
    changed = bytearray(weights.read_bytes())
    changed[3] ^= 1
    weights.write_bytes(changed)

    after = bisect_onnx.capture(model, tmp_path / "v.npz", {"x": X}).recording.model

    assert before.sha256 == after.sha256
    assert not before.same_as(after)
    assert before.same_as(dataclasses.replace(before, name="renamed.onnx"))


def test_element_types_that_numpy_lacks_come_back_as_they_were(tmp_path: Path):
    nodes = [
        make("Cast", ["x"], ["low"], to=TensorProto.BFLOAT16),
        make("Identity", ["low"], ["again"]),
        make("Cast", ["again"], ["y"], to=TensorProto.FLOAT),
    ]
    model = save(tmp_path / "m.onnx", nodes, inputs=[value("x", [2, 3])], outputs=["y"])
    x = random((2, 3))

    captured = bisect_onnx.capture(model, tmp_path / "v.npz", {"x": x}, level=0)

    assert captured.recording.bits == {"low": "bfloat16", "again": "bfloat16"}
    assert read_arrays(captured.path, ["low"])["low"].tobytes() == x.astype(ml_dtypes.bfloat16).tobytes()
    reference = RecordedReference(captured.path)
    assert reference.run({"x": x})["again"].dtype == ml_dtypes.bfloat16


def test_a_sequence_is_left_out_with_the_reason_and_text_is_kept(tmp_path: Path):
    nodes = [
        make("SplitToSequence", ["x"], ["parts"], axis=0, keepdims=1),
        make("ConcatFromSequence", ["parts"], ["y"], axis=0),
        make("Identity", ["words"], ["said"]),
        make("Identity", ["said"], ["z"]),
    ]
    inputs = [value("x", [2, 3]), value("words", [2], kind=TensorProto.STRING)]
    model = save(tmp_path / "m.onnx", nodes, inputs=inputs, outputs=["y", "z"])

    captured = bisect_onnx.capture(model, tmp_path / "v.npz", {"x": random((2, 3)), "words": np.array(["a", "bc"])})

    assert captured.recording.skipped == {"parts": "the runtime cannot hand over seq(tensor(float)) as an array"}
    assert arrays_of(captured.path)["said"].tolist() == ["a", "bc"]


def test_bodies_are_left_closed(tmp_path: Path):
    model = branching_net(tmp_path / "m.onnx")

    captured = bisect_onnx.capture(model, tmp_path / "v.npz", {"x": random((4,)), "flag": np.ones((), bool)})

    assert set(arrays_of(captured.path)) == {"x", "flag", "doubled", "branched", "last", "all", "y"}


def test_a_value_that_breaks_its_session_is_left_out_and_the_others_are_not(tmp_path: Path, monkeypatch):
    model = mixed_net(tmp_path / "m.onnx")
    start = ort_session.create_session

    def fails_for_k(source, *, settings, path):
        if isinstance(source, bytes) and "k" in [v.name for v in onnx.load_from_string(source).graph.output]:
            raise ModelNotLoadedError(path=path, configuration=settings.describe(), detail="no kernel")
        return start(source, settings=settings, path=path)

    monkeypatch.setattr(ort_recorder, "create_session", fails_for_k)
    captured = bisect_onnx.capture(model, tmp_path / "v.npz", {"x": X})

    assert captured.recording.skipped == {"k": "exposed, it breaks the session: no kernel"}
    assert captured.values == 14


def test_outputs_that_move_while_values_are_exposed_are_told(tmp_path: Path, monkeypatch):
    model = mixed_net(tmp_path / "m.onnx")
    runs = itertools.count()
    run = ort_run.run_named

    def off_by_one(*arguments, **options):
        found = run(*arguments, **options)
        return found if next(runs) == 0 else found | {"mean": found["mean"] + 1}

    monkeypatch.setattr(ort_recorder, "run_named", off_by_one)
    captured = bisect_onnx.capture(model, tmp_path / "v.npz", {"x": X}, level=0)

    assert list(captured.recording.moved) == ["mean"]
    assert float(captured.recording.moved["mean"]) > 0.1


def test_a_capture_gives_its_inputs_as_feeds_and_its_values_as_reference(tmp_path: Path):
    model = mixed_net(tmp_path / "m.onnx")
    path = bisect_onnx.capture(model, tmp_path / "v.npz", {"x": X}, level=0).path

    assert_same(dict(read_npz(path).named), {"x": X})
    assert bisect_onnx.locate(path, model, level=0).status.value == "parity"
    again = bisect_onnx.capture(model, tmp_path / "again.npz", path, level=0)
    assert again.recording.source == "v.npz"
    assert_same(arrays_of(again.path), arrays_of(path))


def test_random_inputs_are_those_of_locate(tmp_path: Path):
    nodes = [make("Gather", ["table", "ids"], ["rows"]), make("Add", ["rows", "x"], ["y"])]
    inputs = [value("ids", ["n"], kind=TensorProto.INT64), value("x", ["n", 4])]
    model = save(tmp_path / "m.onnx", nodes, inputs=inputs, outputs=["y"], weights={"table": random((50, 4))})
    file = onnx_file.read(model)

    captured = bisect_onnx.capture(model, tmp_path / "v.npz", seed=3, shapes={"x": (9, 4)})

    signature = read_signature(file.proto)
    expected, source = feeds_of_file(None, signature=signature, graph=file.graph, seed=3, shapes={"x": (9, 4)})
    found = arrays_of(captured.path)
    assert_same({name: found[name] for name in ("ids", "x")}, expected)
    assert found["ids"].max() > 1
    assert (captured.recording.source, source) == ("random (seed 3)",) * 2


def test_the_outline_knows_what_indices_may_be_in_bodies_and_functions(tmp_path: Path):
    from bisect_onnx.pipeline.random_inputs import index_limit

    body = helper.make_function(
        "own", "Look", ["t", "i"], ["r"], [make("Gather", ["t", "i"], ["r"], axis=0)], [helper.make_opsetid("", 18)]
    )
    inner = helper.make_graph([make("Gather", ["table", "ids"], ["taken"])], "then", [], [value("taken", None)])
    other = helper.make_graph([make("Identity", ["table"], ["all"])], "else", [], [value("all", None)])
    nodes = [make("If", ["flag"], ["y"], then_branch=inner, else_branch=other)]
    inputs = [value("ids", [3], kind=TensorProto.INT64), value("flag", [], kind=TensorProto.BOOL)]
    model = save(
        tmp_path / "m.onnx", [*nodes, make("Look", ["table", "ids"], ["z"], domain="own")], inputs=inputs,
        outputs=["y", "z"], weights={"table": random((7, 4))}, functions=[body],
    )  # fmt: skip
    file = onnx_file.read(model)

    assert index_limit(outline(slim(file.proto).proto), "ids") == index_limit(file.graph, "ids")


@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("m.onnx", "a file that this run reads"),
        ("notes.npz", "a file that is no capture"),
        ("values.txt", "the suffix '.txt'"),
        ("no/v.npz", "no folder"),
        (".", "a folder"),
    ],
)
def test_no_foreign_file_is_replaced(tmp_path: Path, name: str, got: str):
    model = mixed_net(tmp_path / "m.onnx")
    np.savez(tmp_path / "notes.npz", mine=X)
    before = (tmp_path / "notes.npz").read_bytes()

    with pytest.raises(OutputPathError, match=f"got: .*{got}"):
        bisect_onnx.capture(model, tmp_path / name, {"x": X})

    assert (tmp_path / "notes.npz").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "notes.npz"]
    bisect_onnx.capture(model, tmp_path / "notes.npz", {"x": X}, force=True)
    bisect_onnx.capture(model, tmp_path / "notes.npz", {"x": X})


def test_a_run_that_fails_leaves_nothing(tmp_path: Path, monkeypatch):
    model = mixed_net(tmp_path / "m.onnx")

    def interrupted(self, names, weights):
        raise KeyboardInterrupt

    monkeypatch.setattr(ort_recorder.Recorder, "_exposed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bisect_onnx.capture(model, tmp_path / "v.npz", {"x": X})
    with pytest.raises(FeedsNotFoundError):
        bisect_onnx.capture(model, tmp_path / "v.npz", tmp_path / "none.npz")

    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_a_record_of_another_version_is_refused(tmp_path: Path):
    arrays: dict[str, Any] = {"y": X, METADATA: np.array('{"schema": "bisect-onnx/capture/2"}')}
    np.savez(tmp_path / "v.npz", **arrays)

    with pytest.raises(RecordingError, match=r"its record is not of the form bisect-onnx/capture/1"):
        RecordedReference(tmp_path / "v.npz")
    with pytest.raises(ValueError, match="its record is incomplete"):
        Recording.from_text('{"schema": "bisect-onnx/capture/1"}')
