"""FEEDS in every form, held against the signature of the file; and random ones that both sides can run."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from bisect_onnx.core.feeds import InputSignature
from bisect_onnx.core.graph import Graph, Node, Value, ValueKind
from bisect_onnx.errors import (
    EmptyFeedError,
    FeedCountError,
    FeedDtypeError,
    FeedNamesError,
    FeedsError,
    FeedsFormatError,
    FeedShapeError,
    FeedsNeedPickleError,
    FeedsNotFoundError,
    FeedsUnreadableError,
    InputPairingError,
    RandomFeedError,
    RecordingError,
    ShapeOptionError,
)
from bisect_onnx.pipeline.inputs import Feeds, resolve_feeds
from bisect_onnx.pipeline.opening import OpenedReference
from bisect_onnx.pipeline.random_inputs import index_limit
from bisect_onnx.readers.signature import read_signature


@dataclasses.dataclass
class SomeReference:
    """The little of a `runtimes.base.Reference` that feeds depend on."""

    description: str = "some"
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    parameters: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)


def sig(name: str, dtype: str | None, *dims: int | str | None) -> InputSignature:
    return InputSignature(name=name, dtype=dtype, dims=dims)


EMPTY = Graph(name="g", inputs=(), outputs=(), nodes=(), values={})
IMAGE = sig("image", "float32", "batch", 3, "side", "side")
IDS = sig("ids", "int64", "batch", "seq")
ONE = np.ones((1, 3, 4, 4), np.float32)
SOME_IDS = np.ones((1, 5), np.int64)


def resolve(
    inputs: object,
    *signature: InputSignature,
    call: Sequence[str] = (),
    required: Sequence[str] | None = None,
    graph: Graph = EMPTY,
    parameters: Mapping[str, np.ndarray] | None = None,
    example: object = None,
    recording: Path | None = None,
    **options: Any,
) -> Feeds:
    opened = OpenedReference(
        reference=SomeReference(parameters=parameters or {}),  # type: ignore[arg-type] # feeds run nothing
        call_order=tuple(call),
        required_inputs=None if required is None else tuple(required),
        example_inputs=example,
        recording=recording,
    )
    return resolve_feeds(inputs, signature=signature, graph=graph, opened=opened, **options)


def refused(kind: type[FeedsError], inputs: object, *signature: InputSignature, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        resolve(inputs, *signature, **options)
    assert caught.value.exit_code == 2
    return str(caught.value)


# --- the forms


def as_npz(folder: Path) -> Path:
    np.savez(folder / "feeds.npz", image=ONE, ids=SOME_IDS)
    return folder / "feeds.npz"


def as_unnamed_npz(folder: Path) -> Path:
    np.savez(folder / "feeds.npz", ONE, SOME_IDS)
    return folder / "feeds.npz"


def as_torch_dict(folder: Path) -> Path:
    torch.save({"image": torch.ones(1, 3, 4, 4), "ids": torch.ones(1, 5, dtype=torch.int64)}, folder / "feeds.pt")
    return folder / "feeds.pt"


def as_torch_tuple(folder: Path) -> Path:
    torch.save((torch.ones(1, 3, 4, 4), torch.ones(1, 5, dtype=torch.int64)), folder / "feeds.pt")
    return folder / "feeds.pt"


def as_folder(folder: Path) -> Path:
    inside = folder / "test_data_set_0"
    inside.mkdir()
    arrays: tuple[np.ndarray, ...] = (ONE, SOME_IDS)
    for index, array in enumerate(arrays):
        (inside / f"input_{index}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())
    return inside


def as_mapping(folder: Path) -> object:
    return {"ids": SOME_IDS, "image": torch.ones(1, 3, 4, 4)}


def as_tuple(folder: Path) -> object:
    return (torch.ones(1, 3, 4, 4, requires_grad=True), SOME_IDS)


def as_export_arguments(folder: Path) -> object:
    return (ONE, {"ids": SOME_IDS})


@pytest.mark.parametrize(
    ("form", "source"),
    [
        (as_npz, "feeds.npz"),
        (as_unnamed_npz, "feeds.npz"),
        (as_torch_dict, "feeds.pt"),
        (as_torch_tuple, "feeds.pt"),
        (as_folder, "test_data_set_0"),
        (as_mapping, "caller"),
        (as_tuple, "caller"),
        (as_export_arguments, "caller"),
    ],
)
def test_every_form_gives_the_same_arrays(tmp_path, form, source):
    feeds = resolve(form(tmp_path), IMAGE, IDS)

    assert list(feeds.arrays) == ["image", "ids"]
    np.testing.assert_array_equal(feeds.arrays["image"], ONE)
    np.testing.assert_array_equal(feeds.arrays["ids"], SOME_IDS)
    assert [row.source for row in feeds.rows] == [source, source]
    assert (feeds.rows[0].shape, feeds.rows[0].dtype, feeds.rows[0].range) == ((1, 3, 4, 4), "float32", (1.0, 1.0))


def test_one_array_or_npy_is_enough_for_one_input(tmp_path):
    np.save(tmp_path / "image.npy", ONE)

    for inputs in (ONE, torch.ones(1, 3, 4, 4), tmp_path / "image.npy", str(tmp_path / "image.npy")):
        np.testing.assert_array_equal(resolve(inputs, IMAGE).arrays["image"], ONE)


def test_the_callers_array_is_never_the_one_that_runs():
    mine = np.asfortranarray(ONE)

    feeds = resolve(mine, IMAGE)
    feeds.arrays["image"][:] = 9

    assert (mine == 1).all()
    assert feeds.arrays["image"].flags.c_contiguous


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (torch.ones(2, dtype=torch.bfloat16), ml_dtypes.bfloat16),
        (np.ones(2, ">f4"), np.float32),
        (np.ones(2, np.float32)[::-1], np.float32),
        (torch.ones(4)[::2], np.float32),
        (torch.full((2,), torch.nan), np.float32),
        (np.array(["a", "b"]), object),
    ],
)
def test_what_numpy_or_torch_store_otherwise_arrives_as_it_is(given, dtype):
    name = "string" if dtype is object else str(np.dtype(dtype))

    (array,) = resolve(given, sig("x", name, 2)).arrays.values()

    assert array.dtype == dtype
    assert array.dtype.isnative
    assert array.flags.c_contiguous


def test_bfloat16_survives_an_npz(tmp_path):
    np.savez(tmp_path / "feeds.npz", x=np.array([1.5, -2], ml_dtypes.bfloat16))

    (array,) = resolve(tmp_path / "feeds.npz", sig("x", "bfloat16", 2)).arrays.values()

    assert array.dtype == ml_dtypes.bfloat16
    assert array.astype(float).tolist() == [1.5, -2]


def test_a_scalar_stays_a_scalar():
    assert resolve({"step": 3}, sig("step", "int64")).arrays["step"].shape == ()


def test_nan_in_the_feeds_is_allowed_and_left_out_of_the_range():
    (row,) = resolve(np.array([np.nan, 1, 2], np.float32), sig("x", "float32", 3)).rows

    assert row.range == (1.0, 2.0)


# --- whose input is whose


def test_names_of_forward_are_accepted_and_paired_by_order():
    feeds = resolve({"x": ONE, "tokens": SOME_IDS}, *renamed(), call=("x", "tokens"), required=("x", "tokens"))

    assert feeds.pairs == {"input.1": "x", "onnx::Gather_1": "tokens"}
    assert list(feeds.arrays) == ["input.1", "onnx::Gather_1"]
    assert list(feeds.reference) == ["x", "tokens"]
    assert feeds.notes == (
        "the candidate's input 'input.1' is fed what the reference takes as 'x'",
        "the candidate's input 'onnx::Gather_1' is fed what the reference takes as 'tokens'",
    )


def renamed() -> tuple[InputSignature, InputSignature]:
    return (
        dataclasses.replace(IMAGE, name="input.1"),
        dataclasses.replace(IDS, name="onnx::Gather_1"),
    )


def test_equal_names_are_paired_whatever_their_order():
    feeds = resolve({"image": ONE, "ids": SOME_IDS}, IDS, IMAGE, call=("image", "ids"))

    assert feeds.pairs == {"ids": "ids", "image": "image"}
    assert feeds.notes == ()


def test_a_tuple_is_in_the_order_of_the_reference_s_call():
    feeds = resolve((ONE, SOME_IDS), IDS, IMAGE, call=("image", "ids"))

    assert feeds.arrays["image"].shape == ONE.shape


def test_unnamed_arrays_on_disk_are_in_the_order_of_the_file(tmp_path):
    np.savez(tmp_path / "feeds.npz", SOME_IDS, ONE)

    feeds = resolve(tmp_path / "feeds.npz", IDS, IMAGE, call=("image", "ids"))

    assert feeds.arrays["image"].shape == ONE.shape


def test_a_numbered_name_is_paired_with_the_plain_one():
    feeds = resolve(
        {"ids": SOME_IDS, "image": ONE}, dataclasses.replace(IMAGE, name="image.1"), IDS, call=("ids", "image")
    )

    assert feeds.pairs == {"image.1": "image", "ids": "ids"}


def test_an_optional_parameter_may_be_left_out_or_given():
    left_out = resolve(ONE, IMAGE, call=("image", "mask"), required=("image",))
    given = resolve({"image": ONE, "mask": SOME_IDS}, IMAGE, call=("image", "mask"), required=("image",))

    assert list(left_out.reference) == ["image"]
    assert list(given.reference) == ["image", "mask"]
    assert list(given.arrays) == ["image"]


def test_an_input_that_the_file_lost_needs_a_value_for_the_reference():
    text = refused(InputPairingError, None, IMAGE, call=("image", "mask"), required=("image", "mask"))

    assert text == (
        "the inputs of the two sides cannot be paired: the file has no input for the reference's 'mask'\n"
        "  where:    random (seed 0)\n"
        "  expected: the reference's inputs 'image', 'mask'\n"
        "  got:      the candidate's inputs 'image'\n"
        "  next:     give a value for it in the feeds, named 'mask'"
    )
    feeds = resolve({"image": ONE, "mask": SOME_IDS}, IMAGE, call=("image", "mask"), required=("image", "mask"))
    assert list(feeds.reference) == ["image", "mask"]
    positional = resolve((ONE, SOME_IDS), IMAGE, call=("image", "mask"), required=("image", "mask"))
    assert list(positional.reference) == ["image", "mask"]


def test_inputs_that_could_be_paired_in_two_ways_are_refused():
    text = refused(InputPairingError, None, sig("a", "float32", 1), call=("x", "y"), required=("x", "y"))

    assert "1 of the candidate are left over against 2 of the reference" in text


def test_what_was_given_decides_which_optional_inputs_the_file_has():
    call = ("image", "ids", "mask", "labels")
    signature = (*renamed(), dataclasses.replace(IDS, name="input"))
    expected = {"input.1": "image", "onnx::Gather_1": "ids", "input": "labels"}

    for inputs in ({"labels": SOME_IDS, "ids": SOME_IDS, "image": ONE}, (ONE, SOME_IDS, None, SOME_IDS)):
        assert resolve(inputs, *signature, call=call, required=("image",)).pairs == expected
    refused(InputPairingError, None, *signature, call=call, required=("image",))


def test_an_input_between_two_known_ones_is_the_one_between_them():
    feeds = resolve(
        None, sig("a", "float32", 1), IMAGE, sig("z", "float32", 1), call=("x", "image", "y", "z"), required=()
    )

    assert feeds.pairs == {"a": "x", "image": "image", "z": "z"}


def test_none_in_a_tuple_leaves_an_optional_parameter_out():
    feeds = resolve((ONE, None, SOME_IDS), IMAGE, IDS, call=("image", "mask", "ids"), required=("image",))

    assert list(feeds.reference) == ["image", "ids"]


# --- narrower floats


HALF = sig("x", "float16", 2)
WEIGHTS = {"w": np.ones(1, np.float32)}


def test_a_float16_copy_of_a_float32_module_gets_rounded_feeds_and_says_so():
    feeds = resolve(np.array([0.1, 1], np.float32), HALF, parameters=WEIGHTS)

    assert feeds.arrays["x"].dtype == np.float16
    assert feeds.reference["x"].dtype == np.float32
    np.testing.assert_array_equal(feeds.reference["x"], feeds.arrays["x"].astype(np.float32))
    assert feeds.notes == (
        "the input 'x' was rounded from float32 to the file's float16; both sides get the rounded numbers",
    )


def test_a_float16_feed_reaches_a_float32_module_exactly():
    feeds = resolve(np.array([0.1, 1], np.float16), HALF, parameters=WEIGHTS)

    assert feeds.reference["x"].dtype == np.float32
    assert feeds.notes == ()


def test_no_other_float_is_rounded():
    refused(FeedDtypeError, np.ones(2, np.float64), HALF, parameters=WEIGHTS)
    refused(FeedDtypeError, np.ones(2, np.float32), HALF)
    refused(FeedDtypeError, np.ones(2, np.float16), sig("x", "float32", 2), parameters=WEIGHTS)


# --- what may be wrong


def test_missing_and_misnamed_inputs_are_told_apart():
    assert refused(FeedNamesError, {"imgae": ONE}, IMAGE, IDS) == (
        "the feeds do not name the model's inputs\n"
        "  where:    caller\n"
        "  expected: one array for each of 'image', 'ids'\n"
        "  got:      missing 'image', 'ids'; unknown 'imgae'\n"
        "  next:     rename 'imgae' to 'image'"
    )
    assert "next:     add 'ids' to the feeds" in refused(FeedNamesError, {"image": ONE}, IMAGE, IDS)
    assert "next:     remove 'extra'" in refused(FeedNamesError, {"image": ONE, "extra": ONE}, IMAGE)
    assert "rename 'pixels' to 'image'" in refused(FeedNamesError, {"pixels": ONE}, IMAGE)


def test_a_tuple_of_another_length_is_refused():
    assert "got:      3\n" in refused(FeedCountError, (ONE, ONE, ONE), IMAGE, IDS)
    assert "2 in this order: 'image', 'ids'" in refused(FeedCountError, ONE, IMAGE, IDS)


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        ((3, 4, 4), "3 axes, and the file has 4"),
        ((1, 1, 4, 4), "axis 1 has length 1, and the file fixes 3"),
        ((1, 3, 4, 5), "axis 3 (side) has length 5, and axis 2 of 'image' has 4"),
    ],
)
def test_a_wrong_shape_is_told_with_both_shapes(shape, problem):
    text = refused(FeedShapeError, np.ones(shape, np.float32), IMAGE)

    assert text.startswith(f"the input 'image' has the wrong shape: {problem}\n")
    assert "expected: float32[batch, 3, side, side]" in text
    assert f"got:      float32[{', '.join(map(str, shape))}]" in text


def test_one_symbol_has_one_length_across_inputs():
    text = refused(FeedShapeError, (ONE, np.ones((2, 5), np.int64)), IMAGE, IDS)

    assert "axis 0 (batch) has length 2, and axis 0 of 'image' has 1" in text


@pytest.mark.parametrize("dtype", ["float64", "int32", "bool"])
def test_nothing_is_cast_silently(dtype):
    text = refused(FeedDtypeError, np.ones((1, 5), dtype), IDS)

    assert f"expected: int64\n  got:      {dtype}\n" in text
    assert "array.astype('int64')" in text


def test_an_empty_input_is_refused_with_its_axis():
    text = refused(EmptyFeedError, np.ones((0, 3, 4, 4), np.float32), IMAGE)

    assert "got:      shape (0, 3, 4, 4): axis 0 has length 0" in text


def test_an_empty_cache_beside_full_inputs_is_allowed():
    cache = sig("cache", "float32", "batch", 2, "past", 4)

    feeds = resolve({"ids": SOME_IDS, "cache": np.ones((1, 2, 0, 4), np.float32)}, IDS, cache)

    assert feeds.arrays["cache"].shape == (1, 2, 0, 4)
    refused(EmptyFeedError, np.ones((1, 2, 0, 4), np.float32), cache)


def test_an_npz_that_needs_pickle_is_refused(tmp_path):
    np.savez(tmp_path / "feeds.npz", image=np.array([{}, None]))
    np.save(tmp_path / "feeds.npy", np.array([{}, None]))
    torch.save({"image": Path()}, tmp_path / "feeds.pt")

    assert "'image' is an array of Python objects" in refused(FeedsNeedPickleError, tmp_path / "feeds.npz", IMAGE)
    refused(FeedsNeedPickleError, tmp_path / "feeds.npy", IMAGE)
    refused(FeedsNeedPickleError, tmp_path / "feeds.pt", IMAGE)
    refused(FeedsNeedPickleError, np.array([{}, None]), IMAGE)


@pytest.mark.parametrize("name", ["feeds.npz", "feeds.npy", "feeds.pt"])
@pytest.mark.parametrize("content", [b"", b"no array at all"])
def test_a_file_of_something_else_is_unreadable(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)

    refused(FeedsUnreadableError, tmp_path / name, IMAGE)


def test_a_file_cut_short_is_unreadable(tmp_path):
    for path in (as_npz(tmp_path), as_torch_dict(tmp_path)):
        path.write_bytes(path.read_bytes()[:400])
        refused(FeedsUnreadableError, path, IMAGE, IDS)
    np.save(tmp_path / "feeds.npy", ONE)
    (tmp_path / "feeds.npy").write_bytes((tmp_path / "feeds.npy").read_bytes()[:150])
    refused(FeedsUnreadableError, tmp_path / "feeds.npy", IMAGE)


def test_a_damaged_or_incomplete_folder_is_unreadable(tmp_path):
    folder = as_folder(tmp_path)
    assert f"give the data set in it: {folder}" in refused(FeedsFormatError, tmp_path, IMAGE, IDS)
    (folder / "input_0.pb").unlink()
    assert "input_0.pb is missing" in refused(FeedsUnreadableError, folder, IMAGE, IDS)
    (folder / "input_0.pb").write_bytes(b"\xff\xff\xff")
    refused(FeedsUnreadableError, folder, IMAGE, IDS)


@pytest.mark.parametrize("inputs", [object(), [object()], {"image": "text"}, torch.ones(1).to_sparse()])
def test_other_objects_are_no_feeds(inputs):
    refused(FeedsFormatError, inputs, IMAGE)


def test_files_of_other_kinds_are_no_feeds(tmp_path):
    (tmp_path / "feeds.csv").write_text("1,2")

    refused(FeedsNotFoundError, tmp_path / "nothing.npz", IMAGE)
    refused(FeedsFormatError, tmp_path / "feeds.csv", IMAGE)


# --- a recording, a factory's examples


def test_a_recording_brings_its_inputs(tmp_path):
    np.savez(tmp_path / "values.npz", image=ONE, conv=ONE)

    for inputs in (None, tmp_path / "values.npz"):
        feeds = resolve(inputs, IMAGE, recording=tmp_path / "values.npz")
        assert list(feeds.arrays) == ["image"]


def test_a_recording_without_its_inputs_is_never_held_against_random_ones(tmp_path):
    np.savez(tmp_path / "values.npz", conv=ONE)

    with pytest.raises(RecordingError, match="no array for 'image'"):
        resolve(None, IMAGE, recording=tmp_path / "values.npz")


def test_a_factorys_examples_are_used_unless_inputs_or_shapes_are_given():
    assert resolve(None, IMAGE, example=torch.ones(1, 3, 4, 4)).rows[0].source == "factory"
    assert resolve(ONE, IMAGE, example=torch.ones(1, 3, 2, 2)).rows[0].source == "caller"
    drawn = resolve(None, IMAGE, example=torch.ones(1, 3, 4, 4), shapes={"image": (2, 3, 8, 8)})
    assert (drawn.rows[0].source, drawn.rows[0].shape) == ("random (seed 0)", (2, 3, 8, 8))


# --- random inputs


def test_random_inputs_repeat_with_their_seed_and_say_so():
    first, again, other = (resolve(None, IMAGE, IDS, seed=seed) for seed in (3, 3, 4))

    np.testing.assert_array_equal(first.arrays["image"], again.arrays["image"])
    assert not np.array_equal(first.arrays["image"], other.arrays["image"])
    assert first.rows[0].source == "random (seed 3)"


def test_axes_get_their_lengths_from_their_names():
    feeds = resolve(None, IMAGE, IDS, sig("past", "float32", "batch", 2, "seq", 4), sig("v", "float32", None))

    assert [row.shape for row in feeds.rows] == [(1, 3, 64, 64), (1, 8), (1, 2, 8, 4), (8,)]


def test_shapes_are_overridden_by_name_and_symbols_follow():
    feeds = resolve(None, IMAGE, IDS, shapes={"ids": (2, 7)})

    assert [row.shape for row in feeds.rows] == [(2, 3, 64, 64), (2, 7)]


@pytest.mark.parametrize(
    ("shapes", "kind"),
    [
        ({"imgae": (1, 3, 4, 4)}, ShapeOptionError),
        ({"image": (1, 3, 4)}, ShapeOptionError),
        ({"image": (1, 1, 4, 4)}, ShapeOptionError),
        ({"image": (1, 3, 4, 5)}, ShapeOptionError),
        ({"image": (2, 3, 4, 4), "ids": (1, 5)}, ShapeOptionError),
        ({"image": (0, 3, 4, 4)}, EmptyFeedError),
    ],
)
def test_shapes_that_contradict_the_signature_are_refused(shapes, kind):
    refused(kind, None, IMAGE, IDS, shapes=shapes)


def test_shapes_beside_feeds_are_refused():
    assert "feeds, which have shapes of their own" in refused(
        ShapeOptionError, ONE, IMAGE, shapes={"image": (1, 3, 4, 4)}
    )


@pytest.mark.parametrize(
    "signature", [sig("x", None), sig("x", "string", 2), InputSignature(name="x", dtype="float32", dims=None)]
)
def test_what_cannot_be_drawn_is_said(signature):
    refused(RandomFeedError, None, signature)


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        (sig("attention_mask", "int64", 1, 4), [[1, 1, 1, 1]]),
        (sig("padding_mask", "bool", 1, 2), [[True, True]]),
        (sig("position_ids", "int64", 2, 3), [[0, 1, 2], [0, 1, 2]]),
    ],
)
def test_masks_are_ones_and_positions_count(signature, expected):
    (array,) = resolve(None, signature).arrays.values()

    assert array.tolist() == expected


def test_the_reference_s_names_tell_what_the_file_s_do_not():
    mask, where = sig("input", "int64", 1, 3), sig("input.3", "int64", 1, 3)

    feeds = resolve(None, mask, where, call=("attention_mask", "position_ids"))

    assert [array.tolist() for array in feeds.arrays.values()] == [[[1, 1, 1]], [[0, 1, 2]]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16", "int8", "uint8", "int32", "complex64"])
def test_each_dtype_can_be_drawn(dtype):
    (array,) = resolve(None, sig("x", dtype, 64)).arrays.values()

    assert str(array.dtype) == dtype
    assert len(np.unique(array.astype(np.complex128))) > 1


def gather(data: str, index: str, output: str, *, axis: int = 0) -> Node:
    return Node(index=0, name="g", op_type="Gather", inputs=(data, index), outputs=(output,), attributes={"axis": axis})


def op(op_type: str, inputs: tuple[str, ...], output: str, **more: Any) -> Node:
    return Node(index=0, name=op_type, op_type=op_type, inputs=inputs, outputs=(output,), **more)


def graph(*nodes: Node, functions: tuple[Graph, ...] = (), **tables: tuple[int | None, ...]) -> Graph:
    values = {name: Value(name=name, kind=ValueKind.PARAMETER, shape=shape) for name, shape in tables.items()}
    return Graph(name="g", inputs=("ids",), outputs=(), nodes=nodes, values=values, functions=functions)


def test_indices_stay_within_the_smallest_table_they_reach():
    where = op("Where", ("c", "b", "a"), "e")
    net = graph(
        op("Cast", ("ids",), "a"),
        op("Unsqueeze", ("a", "axes"), "b"),
        where,
        gather("words", "e", "out"),
        gather("types", "ids", "out2", axis=1),
        words=(100, 8),
        types=(8, 3),
    )

    assert index_limit(net, "ids") == 3
    assert index_limit(net, "other") is None
    (drawn,) = resolve(None, sig("ids", "int64", 1, 400), graph=net).arrays.values()
    assert sorted(np.unique(drawn)) == [0, 1, 2]


def test_an_axis_of_unknown_length_allows_index_zero_alone():
    assert index_limit(graph(gather("hidden", "ids", "out"), hidden=(None, 4)), "ids") == 1
    assert index_limit(graph(gather("unknown", "ids", "out")), "ids") == 1


def test_indices_are_followed_into_bodies_and_functions():
    body = graph(gather("table", "ids", "out"), table=(5, 2))
    branch = graph(op("If", ("c",), "out", subgraphs=(body,)))
    function = Graph(
        name="my:Embed",
        inputs=("tokens", "weight"),
        outputs=("same",),
        nodes=(op("Identity", ("tokens",), "same"),),
        values={},
    )
    calling = graph(
        op("Embed", ("ids", "w"), "passed", domain="my"),
        gather("table", "passed", "out"),
        functions=(function,),
        table=(6, 2),
    )

    assert index_limit(branch, "ids") == 5
    assert index_limit(calling, "ids") == 6


# --- reading the signature


def test_the_signature_keeps_symbols_and_leaves_defaults_out():
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Identity", ["x"], ["y"])],
            "g",
            [
                helper.make_tensor_value_info("x", TensorProto.BFLOAT16, ["batch", None, 3, 0]),
                helper.make_tensor_value_info("text", TensorProto.STRING, []),
                helper.make_tensor_value_info("w", TensorProto.FLOAT, [1]),
                helper.make_tensor_sequence_value_info("list", TensorProto.FLOAT, [1]),
                onnx.ValueInfoProto(name="loose", type=helper.make_tensor_type_proto(TensorProto.INT64, None)),
            ],
            [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, None)],
            [helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])],
        )
    )

    assert [str(declared) for declared in read_signature(model)] == [
        "bfloat16[batch, ?, 3, ?]",
        "string[]",
        "unknown of any rank",
        "int64 of any rank",
    ]


GEMM = sig("onnx::Gemm_1", "float32", 1, 3, 4, 4)


@pytest.mark.parametrize("inputs", [{"a": ONE, "b": ONE + 1}, (ONE, ONE + 1)], ids=["by name", "in order"])
def test_the_number_in_a_traced_name_tells_which_input_the_file_kept(inputs):
    feeds = resolve(inputs, GEMM, call=("a", "b"), required=("a", "b"))

    assert feeds.pairs == {"onnx::Gemm_1": "b"}
    assert np.array_equal(feeds.arrays["onnx::Gemm_1"], ONE + 1)
    assert np.array_equal(feeds.reference["a"], ONE)
    assert feeds.notes == ("the candidate's input 'onnx::Gemm_1' is fed what the reference takes as 'b'",)


def test_numbers_that_contradict_the_call_tell_nothing():
    other = dataclasses.replace(GEMM, name="onnx::Gemm_7")

    refused(InputPairingError, {"a": ONE, "b": ONE}, other, call=("a", "b"), required=("a", "b"))


def test_a_value_under_the_file_s_name_and_one_under_the_reference_s_are_two():
    feeds = resolve({"onnx::Gemm_1": ONE, "a": ONE + 1}, GEMM, call=("a", "b"), required=("a", "b"))

    assert feeds.pairs == {"onnx::Gemm_1": "b"}
    assert np.array_equal(feeds.reference["a"], ONE + 1)


@pytest.mark.parametrize(
    ("inputs", "place"),
    [
        ([[1.0, 2.0], [3.0, 4.0]], "caller[0]"),
        (([1.0, 2.0],), "caller[0]"),
        ({"image": [[1.0], [2.0]]}, "caller, 'image'[0]"),
        ([1.0, 2.0], "caller"),
    ],
)
def test_lists_of_numbers_are_no_arrays(inputs, place):
    assert refused(FeedsFormatError, inputs, IMAGE) == (
        "the feeds are of a kind that cannot be read\n"
        f"  where:    {place}\n"
        "  expected: an .npz with one array per input, an .npy for a one-input model, a .pt of tensors, or a folder "
        "of input_0.pb, input_1.pb, ...; in Python a mapping, a tuple or one tensor or array\n"
        "  got:      a list of Python numbers, and no array or tensor anywhere\n"
        "  next:     make arrays first, e.g. np.asarray(rows, dtype=np.float32)"
    )
