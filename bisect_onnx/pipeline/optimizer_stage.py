"""The answer when the file is right at level 0 and wrong as configured: the optimisers that do it, and the proof."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bisect_onnx.core.compare import Objection, Verdict, compare_arrays
from bisect_onnx.core.finding import Confidence, Counterfactual, Finding
from bisect_onnx.core.report import Stage, Status
from bisect_onnx.errors import listing
from bisect_onnx.pipeline.comparing import Comparison
from bisect_onnx.pipeline.optimizer_search import FAILURES, Guilty, Merged, OptimizerSearch, merged_nodes
from bisect_onnx.pipeline.preflight import worst_scaled
from bisect_onnx.pipeline.quantization_steps import Steps, whole_steps
from bisect_onnx.pipeline.region import Region
from bisect_onnx.pipeline.request import LocateRequest
from bisect_onnx.pipeline.sides import Sides
from bisect_onnx.pipeline.verdicts import Told, answer

if TYPE_CHECKING:
    from bisect_onnx.runtimes.ort import OrtCandidate

__all__ = [
    "MOST_NAMED",
    "absent",
    "configuration_at_fault",
    "on_cpu",
    "rounded_elsewhere",
    "switch_off",
    "tunable",
]

MOST_NAMED = 8

# The share of an error from which on something counts as its source: that of the report's contract for impacts.
MOST = 0.5


def on_cpu(request: LocateRequest) -> bool:
    return all(name.lower().startswith("cpu") for name in request.providers)


def tunable(sides: Sides) -> "OrtCandidate | None":
    """The candidate, when it can be run in other configurations here."""
    from bisect_onnx.runtimes.ort import OrtCandidate

    return sides.candidate if isinstance(sides.candidate, OrtCandidate) else None


def configuration_at_fault(
    region: Region, sides: Sides, *, compared: Comparison, request: LocateRequest
) -> Told | None:
    """The answer when the outputs agree at level 0 on CPU: then no node of the file is to blame. Otherwise None."""
    observed = {name: region.plain[name] for name in region.graph.outputs if name in region.plain}
    if not compared.would_agree(observed):
        return None
    candidate = tunable(sides)
    if candidate is None or not on_cpu(request):
        return Told(
            verdict=answer(status=Status.SUSPECTED, outputs=compared.rows, stage=Stage.PROVIDER, request=request)
        )
    if not _right_at_level_0(candidate, sides, compared=compared):
        return _moved(compared, request)
    return _optimisers_at_fault(candidate, sides, compared=compared, request=request)


def _right_at_level_0(candidate: "OrtCandidate", sides: Sides, *, compared: Comparison) -> bool:
    """Whether the untouched file agrees at level 0, with nothing exposed."""
    try:
        return compared.would_agree(candidate.run_configured(sides.feeds.arrays, level=0))
    except FAILURES:
        return False


def _moved(compared: Comparison, request: LocateRequest) -> Told:
    finding = Finding(
        code="OB001",
        name="seen-only-when-not-looked-at",
        cause="K20",
        confidence=Confidence.PROVEN,
        subject=None,
        message="the outputs differ at level 0 when nothing is exposed, and agree when every value is: looking at the "
        "values moves the error, so what is seen says nothing about it",
        remedy="Compare pieces of the model as files of their own.",
    )
    return Told(verdict=answer(status=Status.INCONCLUSIVE, outputs=compared.rows, findings=(finding,), request=request))


def _optimisers_at_fault(
    candidate: "OrtCandidate", sides: Sides, *, compared: Comparison, request: LocateRequest
) -> Told:
    search = OptimizerSearch(candidate, sides.feeds.arrays, level=request.level, gone=compared.would_agree)
    guilty = search.search()
    if guilty is None:
        return _unexplained(search, compared, request)
    return _explained(search, guilty, candidate=candidate, sides=sides, compared=compared, request=request)


def rounded_elsewhere(sides: Sides, compared: Comparison, request: LocateRequest) -> Told | None:
    """The answer when outputs differ by whole quantisation steps as configured, and agree at level 0.

    To be asked before the noise is measured: an input moved by one unit in the last place can move an integer by one,
    so that the noise of a quantised output is a step, and its threshold hides several.
    """
    candidate = tunable(sides)
    if candidate is None or not on_cpu(request) or request.level == 0:
        return None
    if whole_steps(candidate, wrong=compared.observed, right=compared.truth, failing=_failing(compared)) is None:
        return None
    if not _right_at_level_0(candidate, sides, compared=compared):
        return None
    return _optimisers_at_fault(candidate, sides, compared=compared, request=request)


def _unexplained(search: OptimizerSearch, compared: Comparison, request: LocateRequest) -> Told:
    finding = Finding(
        code="GO002",
        name="optimiser-not-found",
        cause="K20",
        confidence=Confidence.POSSIBLE,
        subject=None,
        message=f"the outputs agree at level 0, and switching off all {search.asked} known optimisers of level "
        f"{request.level} at once does not make them agree: what does it is not in the list, or cannot be switched off",
        facts=absent(search),
        remedy="Use a lower level.",
    )
    verdict = answer(
        status=Status.SUSPECTED,
        outputs=compared.rows,
        stage=Stage.OPTIMIZER,
        findings=(finding,),
        request=request,
    )
    return Told(verdict=verdict, fields={"search": search.summary()})


def _explained(
    search: OptimizerSearch,
    guilty: Guilty,
    *,
    candidate: "OrtCandidate",
    sides: Sides,
    compared: Comparison,
    request: LocateRequest,
) -> Told:
    merged = merged_nodes(candidate, sides.feeds.arrays, without=guilty.names)
    after = compared.would_be(guilty.outputs)
    steps = whole_steps(candidate, wrong=compared.observed, right=guilty.outputs, failing=_failing(compared))
    proven = _takes_most_away(guilty, compared)
    finding = Finding(
        code="GO001",
        name="optimiser-changes-the-result",
        cause="K22" if steps is not None else "K20",
        confidence=Confidence.PROVEN if proven else Confidence.LIKELY,
        subject=merged.nodes[-1].name if merged.nodes else None,
        message=_message(guilty, merged, steps=steps, proven=proven),
        facts={**_facts(guilty, merged), **({} if steps is None else steps.facts()), **absent(search)},
        remedy=_remedy(guilty.names, steps=steps),
        counterfactual=Counterfactual(
            edit=f"{switch_off(guilty.names)}, all other optimisers on",
            local_before=None,
            local_after=None,
            output_before=worst_scaled(compared.rows),
            output_after=worst_scaled(after),
        ),
    )
    verdict = answer(
        status=Status.LOCATED if proven else Status.SUSPECTED,
        outputs=compared.rows,
        stage=Stage.OPTIMIZER,
        findings=(finding,),
        request=request,
    )
    who = "optimiser" if len(guilty.names) == 1 else "optimisers"
    failing = _failing(compared)
    summary = (
        f"{len(failing)} of {len(compared.rows)} outputs differ{'s' if len(compared.rows) == 1 else ''} from level "
        f"{guilty.first_level} on, and agree at level 0: the error is born in the {who} {', '.join(guilty.names)} of "
        "ONNX Runtime, not in the file"
    )
    if not proven:
        summary += ", though most of the difference is there without"
    return Told(
        verdict=dataclasses.replace(verdict, summary=summary),
        fields={"optimizers": guilty.names, "search": search.summary()},
    )


def _failing(compared: Comparison) -> list[str]:
    return [row.name for row in compared.rows if row.verdict is Verdict.MISMATCH]


def _takes_most_away(guilty: Guilty, compared: Comparison) -> bool:
    """Whether switching off moves an output that differs by most of its error.

    Otherwise the results lie on either side of a threshold, told apart by rounding alone, which any optimiser moves.
    """
    for row in compared.rows:
        if row.verdict is not Verdict.MISMATCH or row.name not in guilty.outputs:
            continue
        moved = compare_arrays(guilty.outputs[row.name], compared.observed[row.name])
        if isinstance(moved, Objection) or moved.nonfinite_mismatch or moved.scaled is None:
            return True
        if row.error is None or row.error.scaled is None or moved.scaled >= MOST * row.error.scaled:
            return True
    return False


def _message(guilty: Guilty, merged: Merged, *, steps: Steps | None, proven: bool) -> str:
    names = listing(guilty.names)
    text = f"with {names} off and all other optimisers on, the outputs agree"
    if len(guilty.names) > 1:
        text += "; with any one of them on again they do not"
    if merged.nodes:
        text += f"; {'it merges' if len(guilty.names) == 1 else 'they merge'} {_named(merged)}"
        text += f" into {', '.join(merged.made)}" if merged.made else ""
    if steps is not None:
        text += f"; {steps.told()}"
    if not proven:
        text += "; but most of the difference is there without, on the right side of the threshold"
    return text


def _named(merged: Merged) -> str:
    return listing([node.name for node in merged.nodes], limit=MOST_NAMED)


def _facts(guilty: Guilty, merged: Merged) -> dict[str, object]:
    facts: dict[str, object] = {"level": dict(guilty.levels), "shows from level": guilty.first_level}
    if merged.nodes:
        facts["merged nodes"] = [node.name for node in merged.nodes[:MOST_NAMED]]
    if merged.made:
        facts["merged into"] = list(merged.made[:MOST_NAMED])
    return facts


def absent(search: OptimizerSearch) -> dict[str, object]:
    if not search.absent:
        return {}
    return {"skipped, not in this build": list(search.absent)}


def _remedy(names: Sequence[str], *, steps: Steps | None) -> str:
    text = (
        f"Start sessions with disabled_optimizers={list(names)!r}, or at a lower level, and report it to ONNX Runtime."
    )
    if steps is not None and steps.largest == 1:
        told = "A step is how integer kernels round, no fault of the export. Where it matters"
        text = f"{told}: {text[0].lower()}{text[1:]}"
    return text


def switch_off(names: Sequence[str]) -> str:
    return f"{', '.join(names)} off"
