"""Each way a command can end has its exit status and one message; none shows a traceback unasked."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bisect_onnx.core.events import ProbeDone, StageFinished, StageStarted, Warned
from bisect_onnx.errors import RuntimeTroubleError, UsageError
from tests.report_builders import CASES

STATUSES = {
    "parity": 0,
    "located": 1,
    "suspected": 1,
    "accumulation": 1,
    "harness": 1,
    "inconclusive": 3,
    "load_failed": 1,
}


@pytest.mark.parametrize("case", CASES)
def test_the_exit_status_is_the_answer(locate, fake, case):
    fake.answers(case)

    ended = locate("--quiet")

    assert (ended.status, ended.err) == (STATUSES[case], "")
    assert len(ended.out.splitlines()) == 1


def test_a_fault_of_the_input_is_a_message_and_status_2(locate, fake):
    fake.raises(UsageError("the model 'm.onnx' does not exist\n  where:    /x/m.onnx"))

    ended = locate()

    assert (ended.status, ended.out) == (2, "")
    assert ended.err == "error: the model 'm.onnx' does not exist\n  where:    /x/m.onnx\n"


def test_a_runtime_that_fails_is_status_3(locate, fake):
    fake.raises(RuntimeTroubleError("it failed"))

    ended = locate()

    assert (ended.status, ended.out, ended.err) == (3, "", "error: it failed\n")


def test_an_error_message_cannot_send_escape_codes_to_the_terminal(locate, fake):
    fake.raises(UsageError("no input '\x1b[2J'"))

    assert locate().err == "error: no input '\\x1b[2J'\n"


def test_ctrl_c_is_status_130_and_one_line(locate, fake):
    fake.raises(KeyboardInterrupt())

    ended = locate()

    assert (ended.status, ended.out) == (130, "")
    assert ended.err == "interrupted: no report was made and nothing was written\n"


def test_a_fault_of_ours_is_status_70_without_a_traceback(locate, fake):
    fake.raises(KeyError("relu"))

    ended = locate()

    assert (ended.status, ended.out) == (70, "")
    assert re.fullmatch(
        r"error: a fault of ours, not of your model: KeyError: 'relu'\n"
        r"  where:    conftest\.py, line \d+\n"
        r"  next:     run it again with -v and report it with the traceback, the command and the versions "
        r"\(bisect-onnx \S+\) at the project's issue tracker\n",
        ended.err,
    )


def test_verbose_shows_the_traceback_of_a_fault_of_ours(locate, fake):
    fake.raises(KeyError("relu"))

    ended = locate("-v")

    assert ended.status == 70
    assert ended.err.startswith("Traceback (most recent call last):\n")
    assert "report it with the traceback above" in ended.err


def test_a_reference_that_exits_cannot_end_the_run_with_a_status_of_its_own(locate, fake):
    fake.raises(SystemExit(1))

    ended = locate()

    assert ended.status == 2
    assert ended.err == (
        "error: code that we called ended the program (exit status 1)\n"
        "  expected: a reference that imports and runs without calling exit()\n"
        "  next:     put such calls under if __name__ == '__main__'\n"
    )


def test_out_of_memory_names_the_option_that_helps(locate, fake):
    fake.raises(MemoryError())

    ended = locate()

    assert (ended.status, ended.err) == (
        3,
        "error: out of memory\n  next:     limit the kept values with --max-memory, e.g. 1GiB\n",
    )


def test_without_a_command_the_help_goes_to_stderr_and_nothing_is_parity(bisect_onnx):
    ended = bisect_onnx()

    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("Usage: bisect-onnx [OPTIONS] COMMAND [ARGS]...")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["-h"], ["locate", "--help"], ["demo", "--help"]])
def test_help_and_version_are_status_0(bisect_onnx, arguments):
    ended = bisect_onnx(*arguments)

    assert (ended.status, ended.err) == (0, "")
    assert ended.out


def test_an_unknown_command_is_bad_usage(bisect_onnx):
    ended = bisect_onnx("lokate")

    assert (ended.status, ended.out) == (2, "")
    assert (
        ended.err == "error: No such command 'lokate'. Did you mean 'locate'?\n  next:     see 'bisect-onnx --help'\n"
    )


def test_what_the_reference_prints_goes_to_stderr(locate, fake):
    def talkative(request, listen):
        print("from python")  # noqa: T201 - what users' modules do
        os.write(1, b"from c\n")
        return CASES["parity"]()

    fake.outcome = talkative

    ended = locate("--json", "-")

    assert json.loads(ended.out)["status"] == "parity"
    assert "from c\n" in ended.err


def test_json_on_stdout_is_all_there_is_on_stdout(locate):
    ended = locate("--json", "-", "--quiet")

    assert json.loads(ended.out)["culprit"]["node"] == "node_Resize_69"
    assert ended.err == ""


def test_warnings_go_to_stderr_also_when_quiet(locate, fake):
    def warned(request, listen):
        listen(StageStarted(stage="open", title="opening both sides"))
        listen(Warned(message="the symptom moved\x1b"))
        listen(ProbeDone(probe="relu", verdict="match", suspects=3))
        listen(StageFinished(stage="open", seconds=0.5))
        return CASES["parity"]()

    fake.outcome = warned

    assert locate("--quiet").err == "warning: the symptom moved\\x1b\n"
    assert locate().err == "warning: the symptom moved\\x1b\n"
    assert locate("-v").err == ("open: opening both sides\nwarning: the symptom moved\\x1b\nopen: done after 500 ms\n")


# --- as a process of its own -----------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]

# A program whose `locate` is a fake: `{body}` stands for what it does.
PROGRAM = """
import sys, types
module = types.ModuleType("bisect_onnx.pipeline.locate")
def locate(request, *, on_event):
    {body}
