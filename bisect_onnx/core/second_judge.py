"""Two against one: a third implementation of the operators, asked about a wrong segment."""

import dataclasses
import enum

__all__ = ["Agreement", "SecondJudge"]


class Agreement(enum.Enum):
    """With whom the onnx reference evaluator agrees, when it computes a segment from the reference's inputs."""

    RUNTIME = "runtime"  # the file asks for what the runtime computes: the file differs from the reference
    REFERENCE = "reference"  # the file asks for what the reference computes: the runtime does something else
    NEITHER = "neither"
    SILENT = "silent"  # it could not be asked


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SecondJudge:
    """``reason`` says why it is silent; None otherwise."""

    agrees_with: Agreement
    reason: str | None = None
