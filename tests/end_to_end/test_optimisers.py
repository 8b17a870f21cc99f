"""ONNX Runtime's own optimisers as the culprit: found by switching them off, and no node of the file accused."""

from pathlib import Path

import numpy as np
import pytest

import bisect_onnx
from bisect_onnx.core.finding import Confidence
from bisect_onnx.core.report import Stage, Status, Strategy
from bisect_onnx.errors import ModelNotLoadedError
from bisect_onnx.runtimes import ort_optimizers
from tests.end_to_end.at_work import assert_valid
from tests.end_to_end.optimised import averaged_integers, broadcast_scale, clipped_double
from tests.onnx_models import Array, random


def double(shape: tuple[int, ...]) -> Array:
    return random(shape).astype(np.float64)


def test_a_session_that_an_optimiser_breaks_is_told_with_its_nodes_and_compared_without(tmp_path: Path) -> None:
    path = clipped_double(tmp_path / "m.onnx", pairs=2)

    report = bisect_onnx.locate(str(path), path, {"x": double((2, 3))}, level=1)

    assert_valid(report)
    assert (report.status, report.stage, report.optimizers) == (
        Status.LOAD_FAILED, Stage.OPTIMIZER, ("FuseReluClip",),
    )  # fmt: skip
    assert (report.culprits, report.exit_code, report.search.strategy) == ((), 1, Strategy.OPTIMIZERS)
    (finding,) = report.findings
    assert (finding.code, finding.cause, finding.confidence) == ("LD006", "K20", Confidence.PROVEN)
    assert finding.message == (
        "with 'FuseReluClip' off and all other optimisers on, the model loads; what it does to "
        "'relu0', 'clip0', 'relu1', 'clip1' is what the runtime refuses"
    )
    assert finding.facts["level"] == {"FuseReluClip": 1}
    assert "Unexpected data type for Clip" in str(finding.facts["runtime says"])
    assert report.summary == (
        "the runtime cannot load the model from level 1 on, because of the optimiser FuseReluClip of ONNX Runtime; "
        "with that off the outputs agree, so the file itself is right"
    )


def test_a_cured_file_that_is_wrong_besides_is_searched(tmp_path: Path) -> None:
    reference = clipped_double(tmp_path / "r.onnx", pairs=1)
    wrong = clipped_double(tmp_path / "w.onnx", pairs=3)
    x = double((2, 3))

    report = bisect_onnx.locate(str(reference), wrong, {"x": x - 5}, level=0)
    assert report.status is Status.PARITY  # clipping again changes nothing, so the two files are one function

    report = bisect_onnx.locate(faulty(reference, tmp_path / "f.onnx"), wrong, {"x": x}, level=99)

    assert_valid(report)
    assert (report.optimizers, report.findings[0].code) == (("FuseReluClip",), "LD006")
    assert report.status is not Status.LOAD_FAILED
    assert report.summary.endswith(
        "(the runtime cannot load the model from level 1 on, because of the optimiser FuseReluClip of ONNX Runtime; "
        "it was compared without)"
    )


