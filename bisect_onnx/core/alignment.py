"""Pairs of values that stand for the same quantity, and the reason for each value without a partner."""

import dataclasses
import enum
from collections.abc import Mapping

__all__ = ["Alignment", "Basis", "Pair"]


class Basis(enum.Enum):
    """What a pair rests on, strongest first."""

    EXPORTER = "exporter"
    SCOPE_NAME = "scope_name"
    PARAMETER = "parameter"
    VALUE = "value"
    STRUCTURE = "structure"
    NAME = "name"
    RECORDED = "recorded"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A candidate value and the reference value that stands for the same quantity."""

    candidate: str
    reference: str
    basis: Basis
    transform: str = "identity"  # or "reshape", "permute(0,2,1)": applied to the reference's array


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alignment:
    """All pairs by candidate value, in topological order, and reasons for the values left over."""

    pairs: Mapping[str, Pair]
    unmatched: Mapping[str, str]
