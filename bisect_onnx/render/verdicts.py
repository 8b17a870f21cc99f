"""The verdict line: one sentence for each status, with the figure that decided it."""

import math

from bisect_onnx.core.compare import Verdict
from bisect_onnx.core.report import Culprit, MissingOperation, OutputRow, Report, Stage, Status
from bisect_onnx.core.tolerance import LARGER_IS_BETTER
from bisect_onnx.render import rows
from bisect_onnx.render.escapes import safe
from bisect_onnx.render.tree import node_place

__all__ = ["SYMBOLS", "sentence", "stage_words", "title"]

SYMBOLS = {
    Status.PARITY: ("✓", "+"),
    Status.LOCATED: ("✗", "X"),
    Status.SUSPECTED: ("?", "?"),
    Status.ACCUMULATION: ("≈", "~"),
    Status.HARNESS: ("!", "!"),
    Status.INCONCLUSIVE: ("?", "?"),
    Status.LOAD_FAILED: ("✗", "X"),
}

STAGE_WORDS = {
    Stage.EXPORT: "in the export",
    Stage.WEIGHTS: "in the weights",
    Stage.OPTIMIZER: "in ONNX Runtime's optimiser",
    Stage.PROVIDER: "on the execution provider",
    Stage.PRECISION: "in the lower precision",
    Stage.HARNESS: "in the way the two sides were compared",
}


def title(status: Status) -> str:
    """The status as a word: "LOAD FAILED"."""
    return status.value.replace("_", " ").upper()


def stage_words(stage: Stage) -> str:
    return STAGE_WORDS[stage]


def sentence(report: Report) -> str:
    """What was found, in one sentence without the status word; names are escaped, nothing is cut."""
    build = {
        Status.PARITY: _parity,
        Status.LOCATED: _located,
        Status.SUSPECTED: _suspected,
        Status.ACCUMULATION: _accumulation,
        Status.HARNESS: _told,
        Status.INCONCLUSIVE: _told,
        Status.LOAD_FAILED: _told,
    }[report.status]
    return build(report)


def _parity(report: Report) -> str:
    total = len(report.outputs)
    agree = {0: "the outputs agree", 1: "the output agrees"}.get(total, f"all {total} outputs agree")
    worst = _worst_output(report)
    text = f"{agree} with the reference"
    if worst is None or worst.error is None:
        return text
    if worst.error.max_abs == 0:
        return f"{text}, bit for bit"
    called = "error" if worst.metric == "scaled" else worst.metric
    text += f"; worst {called} {rows.judged(_figure_judged(worst), worst.metric)}"
    if total > 1:
        text += f" at {safe(worst.name)}"
    return f"{text}, {_allowed(worst)}" if worst.threshold is not None else text


def _located(report: Report) -> str:
    culprit = report.culprit
    if culprit is None:
        if report.optimizers:
            return f"the error is born in the optimiser {safe(', '.join(report.optimizers))}"
        return _told(report)
    more = len(report.culprits) - 1
    text = f"{_accused(culprit)} introduces the error{_figures(culprit)}"
    return text + (f"; {rows.count(more, 'more culprit')} below" if more else "")


def _suspected(report: Report) -> str:
    if report.missing_operation is not None and not report.culprits:
        return _missing(report.missing_operation)
    if len(report.culprits) == 1:
        (suspect,) = report.culprits
        if len(suspect.group) > 1:
            return (
                f"one of {len(suspect.group)} nodes that could not be told apart introduces the error"
                f"{_figures(suspect)}, most likely {_accused(suspect)}"
            )
        return f"{_accused(suspect)} is the likely source of the error, but that is not proven"
    if report.culprits:
        names = ", ".join(safe(node_place(culprit)) for culprit in report.culprits)
        return f"{len(report.culprits)} nodes are suspected of the error, without proof: {names}"
    return _told(report)


def _missing(gap: MissingOperation) -> str:
    text = f"an operation of the reference is missing in the graph between {safe(gap.after)} and {safe(gap.before)}"
    code = None if gap.source is None else gap.source.code
    return text if code is None else f"{text}: {safe(' '.join(code.split()))}"


def _accumulation(report: Report) -> str:
    worst = _worst_output(report)
    source = "the lower precision" if report.stage is Stage.PRECISION else "rounding"
    wrong = sum(row.verdict is Verdict.MISMATCH for row in report.nodes)
    nodes = "every node is within its noise floor" if not wrong else f"{rows.count(wrong, 'node')} err, none decides"
    text = f"no single culprit: {nodes}, and {source} adds up"
    if worst is None or worst.error is None:
        return text
    allowed = "" if worst.threshold is None else f" ({_allowed(worst)})"
    called = "" if worst.metric == "scaled" else f"{worst.metric} "
    return f"{text} to {called}{rows.judged(_figure_judged(worst), worst.metric)} at {safe(worst.name)}{allowed}"


def _told(report: Report) -> str:
    """What the run itself says; a plain sentence when it says nothing."""
    return safe(" ".join(report.summary.split())) or {
        Status.LOCATED: "the source of the error was found",
        Status.SUSPECTED: "the source of the error is suspected, not proven",
        Status.HARNESS: "the graphs agree, the comparison was set up wrongly",
        Status.INCONCLUSIVE: "no node can be accused",
        Status.LOAD_FAILED: "the runtime cannot load the model",
    }.get(report.status, "")


def _accused(culprit: Culprit) -> str:
    place = f" in {safe(culprit.module)}" if culprit.module else ""
    # The label of a node without a name ends with its operator.
    operator = "" if culprit.node.endswith(f":{culprit.op_type}") else f" ({safe(culprit.op_type)})"
    return f"{safe(node_place(culprit))}{operator}{place}"


def _figures(culprit: Culprit) -> str:
    introduced = culprit.error.introduced
    if introduced is None or introduced.scaled is None:
        return ""
    beyond = rows.factor(introduced.scaled, culprit.threshold)
    return f" ({rows.precise(introduced.scaled)}" + (f", {beyond} its threshold)" if beyond else ")")


def _figure_judged(row: OutputRow) -> float | None:
    return None if row.error is None else getattr(row.error, row.metric)


def _allowed(row: OutputRow) -> str:
    at_least = "at least " if row.metric in LARGER_IS_BETTER else ""
    return f"allowed {at_least}{rows.judged(row.threshold, row.metric)}"


def _worst_output(report: Report) -> OutputRow | None:
    """The output that is furthest beyond (or nearest to) its threshold; the first of equals."""

    def rank(row: OutputRow) -> tuple[bool, float]:
        figure = _figure_judged(row)
        if figure is None:
            return (row.verdict is Verdict.MISMATCH, -1.0)
        if row.metric in LARGER_IS_BETTER:
            return (row.verdict is Verdict.MISMATCH, math.inf if math.isnan(figure) else -figure)
        ratio = figure / row.threshold if row.threshold else figure
        return (row.verdict is Verdict.MISMATCH, math.inf if math.isnan(ratio) else ratio)

    return max(report.outputs, key=rank, default=None)
