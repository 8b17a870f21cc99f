"""The report: the one result that every use case returns and every renderer reads.

``Report.to_dict()`` is the JSON contract ``bisect-onnx/report/1`` (``schema/report-1.json``).
"""

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from bisect_onnx.core.alignment import Basis
from bisect_onnx.core.compare import ErrorStats, Verdict
from bisect_onnx.core.finding import Finding
from bisect_onnx.core.graph import PathStep, Source
from bisect_onnx.core.second_judge import SecondJudge

__all__ = [
    "SCHEMA", "AlignmentSummary", "Certificate", "Culprit", "CulpritError", "InputRow", "NodeRow", "OutputRow",
    "PairRow", "ReasonCode", "Report", "SearchSummary", "Stage", "Status", "Step", "Strategy", "WeightRow", "plain",
]  # fmt: skip

SCHEMA = "bisect-onnx/report/1"


class Status(enum.Enum):
    """The answer of a run; `Report.exit_code` follows from it."""

    PARITY = "parity"
    LOCATED = "located"
    SUSPECTED = "suspected"
    ACCUMULATION = "accumulation"
    HARNESS = "harness"
    INCONCLUSIVE = "inconclusive"
    LOAD_FAILED = "load_failed"


class Stage(enum.Enum):
    """Where the error was born."""

    EXPORT = "export"
    WEIGHTS = "weights"
    OPTIMIZER = "optimizer"
    PROVIDER = "provider"
    PRECISION = "precision"
    HARNESS = "harness"


class Strategy(enum.Enum):
    SCAN = "scan"
    BISECT = "bisect"
    OPTIMIZERS = "optimizers"
    WEIGHTS = "weights"
    NONE = "none"


class ReasonCode(enum.Enum):
    """Why a node has no verdict of its own."""

    UNPAIRED = "unpaired"
    SHAPE_ARITHMETIC = "shape_arithmetic"
    CONSTANT = "constant"
    INSIDE_SEGMENT = "inside_segment"
    TAP_ONLY = "tap_only"
    MASKED = "masked"
    FUSED = "fused"
    UNSUPPORTED_DTYPE = "unsupported_dtype"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """The recheckable proof of an accusation; None: not tried."""

    inputs_match: bool | None
    output_differs: bool | None
    replay_reproduces: bool | None

    @property
    def complete(self) -> bool:
        return bool(self.inputs_match and self.output_differs and self.replay_reproduces)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CulpritError:
    inherited: ErrorStats | None
    introduced: ErrorStats | None
    accumulated: ErrorStats | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Culprit:
    """A segment, and the node in it, that introduces an error above its noise floor."""

    node: str
    op_type: str
    domain: str
    index: int  # in the user's file
    path: tuple[PathStep, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, object]
    group: tuple[str, ...]  # the segment's nodes, the accused first
    module: str | None
    module_class: str | None
    torch_op: str | None
    source: Source | None
    error: CulpritError
    noise: float | None  # introduced floor, in units of `ErrorStats.scaled`
    threshold: float | None
    certificate: Certificate
    impact: float | None
    confidence: str  # "certified" or "suspected"
    second_judge: SecondJudge | None = None  # None: not asked


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class OutputRow:
    name: str
    reference: str | None  # the reference output it was compared with
    verdict: Verdict
    reason: str | None
    error: ErrorStats | None
    noise: float | None  # accumulated floor, in units of `ErrorStats.scaled`
    threshold: float | None
    metric: str = "scaled"  # the figure of ``error`` that the threshold is about


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PairRow:
    reference: str
    basis: Basis
    transform: str  # "identity", "reshape", "permute(0,2,1)", "cast"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NodeRow:
    """One node of the candidate; the three errors are `ErrorStats.scaled` figures."""

    index: int
    node: str
    op_type: str
    path: tuple[PathStep, ...]
    module: str | None
    pair: PairRow | None
    verdict: Verdict
    inherited: float | None
    introduced: float | None
    accumulated: float | None
    noise: float | None
    threshold: float | None
    impact: float | None
    reason_code: ReasonCode | None
    reason: str | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AlignmentSummary:
    pairs: int
    values: int
    coverage: float | None  # paired non-constant float values / all of them
    coverage_all: float | None
    by_basis: Mapping[str, int]
    unmatched: tuple[tuple[str, str], ...]  # (value, reason)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One probe of a search, kept so a report can replay how we got there."""

    probe: str
    verdict: Verdict
    suspects_before: int
    suspects_after: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SearchSummary:
    """``probes`` do not count confirmation and certificate runs; ``runs`` count every run of the candidate."""

    strategy: Strategy
    probes: int = 0
    runs: int = 0
    steps: tuple[Step, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class WeightRow:
    initializer: str
    parameter: str | None  # nearest parameter; None when nothing has the shape
    transform: str | None
    error: float | None  # relative L2 distance to it


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class InputRow:
    name: str
    shape: tuple[int, ...]
    dtype: str
    range: tuple[float, float] | None
    source: str  # "feeds.npz", "random (seed 0)", "caller"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MissingOperation:
    after: str
    before: str
    source: Source | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What a run found; see the schema for the meaning of each field."""

    status: Status
    stage: Stage | None
    summary: str
    culprits: tuple[Culprit, ...] = ()  # the first is *the* culprit
    optimizers: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    outputs: tuple[OutputRow, ...] = ()
    nodes: tuple[NodeRow, ...] = ()
    alignment: AlignmentSummary
    search: SearchSummary
    missing_operation: MissingOperation | None = None
    keep_list: tuple[str, ...] = ()
    weights: tuple[WeightRow, ...] = ()
    check: Mapping[str, object] | None = None
    environment: Mapping[str, object] = dataclasses.field(default_factory=dict)
    inputs: tuple[InputRow, ...] = ()
    timing: Mapping[str, float] = dataclasses.field(default_factory=dict)  # seconds per stage, with "total"
    peak_memory_bytes: int | None = None
    next_steps: tuple[str, ...] = ()

    @property
    def culprit(self) -> Culprit | None:
        return self.culprits[0] if self.culprits else None

    @property
    def exit_code(self) -> int:
        if self.status is Status.PARITY:
            return 0
        return 3 if self.status is Status.INCONCLUSIVE else 1

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON; infinities and NaN spelled as strings, tuples as lists."""
        data = {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}
        data["schema"] = SCHEMA
        data["culprit"] = plain(self.culprit)
        data["timing"] = {"total": 0.0} | plain(self.timing)
        alignment = data["alignment"]
        assert isinstance(alignment, dict)
        alignment["unmatched"] = [{"value": value, "reason": reason} for value, reason in self.alignment.unmatched]
        return data


def plain(value: Any) -> Any:
    """JSON data for the report's own values: floats that JSON lacks become "inf", "-inf" and "nan"."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float | np.floating):
        return _plain_float(float(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, bytes):  # a string attribute as ONNX stores it
        return value.decode("utf-8", errors="backslashreplace")
    return _plain_collection(value)


def _plain_float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def _plain_collection(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    if isinstance(value, AbstractSet):
        return sorted((plain(item) for item in value), key=lambda item: (str(type(item)), str(item)))
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return str(value)
