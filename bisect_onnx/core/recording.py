"""What a capture says of itself beside its arrays: which model ran where and how, and what is missing in it."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["METADATA", "SCHEMA", "Captured", "ModelFile", "Recording"]

# The array of the archive that holds the text; no value of a model is called that.
METADATA = "__bisect_onnx__"
SCHEMA = "bisect-onnx/capture/1"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ModelFile:
    """The file that ran, told from any other; ``weights`` has a digest for each file of external data."""

    name: str
    sha256: str
    weights: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def same_as(self, other: "ModelFile") -> bool:
        """Whether both are one model, whatever the files are called."""
        return self.sha256 == other.sha256 and dict(self.weights) == dict(other.weights)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """How the values came about.

    Arrays are stored under the names of their values. Those of ``outputs`` come from a run of the untouched model,
    all others from sessions in which they were outputs too, which keeps the runtime from merging nodes across them.
    """

    model: ModelFile
    providers: tuple[str, ...]  # what the session was given, in its order
    level: int
    session_options: Mapping[str, str]
    custom_ops: tuple[str, ...]
    inputs: tuple[str, ...]
    source: str  # where they came from: "feeds.npz", "random (seed 0)", "caller"
    outputs: tuple[str, ...]
    sessions: int  # over how many the exposed values are spread
    bits: Mapping[str, str]  # dtype of each array that is stored as unsigned integers, as numpy has none for it
    skipped: Mapping[str, str]  # why a value is missing
    moved: Mapping[str, str]  # outputs that were others while values were exposed: by how much
    environment: Mapping[str, object]

    def to_text(self) -> str:
        """JSON, the same for equal recordings."""
        return json.dumps({"schema": SCHEMA, **dataclasses.asdict(self)}, indent=1, sort_keys=True, allow_nan=False)

    @classmethod
    def from_text(cls, text: str) -> "Recording":
        """The reverse of `to_text`.

        Raises:
            ValueError: The text is another version's, or damaged.
        """
        data: Any = json.loads(text)
        if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
            raise ValueError(f"its record is not of the form {SCHEMA}")
        known = {field.name for field in dataclasses.fields(cls)}
        try:
            data = {name: tuple(each) if isinstance(each, list) else each for name, each in data.items()}
            model = ModelFile(**data.pop("model"))
            return cls(model=model, **{name: each for name, each in data.items() if name in known})
        except (TypeError, KeyError) as error:
            raise ValueError(f"its record is incomplete: {error}") from error


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Captured:
    """A capture that was written."""

    model: Path
    path: Path
    recording: Recording
    values: int  # arrays between inputs and outputs
    bytes: int  # of the file
