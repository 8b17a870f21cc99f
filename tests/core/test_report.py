"""A report is plain data that JSON can hold, and validates against the schema it promises."""

import dataclasses
import enum
import json
import math
from importlib import resources

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_onnx.core.alignment import Basis
from bisect_onnx.core.compare import Verdict
from bisect_onnx.core.finding import Confidence
from bisect_onnx.core.graph import PathStep
from bisect_onnx.core.report import Certificate, ReasonCode, Report, Stage, Status, Strategy, plain
from tests.report_builders import CASES, culprit, error, output, report, with_culprits

SCHEMA = json.loads(resources.files("bisect_onnx").joinpath("schema/report-1.json").read_text(encoding="utf-8"))


def validated(of: Report) -> dict[str, object]:
    """The report after a way through JSON that knows no NaN; it fits the schema."""
    data: dict[str, object] = json.loads(json.dumps(of.to_dict(), allow_nan=False))
    jsonschema.Draft202012Validator(SCHEMA).validate(data)
    return data


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan"), (np.float64(-np.inf), "-inf"),
        (np.float32(np.nan), "nan"), (1.5, 1.5), (np.float32(0.5), 0.5), (ml_dtypes.bfloat16(2.0), 2.0),
        (True, True), (np.array([1]) == 1, [True]), (3, 3), (np.int64(3), 3), (np.uint8(255), 255), (None, None),
        (Verdict.MATCH, "match"), ((1, (2.0, math.inf)), [1, [2.0, "inf"]]), ([], []),
        ({"a": {1: math.nan}}, {"a": {"1": "nan"}}),
        (np.array([[1.0, np.inf]]), [[1.0, "inf"]]), (np.array(2), 2), (np.array([], dtype=np.float32), []),
        (np.longdouble(1.5), 1.5), ({2, 1}, [1, 2]), (frozenset({"b", "a"}), ["a", "b"]),
        (range(2), [0, 1]), (b"ab", "ab"), (1 + 2j, "(1+2j)"),
        (PathStep(node="n", index=1, graph="body"), {"node": "n", "index": 1, "graph": "body", "iteration": None}),
    ],
    # A set is spelled in another order by each process, and the workers of a run must agree on the names.
    ids=lambda value: repr(sorted(value)) if isinstance(value, set | frozenset) else repr(value),
)  # fmt: skip
def test_every_value_has_a_plain_form(value, expected):
    found = plain(value)

    assert found == expected
    assert type(found) is type(expected)
    assert json.loads(json.dumps(found, allow_nan=False)) == expected


def test_bytes_that_are_no_text_have_a_plain_form():
    assert plain(b"\xff\x00") == "\\xff\x00"


def test_a_number_that_is_an_enum_is_its_value():
    assert plain(enum.Enum("Size", {"BIG": 7}).BIG) == 7  # type: ignore[attr-defined]  # made here


trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(trees)
def test_plain_data_stays_as_it_is_and_json_takes_it(tree):
    found = plain(tree)

    assert plain(found) == found
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_report_validates(case):
    data = validated(CASES[case]())

    assert data["schema"] == "bisect-onnx/report/1"
    assert data["status"] == case


def test_a_report_full_of_infinities_validates():
    bad = dataclasses.replace(
        error(1.0), max_abs=math.inf, max_rel=math.inf, rmse=math.inf, relative_l2=math.inf, cosine=None,
        snr_db=-math.inf, max_ulp=None, scaled=math.inf, nonfinite_mismatch=3,
    )  # fmt: skip
    data = validated(
        with_culprits(
            culprit(noise=math.inf, threshold=math.inf, impact=None, attributes={"alpha": math.nan, "pads": (1, 2)}),
            outputs=(output("mask", 1.0, error=bad, noise=math.nan, threshold=None),),
            timing={"search": np.float32(0.5)},
        )
    )

    row = data["outputs"][0]  # type: ignore[index]  # plain data of a known form
    assert (row["error"]["max_abs"], row["error"]["snr_db"], row["noise"]) == ("inf", "-inf", "nan")
    assert data["culprit"]["attributes"] == {"alpha": "nan", "pads": [1, 2]}  # type: ignore[index]
    assert data["timing"] == {"total": 0.0, "search": 0.5}


def test_the_culprit_is_the_first_of_the_culprits_or_null():
    first, second = culprit(), culprit(node="other")

    assert with_culprits(first, second).culprit == first
    assert validated(with_culprits(first, second))["culprit"] == validated(with_culprits(first))["culprit"]
    assert validated(report(Status.PARITY))["culprit"] is None


def test_values_left_over_are_told_with_their_reason():
    alignment = validated(report(Status.PARITY))["alignment"]

    assert alignment["unmatched"][0] == {"value": "val_66", "reason": "shape arithmetic"}  # type: ignore[index]


@pytest.mark.parametrize("status", Status)
def test_the_exit_status_follows_from_the_answer(status):
    expected = {Status.PARITY: 0, Status.INCONCLUSIVE: 3}.get(status, 1)

    assert report(status).exit_code == expected


def test_the_enums_of_the_report_are_those_of_the_schema():
    properties, node = SCHEMA["properties"], SCHEMA["$defs"]["node"]["properties"]
    written = {
        Status: properties["status"], Stage: properties["stage"], Verdict: node["verdict"],
        Strategy: properties["search"]["properties"]["strategy"], ReasonCode: node["reason_code"],
        Basis: node["pair"]["anyOf"][0]["properties"]["basis"],
        Confidence: SCHEMA["$defs"]["finding"]["properties"]["confidence"],
    }  # fmt: skip

    for kind, schema in written.items():
        assert [member.value for member in kind] == [value for value in schema["enum"] if value is not None], kind


def test_a_certificate_is_complete_when_all_three_proofs_were_tried_and_hold():
    proofs = [(a, b, c) for a in (True, False, None) for b in (True, False, None) for c in (True, False, None)]
    complete = [
        proof
        for proof in proofs
        if Certificate(inputs_match=proof[0], output_differs=proof[1], replay_reproduces=proof[2]).complete
    ]

    assert complete == [(True, True, True)]
