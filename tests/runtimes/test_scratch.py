"""Temporary folders go with their owner, and those of killed programs with the next program."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bisect_onnx.runtimes.scratch import make_scratch

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys
from pathlib import Path
from bisect_onnx.runtimes.scratch import make_scratch
class Owner: pass
owner = Owner()
folder = make_scratch(owner)
(folder / "weights.bin").write_bytes(b"1")
print(folder, flush=True)
sys.stdin.readline()
"""


class Owner:
    """Something a folder can belong to."""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_goes_with_its_owner() -> None:
    owner = Owner()
    folder = make_scratch(owner)
    (folder / "weights.bin").write_bytes(b"1")

    del owner

    assert not folder.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="without file locks nothing tells a dead owner from a living one")
def test_what_a_killed_program_left_goes_with_the_next_one_and_a_living_ones_stays() -> None:
    command = [sys.executable, "-c", HOLDER]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as killed,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as living,
    ):
        assert killed.stdout is not None
        assert living.stdout is not None
        left, used = Path(killed.stdout.readline().strip()), Path(living.stdout.readline().strip())
        killed.kill()
        killed.wait()
        assert (left / "weights.bin").exists()

        owner = Owner()
        own = make_scratch(owner)

        assert not left.exists()
        assert (used / "weights.bin").exists()
        assert own.exists()
        living.communicate("\n")
    assert not used.exists()


def test_folders_that_are_not_ours_are_left_alone(temporary: Path) -> None:
    (temporary / "bisect-onnx-notes").mkdir()
    (temporary / "bisect-onnx-notes" / "mine.txt").write_text("mine")
    (temporary / "elsewhere").mkdir()
    (temporary / "elsewhere" / "owner.lock").touch()
    (temporary / "bisect-onnx-link").symlink_to(temporary / "elsewhere")
    owner = Owner()

    make_scratch(owner)

    assert (temporary / "bisect-onnx-notes" / "mine.txt").exists()
    assert (temporary / "elsewhere" / "owner.lock").exists()
