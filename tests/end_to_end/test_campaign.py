"""The planted-fault campaign: a quick slice of it is right, and its answers can be counted and run again."""

import re
from pathlib import Path

import pytest

from scripts.run_campaign import main

# One net in all four forms of its file, healthy and with three kinds of fault.
SLICE = ["--nets", "mobile", "--exporters", "torchscript", "--kinds", "healthy,activation,rewired,weight_rolled"]


@pytest.mark.slow
def test_a_slice_of_the_campaign_is_right_in_every_form_of_the_file(
    export_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    status = main([*SLICE, "--exports", str(export_folder), "--keep", str(tmp_path)])

    told = capsys.readouterr().out
    assert status == 0, told
    assert not list(tmp_path.iterdir())
    exact = re.search(r"exact culprit +(\d+) of (\d+) \(100\.0%\)", told)
    assert exact is not None, told
    assert int(exact[1]) >= 8
    assert re.search(r"false alarm +0 of 4 healthy files \(0\.0%\)", told), told


def test_a_trial_runs_again_by_its_number(export_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    status = main([*SLICE, "--only", "1", "--exports", str(export_folder), "--keep", str(tmp_path)])

    told = capsys.readouterr().out
    assert status == 0, told
    assert told.startswith("1 trials at most")
    assert re.search(r"exact culprit +1 of 1", told), told


def test_a_number_that_no_trial_has_is_refused(tmp_path: Path):
    with pytest.raises(SystemExit, match=r"--only got \[16\]; these options make trials 0 to 15"):
        main([*SLICE, "--only", "16", "--keep", str(tmp_path)])
