"""A report on a terminal: verdict first, nothing lost at any width, safe for every name, plain in a pipe."""

import dataclasses
import io
import math
import re

import pytest
from rich.cells import cell_len

from bisect_onnx.core.compare import Verdict
from bisect_onnx.core.finding import Confidence, Finding
from bisect_onnx.core.graph import Source
from bisect_onnx.core.report import Certificate, InputRow, MissingOperation, Stage, Status, WeightRow
from bisect_onnx.render.as_terminal import AsTerminal
from tests.report_builders import CASES, RESIZE_FINDING, culprit, error, node, output, report, with_culprits

COMMAND = "bisect-onnx locate seg.onnx -r segmentation.py:build -i image.npz --all"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(a_report, *, stream: io.StringIO | None = None, **options) -> str:
    stream = stream or io.StringIO()
    AsTerminal(**({"width": 80} | options)).write(a_report, stream)
    return stream.getvalue()


def unwrapped(text: str) -> str:
    """Without line ends, guides and padding, so that a wrapped name can be found again."""
    return re.sub(r"[\s│├└─╭╮╰╯\u200e]", "", text)


VERDICTS = {
    "parity": "✓ PARITY: all 2 outputs agree with the reference; worst error 4.2e-07 at mask, allowed 2.4e-05",
    "located": "✗ LOCATED: node_Resize_69 (Resize) in decoder.up2 introduces the error "
    "(0.412, 86,000 times its threshold)",
    "suspected": "? SUSPECTED: 2 nodes are suspected of the error, without proof: node_Resize_69, node_conv2d_4",
    "accumulation": "≈ ACCUMULATION: no single culprit: every node is within its noise floor, and the lower precision "
    "adds up to 0.0034 at mask (allowed 2.4e-05)",
    "harness": "! HARNESS: the graphs agree, the comparison was set up wrongly: the module was left in training mode",
    "inconclusive": "? INCONCLUSIVE: 1 of 2 outputs differ, but no node can be accused: "
    "3 of 18 values have a counterpart, none of them above it",
    "load_failed": "✗ LOAD FAILED: the runtime cannot load the model, because of node_Silu_77: "
    "it has no operator com.microsoft:Silu",
}


@pytest.mark.parametrize("case", CASES)
def test_quiet_is_the_verdict_line_alone(case):
    assert shown(CASES[case](), quiet=True, width=60) == VERDICTS[case] + "\n"


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_comes_first(case):
    assert shown(CASES[case](), width=200).splitlines()[0] == VERDICTS[case]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal_but_commands(case, width):
    a_report = CASES[case]()

    lines = shown(a_report, width=width, verbose=True, all_open=True, top=5).splitlines()

    steps = {f"  {step}" for step in a_report.next_steps}
    assert [line for line in lines if cell_len(line) > width and line not in steps] == []


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_name_is_whole_at_every_width(width):
    a_report = with_culprits(culprit(), findings=(RESIZE_FINDING,))

    text = unwrapped(shown(a_report, width=width, all_open=True))

    for row in a_report.nodes:
        assert row.node in text
    assert "/home/ana/seg/segmentation.py:41" in text
    assert unwrapped('x = F.interpolate(x, size=skip.shape[-2:], mode="bilinear", align_corners=False)') in text


def test_a_command_stays_on_one_line_so_that_it_can_be_copied():
    assert f"  {COMMAND}" in shown(with_culprits(culprit()), width=60).splitlines()


HOSTILE = {
    "long": "block/" + "a" * 294,
    "long without separators": "x" * 300,
    "markup": "[bold red]layer[/bold red] [/] [link=http://x]",
    "emoji code": ":boom:",
    "escape": "a\x1b[31mb\rc\nd",
    "right to left": "\u05e9\u05db\u05d1\u05d4/\u0637\u0628\u0642\u0629" * 12,
    "override": "a\u202eb",
    "wide": "層" * 40,
    "surrogate": "a\udcffb",
}
SPELLED = {"escape": r"a\x1b[31mb\rc\nd", "override": r"a\u202eb", "surrogate": r"a\udcffb"}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("width", [60, 120])
def test_a_hostile_name_is_shown_whole_and_breaks_nothing(name, width):
    hostile = HOSTILE[name]
    accused = culprit(
        node=hostile,
        index=0,
        module=hostile.replace(".", "_"),
        attributes={"mode": hostile},
        inputs=(hostile,),
        outputs=(hostile,),
        group=(hostile, hostile + "_1"),
        source=Source(file=hostile, line=3, code=hostile),
    )
    finding = Finding(
        code="X001", name="n", cause=None, confidence=Confidence.LIKELY, subject=hostile, message=hostile,
        facts={hostile: hostile}, remedy=hostile,
    )  # fmt: skip
    a_report = with_culprits(
        accused,
        accused,
        nodes=(node(0, hostile, "Relu", module=hostile.replace(".", "_"), introduced=0.4),),
        outputs=(output(hostile, 0.5, reason=hostile),),
        inputs=(InputRow(name=hostile, shape=(1,), dtype="float32", range=None, source=hostile),),
        findings=(finding,),
        summary=hostile,
        next_steps=(hostile,),
    )

    text = shown(a_report, width=width, verbose=True, top=1, all_open=True)

    assert all(cell_len(line) <= width for line in text.splitlines())
    assert "\x1b" not in text
    assert "\r" not in text
    assert "\u202e" not in text
    spelled = unwrapped(SPELLED.get(name, hostile))
    # node in the verdict, tree and panel; the rest in the tables: each of them whole.
    assert unwrapped(text).count(spelled) >= 12