def faulty(path: Path, target: Path) -> str:
    """The same file with another upper bound."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(path)
    high = next(tensor for tensor in model.graph.initializer if tensor.name == "high")
    high.CopyFrom(numpy_helper.from_array(np.array(0.3), name="high"))
    onnx.save(model, target)
    return str(target)


def test_a_merged_node_that_fails_while_it_runs_names_its_optimiser(tmp_path: Path) -> None:
    path = broadcast_scale(tmp_path / "m.onnx")

    report = bisect_onnx.locate(str(path), path, {"x": random((2, 3, 1))}, level=2)

    assert_valid(report)
    assert (report.stage, report.optimizers) == (Stage.OPTIMIZER, ("SimplifiedLayerNormFusion",))
    assert (report.status, report.culprits) == (Status.LOCATED, ())
    (finding,) = report.findings
    assert (finding.code, finding.facts["level"]) == ("GO003", {"SimplifiedLayerNormFusion": 2})
    assert finding.facts["merged nodes"] == ["pow", "mean", "add", "sqrt", "div", "mul"]
    assert finding.facts["merged into"] == ["SimplifiedLayerNormalization"]


@pytest.mark.parametrize("level", [2, 99])
def test_integers_rounded_elsewhere_are_told_as_steps_and_the_export_is_not_accused(level: int, tmp_path: Path) -> None:
    path = averaged_integers(tmp_path / "m.onnx")

    report = bisect_onnx.locate(str(path), path, {"x": random((1, 2, 8, 8)) * 2}, level=level)

    assert_valid(report)
    assert (report.status, report.stage, report.optimizers) == (
        Status.LOCATED, Stage.OPTIMIZER, ("QDQSelectorActionTransformer",),
    )  # fmt: skip
    assert (report.culprits, report.nodes) == ((), ())
    (finding,) = report.findings
    assert (finding.code, finding.cause, finding.confidence) == ("GO001", "K22", Confidence.PROVEN)
    assert "elements differ by whole quantisation steps (one step)" in finding.message
    assert "'dequantise_x', 'pool', 'quantise_pool' into com.microsoft:QLinearAveragePool" in finding.message
    assert finding.remedy is not None
    assert "no fault of the export" in finding.remedy
    assert finding.counterfactual is not None
    assert (finding.counterfactual.output_after, finding.counterfactual.edit) == (
        0.0, "QDQSelectorActionTransformer off, all other optimisers on",
    )  # fmt: skip
    assert report.summary == (
        "1 of 1 outputs differs from level 2 on, and agree at level 0: the error is born in the optimiser "
        "QDQSelectorActionTransformer of ONNX Runtime, not in the file"
    )
    assert report.search.steps[-1].probe == "without QDQSelectorActionTransformer"


def test_integers_that_agree_at_every_level_are_parity(tmp_path: Path) -> None:
    path = averaged_integers(tmp_path / "m.onnx")

    report = bisect_onnx.locate(str(path), path, {"x": random((1, 2, 8, 8)) * 2}, level=1)

    assert (report.status, report.optimizers) == (Status.PARITY, ())


def test_merging_that_only_rounds_otherwise_is_parity(tmp_path: Path) -> None:
    path = broadcast_scale(tmp_path / "m.onnx", size=4)

    report = bisect_onnx.locate(str(path), path, {"x": random((2, 3, 4))}, level=2)

    assert (report.status, report.optimizers) == (Status.PARITY, ())


def test_a_name_that_this_build_lacks_is_skipped_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {**ort_optimizers.OPTIMIZERS, "NoSuchFusion": 2}
    monkeypatch.setattr(ort_optimizers, "OPTIMIZERS", listed)
    path = averaged_integers(tmp_path / "m.onnx")

    report = bisect_onnx.locate(str(path), path, {"x": random((1, 2, 8, 8)) * 2}, level=2)

    assert report.optimizers == ("QDQSelectorActionTransformer",)
    skipped = report.findings[0].facts["skipped, not in this build"]
    assert isinstance(skipped, list)
    assert "NoSuchFusion" in skipped


def test_an_optimiser_that_is_not_in_the_list_is_suspected_and_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = {name: level for name, level in ort_optimizers.OPTIMIZERS.items() if not name.startswith("QDQ")}
    monkeypatch.setattr(ort_optimizers, "OPTIMIZERS", listed)
    path = averaged_integers(tmp_path / "m.onnx")

    report = bisect_onnx.locate(str(path), path, {"x": random((1, 2, 8, 8)) * 2}, level=2)

    assert_valid(report)
    assert (report.status, report.stage, report.optimizers) == (Status.SUSPECTED, Stage.OPTIMIZER, ())
    assert report.findings[0].code == "GO002"


def test_a_file_that_no_level_loads_is_refused_as_before(tmp_path: Path) -> None:
    path = clipped_double(tmp_path / "m.onnx", opset=23)
    reference = clipped_double(tmp_path / "r.onnx")
    import onnx

    model = onnx.load(path)
    model.graph.node[0].op_type = "Unknown"
    onnx.save(model, path)

    with pytest.raises(ModelNotLoadedError):
        bisect_onnx.locate(str(reference), path, {"x": double((2, 3))})
