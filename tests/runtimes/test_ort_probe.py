"""Probes of an ONNX file: any value replaced, any value seen, weights never carried along."""

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from bisect_onnx.errors import FeedDtypeError, FeedNamesError, FeedShapeError, RuntimeFailedError
from bisect_onnx.readers.onnx_file import read
from bisect_onnx.runtimes.expose import CutType, Exposable, expose
from bisect_onnx.runtimes.ort import OrtCandidate
from bisect_onnx.runtimes.ort_session import create_session
from tests.onnx_models import Array, branching_net, mixed_net, random, save, tensor, value, with_external_data


def candidate(path: Path, *, level: int = 0) -> OrtCandidate:
    return OrtCandidate(read(path), providers=["cpu"], level=level, session_options={}, custom_ops=())


IMAGE = random((1, 3, 8, 8))


def inline_net(folder: Path) -> Path:
    return mixed_net(folder / "m.onnx")


def external_net(folder: Path) -> Path:
    """Large weights in a file beside the model, small ones inline."""
    return with_external_data(folder / "m.onnx", source=mixed_net(folder / "inline.onnx"), threshold=1_500)


def scattered_net(folder: Path) -> Path:
    """Weights in two external files, one of them in a folder below, and a large one inline."""
    model = onnx.load(mixed_net(folder / "inline.onnx"))
    (folder / "below").mkdir()
    for location, name in (("below/q.bin", "q.weight"), ("k.bin", "k.weight")):
        (weight,) = [entry for entry in model.graph.initializer if entry.name == name]
        (folder / location).write_bytes(b"padding!" + weight.raw_data)
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=location)
        weight.external_data.add(key="offset", value="8")
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder / "m.onnx"


LAYOUTS = pytest.mark.parametrize("layout", [inline_net, external_net, scattered_net])
Layout = Callable[[Path], Path]


@LAYOUTS
def test_cutting_everywhere_with_the_runtimes_own_values_changes_no_bit(tmp_path: Path, layout: Layout) -> None:
    model = candidate(layout(tmp_path))
    values = list(model.graph.activations())
    uncut = model.probe({"x": IMAGE}, fetch=values, cuts={})

    cut = model.probe({"x": IMAGE}, fetch=values, cuts={"x": IMAGE, **uncut})

    assert list(cut) == values
    assert {name: array.tobytes() for name, array in cut.items()} == {n: a.tobytes() for n, a in uncut.items()}


@LAYOUTS
def test_a_probe_gives_the_numbers_of_the_untouched_model(tmp_path: Path, layout: Layout) -> None:
    model = candidate(layout(tmp_path))

    outputs = model.run({"x": IMAGE})
    probed = model.probe({"x": IMAGE}, fetch=list(outputs), cuts={})

    for name, array in outputs.items():
        # Weights are not repacked for probes, which changes the order of sums and so the last bits.
        np.testing.assert_allclose(probed[name], array, rtol=0, atol=4e-7 * float(np.abs(array).max()), strict=True)


def test_a_cut_value_is_returned_as_computed_and_read_as_replaced(tmp_path: Path) -> None:
    model = candidate(inline_net(tmp_path))
    plain = model.probe({"x": IMAGE}, fetch=["active", "flat"], cuts={})
    replacement = np.full_like(plain["active"], 2.0)

    cut = model.probe({"x": IMAGE}, fetch=["active", "flat"], cuts={"active": replacement})

    assert np.array_equal(cut["active"], plain["active"])
    assert np.array_equal(cut["flat"], replacement.reshape(1, 16, 64))


def test_inputs_and_weights_can_be_cut_and_fetched_too(tmp_path: Path) -> None:
    model = candidate(inline_net(tmp_path))
    zeros, bias = np.zeros((16, 3, 3, 3), np.float32), np.arange(16, dtype=np.float32)

    found = model.probe(
        {"x": IMAGE}, fetch=["stem", "x", "stem.bias"], cuts={"stem.weight": zeros, "stem.bias": bias, "x": IMAGE * 2}
    )

    assert np.array_equal(found["stem"], np.broadcast_to(bias[None, :, None, None], (1, 16, 8, 8)))
    assert np.array_equal(found["x"], IMAGE)
    assert np.array_equal(found["stem.bias"], random((16,), seed=2))


def test_no_feed_is_needed_above_the_cuts(tmp_path: Path) -> None:
    model = candidate(inline_net(tmp_path))

    found = model.probe({}, fetch=["gate"], cuts={"residual": np.zeros((1, 64, 16), np.float32)})

    assert np.unique(found["gate"]).tolist() == [0.5]


