"""The README names exactly the commands, options and values that exist."""

import ast
import os
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest
import typer

import bisect_onnx
from bisect_onnx.cli.app import app
from bisect_onnx.core.report import Report
from bisect_onnx.core.tolerance import FACTOR
from bisect_onnx.errors import BisectOnnxError

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAM = typing.cast("typing.Any", typer.main.get_command(app))
COMMANDS: dict[str, typing.Any] = PROGRAM.commands


def section(title: str) -> str:
    """The text below a heading, up to the next one of any level."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", README, flags=re.MULTILINE | re.DOTALL)
    assert found, f"README.md has no heading {title!r}"
    return found[1]


def documented_options(command: str) -> dict[str, str]:
    """Meaning by option, from the table of the command: ``--json PATH|-`` without its backticks."""
    rows = re.findall(r"^\| (`-.*?) \| (.*) \|$", section(f"`bisect-onnx {command}`"), flags=re.MULTILINE)
    return {cell.replace("`", "").replace(r"\|", "|"): meaning for cell, meaning in rows}


def existing_options(command: str) -> dict[str, typing.Any]:
    """Parameter by option, spelled as the README spells it."""
    options = {}
    for parameter in COMMANDS[command].params:
        if parameter.param_type_name == "option":
            name, *others = parameter.opts
            value = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
            options[", ".join((f"{name}{value}", *others))] = parameter
    return options


def choices(annotation: object) -> list[str]:
    """The values of a Literal, wherever it stands in an annotation."""
    if typing.get_origin(annotation) is typing.Literal:
        return list(typing.get_args(annotation))
    return [choice for part in typing.get_args(annotation) for choice in choices(part)]


def test_every_command_has_a_section_and_every_section_a_command():
    assert set(re.findall(r"^### `bisect-onnx (\w+)`$", README, flags=re.MULTILINE)) == set(COMMANDS)


def test_no_command_is_named_that_does_not_exist():
    assert set(re.findall(r"(?:`|^    )bisect-onnx ([a-z]+)", README, flags=re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_table_of_a_command_lists_its_options_in_the_order_of_its_help(command):
    assert list(documented_options(command)) == list(existing_options(command))


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_with_fixed_values_lists_them(command):
    documented = documented_options(command)
    hints = typing.get_type_hints(COMMANDS[command].callback, include_extras=True)
    for spelled, parameter in existing_options(command).items():
        for choice in choices(hints.get(parameter.name)):
            assert f"`{choice}`" in documented[spelled], spelled


@pytest.mark.parametrize("command", COMMANDS)
def test_a_default_that_is_a_value_is_stated(command):
    documented = documented_options(command)
    for spelled, parameter in existing_options(command).items():
        if parameter.default not in (None, False):
            assert re.search(rf"Default: `?{re.escape(str(parameter.default))}`?\.", documented[spelled]), spelled


def test_no_option_is_named_that_does_not_exist():
    existing = {name for command in COMMANDS.values() for parameter in command.params for name in parameter.opts}
    existing |= {name for parameter in PROGRAM.params for name in parameter.opts} | {"--help", "-h"}

    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", README)) <= existing


def test_the_exit_statuses_are_those_of_the_errors_and_reports():
    stated = {int(status) for status in re.findall(r"^\| (\d+) \|", section("Output and exit status"), re.MULTILINE)}

    def raised(error: type[BisectOnnxError]) -> set[int]:
        own = {error.exit_code} if hasattr(error, "exit_code") else set()
        return own.union(*(raised(below) for below in error.__subclasses__()))

    assert raised(BisectOnnxError) <= stated
    assert stated == {0, 1, 2, 3, 70, 130}


def test_the_factor_over_the_noise_floor_is_the_one_in_force():
    assert {8.0: "eight"}[FACTOR] + " times the noise floor" in README.replace("\n", " ")


def test_the_fields_of_the_json_report_exist():
    fields = set(
        re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", section("The JSON report"), re.MULTILINE)))
    )

    assert fields <= set(Report.__dataclass_fields__) | {"culprit"}
    assert {"status", "culprits", "nodes"} <= fields


def test_the_python_example_uses_public_names():
    code = "".join(re.findall(r"```python\n(.*?)```", section("Python"), flags=re.DOTALL))
    used = {
        node.attr
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "bisect_onnx"
    }

    assert used
    assert used <= set(bisect_onnx.__all__)


@pytest.mark.slow
def test_the_block_of_the_demo_is_what_the_demo_shows(tmp_path: Path):
    found = re.search(r"<!-- demo output: begin; .*? -->\n```\n(.*?)```\n<!-- demo output: end -->", README, re.DOTALL)
    assert found
    folder = tmp_path / "demo"
    command = [sys.executable, "-m", "bisect_onnx", "demo", "--dir", str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)

    assert done.returncode == 1, done.stderr
    stale = "the block is stale: run scripts/demo --dir /tmp/demo > block.txt and paste it"
    assert essence(done.stdout, folder=folder) == essence(found[1], folder=Path("/tmp/demo")), stale


def essence(text: str, *, folder: Path) -> list[str]:
    """What a report says, whatever folder it is about, wherever its lines break, and on whatever processor.

    Figures near the noise floor depend on the order in which a processor adds, as do all that count the elements
    it touches; the others are kept.
    """
    stable = re.sub(r"^│ (snr_db|not equal|worst at) .*$", "", text, flags=re.MULTILINE)
    joined = re.sub(r"[\s│]", "", stable).replace(str(folder), "FOLDER")
    return re.findall(r"[A-Za-z_]+|[^A-Za-z_]+", re.sub(r"\d(\.\d+)?e-(0[5-9]|1\d)", "NOISE", joined))


def test_noise_and_folders_do_not_make_a_block_stale_but_words_and_faults_do():
    shown = "│ source /a/b/net.py:3 │\n│ error 2.1e-07 1.1e-01 │"

    assert essence(shown, folder=Path("/a/b")) == essence("source /c/\nnet.py:3 error 3e-08 1.1e-01", folder=Path("/c"))
    for other in ("source /a/b/net.py:4 error 2.1e-07 1.1e-01", "source /a/b/net.py:3 error 2.1e-07 1.2e-01"):
        assert essence(shown, folder=Path("/a/b")) != essence(other, folder=Path("/a/b"))


def test_every_path_in_the_readme_exists():
    named = set(re.findall(r"(?<![\w./])(?:scripts|bisect_onnx)/[\w./-]*\w", README))

    assert named >= {"scripts/demo", "scripts/test", "scripts/check"}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
