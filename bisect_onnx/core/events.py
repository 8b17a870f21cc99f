"""What a running use case tells its listeners; the terminal and tests are listeners."""

import dataclasses
from collections.abc import Callable

__all__ = ["Event", "Listener", "ProbeDone", "StageFinished", "StageStarted", "Warned", "ignore"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class StageStarted:
    """A step of the pipeline begins; ``steps`` is its length when known, otherwise None."""

    stage: str  # "open", "confirm", "capture", "align", "search", "certify", "diagnose"
    title: str
    steps: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class StageFinished:
    stage: str
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ProbeDone:
    """One probe of a search was answered; ``verdict`` is a `core.compare.Verdict` value."""

    probe: str
    verdict: str
    suspects: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Warned:
    """Something the user should know that is not part of the report."""

    message: str


Event = StageStarted | StageFinished | ProbeDone | Warned
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The listener that does nothing."""