def test_an_input_that_is_needed_and_not_fed_is_named(tmp_path: Path) -> None:
    model = candidate(inline_net(tmp_path))

    with pytest.raises(FeedNamesError) as caught:
        model.probe({}, fetch=["gate"], cuts={})

    assert "got:      missing 'x'" in str(caught.value)


def test_only_the_nodes_between_cuts_and_values_are_run(tmp_path: Path) -> None:
    file = read(inline_net(tmp_path))
    cuts = {"scores": CutType(dtype=np.dtype(np.float32), rank=3)}

    exposed = expose(Exposable(file.slim.proto, graph=file.graph), fetch=["weights"], cuts=cuts)

    assert [node.op_type for node in exposed.proto.graph.node] == ["Constant", "Mul", "Softmax"]
    assert [entry.name for entry in exposed.proto.graph.input] == ["bisect_onnx_cut_0"]
    assert not exposed.proto.graph.initializer


def test_a_name_that_a_cut_would_take_is_left_to_the_model(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["bisect_onnx_cut_0"]),
        helper.make_node("Exp", ["bisect_onnx_cut_0"], ["y"]),
    ]
    model = candidate(save(tmp_path / "m.onnx", nodes, inputs=[value("x", [1])], outputs=["y"]))

    found = model.probe(
        {"x": np.zeros(1, np.float32)}, fetch=["y"], cuts={"bisect_onnx_cut_0": np.zeros(1, np.float32)}
    )

    assert found["y"].tolist() == [1.0]


@pytest.mark.parametrize("flag", [True, False])
def test_a_cut_reaches_the_bodies_of_if_and_loop(tmp_path: Path, *, flag: bool) -> None:
    model = candidate(branching_net(tmp_path / "m.onnx"))
    feeds = {"x": random((4,)), "flag": np.array(flag)}
    doubled, w = np.array([0.5, 1, 2, 3], np.float32), np.array([1, 2, 3, 4], np.float32)

    found = model.probe(feeds, fetch=["branched", "last", "all"], cuts={"doubled": doubled, "w": w})

    branched = doubled + w if flag else -doubled
    assert np.array_equal(found["branched"], branched)
    assert np.array_equal(found["last"], branched + doubled + doubled + doubled)
    assert found["all"].shape == (3, 4)


def test_a_body_that_hides_an_outer_name_keeps_its_own(tmp_path: Path) -> None:
    """The body has an initializer called as the outer value that is cut."""
    body = helper.make_graph(
        [helper.make_node("Add", ["outer", "own"], ["sum"])],
        "body",
        [],
        [value("sum", None)],
        [tensor("own", np.ones(2, np.float32))],
    )
    nodes = [
        helper.make_node("Neg", ["x"], ["outer"]),
        helper.make_node("If", ["flag"], ["y"], then_branch=body, else_branch=body),
    ]
    path = save(
        tmp_path / "m.onnx", nodes, inputs=[value("x", [2]), value("flag", [], kind=TensorProto.BOOL)], outputs=["y"]
    )
    feeds = {"x": np.zeros(2, np.float32), "flag": np.array(True)}  # noqa: FBT003 - a feed

    found = candidate(path).probe(feeds, fetch=["y"], cuts={"outer": np.full(2, 5, np.float32)})

    assert found["y"].tolist() == [6.0, 6.0]


def test_large_tensors_in_constants_and_bodies_are_not_carried_along(tmp_path: Path) -> None:
    table = helper.make_node("Constant", [], ["table"], value=tensor("", random((32, 32))))
    then_body, else_body = (
        helper.make_graph(
            [helper.make_node("MatMul", ["x", "inner"], ["out"])],
            "body",
            [],
            [value("out", None)],
            [tensor("inner", random((32, 32), seed=seed))],
        )
        for seed in (1, 2)
    )
    nodes = [
        table,
        helper.make_node("If", ["flag"], ["branched"], then_branch=then_body, else_branch=else_body),
        helper.make_node("MatMul", ["branched", "table"], ["y"]),
    ]
    inputs = [value("x", [1, 32]), value("flag", [], kind=TensorProto.BOOL)]
    path = save(tmp_path / "m.onnx", nodes, inputs=inputs, outputs=["y"])
    feeds = {"x": random((1, 32), seed=3), "flag": np.array(False)}  # noqa: FBT003 - a feed

    found = candidate(path).probe(feeds, fetch=["y"], cuts={})

    file = read(path)
    assert expose(Exposable(file.slim.proto, graph=file.graph), fetch=["y"], cuts={}).proto.ByteSize() < 1_000
    expected = feeds["x"] @ random((32, 32), seed=2) @ random((32, 32))
    np.testing.assert_allclose(found["y"], expected, rtol=1e-4, atol=1e-4, strict=True)


