"""Two against one: the onnx reference evaluator on the culprit's segment."""

from pathlib import Path

import onnx
import pytest

import bisect_onnx
from bisect_onnx.core.report import Status
from bisect_onnx.core.second_judge import Agreement, SecondJudge
from bisect_onnx.runtimes.ort import OrtCandidate
from fixtures.faults import FAULTS
from fixtures.nets import NETS
from tests.end_to_end.at_work import assert_valid, feeds_of, healthy

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("second_judge")
    planted = FAULTS["softmax_axis"].plant(healthy("prenorm", "dynamo", folder), 0)
    assert planted is not None
    onnx.save(planted.model, folder / "faulty.onnx")
    return folder / "faulty.onnx"


def test_the_evaluator_computes_a_planted_fault_from_the_file_as_well(faulty: Path):
    module, _ = NETS["prenorm"].build(0)

    report = bisect_onnx.locate(module, faulty, feeds_of("prenorm"))

    assert_valid(report)
    assert report.culprit is not None
    assert report.culprit.second_judge == SecondJudge(agrees_with=Agreement.RUNTIME)
    assert report.findings == ()


def test_a_runtime_that_stands_against_two_is_doubted(faulty: Path, monkeypatch: pytest.MonkeyPatch):
    module, _ = NETS["prenorm"].build(0)
    right = healthy("prenorm", "dynamo", faulty.parent)

    def as_the_standard_has_it(self, nodes, *, inputs, output, shapes):
        """The right node in the wrong one's place: what the runtime would not compute if its kernel were wrong."""
        found = real(self, nodes, inputs=inputs, output=output, shapes=shapes)
        healthy_file = OrtCandidate(
            type(self._file)(**{**vars_of(self._file), "proto": right}),
            providers=["cpu"], level=0, session_options={}, custom_ops=[],
        )  # fmt: skip
        assert found is not None
        return real(healthy_file, nodes, inputs=inputs, output=output, shapes=shapes)

    real = OrtCandidate.evaluated
    monkeypatch.setattr(OrtCandidate, "evaluated", as_the_standard_has_it)

    report = bisect_onnx.locate(module, faulty, feeds_of("prenorm"))

    assert report.status is Status.LOCATED
    assert report.culprit is not None
    assert report.culprit.second_judge == SecondJudge(agrees_with=Agreement.REFERENCE)
    assert [finding.code for finding in report.findings] == ["SJ001"]


def vars_of(file):
    return {name: getattr(file, name) for name in file.__dataclass_fields__}
