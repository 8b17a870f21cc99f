"""An ONNX file becomes a graph: names, kinds, types, bodies, functions; nothing runs, no weight is copied."""

import mmap
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from bisect_onnx.core.graph import PathStep, ValueKind
from bisect_onnx.errors import ExternalDataError, ModelNotFoundError, NotAnOnnxFileError
from bisect_onnx.readers.onnx_file import read
from bisect_onnx.readers.onnx_kinds import shape_arithmetic
from tests.onnx_models import Array, branching_net, mixed_net, random, save, tensor, value, with_external_data


def test_a_nameless_node_is_called_by_its_index_and_operator(tmp_path: Path) -> None:
    graph = read(mixed_net(tmp_path / "m.onnx")).graph

    assert [node.name for node in graph.nodes][:5] == ["stem", "relu", "#2:Constant", "#3:Reshape", "#4:Transpose"]
    assert [node.index for node in graph.nodes] == list(range(19))


def test_inputs_weights_constants_and_activations_are_told_apart(tmp_path: Path) -> None:
    graph = read(mixed_net(tmp_path / "m.onnx")).graph

    kinds = {name: graph.kind(name) for name in ("x", "stem.weight", "flat_shape", "scale", "stem")}
    assert kinds == {
        "x": ValueKind.INPUT,
        "stem.weight": ValueKind.PARAMETER,
        "flat_shape": ValueKind.CONSTANT,
        "scale": ValueKind.PARAMETER,
        "stem": ValueKind.ACTIVATION,
    }


def test_types_are_inferred_where_the_file_has_none(tmp_path: Path) -> None:
    graph = read(mixed_net(tmp_path / "m.onnx")).graph

    assert (graph.values["scores"].dtype, graph.values["scores"].shape) == ("float32", (1, 64, 64))
    assert (graph.values["q.weight"].dtype, graph.values["q.weight"].shape) == ("float32", (16, 32))


def test_an_input_that_an_initializer_fills_is_no_input(tmp_path: Path) -> None:
    node = helper.make_node("Add", ["x", "w"], ["y"])
    path = save(
        tmp_path / "m.onnx",
        [node],
        inputs=[value("x", [2]), value("w", [2])],
        outputs=["y"],
        weights={"w": random((2,))},
    )

    graph = read(path).graph

    assert graph.inputs == ("x",)
    assert graph.kind("w") is ValueKind.PARAMETER


def test_a_weight_seen_through_transpose_is_a_weight_and_a_product_of_weights_is_a_constant(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Identity", ["w"], ["same"]),
        helper.make_node("Transpose", ["same"], ["turned"]),
        helper.make_node("Mul", ["turned", "w"], ["product"]),
        helper.make_node("Add", ["x", "product"], ["y"]),
    ]
    path = save(tmp_path / "m.onnx", nodes, inputs=[value("x", [2, 2])], outputs=["y"], weights={"w": random((2, 2))})

    graph = read(path).graph

    assert [graph.kind(name) for name in ("same", "turned", "product", "y")] == [
        ValueKind.PARAMETER,
        ValueKind.PARAMETER,
        ValueKind.CONSTANT,
        ValueKind.ACTIVATION,
    ]


def test_what_is_computed_from_the_shape_of_an_activation_is_shape_arithmetic(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Shape", ["r"], ["size"]),
        helper.make_node("Mul", ["size", "two"], ["twice"]),
        helper.make_node("Mul", ["two", "two"], ["four"]),
        helper.make_node("ConstantOfShape", ["twice"], ["zeros"]),
        helper.make_node("Shape", ["four"], ["fixed"]),
        helper.make_node("Tile", ["r", "two"], ["y"]),
    ]
    weights = {"two": np.array([2], dtype=np.int64)}
    path = save(
        tmp_path / "m.onnx", nodes, inputs=[value("x", ["n"])], outputs=["y", "zeros", "fixed"], weights=weights
    )

    graph = read(path).graph

    assert shape_arithmetic(graph) == {"size", "twice", "zeros"}
    assert {graph.kind(name) for name in ("size", "twice", "zeros", "four", "fixed")} == {ValueKind.CONSTANT}
    assert graph.kind("y") is ValueKind.ACTIVATION


def test_random_numbers_and_unknown_operators_are_never_constants(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("RandomNormal", [], ["noise"], shape=[2]),
        helper.make_node("Mystery", ["w"], ["secret"], domain="my.domain"),
        helper.make_node("Add", ["noise", "secret"], ["y"]),
    ]
    path = save(tmp_path / "m.onnx", nodes, inputs=[], outputs=["y"], weights={"w": random((2,))})

    graph = read(path).graph

    assert list(graph.activations()) == ["noise", "secret", "y"]


