"""The torch origin of a node, from metadata of the new exporter and from names of the old one."""

from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest
import torch
from onnx import helper
from torch import nn

from bisect_onnx.core.graph import Source
from bisect_onnx.readers.onnx_file import read
from bisect_onnx.readers.onnx_metadata import Origin, origin_of, scope_of_name

TORCH = str(Path(torch.__file__).parent)
TRACE = f"""File "/home/me/model.py", line 14, in forward
    for b in self.blocks: y = b(y)
  File "/home/me/blocks.py", line 7, in forward
    return self.act(x)
  File "{TORCH}/nn/modules/activation.py", line 475, in forward
    return F.silu(input, inplace=self.inplace)"""


def node_with(metadata: Mapping[str, str], *, name: str = "n", doc_string: str = "") -> onnx.NodeProto:
    node = helper.make_node("Mul", ["a", "b"], ["c"], name=name, doc_string=doc_string)
    for key, text in metadata.items():
        node.metadata_props.add(key=key, value=text)
    return node


def test_metadata_of_the_new_exporter_gives_everything() -> None:
    node = node_with(
        {
            "pkg.torch.onnx.name_scopes": "['', 'blocks.0', 'blocks.0.act', 'silu_1']",
            "pkg.torch.onnx.class_hierarchy": "['model.M', 'model.B', 'torch.nn.SiLU', 'aten.silu.default']",
            "pkg.torch.onnx.fx_node": "%silu_1 : [num_users=1] = call_function[target=torch.ops.aten.silu.default]"
            "(args = (%linear,), kwargs = {})",
            "pkg.torch.onnx.stack_trace": TRACE,
        }
    )

    assert origin_of(node) == Origin(
        module="blocks.0.act",
        module_class="torch.nn.SiLU",
        torch_op="aten.silu.default",
        fx_name="silu_1",
        source=Source(file="/home/me/blocks.py", line=7, code="return self.act(x)"),
    )


def test_a_node_of_the_root_module_has_the_empty_path() -> None:
    node = node_with(
        {"pkg.torch.onnx.name_scopes": "['', 'add']", "pkg.torch.onnx.class_hierarchy": "['M', 'aten.add.Tensor']"}
    )

    origin = origin_of(node)

    assert (origin.module, origin.module_class, origin.torch_op, origin.fx_name) == ("", "M", "aten.add.Tensor", "add")


def test_the_display_form_alone_still_tells_the_module() -> None:
    origin = origin_of(node_with({"namespace": ": model.M/act: torch.nn.SiLU/silu: aten.silu.default"}))

    assert (origin.module, origin.module_class, origin.torch_op, origin.fx_name) == (
        "act",
        "torch.nn.SiLU",
        "aten.silu.default",
        "silu",
    )


@pytest.mark.parametrize("text", ["", "[", "not a list", "3", "{'a': 1}"])
def test_damaged_metadata_is_the_same_as_none(text: str) -> None:
    keys = ("name_scopes", "class_hierarchy", "fx_node", "stack_trace")
    node = node_with({f"pkg.torch.onnx.{key}": text for key in keys})

    assert origin_of(node) == Origin()


def test_a_trace_inside_torch_alone_names_no_source() -> None:
    trace = f'File "{TORCH}/nn/modules/linear.py", line 134, in forward\n    return F.linear(input)'

    assert origin_of(node_with({"pkg.torch.onnx.stack_trace": trace})).source is None


def test_torch_on_another_machine_is_torch_too() -> None:
    trace = (
        'File "/srv/net.py", line 3, in forward\n    y = self.fc(x)\n'
        'File "/opt/py/lib/python3.12/site-packages/torch/nn/modules/linear.py", line 134, in forward\n    return 1\n'
        'File "<eval_with_key>.3", line 5, in forward\n    relu = 1'
    )

    assert origin_of(node_with({"pkg.torch.onnx.stack_trace": trace})).source == Source(
        file="/srv/net.py", line=3, code="y = self.fc(x)"
    )


def test_a_library_between_user_and_torch_is_the_innermost_frame() -> None:
    trace = (
        'File "/srv/net.py", line 3, in forward\n    y = self.bert(x)\n'
        'File "/opt/python3.12/site-packages/transformers/models/bert/modeling_bert.py", line 9, in forward\n    z = y'
    )

    found = origin_of(node_with({"pkg.torch.onnx.stack_trace": trace})).source

    assert found is not None
    assert found.file.endswith("modeling_bert.py")


def test_an_old_doc_string_gives_the_innermost_user_frame() -> None:
    doc = f"{TORCH}/nn/functional.py(2371): silu\n/home/me/model.py(12): forward\n/home/me/train.py(80): main\n"

    assert origin_of(node_with({}, doc_string=doc)).source == Source(file="/home/me/model.py", line=12)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("/Mul", ""),
        ("/act/Mul", "act"),
        ("/blocks.0/act/Mul", "blocks.0.act"),
        ("/blocks/blocks.0/act/Mul_output_0", "blocks.0.act"),
        ("/encoder/layer.0/attention/self/query/Mul_1", "encoder.layer.0.attention.self.query"),
        ("/seq/seq.1/seq.1.0/Mul_3_output_0", "seq.1.0"),
        ("/layer1/layer1.0/downsample/downsample.0/Mul", "layer1.0.downsample.0"),
        ("/mm.0.0/query/Mul", "mm.0.0.query"),
        ("/shared_1/Mul", "shared_1"),
        ("/act/Add", None),
        ("model/act/Mul", None),
        ("", None),
        ("/Multiply", None),
    ],
)
def test_scope_names_of_the_old_exporter_are_module_paths(name: str, module: str | None) -> None:
    assert scope_of_name(name, op_type="Mul") == module


def test_the_output_name_serves_where_the_node_name_was_stripped() -> None:
    node = helper.make_node("Mul", ["a", "b"], ["/blocks/blocks.0/act/Mul_output_0"])

    assert origin_of(node) == Origin(module="blocks.0.act")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.act = nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.act(self.fc(x))
        return result


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        result: torch.Tensor = self.head(x)
        return result


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the old exporter announces its end
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")  # torch calls its own old form
@pytest.mark.parametrize("dynamo", [True, False])
def test_files_of_both_exporters_tell_the_modules_of_their_nodes(tmp_path: Path, *, dynamo: bool) -> None:
    torch.onnx.export(Net().eval(), (torch.randn(2, 4),), tmp_path / "m.onnx", dynamo=dynamo, verbose=False)

    nodes = read(tmp_path / "m.onnx").graph.nodes

    assert [(node.op_type, node.module) for node in nodes if node.op_type in ("Sigmoid", "Tanh", "Add")] == [
        ("Sigmoid", "blocks.0.act"),
        ("Add", "blocks.0"),
        ("Sigmoid", "blocks.1.act"),
        ("Add", "blocks.1"),
        ("Tanh", "head.1"),
    ]
    if dynamo:
        (add,) = [node for node in nodes if node.op_type == "Add" and node.module == "blocks.1"]
        assert (add.module_class, add.torch_op, add.fx_name) == (
            f"{Block.__module__}.Block",
            "aten.add.Tensor",
            "add_1",
        )
        assert add.source is not None
        assert (add.source.file, add.source.code) == (__file__, "result: torch.Tensor = x + self.act(self.fc(x))")
