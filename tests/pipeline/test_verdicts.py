"""The answer in words: what to do next is a command wherever one can be given."""

from pathlib import Path

import pytest

from bisect_onnx.core.compare import Verdict
from bisect_onnx.core.report import Stage, Status
from bisect_onnx.pipeline.request import LocateRequest
from bisect_onnx.pipeline.verdicts import answer
from tests.report_builders import culprit, harness, output

REQUEST = LocateRequest(candidate=Path("m.onnx"), reference="net.py:build", inputs=Path("x.npz"))
COMMAND = "bisect-onnx locate m.onnx --reference net.py:build --inputs x.npz"
FAILING = output("y", 0.5, verdict=Verdict.MISMATCH)


def test_parity_has_no_next_step():
    assert answer(status=Status.PARITY, outputs=[output("y", 1e-7)], request=REQUEST).next_steps == ()


@pytest.mark.parametrize(
    ("stage", "words", "options"),
    [
        (Stage.OPTIMIZER, "Confirm that the file is right without the optimisers:", " --level 0"),
        (
            Stage.PROVIDER,
            "Confirm that the file is right on the CPU, without optimisers:",
            " --level 0 --provider cpu",
        ),
    ],
)
def test_a_suspected_configuration_is_confirmed_by_a_command(stage, words, options):
    found = answer(status=Status.SUSPECTED, outputs=[FAILING], stage=stage, request=REQUEST)

    assert found.next_steps == (words, COMMAND + options)


def test_an_accumulated_difference_can_be_allowed_by_a_command():
    (step, command) = answer(status=Status.ACCUMULATION, outputs=[FAILING], request=REQUEST).next_steps

    assert FAILING.error is not None
    assert FAILING.error.max_abs is not None
    atol = float(command.removeprefix(f"{COMMAND} --atol "))
    assert FAILING.error.max_abs <= atol <= 1.1 * FAILING.error.max_abs
    assert step == "No node is at fault. If differences of this size do not matter to you, allow them:"


def test_a_difference_that_no_tolerance_allows_has_no_such_step():
    other_shape = output("y", 0.5, verdict=Verdict.MISMATCH, error=None)

    assert answer(status=Status.ACCUMULATION, outputs=[other_shape], request=REQUEST).next_steps == ()


def test_a_culprit_is_looked_at_mended_and_asked_about_again():
    accused = culprit()
    found = answer(status=Status.LOCATED, outputs=[FAILING], culprits=[accused, accused], request=REQUEST)

    assert accused.source is not None
    assert found.next_steps == (
        f"Look at {accused.source.file}:{accused.source.line} and at how {accused.op_type} was exported.",
        "When the first culprit is mended and the model exported, ask again:",
        COMMAND,
    )


def test_a_finding_s_remedy_comes_before_the_command():
    findings = harness().findings
    found = answer(status=Status.HARNESS, outputs=[FAILING], findings=findings, request=REQUEST)

    assert found.next_steps == (findings[0].remedy, "Then compare again:", COMMAND)
    assert found.stage is Stage.HARNESS