def test_bodies_are_graphs_with_the_path_to_them_and_know_what_they_read_from_outside(tmp_path: Path) -> None:
    graph = read(branching_net(tmp_path / "m.onnx")).graph

    choose, repeat = graph.nodes[1], graph.nodes[2]
    assert [body.name for body in choose.subgraphs] == ["else_branch", "then_branch"]
    assert choose.subgraphs[1].nodes[0].path == (PathStep(node="choose", index=1, graph="then_branch"),)
    assert [node.name for node in repeat.subgraphs[0].nodes] == ["#0:Identity", "#1:Add", "#2:Identity"]
    assert repeat.subgraphs[0].inputs == ("step", "keep_going", "carried")
    assert graph.consumers("doubled") == (choose, repeat)
    assert graph.consumers("w") == (choose,)
    assert "doubled" not in choose.subgraphs[1].values


def test_functions_are_graphs_of_their_own(tmp_path: Path) -> None:
    graph = read(function_net(tmp_path / "m.onnx")).graph

    (function,) = graph.functions
    assert (function.name, function.inputs, function.outputs) == ("my.domain:Swish", ("a",), ("b",))
    assert [node.op_type for node in function.nodes] == ["Sigmoid", "Mul"]


def function_net(path: Path) -> Path:
    function = helper.make_function(
        "my.domain",
        "Swish",
        ["a"],
        ["b"],
        [helper.make_node("Sigmoid", ["a"], ["s"]), helper.make_node("Mul", ["a", "s"], ["b"])],
        [helper.make_opsetid("", 18)],
    )
    node = helper.make_node("Swish", ["x"], ["y"], domain="my.domain")
    return save(path, [node], inputs=[value("x", [2])], outputs=["y"], functions=[function])


def test_nodes_out_of_order_are_put_in_order_and_keep_their_index(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Exp", ["b"], ["y"], name="last"),
        helper.make_node("Neg", ["a"], ["b"], name="middle"),
        helper.make_node("Relu", ["x"], ["a"], name="first"),
    ]
    path = save(tmp_path / "m.onnx", nodes, inputs=[value("x", [2])], outputs=["y"])

    graph = read(path).graph

    assert [(node.name, node.index) for node in graph.nodes] == [("first", 2), ("middle", 1), ("last", 0)]


def test_attributes_are_plain_data_and_large_tensors_a_description(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["small"], value=tensor("", np.array([[1, 2], [3, 4]], dtype=np.int64))),
        helper.make_node("Constant", [], ["large"], value=tensor("", np.zeros((13, 5), dtype=np.float16))),
        helper.make_node("Elu", ["x"], ["e"], alpha=0.1),
        helper.make_node("Opaque", ["e"], ["y"], domain="my.domain", blob=b"\xff\xfe", words=["a", "b"], sizes=[1, 2]),
    ]
    path = save(tmp_path / "m.onnx", nodes, inputs=[value("x", [2])], outputs=["y", "small", "large"])

    attributes = [dict(node.attributes) for node in read(path).graph.nodes]

    assert attributes == [
        {"value": ((1, 2), (3, 4))},
        {"value": "float16[13, 5]"},
        {"alpha": 0.1},
        {"blob": "��", "words": ("a", "b"), "sizes": (1, 2)},
    ]


def test_every_form_of_constant_is_readable(tmp_path: Path) -> None:
    forms: dict[str, Any] = {
        "value_int": 3,
        "value_ints": [1, 2],
        "value_float": 0.5,
        "value_floats": [0.5, 1.5],
        "value_string": "a",
    }
    nodes = [helper.make_node("Constant", [], [form], **{form: content}) for form, content in forms.items()]
    sparse = helper.make_sparse_tensor(
        tensor("v", np.array([5.0], dtype=np.float32)), tensor("i", np.array([2], dtype=np.int64)), [4]
    )
    nodes.append(helper.make_node("Constant", [], ["sparse_value"], sparse_value=sparse))
    path = save(tmp_path / "m.onnx", nodes, inputs=[], outputs=list(forms))

    arrays = read(path).initializers

    assert {name: arrays[name].tolist() for name in arrays} == {**forms, "sparse_value": [0.0, 0.0, 5.0, 0.0]}


def test_external_weights_are_mapped_and_not_copied(tmp_path: Path) -> None:
    inline = read(mixed_net(tmp_path / "inline.onnx"))
    file = read(with_external_data(tmp_path / "m.onnx", source=inline.path, threshold=0))

    weight = file.initializers["q.weight"]

    assert isinstance(owner(weight), mmap.mmap)
    assert not weight.flags.writeable
    assert {name: array.tolist() for name, array in file.initializers.items()} == {
        name: array.tolist() for name, array in inline.initializers.items()
    }


def owner(array: Array) -> object:
    """What holds the memory that ``array`` looks at."""
    held: object = array
    while isinstance(held, np.ndarray) and held.base is not None:
        held = held.base
    return held


def test_a_slim_model_holds_no_large_tensor(tmp_path: Path) -> None:
    file = read(mixed_net(tmp_path / "m.onnx"))

    assert file.proto.ByteSize() > 6_000
    assert file.slim.proto.ByteSize() < 3_500
    assert [tensor.name for _, tensor in file.slim.inline] == ["stem.weight", "q.weight", "k.weight"]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4])
