"""A file that runs at level 0 and is refused as configured: the optimisers that break it, and what is right without.

The runtime may refuse to start a session, or start one and fail in a node that an optimiser made. Either way the
optimisers are found and switched off, and the comparison goes on with the file as it is then.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from bisect_onnx.core.finding import Confidence, Counterfactual, Finding
from bisect_onnx.core.report import Report, SearchSummary, Stage, Status
from bisect_onnx.errors import ModelNotLoadedError, RuntimeFailedError, listing
from bisect_onnx.pipeline.commands import as_command
from bisect_onnx.pipeline.loading import cured_copy
from bisect_onnx.pipeline.optimizer_search import FAILURES, Guilty, Merged, OptimizerSearch, merged_nodes
from bisect_onnx.pipeline.optimizer_stage import MOST_NAMED, absent, on_cpu, switch_off, tunable
from bisect_onnx.pipeline.request import LocateRequest
from bisect_onnx.pipeline.sides import Sides
from bisect_onnx.pipeline.stages import StageClock

if TYPE_CHECKING:
    from bisect_onnx.runtimes.ort import OrtCandidate

__all__ = ["unbroken"]


def unbroken(locate: Callable[[Sides], Report], *, sides: Sides, request: LocateRequest, run: StageClock) -> Report:
    """What ``locate`` reports of the sides, or of the file without the optimisers that break it, where they do.

    Raises:
        BisectOnnxError: As ``locate``; a refusal that no optimiser is the cause of is among them.
    """
    try:
        return locate(sides)
    except FAILURES as error:
        with run.stage("optimizers", "Switching the runtime's optimisers off"):
            found = _broken_by_optimisers(error, sides=sides, request=request)
        if found is None:
            with run.stage("loading", "Looking for what keeps the model from loading"):
                copy = cured_copy(error, sides=sides)
            if copy is None:
                raise
            return copy.told(locate(dataclasses.replace(sides, candidate=copy.candidate)), request)
    cured = locate(dataclasses.replace(sides, candidate=found.candidate))
    return _told(cured, found, request=request)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Broken:
    candidate: "OrtCandidate"  # the file with the optimisers off
    guilty: Guilty
    finding: Finding
    search: SearchSummary
    error: ModelNotLoadedError | RuntimeFailedError


def _broken_by_optimisers(
    error: ModelNotLoadedError | RuntimeFailedError, *, sides: Sides, request: LocateRequest
) -> _Broken | None:
    """None when no optimisers are what breaks the file."""
    candidate = tunable(sides)
    if candidate is None or not on_cpu(request) or request.level == 0:
        return None
    feeds = sides.feeds.arrays
    if _runs(candidate, sides, level=None) or not _runs(candidate, sides, level=0):
        return None
    search = OptimizerSearch(candidate, feeds, level=request.level, gone=lambda _: True)
    guilty = search.search()
    if guilty is None:
        return None
    finding = _finding(error, guilty, search, merged=merged_nodes(candidate, feeds, without=guilty.names))
    return _Broken(
        candidate=candidate.reconfigured(without=guilty.names),
        guilty=guilty,
        finding=finding,
        search=search.summary(),
        error=error,
    )


def _runs(candidate: "OrtCandidate", sides: Sides, *, level: int | None) -> bool:
    try:
        candidate.run_configured(sides.feeds.arrays, level=level)
    except FAILURES:
        return False
    return True


def _told(cured: Report, found: _Broken, *, request: LocateRequest) -> Report:
    """The report of the cured file, which says that it is one."""
    finding, guilty = found.finding, found.guilty
    report = dataclasses.replace(cured, findings=(finding, *cured.findings), optimizers=guilty.names)
    names = _who(guilty)
    refused = isinstance(found.error, ModelNotLoadedError)
    what = "the runtime cannot load the model" if refused else "the runtime fails while it runs the model"
    told = f"{what} from level {guilty.first_level} on, because of {names}"
    if cured.status is not Status.PARITY:
        return dataclasses.replace(report, summary=f"{cured.summary} ({told}; it was compared without)")
    return dataclasses.replace(
        report,
        status=Status.LOAD_FAILED if refused else Status.LOCATED,
        stage=Stage.OPTIMIZER,
        summary=f"{told}; with that off the outputs agree, so the file itself is right",
        search=dataclasses.replace(found.search, runs=found.search.runs + cured.search.runs),
        next_steps=(
            *((finding.remedy,) if finding.remedy else ()),
            "Confirm that the file is right without the optimisers:",
            as_command(request, level=0),
        ),
    )


def _who(guilty: Guilty) -> str:
    many = len(guilty.names) > 1
    return f"the optimiser{'s' if many else ''} {', '.join(guilty.names)} of ONNX Runtime"


def _finding(
    error: ModelNotLoadedError | RuntimeFailedError, guilty: Guilty, search: OptimizerSearch, *, merged: Merged
) -> Finding:
    starts = isinstance(error, ModelNotLoadedError)
    names = listing(guilty.names)
    text = f"with {names} off and all other optimisers on, the model {'loads' if starts else 'runs to the end'}"
    if merged.nodes:
        nodes = listing([node.name for node in merged.nodes], limit=MOST_NAMED)
        text += f"; what it does to {nodes} is what the runtime refuses"
    facts: dict[str, object] = {"level": dict(guilty.levels), "shows from level": guilty.first_level}
    facts["runtime says"] = error.detail
    if merged.nodes:
        facts["merged nodes"] = [node.name for node in merged.nodes]
    if merged.made:
        facts["merged into"] = list(merged.made)
    return Finding(
        code="LD006" if starts else "GO003",
        name="optimiser-breaks-the-session" if starts else "optimiser-breaks-the-run",
        cause="K20",
        confidence=Confidence.PROVEN,
        subject=merged.nodes[0].name if merged.nodes else None,
        message=text,
        facts={**facts, **absent(search)},
        remedy=f"Start sessions with disabled_optimizers={list(guilty.names)!r}, or below level "
        f"{guilty.first_level}, and report it to ONNX Runtime.",
        counterfactual=Counterfactual(
            edit=f"{switch_off(guilty.names)}, all other optimisers on: the model {'loads' if starts else 'runs'}",
            local_before=None,
            local_after=None,
            output_before=None,
            output_after=None,
        ),
    )
