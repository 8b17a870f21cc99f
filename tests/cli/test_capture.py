"""The command runs where only numpy, onnx and ONNX Runtime are, with the options that it has everywhere."""

import os
import subprocess
import sys
import typing
from pathlib import Path

import numpy as np
import onnx
import pytest
import typer

import bisect_onnx as package
from bisect_onnx.cli import app, bare
from bisect_onnx.readers.recording_file import read_record
from tests.onnx_models import mixed_net, random

# What these three bring along. Everything else of this environment is out of sight.
ALONE = ("numpy", "onnx", "onnxruntime", "ml_dtypes", "google", "typing_extensions.py")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    np.savez(tmp_path / "x.npz", x=random((1, 3, 8, 8)))
    return mixed_net(tmp_path / "m.onnx")


@pytest.fixture
def device(tmp_path: Path) -> typing.Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command line of this package in an environment of its own."""
    installed = Path(onnx.__file__).parents[1]
    environment = tmp_path / "environment"
    environment.mkdir()
    for name in ALONE:
        (environment / name).symlink_to(installed / name)
    (environment / "bisect_onnx").symlink_to(Path(package.__file__).parent)

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", "-m", "bisect_onnx", *map(str, arguments)]
        variables = os.environ | {"PYTHONPATH": str(environment)}
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=variables)

    return call


def test_numpy_onnx_and_the_runtime_are_enough(device, model, tmp_path):
    done = device("capture", "m.onnx", "-i", "x.npz", "-o", "v.npz")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("recorded 15 values and 2 outputs of m.onnx in v.npz (")
    assert "  ran on:   CPUExecutionProvider, level 99\n  inputs:   x.npz\n" in done.stdout
    record = read_record(tmp_path / "v.npz")
    assert record is not None
    assert "torch" not in record.environment["versions"]  # type: ignore[operator]  # plain data


def test_other_commands_say_what_they_need(device, model):
    done = device("locate", "m.onnx", "-r", "net.py:build")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: the command 'locate' needs packages that are not installed\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["m.onnx"], "error: the following arguments are required: --output/-o\n"),
        (["m.onnx", "-o", "v.npz", "--shape", "x"], "error: Invalid value for --shape: 'x' is not NAME=LENGTH"),
        (["m.onnx", "-o", "v.npz", "--seed", "-1"], "error: argument --seed: '-1' is no whole number of 0 or more\n"),
        (["m.onnx", "-o", "v.npz", "--level", "7"], "error: ONNX Runtime has no optimisation level 7\n"),
        (["m.onnx", "-o", "v.npz", "-i", "x.pt"], "error: the feeds 'x.pt' do not exist\n"),
    ],
)
def test_the_bare_command_ends_with_status_2_where_nothing_can_be_meant(
    arguments, said, model, monkeypatch, capfd, tmp_path
):
    monkeypatch.chdir(tmp_path)

    assert bare.run(["capture", *arguments]) == 2

    assert capfd.readouterr().err.startswith(said)
    assert not (tmp_path / "v.npz").exists()


def test_a_pt_file_needs_torch_and_says_so(model, monkeypatch, capfd, tmp_path):
    (tmp_path / "x.pt").write_bytes(b"")
    monkeypatch.setattr("bisect_onnx.pipeline.given_inputs.find_spec", lambda _name: None)

    assert bare.run(["capture", str(model), "-i", str(tmp_path / "x.pt"), "-o", str(tmp_path / "v.npz")]) == 2

    assert "  got:      a file that torch writes, and torch is not installed here\n" in capfd.readouterr().err


def test_both_ways_of_parsing_have_the_same_options():
    program = typing.cast("typing.Any", typer.main.get_command(app.app))
    whole = {
        tuple(sorted(each.opts)): (each.metavar, each.help, each.default, each.required, each.multiple)
        for each in program.commands["capture"].params
        if each.param_type_name == "option"
    }
    (commands,) = [each for each in bare.parser()._actions if each.dest != "help"]
    actions = typing.cast("typing.Any", commands).choices["capture"]._actions
    alone = {
        tuple(sorted(each.option_strings)): (
            each.metavar, each.help, each.default, each.required, type(each).__name__ == "_AppendAction",
        )
        for each in actions
        if each.option_strings and each.dest != "help"
    }  # fmt: skip

    assert alone == whole


def test_the_whole_program_writes_the_same_file(device, model, bisect_onnx, tmp_path):
    device("capture", "m.onnx", "-i", "x.npz", "-o", "bare.npz", "--level", "0")

    ended = bisect_onnx(
        "capture", model, "-i", tmp_path / "x.npz", "-o", tmp_path / "whole.npz", "--level", "0", "--provider", "cpu"
    )

    assert (ended.status, ended.err) == (0, "")
    with np.load(tmp_path / "bare.npz") as one, np.load(tmp_path / "whole.npz") as other:
        assert one.files == other.files
        assert all(one[name].tobytes() == other[name].tobytes() for name in one.files if name != "__bisect_onnx__")
