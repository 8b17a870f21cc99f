"""A finding: a named cause with facts, a remedy and, where an edit was tried, its counterfactual."""

import dataclasses
import enum
from collections.abc import Mapping

__all__ = ["Confidence", "Counterfactual", "Finding"]


class Confidence(enum.Enum):
    PROVEN = "proven"  # the edit was applied and the error went away
    LIKELY = "likely"
    POSSIBLE = "possible"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Counterfactual:
    """What an edit did; the four figures are `core.compare.ErrorStats.scaled`."""

    edit: str
    local_before: float | None
    local_after: float | None
    output_before: float | None
    output_after: float | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    code: str  # the rule's own, e.g. "HN001"
    name: str
    cause: str | None  # "K01" to "K28"; None when no class fits
    confidence: Confidence
    subject: str | None  # a node, an input or a module path
    message: str
    facts: Mapping[str, object] = dataclasses.field(default_factory=dict)
    remedy: str | None = None
    counterfactual: Counterfactual | None = None
    references: tuple[str, ...] = ()