module.locate = locate
sys.modules["bisect_onnx.pipeline.locate"] = module
from tests.report_builders import CASES
from bisect_onnx.cli.app import main
main()
"""


def program(body: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM.format(body=body), "locate", "m.onnx", "-r", "net.py:build", *arguments]


def test_help_imports_no_heavy_library():
    code = (
        "import sys\n"
        "from bisect_onnx.cli.app import run\n"
        "status = run(sys.argv[1:])\n"
        "heavy = {'numpy', 'onnx', 'onnxruntime', 'rich', 'torch', 'transformers'} & set(sys.modules)\n"
        "sys.exit(f'{status} {sorted(heavy)}' if heavy or status else 0)\n"
    )
    for arguments in (["--help"], ["locate", "--help"], ["demo", "--help"], ["--version"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_who_closes_the_pipe_gets_the_status_and_no_complaint():
    # The writer is held until the reading end is closed, so that its first write must fail.
    body = "sys.stdin.read(); return CASES['located']()"
    process = subprocess.Popen(
        program(body, "--all"), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stdin.close()
    complaint = process.stderr.read()
    process.stderr.close()

    assert (process.wait(), complaint) == (1, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_under_stdout_is_told():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            program("return CASES['located']()"), cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert done.returncode == 2
    assert done.stderr.startswith("error: the report cannot write 'stdout'\n")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_an_interrupt_from_outside_ends_with_130_and_leaves_no_file(tmp_path):
    target = tmp_path / "report.json"
    body = "on_event; sys.stderr.write('running' + chr(10)); sys.stderr.flush(); sys.stdin.read()"
    process = subprocess.Popen(
        program(body, "--json", str(target)), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stderr.readline() == "running\n"

    process.send_signal(signal.SIGINT)
    out, err = process.communicate()

    assert (process.returncode, out) == (130, "")
    assert err == "interrupted: no report was made and nothing was written\n"
    assert list(tmp_path.iterdir()) == []


def test_names_that_the_stream_cannot_encode_do_not_end_the_run():
    body = (
        "import dataclasses; report = CASES['located'](); "
        "row = dataclasses.replace(report.inputs[0], name='層'); "
        "return dataclasses.replace(report, inputs=(row,))"
    )
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}

    done = subprocess.run(program(body), cwd=ROOT, capture_output=True, text=True, check=False, env=environment)

    assert (done.returncode, done.stderr) == (1, "")
    assert r"\u5c64" in done.stdout
