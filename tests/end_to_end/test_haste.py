"""What is taken for grossly wrong without a measurement changes no answer: a search that erred begins again."""

from pathlib import Path

import pytest

from bisect_onnx.core.report import Report
from bisect_onnx.pipeline import judge
from fixtures.trial import Trial, Variant, prepared
from tests.end_to_end.at_work import accused, file_of, locate

pytestmark = pytest.mark.slow


def answer(report: Report) -> tuple[object, ...]:
    return report.status, accused(report), [(row.node, row.verdict, row.noise) for row in report.nodes]


def test_a_search_that_took_noise_for_gross_ends_as_one_that_measured_everything(
    export_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # The GELUs of this net are above their arithmetic bound, and are right.
    case = prepared(
        Trial(net="bert", exporter="dynamo", variant=Variant.NAMED, kind="softmax_axis"), folder=export_folder
    )
    assert case is not None
    path = file_of(case.model, tmp_path / "model.onnx")
    answers = []
    for gross in (0.0, float("inf")):
        monkeypatch.setattr(judge, "GROSS", gross)
        answers.append(answer(locate("bert", path)))

    assert answers[0] == answers[1]
