"""The JSON report is the contract: whole figures, equal bytes for equal reports, ASCII for every stream."""

import io
import json
import math

from bisect_onnx.core.report import Status
from bisect_onnx.render.as_json import AsJson
from tests.report_builders import culprit as a_culprit
from tests.report_builders import error, node, output, report, with_culprits


def written(a_report) -> str:
    stream = io.StringIO()
    AsJson().write(a_report, stream)
    return stream.getvalue()


def test_figures_are_not_rounded():
    value = 0.41234567890123

    data = json.loads(written(report(Status.PARITY, nodes=(node(0, "n", "Relu", introduced=value),))))

    assert data["nodes"][0]["introduced"] == value


def test_infinities_and_nan_are_strings():
    bad = error(1.0, max_abs=math.inf, snr_db=-math.inf, cosine=math.nan)

    data = json.loads(written(report(Status.PARITY, outputs=(output("mask", 1.0, error=bad),))))

    found = data["outputs"][0]["error"]
    assert (found["max_abs"], found["snr_db"], found["cosine"]) == ("inf", "-inf", "nan")


def test_the_culprit_is_the_first_of_the_culprits():
    data = json.loads(written(with_culprits(a_culprit(), a_culprit(node="other", index=3))))

    assert data["culprit"] == data["culprits"][0]
    assert data["culprit"]["node"] == "node_Resize_69"


def test_any_name_survives_an_ascii_stream():
    name = "層\u202e\udce9\n"

    text = written(report(Status.PARITY, nodes=(node(0, name, "Relu"),)))

    assert text.isascii()
    assert json.loads(text)["nodes"][0]["node"] == name


def test_equal_reports_make_equal_bytes():
    assert written(with_culprits(a_culprit())) == written(with_culprits(a_culprit()))
