"""Run a session: names and dtypes are checked first, and what the runtime raises becomes ours."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnxruntime as ort

from bisect_onnx.errors import FeedDtypeError, FeedNamesError, RuntimeFailedError
from bisect_onnx.runtimes.base import Array
from bisect_onnx.runtimes.ort_session import FATAL, RUNTIME_ERRORS, first_line
from bisect_onnx.runtimes.ort_values import element_type, run_session

__all__ = ["RUNTIME_NAME", "describe", "missing_inputs", "run_named"]

RUNTIME_NAME = "ONNX Runtime"


def run_named(
    session: ort.InferenceSession, feeds: Mapping[str, Array], *, fetch: Sequence[str], path: Path
) -> dict[str, Array]:
    """Run after a check of names and dtypes; the runtime's own faults become ours.

    Raises:
        FeedNamesError: An input is missing.
        FeedDtypeError: An array is of another dtype than the model declares.
        RuntimeFailedError: The run ended before its end.
    """
    inputs = {value.name: value for value in session.get_inputs()}
    missing = [name for name in inputs if name not in feeds]
    if missing:
        raise missing_inputs(missing, path=str(path), signature=tuple(inputs))
    for name, array in feeds.items():
        expected = element_type(inputs[name].type) if name in inputs else array.dtype
        both_text = expected is not None and expected.kind == "O" and array.dtype.kind == "U"
        if expected is not None and array.dtype != expected and not both_text:
            raise FeedDtypeError(where=path.name, name=name, expected=expected.name, got=array.dtype.name)
    options = ort.RunOptions()
    options.log_severity_level = FATAL
    try:
        return run_session(session, feeds, fetch=fetch, options=options)
    except RUNTIME_ERRORS as error:
        raise RuntimeFailedError(
            runtime=RUNTIME_NAME, path=path, fetching=describe(fetch), detail=first_line(error)
        ) from error


def describe(fetch: Sequence[str]) -> str:
    """What a run was after, for messages."""
    return f"while computing {fetch[0]!r}" + (f" and {len(fetch) - 1} more values" if len(fetch) > 1 else "")


def missing_inputs(names: Sequence[str], *, path: str, signature: Sequence[str]) -> FeedNamesError:
    return FeedNamesError(where=path, signature=signature, missing=names, extra=(), guesses=())
