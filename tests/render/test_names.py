"""Text from a model is shown as what it is: nothing hidden, nothing lost, nothing that turns the line around."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from bisect_onnx.render.escapes import safe
from bisect_onnx.render.names import lines_of, one_line

HEBREW = "\u05e9\u05db\u05d1\u05d4"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("/blocks/blocks.0/act/Mul_output_0", "/blocks/blocks.0/act/Mul_output_0"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("bell\x07", r"bell\x07"),
        ("c1\x9b31m", r"c1\x9b31m"),
        ("turned\u202egnp", r"turned\u202egnp"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("lone\udce9", r"lone\udce9"),
        ("next\u2028line", r"next\u2028line"),
        ("[bold red]x[/]", "[bold red]x[/]"),
        (":boom:", ":boom:"),
        ("層/活性化", "層/活性化"),
        ("", ""),
    ],
)
def test_what_cannot_be_seen_is_spelled_out(name, shown):
    assert safe(name) == shown


def test_a_right_to_left_name_is_closed_so_that_figures_stay_on_their_side():
    assert one_line(HEBREW) == f"\u200e{HEBREW}\u200e"
    assert one_line("conv") == "conv"


def test_a_long_name_breaks_behind_a_separator():
    assert lines_of("encoder/layers.11/attention/self/query", 20) == ["encoder/layers.11/", "attention/self/query"]


def test_a_name_without_separators_breaks_at_the_width():
    assert lines_of("a" * 25, 10) == ["a" * 10, "a" * 10, "a" * 5]


def test_wide_characters_take_two_cells():
    assert lines_of("層" * 5, 5) == ["層層", "層層", "層"]


@given(st.text(max_size=200), st.integers(min_value=2, max_value=60))
def test_wrapping_loses_only_spaces_and_never_exceeds_the_width(text, width):
    shown = safe(text)

    lines = lines_of(shown, width)

    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).replace("\u200e", "").replace(" ", "") == shown.replace(" ", "")


@given(st.text(max_size=100))
def test_no_control_or_format_character_survives(text):
    assert not {unicodedata.category(character) for character in safe(text)} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
