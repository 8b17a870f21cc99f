"""Every number of a report is rounded in one place, and never into a claim that is not true."""

import math

import pytest

from bisect_onnx.render import rows


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (-0.0, "0"),
        (0.41249, "4.1e-01"),
        (1.25e-7, "1.2e-07"),
        (123456.0, "1.2e+05"),
        (1e-300, "1.0e-300"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
    ],
)
def test_a_figure_of_a_column_has_one_form(value, text):
    assert rows.figure(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.41249, "0.412"),
        (1.25e-7, "1.25e-07"),
        (1.0, "1"),
        (0.9996, "1"),
        (math.inf, "inf"),
        (None, "-"),
    ],
)
def test_a_figure_of_a_sentence_has_three_digits(value, text):
    assert rows.precise(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (0.9999996, "1 - 4.0e-07"),
        (0.9994, "0.999"),
        (-1.0, "-1"),
        (0.0, "0"),
        (None, "-"),
        (math.nan, "nan"),
    ],
)
def test_a_cosine_never_rounds_up_to_equality(value, text):
    assert rows.cosine(value) == text


@pytest.mark.parametrize(
    ("value", "threshold", "text"),
    [
        (0.412, 4.8e-6, "86,000 times"),
        (1.5, 1.0, "1.5 times"),
        (12.4, 1.0, "12 times"),
        (1.0, 1e-9, "1e+09 times"),
        (1e300, 1e-300, "inf times"),
        (1.0, 0.0, "infinitely"),
        (math.inf, 1.0, "infinitely"),
        (math.nan, 1.0, "infinitely"),
        (1.0, 1.0, None),
        (0.5, 1.0, None),
        (None, 1.0, None),
        (1.0, None, None),
    ],
)
def test_a_factor_is_named_only_where_the_threshold_is_exceeded(value, threshold, text):
    assert rows.factor(value, threshold) == text


@pytest.mark.parametrize(
    ("values", "found"), [([], None), ([None], None), ([1.0, None, 2.0], 2.0), ([1.0, math.inf], math.inf)]
)
def test_the_worst_of_known_values(values, found):
    assert rows.worst(values) == found


def test_not_a_number_is_the_worst_error_of_all():
    assert str(rows.worst([math.inf, math.nan, 1.0])) == "nan"
    assert rows.is_over(math.nan, 1.0)


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (1.0, "100%"),
        (0.9999996, "99.9%"),
        (0.995, "99.5%"),
        (0.5, "50%"),
        (0.001, "under 1%"),
        (0.0, "0%"),
        (None, "-"),
        (math.nan, "nan"),
    ],
)
def test_a_percentage_is_100_or_0_only_when_it_is(fraction, text):
    assert rows.percent(fraction) == text


@pytest.mark.parametrize(
    ("duration", "text"), [(0.0123, "12 ms"), (1.26, "1.3 s"), (119.94, "119.9 s"), (61 * 60 + 5.2, "61 min 5 s")]
)
def test_durations_are_said_in_the_unit_that_fits(duration, text):
    assert rows.seconds(duration) == text


@pytest.mark.parametrize(
    ("number", "text"), [(12, "12 bytes"), (2048, "2.0 KiB"), (412_352_512, "393.2 MiB"), (5 * 2**40, "5120.0 GiB")]
)
def test_sizes_are_said_in_the_unit_that_fits(number, text):
    assert rows.size(number) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-0.75, "-0.75"),
        (1, "1"),
        (True, "yes"),
        (None, "-"),
        ("linear", "linear"),
        ("", '""'),
        ([3, 3], "[3, 3]"),
        ((), "[]"),
        (list(range(20)), "[0, 1, 2, 3, 4, 5, 6, 7, ... 20 in all]"),
        ([[1, 2], [3]], "[[1, 2], [3]]"),
        ({"alpha": 1.702, "on": False}, "alpha: 1.702, on: no"),
    ],
)
def test_an_attribute_is_said_on_one_line(value, text):
    assert rows.attribute(value) == text


def test_counts_agree_with_their_nouns():
    assert [rows.count(number, "node") for number in (0, 1, 1204)] == ["0 nodes", "1 node", "1,204 nodes"]


def test_a_shape_without_axes_is_a_scalar():
    assert [rows.shape(()), rows.shape((1, 3, 64, 64))] == ["scalar", "1x3x64x64"]
