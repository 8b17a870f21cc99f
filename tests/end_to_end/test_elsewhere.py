"""A candidate that ran elsewhere: the file's own error, the machine's, both, and none.

Another machine is played by the values of a file with a fault, stored as a capture of the healthy one.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import bisect_onnx
from bisect_onnx.core.recording import METADATA
from bisect_onnx.core.report import Report, Stage, Status
from bisect_onnx.errors import CandidateValuesError
from bisect_onnx.readers.recording_file import read_arrays, read_record
from fixtures.faults import FAULTS
from fixtures.nets import NETS
from tests.cli.test_capture import device as device  # noqa: PLC0414  # a fixture
from tests.end_to_end.at_work import accused, assert_proven, assert_valid, feeds_of, healthy, labels
from tests.end_to_end.test_recordings import FAULTY, HEALTHY, X, chain

TWICE = ("MatMul", "Relu", "MatMul", "Erf", "MatMul", "Tanh", "MatMul")
GPU = ("CUDAExecutionProvider", "CPUExecutionProvider")


def played(target: Path, *, of: Path, by: Path, without: tuple[str, ...] = (), **changes: Any) -> Path:
    """A capture of ``of`` with the values of the capture ``by``: what a machine would give that has the fault."""
    record = read_record(of)
    assert record is not None
    with np.load(of) as right, np.load(by) as wrong:
        names = [name for name in wrong.files if name in right.files and name not in (METADATA, *without)]
        arrays: dict[str, Any] = {name: wrong[name] for name in names}
    changes = {"providers": GPU, "skipped": dict.fromkeys(without, "no kernel")} | changes
    arrays[METADATA] = np.array(dataclasses.replace(record, **changes).to_text())
    np.savez(target, **arrays)
    return target


def captured(folder: Path, operators: tuple[str, ...], name: str) -> Path:
    model = chain(folder / f"{name}.onnx", operators)
    return bisect_onnx.capture(model, folder / f"{name}.npz", {"x": X}, level=0).path


def on_a_machine(
    folder: Path, operators: tuple[str, ...], *, file: tuple[str, ...] = HEALTHY, **options: Any
) -> Report:
    """``file`` on a machine on which it computes what ``operators`` compute here; the reference is healthy."""
    values = played(
        folder / "there.npz", of=captured(folder, file, "file"), by=captured(folder, operators, "wrong"), **options
    )
    reference = chain(folder / "reference.onnx", HEALTHY)
    report = bisect_onnx.locate(reference, folder / "file.onnx", candidate_values=values)
    assert_valid(report)
    return report


def findings(report: Report) -> list[str]:
    return [finding.code for finding in report.findings]


def test_the_first_node_that_gives_something_else_there_is_the_culprit(tmp_path: Path):
    report = on_a_machine(tmp_path, FAULTY)

    (culprit,) = report.culprits
    assert (report.status, report.stage, culprit.node) == (Status.LOCATED, Stage.PROVIDER, "n3")
    assert (culprit.confidence, culprit.certificate.complete, culprit.group) == ("certified", True, ("n3",))
    assert culprit.impact is not None
    assert culprit.impact > 0.999
    assert (culprit.error.inherited and culprit.error.inherited.scaled, findings(report)) == (0.0, ["DV001"])
    assert report.summary == (
        "n3 (Tanh) introduces the error where the file ran (CUDAExecutionProvider, CPUExecutionProvider, level 0); "
        "here the file is right"
    )
    assert {row.index: row.verdict.value for row in report.nodes} == dict.fromkeys(range(7), "match") | {3: "mismatch"}
    assert report.outputs[0].verdict.value == "mismatch"
    assert isinstance(report.environment["recorded"], dict)


def test_what_ran_rightly_elsewhere_agrees(tmp_path: Path):
    report = on_a_machine(tmp_path, HEALTHY)

    assert (report.status, report.culprits, report.exit_code) == (Status.PARITY, (), 0)


def test_an_error_of_the_file_is_found_in_the_file(tmp_path: Path):
    report = on_a_machine(tmp_path, FAULTY, file=FAULTY)

    assert (report.status, report.stage, accused(report)) == (Status.LOCATED, Stage.EXPORT, ["n3"])
    assert findings(report)[0] == "DV002"


def test_a_machine_that_adds_an_error_to_the_files_own_is_told_beside_it(tmp_path: Path):
    report = on_a_machine(tmp_path, TWICE, file=FAULTY)

    assert (report.status, report.stage, accused(report)) == (Status.LOCATED, Stage.EXPORT, ["n3"])
    assert findings(report)[0] == "DV003"
    assert report.findings[0].message.endswith(
        "the report is about the error that shows here, and n5 (Sigmoid) is the first node that gives something else "
        "there on the same inputs"
    )


def test_nodes_between_values_that_were_recorded_are_one_group(tmp_path: Path):
    report = on_a_machine(tmp_path, FAULTY, without=("v2", "v3"))

    (culprit,) = report.culprits
    assert (report.status, set(culprit.group)) == (Status.SUSPECTED, {"n2", "n3", "n4"})
    assert report.nodes[3].reason == "inside a segment: no kernel"


def test_values_that_were_recorded_of_another_error_accuse_nobody(tmp_path: Path):
    report = on_a_machine(tmp_path, FAULTY, moved={"y": "inf"}, level=99)

    assert (report.status, report.stage, report.culprits) == (Status.SUSPECTED, Stage.PROVIDER, ())
    assert findings(report) == ["DV001", "DV004"]
    assert "--level 0" in " ".join(report.next_steps)


@pytest.mark.slow
def test_a_lower_precision_there_accuses_no_single_node(tmp_path: Path, export_folder: Path):
    net, right = "residual", healthy("residual", "dynamo", export_folder)
    onnx.save(right, tmp_path / "right.onnx")
    onnx.save(in_bfloat16(right), tmp_path / "low.onnx")
    for name in ("right", "low"):
        bisect_onnx.capture(tmp_path / f"{name}.onnx", tmp_path / f"{name}.npz", feeds_of(net), level=0)
    values = played(tmp_path / "there.npz", of=tmp_path / "right.npz", by=tmp_path / "low.npz")

    report = bisect_onnx.locate(NETS[net].build(0)[0], tmp_path / "right.onnx", candidate_values=values)

    assert_valid(report)
    assert (report.status, report.stage, report.culprits) == (Status.ACCUMULATION, Stage.PRECISION, ())
    wrong = [row for row in report.nodes if row.verdict.value == "mismatch"]
    assert {row.op_type for row in wrong} == {"Conv", "Gemm"}
    assert all(row.impact is None or row.impact < 0.5 for row in wrong)
    assert findings(report) == ["DV001", "DV005"]


def in_bfloat16(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which convolutions and products round what they read."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[:]
    for place, node in enumerate(model.graph.node):
        read = list(node.input)
        for number, name in enumerate(node.input[:2] if node.op_type in ("Conv", "Gemm") else ()):
            narrow, read[number] = f"narrow{place}_{number}", f"wide{place}_{number}"
            copy.graph.node.append(helper.make_node("Cast", [name], [narrow], to=TensorProto.BFLOAT16))
            copy.graph.node.append(helper.make_node("Cast", [narrow], [read[number]], to=TensorProto.FLOAT))
        copy.graph.node.append(node)
        copy.graph.node[-1].input[:] = read
    return copy


@pytest.fixture
def values(tmp_path: Path) -> Path:
    return captured(tmp_path, HEALTHY, "file")


@pytest.mark.parametrize(
    ("change", "expected", "got"),
    [
        ("model", "the model that was captured: file.onnx with sha256 ", "file.onnx with sha256 "),
        ("record", "what 'bisect-onnx capture' wrote of this model", "arrays without the record of a capture"),
        ("file", "what 'bisect-onnx capture' wrote of this model", "no such file"),
        ("damage", "what 'bisect-onnx capture' wrote of this model", "100 bytes that are no zip archive"),
    ],
)
def test_a_capture_that_is_not_of_this_model_is_refused(tmp_path: Path, values: Path, change, expected, got):
    if change == "model":
        chain(tmp_path / "file.onnx", FAULTY)
    elif change == "record":
        np.savez(values, x=X)
    elif change == "damage":
        values.write_bytes(values.read_bytes()[:100])
    else:
        values.unlink()

    with pytest.raises(CandidateValuesError) as refused:
        bisect_onnx.locate("net.py:build", tmp_path / "file.onnx", candidate_values=values)

    assert f"expected: {expected}" in str(refused.value)
    assert f"got:      {got}" in str(refused.value)


def test_other_inputs_and_another_configuration_are_refused(tmp_path: Path, values: Path):
    reference = tmp_path / "file.onnx"

    with pytest.raises(CandidateValuesError, match=r"got: .*another array for 'x'"):
        bisect_onnx.locate(reference, reference, {"x": X + 1}, candidate_values=values)
    with pytest.raises(CandidateValuesError, match=r"got: .*--provider, --level, --module"):
        bisect_onnx.locate(reference, reference, candidate_values=values, providers=["cuda"], level=1, module="a")
    assert bisect_onnx.locate(reference, reference, {"x": X}, candidate_values=values).status is Status.PARITY


@pytest.mark.slow
def test_a_fault_of_the_file_is_found_from_where_only_numpy_onnx_and_the_runtime_are(device, tmp_path, export_folder):
    net, exporter = "postnorm", "dynamo"
    planted = FAULTS["weight_scaled"].plant(healthy(net, exporter, export_folder), 2)
    assert planted is not None
    onnx.save(planted.model, tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", **dict(feeds_of(net)))

    done = device("capture", "m.onnx", "-i", "x.npz", "-o", "v.npz")

    assert (done.returncode, done.stderr) == (0, "")
    module, _ = NETS[net].build(0)
    report = bisect_onnx.locate(module, tmp_path / "m.onnx", candidate_values=tmp_path / "v.npz")
    assert_valid(report)
    assert_proven(report, labels(planted, names="named"))
    assert report.stage in (Stage.EXPORT, Stage.WEIGHTS)
    assert findings(report)[0] == "DV002"


@pytest.mark.slow
def test_a_fault_of_the_machine_is_found_in_an_exported_net(tmp_path, export_folder):
    net, exporter = "prenorm", "dynamo"
    right, module = healthy(net, exporter, export_folder), NETS[net].build(0)[0]
    planted = FAULTS["gelu_approximate"].plant(right, 2)
    assert planted is not None
    for name, model in (("right", right), ("wrong", planted.model)):
        onnx.save(model, tmp_path / f"{name}.onnx")
        bisect_onnx.capture(tmp_path / f"{name}.onnx", tmp_path / f"{name}.npz", feeds_of(net))
    values = played(tmp_path / "there.npz", of=tmp_path / "right.npz", by=tmp_path / "wrong.npz")

    report = bisect_onnx.locate(module, tmp_path / "right.onnx", candidate_values=values)

    assert_valid(report)
    outputs = {name for place in planted.nodes for name in planted.model.graph.node[place].output}
    assert report.stage is Stage.PROVIDER
    assert (report.status, len(report.culprits)) == (Status.LOCATED, 1)
    assert set(report.culprits[0].outputs) & outputs


def test_the_command_line_takes_it(tmp_path: Path, capfd):
    from bisect_onnx.cli import app

    played(tmp_path / "v.npz", of=captured(tmp_path, HEALTHY, "file"), by=captured(tmp_path, FAULTY, "wrong"))
    model = str(tmp_path / "file.onnx")

    status = app.run(["locate", model, "-r", model, "--candidate-values", str(tmp_path / "v.npz"), "--json", "-"])

    out, _ = capfd.readouterr()
    assert (status, json.loads(out)["culprit"]["node"]) == (1, "n3")
    assert read_arrays(tmp_path / "v.npz", ["x"])["x"].shape == X.shape
