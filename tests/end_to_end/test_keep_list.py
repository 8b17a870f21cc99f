"""``--keep-list``: what a lower-precision file must keep in the higher precision, checked by converting again."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnxruntime.quantization import QuantType, quantize_dynamic

import bisect_onnx
from bisect_onnx.core.compare import Array
from bisect_onnx.core.report import Stage, Status
from bisect_onnx.errors import KeepListToleranceError, OutputPathError
from fixtures.export import quiet
from tests.end_to_end.at_work import assert_valid
from tests.onnx_models import random, save, value

pytestmark = pytest.mark.slow

LAYERS = ("first", "second", "third", "last")


def feeds() -> dict[str, Array]:
    return {"x": random((4, 24), seed=9)}


@pytest.fixture
def float32(tmp_path: Path) -> Path:
    """Four matrix products with a Tanh between each; the third has one weight that dwarfs the others."""
    weights = {f"{name}.weight": random((24, 24), seed=seed) / 5 for seed, name in enumerate(LAYERS)}
    weights["third.weight"][5, 7] = 15.0
    nodes, here = [], "x"
    for name in LAYERS:
        nodes.append(helper.make_node("MatMul", [here, f"{name}.weight"], [f"{name}.product"], name=name))
        here = "y" if name == LAYERS[-1] else f"{name}.active"
        nodes.append(helper.make_node("Tanh", [f"{name}.product"], [here], name=f"{name}.tanh"))
    return save(tmp_path / "float32.onnx", nodes, inputs=[value("x", [4, 24])], outputs=["y"], weights=weights)


def quantised(float32: Path, *, without: tuple[str, ...] = ()) -> Path:
    path = float32.with_name(f"int8-{len(without)}.onnx")
    with quiet():
        quantize_dynamic(float32, path, weight_type=QuantType.QInt8, nodes_to_exclude=list(without))
    return path


def distance(path: Path, reference: Path) -> float:
    """Largest difference of the outputs, as plain ONNX Runtime gives them."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    got, expected = (
        onnxruntime.InferenceSession(str(each), options, providers=["CPUExecutionProvider"]).run(["y"], feeds())[0]
        for each in (path, reference)
    )
    return float(np.max(np.abs(got - expected)))


def test_the_one_node_that_is_needed_is_found_and_converting_without_it_meets_the_tolerance(float32: Path):
    before = distance(quantised(float32), float32)
    alone = {name: distance(quantised(float32, without=(name,)), float32) for name in LAYERS}
    atol = 1.05 * min(alone.values())
    assert atol < before  # otherwise nothing would be needed
    assert [name for name in LAYERS if alone[name] <= atol] == ["third"]
    target = float32.with_name("keep.txt")

    report = bisect_onnx.locate(float32, quantised(float32), feeds(), level=0, atol=atol, keep_list=target)

    assert_valid(report)
    assert (report.status, report.stage) == (Status.ACCUMULATION, Stage.PRECISION)
    assert report.keep_list == ("third",)
    assert target.read_text(encoding="utf-8") == "third\n"
    assert report.exit_code == 1


def test_a_tighter_tolerance_needs_more_nodes_and_converting_without_them_meets_it(float32: Path):
    best = min(distance(quantised(float32, without=(name,)), float32) for name in LAYERS)
    target = float32.with_name("keep.txt")

    report = bisect_onnx.locate(float32, quantised(float32), feeds(), level=0, atol=0.7 * best, keep_list=target)

    assert len(report.keep_list) > 1
    assert distance(quantised(float32, without=report.keep_list), float32) <= 0.7 * best
    assert target.read_text(encoding="utf-8").splitlines() == list(report.keep_list)


def test_outputs_inside_the_tolerance_need_no_node(float32: Path):
    target = float32.with_name("keep.txt")

    report = bisect_onnx.locate(float32, quantised(float32), feeds(), level=0, atol=10.0, keep_list=target)

    assert (report.status, report.keep_list) == (Status.PARITY, ())
    assert target.read_text(encoding="utf-8") == ""


def test_no_list_is_written_for_a_file_in_the_reference_s_own_precision(float32: Path):
    model = onnx.load(float32)
    model.graph.node[1].op_type = "Sigmoid"
    wrong, target = float32.with_name("wrong.onnx"), float32.with_name("keep.txt")
    onnx.save(model, wrong)

    report = bisect_onnx.locate(float32, wrong, feeds(), level=0, atol=1e-6, keep_list=target)

    assert report.status is Status.LOCATED
    assert not target.exists()
    assert [finding.message for finding in report.findings if finding.code == "PR002"] == [
        "no list of nodes to keep was written: the candidate does not compute in a lower precision than the reference"
    ]


def test_a_wrong_node_is_to_be_mended_not_kept(float32: Path):
    model = onnx.load(quantised(float32))
    (node,) = (node for node in model.graph.node if node.name == "second.tanh")
    node.op_type = "Sigmoid"
    wrong, target = float32.with_name("wrong.onnx"), float32.with_name("keep.txt")
    onnx.save(model, wrong)

    report = bisect_onnx.locate(float32, wrong, feeds(), level=0, atol=1e-6, keep_list=target)

    assert (report.status, report.stage) == (Status.LOCATED, Stage.EXPORT)
    assert [culprit.node for culprit in report.culprits] == ["second.tanh"]
    assert not target.exists()
    (finding,) = (finding for finding in report.findings if finding.code == "PR002")
    assert finding.message == (
        "no list of nodes to keep was written: one node is wrong whatever its precision is: mend it first, then ask "
        "again"
    )


def test_a_list_without_a_tolerance_is_refused(float32: Path):
    with pytest.raises(KeepListToleranceError) as caught:
        bisect_onnx.locate(float32, float32, feeds(), keep_list=float32.with_name("keep.txt"))

    assert str(caught.value) == (
        "no tolerance is given for the nodes that are to be kept in 'keep.txt'\n"
        "  where:    --keep-list\n"
        "  expected: --atol, --rtol, or --metric with --threshold: how near the outputs are to come\n"
        "  got:      none of them\n"
        "  next:     add --atol 1e-3, or whatever your use of the outputs allows"
    )


def test_a_file_that_is_there_is_left_alone_unless_forced(float32: Path):
    target = float32.with_name("notes.txt")
    target.write_text("mine", encoding="utf-8")

    with pytest.raises(OutputPathError, match="a file that is there"):
        bisect_onnx.locate(float32, float32, feeds(), atol=1.0, keep_list=target)
    assert target.read_text(encoding="utf-8") == "mine"

    bisect_onnx.locate(float32, float32, feeds(), atol=1.0, keep_list=target, force=True)
    assert target.read_text(encoding="utf-8") == ""
    with pytest.raises(OutputPathError, match="a file that this run reads"):
        bisect_onnx.locate(float32, float32, feeds(), atol=1.0, keep_list=float32, force=True)


def test_the_command_line_writes_the_same_list(float32: Path):
    model, target = quantised(float32), float32.with_name("keep.txt")
    np.save(float32.with_name("x.npy"), feeds()["x"])
    atol = 1.05 * distance(quantised(float32, without=("third",)), float32)

    command = [sys.executable, "-m", "bisect_onnx", "locate", str(model), "--reference", str(float32), "--level", "0"]
    options = ["--quiet", "--inputs", str(float32.with_name("x.npy")), "--atol", str(atol), "--keep-list", str(target)]
    ended = subprocess.run([*command, *options], capture_output=True, text=True, check=False)

    assert ended.returncode == 1, ended.stderr
    assert target.read_text(encoding="utf-8") == "third\n"
