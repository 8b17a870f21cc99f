"""Recorded values as the reference: their names pair them, and what lies between two of them is one group."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import bisect_onnx
from bisect_onnx.core.alignment import Basis
from bisect_onnx.core.report import Report, Status
from fixtures.effect import outputs
from tests.end_to_end.at_work import assert_valid

RNG = np.random.default_rng(0)
WEIGHTS = {f"w{place}": (RNG.standard_normal((8, 8)) / 3).astype(np.float32) for place in range(4)}
X = RNG.standard_normal((4, 8)).astype(np.float32)
HEALTHY = ("MatMul", "Relu", "MatMul", "Tanh", "MatMul", "Sigmoid", "MatMul")
FAULTY = ("MatMul", "Relu", "MatMul", "Erf", "MatMul", "Sigmoid", "MatMul")


def chain(path: Path, operators: tuple[str, ...], *, exposed: bool = False) -> Path:
    """A chain of nodes n0, n1, ... that write v0, v1, ..., and the last of them y."""
    nodes = []
    for place, operator in enumerate(operators):
        source = f"v{place - 1}" if place else "x"
        inputs = [source, f"w{place // 2}"] if operator == "MatMul" else [source]
        target = f"v{place}" if place < len(operators) - 1 else "y"
        nodes.append(helper.make_node(operator, inputs, [target], name=f"n{place}"))
    names = [node.output[0] for node in nodes] if exposed else ["y"]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, X.shape) for name in names],
        [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def healthy_values(folder: Path) -> dict[str, np.ndarray]:
    model = onnx.load(chain(folder / "healthy.onnx", HEALTHY, exposed=True))
    return dict(zip([value.name for value in model.graph.output], outputs(model, {"x": X}), strict=True))


def against(folder: Path, recorded: dict[str, str], operators: tuple[str, ...]) -> Report:
    """Hold a chain against values of the healthy one: ``recorded`` says under which name each value is kept."""
    values = healthy_values(folder)
    kept: Mapping[str, Any] = {"x": X, **{name: values[value] for value, name in recorded.items()}}
    np.savez(folder / "v.npz", **kept)
    report = bisect_onnx.locate(folder / "v.npz", chain(folder / "m.onnx", operators), {"x": X})
    assert_valid(report)
    return report


def alike(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def test_recorded_values_are_paired_by_their_names(tmp_path: Path):
    report = against(tmp_path, alike("v0", "v1", "v2", "v3", "v4", "v5", "y"), FAULTY)

    assert (report.status, report.culprits[0].node, len(report.culprits)) == (Status.LOCATED, "n3", 1)
    assert {row.pair.basis for row in report.nodes if row.pair is not None} == {Basis.NAME}
    assert all(row.pair is not None and row.pair.reference in (f"v{row.index}", "y") for row in report.nodes)


def test_a_node_between_two_recorded_values_is_certified(tmp_path: Path):
    (culprit,) = against(tmp_path, alike("v2", "v3", "y"), FAULTY).culprits

    assert (culprit.node, culprit.group, culprit.confidence) == ("n3", ("n3",), "certified")


@pytest.mark.parametrize(
    ("recorded", "group"),
    [
        (alike("v1", "v4", "y"), {"n2", "n3", "n4"}),
        (alike("v1", "v4"), {"n2", "n3", "n4"}),
        (alike("y"), {"n0", "n1", "n2", "n3", "n4", "n5", "n6"}),
    ],
)
def test_the_nodes_between_two_recorded_values_are_one_group(recorded, group, tmp_path: Path):
    report = against(tmp_path, recorded, FAULTY)

    (culprit,) = report.culprits
    assert (report.status, culprit.confidence, set(culprit.group)) == (Status.SUSPECTED, "suspected", group)


@pytest.mark.parametrize("recorded", [alike("v1", "v4", "y"), alike("y"), {"v1": "other", "y": "y"}])
def test_a_healthy_file_agrees_with_what_was_recorded(recorded, tmp_path: Path):
    assert against(tmp_path, recorded, HEALTHY).status is Status.PARITY


@pytest.mark.parametrize("recorded", [alike("v1", "v4"), {"v1": "one", "y": "another"}])
def test_a_recording_without_the_outputs_is_no_parity(recorded, tmp_path: Path):
    report = against(tmp_path, recorded, HEALTHY)

    assert (report.status, report.culprits, report.exit_code) == (Status.INCONCLUSIVE, (), 3)
    names = ", ".join(repr(name) for name in recorded.values())
    assert report.summary == (
        f"no node can be accused: the recording has no array named 'y', so no output was compared (it has {names})"
    )


def test_an_error_that_was_not_measured_certifies_nothing(tmp_path: Path):
    values = healthy_values(tmp_path)
    np.savez(tmp_path / "v.npz", x=X, v4=values["v4"], v5=values["v5"], y=values["y"][:, :5])

    report = bisect_onnx.locate(tmp_path / "v.npz", chain(tmp_path / "m.onnx", HEALTHY), {"x": X})

    assert report.outputs[0].reason == "shape: reference (4, 5), candidate (4, 8)"
    assert [culprit.confidence for culprit in report.culprits if culprit.error.introduced is None] == ["suspected"]
