"""A JSON report is whole or not there; what is not ours is left alone; all that can be refused is refused early."""

import json
import os
import stat

import pytest

from bisect_onnx.cli.output import check_json_target
from bisect_onnx.errors import OutputPathError


def refused(ended, target, *, got: str, next_step: str) -> None:
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == (
        f"error: --json cannot write {target.name!r}\n"
        f"  where:    {target}\n"
        "  expected: a path for a new file, or an earlier report of ours\n"
        f"  got:      {got}\n"
        f"  next:     {next_step}\n"
    )


def test_the_file_holds_the_report_and_stdout_the_text(locate, tmp_path):
    target = tmp_path / "report.json"

    ended = locate("--json", target)

    assert json.loads(target.read_text(encoding="utf-8"))["status"] == "located"
    assert ended.out.startswith("✗ LOCATED: ")
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_an_earlier_report_is_replaced(locate, fake, tmp_path):
    target = tmp_path / "report.json"
    locate("--json", target)
    fake.answers("parity")

    locate("--json", target)

    assert json.loads(target.read_text(encoding="utf-8"))["status"] == "parity"


@pytest.mark.parametrize(
    "content", [b"", b"notes", b'{"schema": "other/1"}', b"[1]", b'{"schema": ', b"\x00\xff" * 9, b"{" * 100_000]
)
def test_a_file_that_is_not_ours_is_left_alone(locate, fake, tmp_path, content):
    target = tmp_path / "notes.json"
    target.write_bytes(content)

    ended = locate("--json", target)

    refused(
        ended,
        target,
        got="a file that is not a report of ours",
        next_step="choose another path, or replace it with --force",
    )
    assert target.read_bytes() == content
    assert fake.requests == []


def test_force_replaces_it(locate, tmp_path):
    target = tmp_path / "notes.json"
    target.write_text("notes", encoding="utf-8")

    assert locate("--json", target, "--force").status == 1
    assert json.loads(target.read_text(encoding="utf-8"))["status"] == "located"


@pytest.mark.parametrize("how", ["-i", "--weights", "--custom-ops", "-r", "candidate"])
def test_not_even_force_writes_over_a_file_that_the_run_reads(bisect_onnx, fake, tmp_path, how):
    target = tmp_path / "precious"
    target.write_text("precious", encoding="utf-8")
    arguments = {"candidate": "m.onnx", "-r": "net.py:build"} | {how: str(target)}
    candidate = arguments.pop("candidate")

    ended = bisect_onnx(
        "locate", candidate, *(word for pair in arguments.items() for word in pair), "--json", target, "--force"
    )

    refused(ended, target, got="a file that this run reads", next_step="choose another path")
    assert target.read_text(encoding="utf-8") == "precious"
    assert fake.requests == []


def test_the_file_of_a_factory_is_read_too(bisect_onnx, tmp_path):
    target = tmp_path / "net.py"
    target.write_text("def build(): ...", encoding="utf-8")

    ended = bisect_onnx("locate", "m.onnx", "-r", f"{target}:build", "--json", target, "--force")

    refused(ended, target, got="a file that this run reads", next_step="choose another path")


def test_a_folder_is_refused(locate, fake, tmp_path):
    ended = locate("--json", tmp_path)

    refused(ended, tmp_path, got="a folder", next_step=f"name a file in it: {tmp_path / 'report.json'}")
    assert fake.requests == []


def test_a_missing_folder_is_refused_before_the_run(locate, fake, tmp_path):
    target = tmp_path / "missing" / "report.json"

    ended = locate("--json", target)

    refused(ended, target, got=f"no folder {str(target.parent)!r}", next_step="make the folder first")
    assert fake.requests == []


def test_a_folder_that_takes_no_files_is_refused_before_the_run(monkeypatch, tmp_path):
    def read_only(**options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("bisect_onnx.cli.output.tempfile.TemporaryFile", read_only)

    with pytest.raises(OutputPathError) as caught:
        check_json_target(tmp_path / "r.json", force=False, inputs=())

    assert str(caught.value) == (
        f"--json cannot write 'r.json'\n  where:    {tmp_path / 'r.json'}\n"
        "  expected: a path for a new file, or an earlier report of ours\n"
        "  got:      Permission denied\n"
        "  next:     choose a path that you may write"
    )


def test_a_write_that_fails_keeps_the_earlier_report_and_shows_the_new_one(locate, monkeypatch, tmp_path):
    target = tmp_path / "report.json"
    locate("--json", target)
    before = target.read_bytes()

    def full(self, report, stream):
        stream.write("{")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bisect_onnx.render.as_json.AsJson.write", full)
    ended = locate("--json", target)

    assert ended.status == 2
    assert ended.out.startswith("✗ LOCATED: ")
    assert "  got:      No space left on device\n" in ended.err
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_an_interrupt_while_writing_leaves_nothing_half_written(locate, monkeypatch, tmp_path):
    def interrupted(self, report, stream):
        stream.write("{")
        raise KeyboardInterrupt

    monkeypatch.setattr("bisect_onnx.render.as_json.AsJson.write", interrupted)

    assert locate("--json", tmp_path / "report.json").status == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="no permission bits there")
def test_a_new_file_gets_the_usual_permissions_and_an_old_one_keeps_its_own(locate, tmp_path):
    target = tmp_path / "report.json"
    mask = os.umask(0o027)
    try:
        locate("--json", target)
        assert stat.S_IMODE(target.stat().st_mode) == 0o640
        target.chmod(0o600)
        locate("--json", target)
    finally:
        os.umask(mask)

    assert stat.S_IMODE(target.stat().st_mode) == 0o600


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_link_keeps_pointing_where_it_did(locate, tmp_path):
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")

    locate("--json", tmp_path / "link.json")

    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text(encoding="utf-8"))["status"] == "located"


@pytest.mark.skipif(os.name == "nt", reason="there is no such device")
def test_a_device_is_written_to_and_not_replaced(locate):
    assert locate("--json", os.devnull).status == 1
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)  # noqa: PTH116 - the path is a string