def test_a_model_with_functions_can_be_probed_around_their_calls(tmp_path: Path) -> None:
    function = helper.make_function(
        "my.domain",
        "Swish",
        ["a"],
        ["b"],
        [helper.make_node("Sigmoid", ["a"], ["s"]), helper.make_node("Mul", ["a", "s"], ["b"])],
        [helper.make_opsetid("", 18)],
    )
    nodes = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Swish", ["n"], ["y"], domain="my.domain")]
    path = save(tmp_path / "m.onnx", nodes, inputs=[value("x", [2])], outputs=["y"], functions=[function])

    found = candidate(path).probe({"x": random((2,))}, fetch=["n", "y"], cuts={"n": np.zeros(2, np.float32)})

    assert found["n"].tolist() == (-random((2,))).tolist()
    assert found["y"].tolist() == [0.0, 0.0]


def test_attributes_that_graphsurgeon_cannot_carry_survive(tmp_path: Path) -> None:
    """An optional has a type as its attribute; an empty list has no type to be guessed from."""
    optional = helper.make_node("Optional", [], ["nothing"])
    optional.attribute.append(helper.make_attribute("type", helper.make_tensor_type_proto(TensorProto.FLOAT, [2])))
    nodes = [
        optional,
        helper.make_node("OptionalHasElement", ["nothing"], ["has"]),
        helper.make_node("Not", ["has"], ["y"]),
    ]
    path = save(tmp_path / "m.onnx", nodes, inputs=[], outputs=["y"])

    assert candidate(path).probe({}, fetch=["y"], cuts={})["y"].tolist() is True


def test_values_that_are_no_tensors_are_absent(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["pieces"], axis=0),
        helper.make_node("Optional", ["x"], ["maybe"]),
        helper.make_node("OptionalGetElement", ["maybe"], ["surely"]),
        helper.make_node("ConcatFromSequence", ["pieces"], ["y"], axis=0),
    ]
    model = candidate(save(tmp_path / "m.onnx", nodes, inputs=[value("x", [2, 2])], outputs=["y", "pieces", "surely"]))
    x = random((2, 2))

    found = model.probe({"x": x}, fetch=["pieces", "maybe", "surely", "y"], cuts={})

    assert list(found) == ["surely", "y"]
    assert model.probe({"x": x}, fetch=["pieces"], cuts={}) == {}
    assert {name: array.shape for name, array in model.run({"x": x}).items()} == {
        "y": (2, 2),
        "pieces[0]": (1, 2),
        "pieces[1]": (1, 2),
        "surely": (2, 2),
    }


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(TensorProto.BFLOAT16, ml_dtypes.bfloat16), (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn)],
)
def test_types_that_numpy_lacks_can_be_cut_and_fetched_exactly(tmp_path: Path, kind: int, dtype: type) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["low"], to=kind),
        helper.make_node("Identity", ["low"], ["same"]),
        helper.make_node("Cast", ["same"], ["y"], to=TensorProto.FLOAT),
    ]
    path = save(tmp_path / "m.onnx", nodes, inputs=[value("x", [3])], outputs=["same", "y"], opset=19)
    model = candidate(path)
    x = np.array([0.3, -1.0, 2.0], np.float32)
    other: Array = np.array([1.0, 2.0, -4.0]).astype(dtype)

    found = model.probe({"x": x}, fetch=["low", "same", "y"], cuts={"low": other})

    assert found["low"].dtype == found["same"].dtype == np.dtype(dtype)
    assert found["low"].tolist() == x.astype(dtype).tolist()
    assert found["same"].tolist() == other.tolist()
    assert model.run({"x": x})["same"].tolist() == x.astype(dtype).tolist()


