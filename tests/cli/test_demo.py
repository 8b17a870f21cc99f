"""The demo plants a fault and lets the real `locate` find it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import pytest

from bisect_onnx.errors import DemoNotBuiltError
from bisect_onnx.pipeline import demo

ROOT = Path(__file__).parents[2]


@pytest.fixture
def built(monkeypatch) -> list[Path]:
    """Folders the demo was asked to build in; nothing is exported."""
    folders: list[Path] = []

    def build(folder: Path) -> demo.DemoFiles:
        folders.append(folder)
        return demo.DemoFiles(
            model=folder / "segmentation.onnx",
            reference=f"{folder / 'segmentation.py'}:build",
            weights=folder / "segmentation.pt",
            inputs=folder / "image.npz",
            faulty_node="node_Resize_69",
        )

    monkeypatch.setattr("bisect_onnx.pipeline.demo.build", build)
    return folders


def test_the_demo_says_on_stderr_what_a_user_would_type(bisect_onnx, built, tmp_path):
    folder = tmp_path / "my demo"

    ended = bisect_onnx("demo", "--dir", folder)

    assert built == [folder]
    assert ended.err == (
        f"building the demo in {folder}\n"
        f"$ bisect-onnx locate '{folder}/segmentation.onnx' --reference '{folder}/segmentation.py:build' "
        f"--weights '{folder}/segmentation.pt' --inputs '{folder}/image.npz'\n"
    )
    assert ended.out.startswith("✗ LOCATED: ")


def test_the_command_it_prints_is_the_request_it_makes(bisect_onnx, built, fake, tmp_path):
    printed = bisect_onnx("demo", "--dir", tmp_path / "d").err.splitlines()[1]

    bisect_onnx(*printed.split()[2:])

    assert fake.requests[0] == fake.requests[1]


def test_without_a_folder_a_fresh_one_is_made(bisect_onnx, built, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    bisect_onnx("demo")
    bisect_onnx("demo")

    assert len(set(built)) == 2
    assert {folder.parent for folder in built} == {tmp_path}


def test_the_users_files_are_left_alone(bisect_onnx, built, tmp_path):
    (tmp_path / "segmentation.py").write_text("mine", encoding="utf-8")

    ended = bisect_onnx("demo", "--dir", tmp_path)

    assert (ended.status, ended.out, built) == (2, "", [])
    assert ended.err == (
        f"error: --dir cannot write {tmp_path.name!r}\n"
        f"  where:    {tmp_path}\n"
        "  expected: a folder without files of these names\n"
        "  got:      it already holds 'segmentation.py'\n"
        "  next:     name another folder, or replace those files with --force\n"
    )
    assert bisect_onnx("demo", "--dir", tmp_path, "--force").status == 1


def test_a_file_is_no_folder(bisect_onnx, built, tmp_path):
    (tmp_path / "file").touch()

    ended = bisect_onnx("demo", "--dir", tmp_path / "file", "--force")

    assert (ended.status, built) == (2, [])
    assert "  got:      a file\n  next:     name another folder\n" in ended.err


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(DemoNotBuiltError) as caught:
        demo.build(tmp_path / "file" / "below")

    assert str(caught.value) == (
        "the demo could not be built\n"
        f"  where:    {tmp_path / 'file' / 'below'}\n"
        "  expected: a folder that can be written, and a PyTorch with its ONNX exporter\n"
        "  got:      Not a directory\n"
        "  next:     name another folder with --dir; for an export that fails, run segmentation.py there"
    )


def test_an_export_that_fails_is_told_with_its_last_line(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "SOURCE", "def main():\n    raise RuntimeError('no exporter')\n")

    with pytest.raises(DemoNotBuiltError, match="  got:      RuntimeError: no exporter\n"):
        demo.build(tmp_path)


@pytest.mark.slow
def test_the_demo_finds_the_resize_that_it_broke(tmp_path):
    files = demo.build(tmp_path / "expected")
    target = tmp_path / "report.json"
    command = [sys.executable, "-m", "bisect_onnx", "demo", "--dir", str(tmp_path / "demo"), "--json", str(target)]

    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )

    report = json.loads(target.read_text(encoding="utf-8"))
    schema = json.loads((ROOT / "bisect_onnx" / "schema" / "report-1.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(report)
    assert (done.returncode, report["status"]) == (1, "located")
    assert [culprit["node"] for culprit in report["culprits"]] == [files.faulty_node]
    assert report["culprit"]["source"]["file"] == str(tmp_path / "demo" / "segmentation.py")
    assert "F.interpolate(" in report["culprit"]["source"]["code"]
    assert done.stdout.startswith(f"✗ LOCATED: {files.faulty_node} (Resize) in up1 introduces the error")
    assert len(done.stderr.splitlines()) == 2