def test_every_line_of_the_panel_ends_at_the_border():
    lines = [
        line for line in shown(with_culprits(culprit()), width=60).splitlines() if line.startswith(("│ ", "╭", "╰"))
    ]
    panel = lines[next(at for at, line in enumerate(lines) if line.startswith("╭")) :]

    assert {cell_len(line) for line in panel} == {60}
    assert all(line.endswith(("│", "╮", "╯")) for line in panel)


def test_a_pipe_gets_no_escape_codes_and_no_trailing_spaces():
    text = shown(with_culprits(culprit(), findings=(RESIZE_FINDING,)), verbose=True)

    assert "\x1b" not in text
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


def test_a_pipe_is_100_columns_wide_unless_columns_says_otherwise(monkeypatch):
    def widest() -> int:
        return max(len(line) for line in shown(with_culprits(culprit()), width=None).splitlines())

    assert widest() == 100
    monkeypatch.setenv("COLUMNS", "72")
    assert max(len(line) for line in shown(with_culprits(culprit(), next_steps=()), width=None).splitlines()) == 72


def test_a_terminal_gets_colour(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")

    assert "\x1b[1;31m✗ LOCATED: \x1b[0m" in shown(with_culprits(culprit()), stream=Terminal())


def test_only_the_guides_of_the_tree_are_dim(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")

    lines = shown(with_culprits(culprit()), stream=Terminal()).splitlines()

    (accused,) = (line for line in lines if "node_Resize_69  Resize  CULPRIT" in line and "├" in line)
    assert "\x1b[1;31mnode_Resize_69  Resize  CULPRIT" in accused
    assert "\x1b[2m│" in accused
    assert accused.count("\x1b[2m") == 1


def test_no_color_is_honoured_and_words_still_mark_the_culprit(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")

    text = shown(with_culprits(culprit()), stream=Terminal())

    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", text)
    assert re.search(r"✗ .*node_Resize_69  Resize  CULPRIT", text)


def test_an_ascii_stream_gets_ascii_marks_and_guides():
    class Ascii(io.StringIO):
        encoding = "ascii"

    stream = Ascii()
    text = shown(with_culprits(culprit()), stream=stream, verbose=True)

    assert text.isascii()
    assert "X LOCATED: " in text
    assert "X node_Resize_69  Resize  CULPRIT" in text


def test_equal_reports_make_equal_bytes():
    assert shown(with_culprits(culprit())) == shown(with_culprits(culprit()))


def test_parity_is_short_and_calm():
    text = shown(CASES["parity"]())

    assert len(text.splitlines()) < 12
    assert "culprit" not in text.lower()
    assert "node_" not in text


def test_parity_shows_the_nodes_on_request():
    assert "node_conv2d_5" in shown(CASES["parity"](), all_open=True)


def test_a_certificate_is_three_statements_each_with_its_own_answer():
    doubtful = Certificate(inputs_match=True, output_differs=False, replay_reproduces=None)

    text = shown(with_culprits(culprit(certificate=doubtful)))

    assert "its inputs match the reference: yes" in text
    assert "fed the reference's inputs, its output differs: NO" in text
    assert "run alone on those inputs, it gives the same wrong output: not" in text


def test_the_panel_names_floor_threshold_and_factor():
    assert "noise floor   4.8e-07; threshold 4.8e-06, exceeded 86,000 times" in shown(with_culprits(culprit()))


def test_further_culprits_are_listed_briefly():
    other = culprit(node="node_conv2d_1", op_type="Conv", index=2, module="encoder.down1.conv", source=None)

    text = shown(with_culprits(culprit(), other))

    assert "; 1 more culprit below" in unwrapped_spaces(text)
    assert "2.  node_conv2d_1 (Conv) in encoder.down1.conv: introduces 0.412, 86,000 times" in text
    assert text.count("─ culprit ─") == 1


def unwrapped_spaces(text: str) -> str:
    return " ".join(text.split())


def test_top_shows_that_many_nodes_worst_first_in_place_of_the_tree():
    lines = shown(with_culprits(culprit()), top=2).splitlines()

    at = lines.index("the 2 worst nodes")
    assert [line.split()[0] for line in lines[at + 2 : at + 6]] == ["node_Resize_69", "in", "node_conv2d_4", "in"] or [
        line.split()[0] for line in lines[at + 2 : at + 4]
    ] == ["node_Resize_69", "in"]
    assert not any("├" in line for line in lines)


def test_top_puts_not_a_number_before_every_number_and_unknown_last():
    rows = (
        node(0, "unknown", "Relu", introduced=None),
        node(1, "small", "Relu", introduced=1e-9),
        node(2, "broken", "Relu", introduced=math.nan),
        node(3, "large", "Relu", introduced=5.0),
    )

    text = shown(report(Status.SUSPECTED, nodes=rows), top=4)

    assert [word for word in text.split() if word in ("unknown", "small", "broken", "large")] == [
        "broken",
        "large",
        "small",
        "unknown",
    ]


def test_random_inputs_are_said_to_be_random():
    text = unwrapped_spaces(shown(CASES["inconclusive"]()))

    assert "random (seed 0)" in text
    assert "These inputs were drawn at random: give real ones with --inputs before you trust the figures." in text
    assert "drawn at random" not in shown(CASES["located"]())


def test_a_finding_says_facts_remedy_and_what_the_edit_did():
    text = shown(with_culprits(culprit(), findings=(RESIZE_FINDING,)), width=120)

    assert "RS001 resize-coordinates-differ  proven, K01" in text
    assert "reference = half_pixel" in text
    assert "remedy  set coordinate_transformation_mode to 'half_pixel'" in text
    assert "node error 0.412 -> 1.9e-07; output error 0.127 -> 4.4e-07" in text


def test_an_untestable_output_gives_its_reason():
    assert "shape: reference (1, 2, 64, 64)" in shown(CASES["inconclusive"](), width=120)


def test_verbose_adds_steps_alignment_timing_and_environment():
    plain, verbose = shown(CASES["suspected"]()), shown(CASES["suspected"](), verbose=True)

    for words in ("relu_2", "14 of 18 values", "peak memory  393.2 MiB", "torch        2.13.0", "max_ulp"):
        assert words in verbose
        assert words not in plain
    assert re.search(r"add_1 +mismatch +8 -> 4", verbose)


def test_what_only_some_reports_have_is_shown_when_they_have_it():
    text = shown(
        report(
            Status.SUSPECTED,
            stage=Stage.OPTIMIZER,
            optimizers=("ConvActivationFusion",),
            keep_list=("node_softmax",),
            weights=(
                WeightRow(initializer="conv.weight", parameter="stem.conv.weight", transform="transposed", error=0.25),
            ),
        )
    )

    assert "ConvActivationFusion" in text
    assert "node_softmax" in text
    assert re.search(r"conv\.weight +stem\.conv\.weight \(transposed\) +2\.5e-01", text)
    assert "The error was born in ONNX Runtime's optimiser." in text


def test_a_missing_operation_is_told_in_the_verdict_and_shown_with_its_line():
    source = Source(file="/m/net.py", line=7, code="    y[:, 0] = 0.5")
    gap = MissingOperation(after="relu_2", before="add", source=source)

    text = shown(report(Status.SUSPECTED, missing_operation=gap, outputs=(), inputs=(), nodes=()), width=50)

    assert text == (
        "? SUSPECTED: an operation of the reference is\n"
        "missing in the graph between relu_2 and add: y[:,\n"
        "0] = 0.5\n"
        "\n"
        "╭─ missing operation ────────────────────────────╮\n"
        "│ after   relu_2                                 │\n"
        "│ before  add                                    │\n"
        "│ source  /m/net.py:7                            │\n"
        "│         y[:, 0] = 0.5                          │\n"
        "╰────────────────────────────────────────────────╯\n"
    )


def test_a_missing_operation_of_unknown_source_is_told_by_its_place():
    gap = MissingOperation(after="relu_2", before="add", source=None)

    assert shown(report(Status.SUSPECTED, missing_operation=gap), quiet=True) == (
        "? SUSPECTED: an operation of the reference is missing in the graph between relu_2 and add\n"
    )


def test_a_suspect_that_was_only_ranked_is_shown_as_one_of_its_group():
    ranked = culprit(confidence="suspected", group=("node_Resize_69", "node_Concat_68"))

    text = shown(with_culprits(ranked, status=Status.SUSPECTED), width=120)

    assert text.splitlines()[0].startswith(
        "? SUSPECTED: one of 2 nodes that could not be told apart introduces the error (0.412, 86,000 times its"
    )
    assert "most likely node_Resize_69 (Resize) in decoder.up2" in unwrapped_spaces(text)
    assert (
        "│ suspects    one of 2 nodes that could not be told apart: node_Resize_69, node_Concat_68"
        in text.splitlines()[next(at for at, line in enumerate(text.splitlines()) if "suspects  " in line)]
    )
    assert "the group's inputs match the reference: yes" in text
    assert "fed the reference's inputs, the group's output differs: yes" in text


def test_a_certified_node_of_a_segment_is_not_called_undecided():
    certified = culprit(group=("node_Resize_69", "node_Concat_68"))

    text = shown(with_culprits(certified), width=120)

    assert "segment     2 nodes: node_Resize_69, node_Concat_68" in text
    assert "told apart" not in text
    assert "its inputs match the reference: yes" in text


def test_a_node_without_a_name_says_its_operator_once():
    nameless = culprit(node="#11:Resize")
    rows = (node(11, "#11:Resize", "Resize", module="decoder.up2"),)

    text = shown(with_culprits(nameless, nodes=rows), width=120)

    assert text.startswith("✗ LOCATED: #11:Resize in decoder.up2 introduces the error")
    assert "decoder.up2: #11:Resize  CULPRIT" in text


@pytest.mark.parametrize(
    ("metric", "threshold", "figures", "verdict", "row"),
    [
        ("scaled", 0.5, {}, "worst error 0.25 at mask, allowed 0.5", "mask match 2.5e-01 - 5.0e-01"),
        ("max_abs", 0.5, {}, "worst max_abs 0.155 at mask, allowed 0.5", "mask match 1.5e-01 - 5.0e-01"),
        (
            "cosine",
            0.9,
            {"cosine": 0.99991},
            "worst cosine 1 - 9.0e-05 at mask, allowed at least 0.9",
            "mask match 1 - 9.0e-05 - 0.9",
        ),
        (
            "snr_db",
            20.0,
            {"snr_db": 26.94},
            "worst snr_db 26.9 at mask, allowed at least 20",
            "mask match 26.9 - 20",
        ),
    ],
)
def test_an_output_is_shown_by_the_figure_that_it_was_judged_by(metric, threshold, figures, verdict, row):
    common = {"noise": None, "threshold": threshold, "metric": metric, "verdict": Verdict.MATCH}
    worse = output("mask", 0.25, error=error(0.25, **figures), **common)
    better = output(
        "edges", 0.001, error=error(0.001, **{name: value + 70 for name, value in figures.items()}), **common
    )

    text = shown(report(Status.PARITY, outputs=(better, worse), inputs=()))

    assert f"✓ PARITY: all 2 outputs agree with the reference; {verdict}" in unwrapped_spaces(text)
    assert row in unwrapped_spaces(text)
    assert ("at least" in text.split("outputs\n")[1]) == (metric in ("cosine", "snr_db"))


def test_parity_of_exactly_equal_outputs_says_so():
    exact = output("mask", 0.0, error=error(0.0, max_abs=0.0))

    assert shown(report(Status.PARITY, outputs=(exact,)), quiet=True) == (
        "✓ PARITY: the output agrees with the reference, bit for bit\n"
    )


def test_a_report_without_anything_still_renders():
    for status in Status:
        bare = report(status, outputs=(), nodes=(), inputs=(), environment={}, timing={})
        assert shown(bare, verbose=True, all_open=True, top=3).startswith(VERDICTS[status.value].split(":")[0])


def test_deep_modules_leave_room_for_names_on_a_narrow_terminal():
    module = ".".join(f"level{at}" for at in range(40))
    rows = tuple(node(at, f"node_{at}", "Relu", module=".".join(module.split(".")[: at + 1])) for at in range(40))
    last = dataclasses.replace(rows[-1], introduced=1.0)

    text = shown(report(Status.SUSPECTED, nodes=(*rows[:-1], last)), width=60, all_open=True)

    assert all(cell_len(line) <= 60 for line in text.splitlines())
    assert "node_39" in text