def test_text_can_be_cut_and_fetched(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["i"]), helper.make_node("Identity", ["i"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, inputs=[value("x", [2], kind=TensorProto.STRING)], outputs=["y"])

    found = candidate(path).probe({"x": np.array(["a", "bc"])}, fetch=["i", "y"], cuts={"i": np.array(["d", "e"])})

    assert {name: array.tolist() for name, array in found.items()} == {"i": ["a", "bc"], "y": ["d", "e"]}


def test_arrays_in_any_memory_order_are_read_as_what_they_say(tmp_path: Path) -> None:
    model = candidate(inline_net(tmp_path))
    plain = model.probe({"x": IMAGE}, fetch=["tokens", "gate"], cuts={})
    turned = np.asfortranarray(plain["tokens"])

    found = model.probe({"x": IMAGE[:, ::-1][:, ::-1]}, fetch=["tokens", "gate"], cuts={"tokens": turned})

    assert not turned.flags.c_contiguous
    assert found["gate"].tobytes() == plain["gate"].tobytes()


def test_nothing_is_cast_silently(tmp_path: Path) -> None:
    model = candidate(inline_net(tmp_path))

    with pytest.raises(FeedDtypeError) as cut:
        model.probe({"x": IMAGE}, fetch=["gate"], cuts={"residual": np.zeros((1, 64, 16))})
    with pytest.raises(FeedDtypeError) as fed:
        model.run({"x": IMAGE.astype(np.float64)})

    assert "expected: float32\n  got:      float64" in str(cut.value)
    assert "expected: float32\n  got:      float64" in str(fed.value)


def test_a_cut_of_another_rank_is_refused_because_it_would_broadcast(tmp_path: Path) -> None:
    model = candidate(inline_net(tmp_path))

    with pytest.raises(FeedShapeError) as caught:
        model.probe({"x": IMAGE}, fetch=["gate"], cuts={"residual": np.zeros((64, 16), np.float32)})

    assert "another number of axes" in str(caught.value)


def test_unknown_names_are_a_fault_of_the_caller(tmp_path: Path) -> None:
    model = candidate(branching_net(tmp_path / "m.onnx"))

    with pytest.raises(ValueError, match=r"^'then_sum' is no value of the main graph of m\.onnx$"):
        model.probe({}, fetch=["then_sum"], cuts={})


def test_a_fault_in_the_middle_of_a_run_names_what_was_fetched(tmp_path: Path) -> None:
    node = helper.make_node("Gather", ["table", "at"], ["row"], name="look_up")
    inputs = [value("at", [1], kind=TensorProto.INT64)]
    path = save(tmp_path / "m.onnx", [node], inputs=inputs, outputs=["row"], weights={"table": random((3, 2))})
    model = candidate(path)

    for attempt in (lambda feeds: model.probe(feeds, fetch=["row"], cuts={}), model.run):
        with pytest.raises(RuntimeFailedError) as caught:
            attempt({"at": np.array([7])})
        text = str(caught.value)
        assert text.startswith("ONNX Runtime failed while it ran 'm.onnx'\n  where:    while computing 'row'\n")
        assert "Node: (look_up)" in text or "Name:'look_up'" in text
        assert "out of data bounds" in text


def test_a_probe_that_was_asked_before_starts_no_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = candidate(inline_net(tmp_path))
    cut = {"residual": random((1, 64, 16))}
    first = model.probe({}, fetch=["gate"], cuts=cut)
    monkeypatch.setattr("bisect_onnx.runtimes.ort_probe.create_session", None)

    again = model.probe({}, fetch=["gate"], cuts={"residual": cut["residual"] * 0})
    smaller = model.probe({}, fetch=["gate"], cuts={"residual": cut["residual"][:, :5]})

    assert first["gate"].shape == again["gate"].shape == (1, 64, 16)
    assert smaller["gate"].tobytes() == first["gate"][:, :5].tobytes()
    assert model.runs == 3


def chain(path: Path, *, length: int) -> Path:
    """x -> Neg -> v0 -> Neg -> v1 -> ... ; each value reads the one before."""
    nodes = [helper.make_node("Neg", [f"v{n - 1}" if n else "x"], [f"v{n}"]) for n in range(length)]
    return save(path, nodes, inputs=[value("x", [2])], outputs=[f"v{length - 1}"])


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the size of each session's model, in nodes."""
    sizes: list[int] = []

    def counted(model: bytes, **rest: Any) -> Any:
        sizes.append(len(onnx.load_from_string(model).graph.node))
        return create_session(model, **rest)

    monkeypatch.setattr("bisect_onnx.runtimes.ort_probe.create_session", counted)
    return sizes


def test_cuts_in_another_order_and_cuts_elsewhere_start_no_other_session(tmp_path: Path, started: list[int]) -> None:
    nodes = [helper.make_node("Sub", ["x", "a"], ["b"]), helper.make_node("Neg", ["x"], ["a"])][::-1]
    nodes += [helper.make_node("Neg", ["b"], ["c"])]
    model = candidate(save(tmp_path / "m.onnx", nodes, inputs=[value("x", [2])], outputs=["c"]))
    one, two, three = (np.full(2, number, np.float32) for number in (1, 2, 3))

    first = model.probe({}, fetch=["b"], cuts={"x": one, "a": two})
    turned = model.probe({}, fetch=["b"], cuts={"a": two, "x": one})
    more = model.probe({}, fetch=["b"], cuts={"c": three, "a": two, "x": one, "b": three})

    assert first["b"].tolist() == turned["b"].tolist() == more["b"].tolist() == [-1, -1]
    assert started == [1]


def test_sessions_are_kept_until_they_hold_as_many_nodes_as_three_models(tmp_path: Path, started: list[int]) -> None:
    model = candidate(chain(tmp_path / "m.onnx", length=4))

    def probe(fetch: str, cut: str) -> None:
        model.probe({}, fetch=[fetch], cuts={cut: np.ones(2, np.float32)})

    pieces = [("v0", "x"), ("v1", "v0"), ("v2", "v1"), ("v3", "v2"), ("v1", "x"), ("v2", "v0"), ("v3", "v1")]
    for _ in range(2):  # 4 sessions of one node and 3 of two are 10 of 12
        for fetch, cut in pieces:
            probe(fetch, cut)
    assert started == [1, 1, 1, 1, 2, 2, 2]

    probe("v3", "x")  # 4 more: the oldest two, of one node each, go
    for fetch, cut in [*pieces[2:], pieces[0]]:
        probe(fetch, cut)
    assert started == [1, 1, 1, 1, 2, 2, 2, 4, 1]


def test_the_model_of_a_probe_is_as_large_as_the_piece_it_runs(tmp_path: Path) -> None:
    """Inputs, outputs and weights of the rest are not carried along."""
    nodes = [helper.make_node("Add", [f"x{n}", f"w{n}"], [f"y{n}"]) for n in range(50)]
    weights = {f"w{n}": random((2,), seed=n) for n in range(50)}
    inputs = [value(f"x{n}", [2]) for n in range(50)]
    file = read(save(tmp_path / "m.onnx", nodes, inputs=inputs, outputs=[f"y{n}" for n in range(50)], weights=weights))

    graph = expose(Exposable(file.slim.proto, graph=file.graph), fetch=["y7"], cuts={}).proto.graph

    assert [entry.name for entry in graph.input] == ["x7"]
    assert [entry.name for entry in graph.initializer] == ["w7"]
    assert [entry.name for entry in graph.output] == ["y7"]
    assert len(graph.node) == 1


@LAYOUTS
def test_nothing_is_written_beside_the_users_files_and_temporary_files_go(
    tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    model = candidate(layout(tmp_path / "user"))
    before = contents(tmp_path / "user")

    model.probe({"x": IMAGE}, fetch=["mean"], cuts={})
    during = [path.name for path in (tmp_path / "temporary").rglob("*.bin")]
    del model
    gc.collect()

    assert contents(tmp_path / "user") == before
    assert during == ([] if layout is external_net else ["weights.bin"])
    assert list((tmp_path / "temporary").iterdir()) == []


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


ENDS = {
    "at the end": "",
    "with an error": "raise RuntimeError",
    "interrupted": "import signal; signal.raise_signal(signal.SIGINT)",
}


@pytest.mark.parametrize("end", ENDS)
def test_temporary_files_go_however_the_program_ends(tmp_path: Path, end: str) -> None:
    path = str(inline_net(tmp_path))
    program = f"""
import numpy as np
from pathlib import Path
from bisect_onnx.readers.onnx_file import read
from bisect_onnx.runtimes.ort import OrtCandidate
model = OrtCandidate(read({path!r}), providers=["cpu"], level=0, session_options={{}}, custom_ops=())
model.probe({{"x": np.zeros((1, 3, 8, 8), np.float32)}}, fetch=["mean"], cuts={{}})
print(len(list(Path({str(tmp_path)!r}, "t").rglob("weights.bin"))))
{ENDS[end]}
"""
    (tmp_path / "t").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "t"), "PYTHONPATH": str(Path(__file__).parents[2])}

    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)

    assert done.stdout == "1\n", done.stderr
    assert list((tmp_path / "t").glob("bisect-onnx-*")) == []
