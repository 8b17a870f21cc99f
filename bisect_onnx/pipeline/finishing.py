"""The report of a run, when its answer is known: what stands in every report, whatever the answer."""

from collections.abc import Mapping

from bisect_onnx.core.report import Report, SearchSummary, Strategy
from bisect_onnx.pipeline.comparing import Comparison
from bisect_onnx.pipeline.environment import describe_environment
from bisect_onnx.pipeline.precision_report import written_keep_list
from bisect_onnx.pipeline.request import LocateRequest
from bisect_onnx.pipeline.rows import EMPTY_ALIGNMENT
from bisect_onnx.pipeline.screening import Screened
from bisect_onnx.pipeline.sides import Sides
from bisect_onnx.pipeline.stages import StageClock, peak_memory
from bisect_onnx.pipeline.verdicts import Answer

__all__ = ["finished"]


def finished(
    verdict: Answer,
    *,
    compared: Comparison,
    sides: Sides,
    request: LocateRequest,
    run: StageClock,
    screened: Screened | None = None,
    fields: Mapping[str, object],
) -> Report:
    """The report.

    Args:
        verdict: The answer.
        compared: The outputs.
        sides: What was run.
        request: What was asked.
        run: The clock of the run.
        screened: All samples, where there were several.
        fields: Fields of the report that this answer fills.
    """
    values: dict[str, object] = {
        "alignment": EMPTY_ALIGNMENT,
        "search": SearchSummary(strategy=Strategy.NONE, runs=sides.candidate.runs),
    }
    values.update(fields)
    verdict = written_keep_list(verdict, values, request)
    environment = describe_environment(providers=request.providers, level=request.level)
    return Report(
        status=verdict.status,
        stage=verdict.stage,
        summary=verdict.summary if screened is None else screened.added_to(verdict),
        findings=verdict.findings,
        next_steps=verdict.next_steps,
        outputs=tuple(compared.rows),
        environment=environment,
        inputs=sides.feeds.rows,
        timing=run.timing(),
        peak_memory_bytes=peak_memory(),
        **values,  # type: ignore[arg-type]
    )
