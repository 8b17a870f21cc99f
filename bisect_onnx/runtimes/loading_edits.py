"""Edits that let the runtime load a model that it refuses; each names the nodes that it is about.

Every edit keeps the nodes of the file in their places, so that what is found in the cured copy holds for the file.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["LoadingEdit", "cure"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class LoadingEdit:
    """One kind of fault, mended everywhere at once: the runtime tells of one place at a time."""

    code: str
    name: str
    cause: str
    nodes: tuple[int, ...]  # positions in the main graph; none where the fault is the file's as a whole
    fault: str
    edit: str
    remedy: str


def cure(model: onnx.ModelProto, *, detail: str) -> list[LoadingEdit]:
    """Edit ``model`` in place; ``detail`` is what the runtime said of it."""
    found = (attempt(model, detail) for attempt in _ATTEMPTS)
    return [edit for edit in found if edit is not None]


_MAX_IR: Final = re.compile(r"max supported IR version: (\d+)")


def _older_ir_version(model: onnx.ModelProto, detail: str) -> LoadingEdit | None:
    told = _MAX_IR.search(detail)
    if told is None or model.ir_version <= int(told.group(1)):
        return None
    before, model.ir_version = model.ir_version, int(told.group(1))
    return LoadingEdit(
        code="LD003",
        name="ir-version-too-new",
        cause="K23",
        nodes=(),
        fault=f"the file is of IR version {before}, and this runtime reads versions up to {model.ir_version}",
        edit=f"ir_version {before} becomes {model.ir_version}",
        remedy=f"Set model.ir_version = {model.ir_version} and save the file again, or install a newer ONNX Runtime.",
    )


# The name that some tools give the operator that the runtime calls QuickGelu with alpha 1.
_SILU: Final = ("com.microsoft", "Silu")


def _silu(model: onnx.ModelProto, _: str) -> LoadingEdit | None:
    """A function of that name, in the place of an operator that no runtime has."""
    domain, kind = _SILU
    nodes = tuple(place for place, node in enumerate(model.graph.node) if (node.domain, node.op_type) == _SILU)
    if not nodes or any((function.domain, function.name) == _SILU for function in model.functions):
        return None
    opset = next((entry for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None)
    body = [helper.make_node("Sigmoid", ["X"], ["gate"]), helper.make_node("Mul", ["X", "gate"], ["Y"])]
    imports = [helper.make_opsetid("", opset.version if opset is not None else 1)]
    model.functions.append(helper.make_function(domain, kind, ["X"], ["Y"], body, imports))
    if all(entry.domain != domain for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid(domain, 1))
    return LoadingEdit(
        code="LD001",
        name="unknown-operator",
        cause="K23",
        nodes=nodes,
        fault=f"the runtime has no operator {kind} in the domain {domain}",
        edit="each becomes Sigmoid and Mul",
        remedy="Replace each by Sigmoid and Mul, or by com.microsoft:QuickGelu with alpha 1.",
    )


def _double_constants(model: onnx.ModelProto, _: str) -> LoadingEdit | None:
    """Float64 initializers and constants that stand beside float32 where one type is asked for."""
    guilty: dict[int, None] = {}
    retyped: dict[str, None] = {}
    while True:  # types behind a mended node are known only then; each round retypes at least one tensor
        found = list(_beside_float32(model))
        if not found:
            break
        for place, name, tensor in found:
            guilty[place] = None
            retyped[name] = None
            if tensor.data_type == TensorProto.DOUBLE:
                tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
        declared = [value for value in model.graph.value_info if value.name in retyped]
        for value in declared:
            model.graph.value_info.remove(value)
    if not guilty:
        return None
    return LoadingEdit(
        code="LD002",
        name="float64-constant-beside-float32",
        cause="K18",
        nodes=tuple(sorted(guilty)),
        fault=f"{', '.join(repr(name) for name in retyped)} {'is' if len(retyped) == 1 else 'are'} float64 where the "
        "other inputs are float32",
        edit=f"{', '.join(retyped)} as float32",
        remedy="Make these constants float32 before the export, for instance with torch.tensor(..., dtype=x.dtype).",
    )


def _beside_float32(model: onnx.ModelProto) -> Iterator[tuple[int, str, TensorProto]]:
    tensors = _stored(model.graph)
    kinds = _element_types(model)
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    for place, node in enumerate(model.graph.node):
        for group in _same_type(node, opsets):
            names = [name for name in group if name]
            if any(kinds.get(name) == TensorProto.FLOAT for name in names):
                doubles = [name for name in names if name in tensors and kinds.get(name) == TensorProto.DOUBLE]
                yield from ((place, name, tensors[name]) for name in doubles)


def _stored(graph: onnx.GraphProto) -> dict[str, TensorProto]:
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            tensors = [each.t for each in node.attribute if each.type == onnx.AttributeProto.TENSOR]
            found.update(zip(node.output, tensors, strict=False))
    return found


def _element_types(model: onnx.ModelProto) -> dict[str, int]:
    """As far as inference tells; what is stored is as it is."""
    graph = model.graph
    try:
        graph = onnx.shape_inference.infer_shapes(model, strict_mode=False).graph
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        graph = model.graph  # fewer types are known
    values = (*graph.value_info, *graph.input)
    found = {value.name: value.type.tensor_type.elem_type for value in values}
    return {**found, **{name: tensor.data_type for name, tensor in _stored(model.graph).items()}}


def _same_type(node: onnx.NodeProto, opsets: Mapping[str, int]) -> Iterator[list[str]]:
    """Inputs that must be of one type, by the operator's schema."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
    except onnx.defs.SchemaError:
        return
    groups: dict[str, list[str]] = {}
    for position, name in enumerate(node.input):
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        groups.setdefault(formal.type_str, []).append(name)
    yield from groups.values()


_ATTEMPTS: Final[tuple[Callable[[onnx.ModelProto, str], LoadingEdit | None], ...]] = (
    _older_ir_version,
    _silu,
    _double_constants,
)
