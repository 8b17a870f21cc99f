"""A file that the runtime refuses: the nodes are named, all of a kind, and a cured copy is compared."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import bisect_onnx
from bisect_onnx.core.finding import Confidence
from bisect_onnx.core.report import Stage, Status
from bisect_onnx.errors import ModelNotLoadedError
from tests.end_to_end.at_work import assert_valid
from tests.onnx_models import Array, random, save, value

make = helper.make_node
X = {"x": random((4, 8))}


def net(path: Path, *, silu: str, wide: bool = False, slip: bool = False) -> Path:
    """Two SiLUs and two scales; ``silu`` is how they are written, ``slip`` makes the last product a sum."""
    nodes, before = [], "x"
    for number in range(2):
        gate, after = f"g{number}", f"a{number}"
        if silu == "operator":
            nodes.append(make("Silu", [before], [after], name=f"silu{number}", domain="com.microsoft"))
        else:
            nodes += [make("Sigmoid", [before], [gate]), make("Mul", [before, gate], [after], name=f"silu{number}")]
        kind = "Add" if slip and number == 1 else "Mul"
        nodes.append(make(kind, [after, f"s{number}"], [f"m{number}"], name=f"scale{number}"))
        before = f"m{number}"
    nodes.append(make("Tanh", [before], ["y"], name="tanh"))
    dtype = np.float64 if wide else np.float32
    weights: dict[str, Array] = {"s0": np.array(1.5, dtype), "s1": np.array(0.7, dtype)}
    return save(path, nodes, inputs=[value("x", [4, 8])], outputs=["y"], weights=weights)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(net(tmp_path_factory.mktemp("reference") / "r.onnx", silu="written"))


def test_an_operator_that_the_runtime_lacks_is_named_wherever_it_stands(reference: str, tmp_path: Path) -> None:
    path = net(tmp_path / "m.onnx", silu="operator")
    before = path.read_bytes()

    report = bisect_onnx.locate(reference, path, X)

    assert_valid(report)
    assert (report.status, report.stage, report.exit_code) == (Status.LOAD_FAILED, Stage.EXPORT, 1)
    assert [(culprit.node, culprit.index) for culprit in report.culprits] == [("silu0", 0), ("silu1", 2)]
    (finding,) = report.findings
    assert (finding.code, finding.confidence) == ("LD001", Confidence.PROVEN)
    assert finding.facts["nodes"] == ["silu0", "silu1"]
    assert report.summary == (
        "the runtime cannot load the model, because of 'silu0', 'silu1': the runtime has no operator Silu in the "
        "domain com.microsoft; in a copy where that is mended the outputs agree"
    )
    assert path.read_bytes() == before


def test_a_cured_copy_that_is_wrong_is_searched_and_names_the_node_of_the_file(reference: str, tmp_path: Path) -> None:
    path = net(tmp_path / "m.onnx", silu="operator", slip=True)

    report = bisect_onnx.locate(reference, path, X, level=0)

    assert_valid(report)
    assert report.status is Status.LOCATED
    assert report.culprit is not None
    assert (report.culprit.node, report.culprit.index) == ("scale1", 3)
    assert report.findings[0].code == "LD001"
    assert report.summary.endswith(
        "(in a cured copy: as it is, the runtime has no operator Silu in the domain com.microsoft)"
    )


def test_every_float64_constant_beside_float32_is_named_with_its_node(reference: str, tmp_path: Path) -> None:
    path = net(tmp_path / "m.onnx", silu="written", wide=True)

    report = bisect_onnx.locate(reference, path, X)

    assert_valid(report)
    assert (report.status, report.stage) == (Status.LOAD_FAILED, Stage.EXPORT)
    assert [culprit.node for culprit in report.culprits] == ["scale0", "scale1"]
    (finding,) = report.findings
    assert (finding.code, finding.cause) == ("LD002", "K18")
    assert finding.message == "'s0', 's1' are float64 where the other inputs are float32"


def test_an_ir_version_beyond_the_runtime_is_lowered_in_a_copy(reference: str, tmp_path: Path) -> None:
    path = net(tmp_path / "m.onnx", silu="written")
    model = onnx.load(path)
    model.ir_version = 99
    path.write_bytes(model.SerializeToString())

    report = bisect_onnx.locate(reference, path, X)

    assert_valid(report)
    assert (report.status, report.culprits) == (Status.LOAD_FAILED, ())
    assert report.findings[0].code == "LD003"
    assert report.findings[0].message.startswith("the file is of IR version 99, and this runtime reads versions up to ")


def test_two_kinds_of_fault_in_one_file_are_both_mended(reference: str, tmp_path: Path) -> None:
    path = net(tmp_path / "m.onnx", silu="operator", wide=True)

    report = bisect_onnx.locate(reference, path, X)

    assert report.status is Status.LOAD_FAILED
    assert [finding.code for finding in report.findings] == ["LD001", "LD002"]


def test_an_operator_without_a_known_cure_is_refused_as_before(reference: str, tmp_path: Path) -> None:
    path = net(tmp_path / "m.onnx", silu="written")
    model = onnx.load(path)
    model.graph.node[-1].op_type = "Tanhh"
    path.write_bytes(model.SerializeToString())

    with pytest.raises(ModelNotLoadedError):
        bisect_onnx.locate(reference, path, X)