def test_types_that_numpy_lacks_are_read_inline_and_external(tmp_path: Path, dtype: type) -> None:
    array: Array = np.arange(-4, 3).astype(dtype)
    node = helper.make_node("Identity", ["w"], ["y"])
    path = save(tmp_path / "m.onnx", [node], inputs=[], outputs=["y"], weights={"w": array}, opset=21)

    inline = read(path).initializers["w"]
    external = read(with_external_data(tmp_path / "e.onnx", source=path, threshold=0)).initializers["w"]

    assert inline.dtype == external.dtype == np.dtype(dtype)
    assert inline.tolist() == external.tolist() == array.tolist()


def test_opsets_and_producer_are_kept(tmp_path: Path) -> None:
    model = onnx.load(mixed_net(tmp_path / "m.onnx"))
    model.producer_name, model.producer_version = "pytorch", "2.13.0"
    model.opset_import.add(domain="com.microsoft", version=1)
    onnx.save(model, tmp_path / "m.onnx")

    file = read(tmp_path / "m.onnx")

    assert file.producer == "pytorch 2.13.0"
    assert file.opsets == {"": 18, "com.microsoft": 1}


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError) as missing:
        read(tmp_path / "m.onnx")
    with pytest.raises(ModelNotFoundError) as folder:
        read(tmp_path)

    assert str(missing.value) == (
        "the model 'm.onnx' does not exist\n"
        f"  where:    {tmp_path}/m.onnx\n"
        "  expected: an ONNX file\n"
        "  got:      no such file\n"
        "  next:     check the path"
    )
    assert "got:      a folder" in str(folder.value)


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (b"", "an empty file"),
        (b"PK\x03\x04 and more", "a zip archive, as torch.save and torch.export.save write"),
        (b"\x80\x02}q\x00.", "a Python pickle, as old torch.save writes"),
        (b"version https://git-lfs.github.com/spec/v1", "a Git LFS pointer, not the model"),
        (b"\x24\x00\x00\x00ORTM12345", "an ORT-format model"),
        (b"hello world, hello", "18 bytes that do not parse (cut short, or another format)"),
        (onnx.ModelProto(ir_version=9).SerializeToString(), "a message without a graph that has outputs"),
    ],
)
def test_what_is_no_onnx_model_is_named(tmp_path: Path, content: bytes, got: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)

    with pytest.raises(NotAnOnnxFileError) as caught:
        read(path)

    assert f"  got:      {got}\n" in str(caught.value)


def test_a_model_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    whole = mixed_net(tmp_path / "whole.onnx").read_bytes()
    path = tmp_path / "m.onnx"

    for kept in [*range(1, 200, 7), len(whole) // 2, len(whole) - 9, len(whole) - 1]:
        path.write_bytes(whole[:kept])
        with pytest.raises(NotAnOnnxFileError):
            read(path)


def test_an_element_type_that_does_not_exist_is_named(tmp_path: Path) -> None:
    model = onnx.load(mixed_net(tmp_path / "m.onnx"))
    model.graph.initializer[0].data_type = 99
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())

    with pytest.raises(NotAnOnnxFileError) as caught:
        read(tmp_path / "m.onnx")

    assert "got:      element type 99 in tensor 'stem.weight'" in str(caught.value)


def test_a_weights_file_that_is_missing_or_too_short_is_named(tmp_path: Path) -> None:
    path = with_external_data(tmp_path / "m.onnx", source=mixed_net(tmp_path / "inline.onnx"), threshold=1024)
    data = tmp_path / "m.onnx.data"
    content = data.read_bytes()

    data.write_bytes(content[:100])
    with pytest.raises(ExternalDataError) as short:
        read(path)
    data.unlink()
    with pytest.raises(ExternalDataError) as missing:
        read(path)

    assert str(short.value) == (
        "the weights file 'm.onnx.data' of 'm.onnx' cannot serve tensor 'stem.weight'\n"
        f"  where:    {data}\n"
        "  expected: at least 1728 bytes\n"
        "  got:      the file has 100 bytes\n"
        "  next:     copy the weights file again, beside the model and under this name"
    )
    assert "got:      the file does not exist" in str(missing.value)


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", ""])
def test_weights_outside_the_models_folder_are_not_read(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(4096))
    (tmp_path / "inner").mkdir()
    external = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    external.external_data.add(key="location", value=location)
    path = save(tmp_path / "inner" / "m.onnx", [], inputs=[], outputs=["w"])
    model = onnx.load(path)
    model.graph.initializer.append(external)
    path.write_bytes(model.SerializeToString())

    with pytest.raises(ExternalDataError) as caught:
        read(path)

    assert f"got:      the location {location!r}, which does not lie in the model's folder" in str(caught.value)
