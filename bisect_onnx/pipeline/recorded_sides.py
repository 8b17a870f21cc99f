"""Open a candidate that ran elsewhere: the capture, the same file here at level 0 on the CPU, and the reference."""

import dataclasses
import zipfile
from pathlib import Path

from bisect_onnx.core.recording import Recording
from bisect_onnx.errors import CandidateValuesError, listing
from bisect_onnx.pipeline.request import LocateRequest
from bisect_onnx.pipeline.sides import Sides, open_sides
from bisect_onnx.runtimes.recorded_candidate import RecordedCandidate, same

__all__ = ["here", "open_recorded"]

FORM = "what 'bisect-onnx capture' wrote of this model"


def here(request: LocateRequest) -> LocateRequest:
    """The request for the file on this machine: without optimisers on the CPU, on the inputs of the capture."""
    return dataclasses.replace(
        request,
        inputs=request.candidate_values if request.inputs is None else request.inputs,
        providers=("CPUExecutionProvider",),
        level=0,
        candidate_values=None,
    )


def open_recorded(request: LocateRequest, path: Path) -> tuple[Sides, RecordedCandidate]:
    """The sides with the file as it runs here, and the candidate that stands for the recorded run.

    Raises:
        CandidateValuesError: The capture is damaged, of another model, or of other inputs.
    """
    _refuse_other_configurations(request, path)
    recording = _record(path)
    _require_same_model(request.candidate, recording, path=path)
    sides = open_sides(here(request))
    candidate = RecordedCandidate(path, recording, here=sides.candidate, inputs=sides.feeds.arrays)
    for name, stored in candidate.recorded(recording.inputs).items():
        fed = sides.feeds.arrays.get(name)
        if fed is None or not same(fed, stored):
            raise CandidateValuesError(
                path=path,
                expected=f"the inputs that it was captured with ({recording.source})",
                got=f"another array for {name!r}",
                next_step="leave out --inputs, or capture again with these inputs",
            )
    return sides, candidate


def _refuse_other_configurations(request: LocateRequest, path: Path) -> None:
    """What the recorded run was made with cannot be chosen any more; options that do nothing would mislead."""
    defaults = {field.name: field.default for field in dataclasses.fields(request)}
    given = {
        "--provider": request.providers != defaults["providers"],
        "--level": request.level != defaults["level"],
        "--session-option": bool(request.session_options),
        "--samples": request.samples or (isinstance(request.inputs, list) and len(request.inputs) > 1),
        "--module": request.module is not None,
        "--keep-list": request.keep_list is not None,
        "--shape": bool(request.shapes),
    }
    chosen = [option for option, is_given in given.items() if is_given]
    if chosen:
        raise CandidateValuesError(
            path=path,
            expected="no option about how the candidate runs: it has run, on one set of inputs",
            got=", ".join(chosen),
            next_step=f"leave out {', '.join(chosen)}, or capture again in that configuration",
        )


def _record(path: Path) -> Recording:
    from bisect_onnx.readers.recording_file import read_record

    if not path.is_file():
        got = "a folder" if path.is_dir() else "no such file"
        raise CandidateValuesError(path=path, expected=FORM, got=got, next_step="check the path")
    if not zipfile.is_zipfile(path):
        got = f"{path.stat().st_size} bytes that are no zip archive"
        raise CandidateValuesError(path=path, expected=FORM, got=got, next_step="copy it again")
    try:
        recording = read_record(path)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise CandidateValuesError(
            path=path, expected=FORM, got=f"damage in its record: {error}", next_step="copy it again"
        ) from error
    if recording is None:
        raise CandidateValuesError(
            path=path,
            expected=FORM,
            got="arrays without the record of a capture, so that nothing says which model and inputs they belong to",
            next_step="write it with 'bisect-onnx capture'; other recorded values can only be the --reference",
        )
    return recording


def _require_same_model(model: Path, recording: Recording, *, path: Path) -> None:
    from bisect_onnx.readers.onnx_digest import digest_model
    from bisect_onnx.readers.onnx_proto import read_proto

    found, expected = digest_model(model, read_proto(model)), recording.model
    if expected.same_as(found):
        return
    other = [name for name in expected.weights if expected.weights[name] != found.weights.get(name)]
    if expected.sha256 == found.sha256:
        got = f"another weights file {listing(other)} beside {model.name}"
    else:
        got = f"{model.name} with sha256 {found.sha256[:16]}..."
    raise CandidateValuesError(
        path=path,
        expected=f"the model that was captured: {expected.name} with sha256 {expected.sha256[:16]}...",
        got=got,
        next_step="give the file that ran there, or capture this one",
    )
