"""No report changes a byte unnoticed, and every JSON report keeps the contract."""

import json
from importlib import resources

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import pytest

from bisect_onnx.core.report import Status
from scripts.write_golden import GOLDEN, golden_texts
from tests.report_builders import CASES

SCHEMA = json.loads(resources.files("bisect_onnx").joinpath("schema/report-1.json").read_text(encoding="utf-8"))


def test_there_is_one_golden_report_for_each_status():
    assert {CASES[name]().status for name in CASES} == set(Status)
    assert sorted(folder.name for folder in GOLDEN.iterdir() if folder.is_dir()) == sorted(CASES)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["report.json", "report.txt"])
def test_a_report_is_as_it_was(case, name):
    assert golden_texts(CASES[case]())[name] == (GOLDEN / case / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
def test_a_golden_report_validates_against_the_schema(case):
    data = json.loads((GOLDEN / case / "report.json").read_text(encoding="utf-8"))

    jsonschema.Draft202012Validator(SCHEMA).validate(data)
    assert data["status"] == case


def test_the_schema_refuses_what_is_not_a_report():
    data = json.loads((GOLDEN / "parity" / "report.json").read_text(encoding="utf-8"))

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(data | {"status": "fine"})
