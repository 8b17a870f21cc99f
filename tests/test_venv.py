"""scripts/venv.sh installs when something changed, and only then."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the scripts are for bash")

# Stands for the interpreter in .venv: remembers what it was asked, fails when a file says so.
FAKE_PYTHON = """\
#!/usr/bin/env bash
echo "$*" >> calls
[ ! -e broken ] || [ "$3" = --version ]
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose .venv holds nothing yet."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPTS / "venv.sh", tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "scripts" / "constraints.txt").write_text("torch==2.13.0\n")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    return tmp_path


def ensure(clone: Path, level: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = f"set -euo pipefail; . scripts/venv.sh; ensure_venv {level}"
    return subprocess.run(
        ["bash", "-c", command],
        cwd=clone,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def installed(clone: Path) -> list[str]:
    """What pip was asked to install since the last look."""
    calls = clone / "calls"
    lines = calls.read_text().splitlines() if calls.exists() else []
    calls.unlink(missing_ok=True)
    return [line.partition("--constraint scripts/constraints.txt ")[2] for line in lines if "pip install" in line]


@pytest.mark.parametrize(
    ("level", "target"), [("demo", "--editable ."), ("test", "--editable .[test]"), ("dev", "--editable .[dev]")]
)
def test_torch_comes_first_then_the_package_and_then_nothing(clone, level, target):
    first = ensure(clone, level)

    assert (first.returncode, first.stdout) == (0, "")
    assert installed(clone) == ["torch", target]
    assert ensure(clone, level).stderr == ""
    assert installed(clone) == []


@pytest.mark.parametrize("file", ["pyproject.toml", "scripts/constraints.txt"])
def test_a_changed_file_installs_again(clone, file):
    ensure(clone, "test")
    installed(clone)
    (clone / file).write_text("changed\n")

    ensure(clone, "test")

    assert installed(clone) == ["torch", "--editable .[test]"]


def test_a_moved_clone_installs_again(clone):
    ensure(clone, "test")
    installed(clone)
    moved = clone.with_name("moved")
    clone.rename(moved)

    ensure(moved, "test")

    assert installed(moved) == ["torch", "--editable .[test]"]


def test_what_holds_more_serves_for_less(clone):
    ensure(clone, "dev")
    installed(clone)

    ensure(clone, "test")
    ensure(clone, "demo")

    assert installed(clone) == []


def test_what_holds_less_does_not_serve_for_more(clone):
    ensure(clone, "demo")
    installed(clone)

    ensure(clone, "test")

    assert installed(clone) == ["torch", "--editable .[test]"]


def test_a_failed_installation_is_not_remembered(clone):
    (clone / "broken").touch()
    assert ensure(clone, "test").returncode == 1
    assert installed(clone) == ["torch"]
    (clone / "broken").unlink()

    assert ensure(clone, "test").returncode == 0
    assert installed(clone) == ["torch", "--editable .[test]"]


def test_an_unknown_level_is_refused(clone):
    done = ensure(clone, "tset")

    assert done.returncode == 2
    assert done.stderr == "ensure_venv: expected demo, test, dev or bench, got 'tset'\n"


def test_a_machine_without_a_fit_python_is_told_what_to_install(clone, tmp_path_factory):
    tools = tmp_path_factory.mktemp("tools")
    for name in ("bash", "cat", "cksum"):
        (tools / name).symlink_to(shutil.which(name) or name)
    shutil.rmtree(clone / ".venv")

    done = ensure(clone, "test", PATH=str(tools), PYTHON="")

    assert done.returncode == 1
    assert done.stderr == (
        "No Python 3.11 or later was found. Install one, or name it: PYTHON=/path/to/python3.11 bash\n"
    )
