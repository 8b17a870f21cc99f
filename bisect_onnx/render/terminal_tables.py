"""The tables of the terminal report: outputs, inputs, worst nodes, and what -v adds."""

import functools
import math
from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bisect_onnx.core.compare import Verdict
from bisect_onnx.core.report import NodeRow, OutputRow, Report
from bisect_onnx.core.tolerance import LARGER_IS_BETTER
from bisect_onnx.render import rows
from bisect_onnx.render.terminal_panels import facts_table
from bisect_onnx.render.tree import node_place, reason_words
from bisect_onnx.render.wrapped import Wrapped

__all__ = ["background", "inputs_table", "outputs_table", "special_sections", "top_table"]

VERDICT_STYLES = {Verdict.MATCH: "green", Verdict.MISMATCH: "bold red", Verdict.UNTESTABLE: "yellow"}


def _table(*columns: tuple[str, str]) -> Table:
    """A plain table; columns are (title, "left" or "right"), the first takes what is left of the width."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, (title, side) in enumerate(columns):
        right = side == "right"
        table.add_column(
            title,
            justify="right" if right else "left",
            no_wrap=right,
            overflow="fold",
            min_width=8 if number == 0 else None,
        )
    return table


def outputs_table(report: Report) -> Table:
    # A tolerance of the user's is about one figure, the same for all outputs.
    metric = next((row.metric for row in report.outputs if row.error is not None), "scaled")
    called = "error" if metric == "scaled" else metric
    limit = "at least" if metric in LARGER_IS_BETTER else "threshold"
    show = rows.figure if metric not in LARGER_IS_BETTER else functools.partial(rows.judged, metric=metric)
    table = _table(("output", "left"), ("verdict", "left"), (called, "right"), ("floor", "right"), (limit, "right"))
    for row in report.outputs:
        table.add_row(
            Wrapped(*_output_name(row)),
            Text(row.verdict.value, style=VERDICT_STYLES[row.verdict]),
            show(None if row.error is None else getattr(row.error, metric)),
            rows.figure(row.noise),
            show(row.threshold),
        )
    return table


def _output_name(row: OutputRow) -> list[str]:
    """The name, the reference's when it differs, and the reason on a line of its own."""
    name = row.name if row.reference in (None, row.name) else f"{row.name} (reference: {row.reference})"
    return [name, row.reason] if row.reason else [name]


def inputs_table(report: Report) -> RenderableType:
    table = _table(("input", "left"), ("shape", "left"), ("dtype", "left"), ("range", "left"), ("source", "left"))
    for row in report.inputs:
        low_high = rows.UNKNOWN if row.range is None else " to ".join(rows.precise(bound) for bound in row.range)
        table.add_row(Wrapped(row.name), rows.shape(row.shape), Text(row.dtype), low_high, Wrapped(row.source))
    if not any(row.source.startswith("random") for row in report.inputs):
        return table
    note = "These inputs were drawn at random: give real ones with --inputs before you trust the figures."
    return Group(table, Wrapped(note, style="yellow"))


def top_table(report: Report, number: int) -> Table:
    """The nodes that introduce most, measured by their own thresholds."""
    table = _table(
        ("node", "left"),
        ("inherited", "right"),
        ("introduced", "right"),
        ("accumulated", "right"),
        ("x threshold", "right"),
    )
    for row in sorted(report.nodes, key=_badness)[:number]:
        place = [f"{node_place(row)}  {row.op_type}", *([f"in {row.module}"] if row.module else [])]
        reason = reason_words(row, in_full=False)
        table.add_row(
            Wrapped(*place, *([f"({reason})"] if reason else [])),
            rows.figure(row.inherited),
            rows.figure(row.introduced),
            rows.figure(row.accumulated),
            rows.figure(_ratio(row)),
        )
    return table


def _ratio(row: NodeRow) -> float | None:
    if row.introduced is None or row.threshold is None:
        return None
    if row.threshold == 0:
        return math.inf if row.introduced else 0.0
    return row.introduced / row.threshold


def _badness(row: NodeRow) -> tuple[float, float, float, int]:
    """Sort key, worst first; NaN counts as infinite, unknown comes last, and the file's order decides ties."""

    def descending(value: float | None) -> float:
        if value is None:
            return math.inf
        return -math.inf if math.isnan(value) else -value

    return descending(_ratio(row)), descending(row.introduced), descending(row.accumulated), row.index


def special_sections(report: Report) -> Iterator[tuple[str, RenderableType]]:
    """What only some reports have: optimisers, differing weights, nodes to keep."""
    if report.optimizers:
        yield "optimisers that cause it", Wrapped(*report.optimizers)
    if report.weights:
        table = _table(("initializer", "left"), ("nearest parameter", "left"), ("relative L2", "right"))
        for row in report.weights:
            as_is = "" if row.transform in (None, "identity") else f" ({row.transform})"
            table.add_row(
                Wrapped(row.initializer),
                Wrapped((row.parameter or "none has its shape") + as_is),
                rows.figure(row.error),
            )
        yield "weights that differ", table
    if report.keep_list:
        yield "nodes to keep in the higher precision", Wrapped(*report.keep_list)


def background(report: Report) -> Iterator[tuple[str, RenderableType]]:
    """What -v adds: how the answer was found, on what, and how long it took."""
    yield "alignment", facts_table(list(_alignment(report)))
    search = report.search
    runs = f"{rows.count(search.runs, 'run')} of the candidate"
    yield "search", Wrapped(f"{search.strategy.value}, {rows.count(search.probes, 'probe')}, {runs}")
    if search.steps:
        table = _table(("probe", "left"), ("verdict", "left"), ("suspects", "right"))
        for step in search.steps:
            verdict = Text(step.verdict.value, style=VERDICT_STYLES[step.verdict])
            table.add_row(Wrapped(step.probe), verdict, f"{step.suspects_before} -> {step.suspects_after}")
        yield "search steps", table
    yield "timing", facts_table(list(_timing(report)))
    if report.environment:
        pairs = [(name, Wrapped(rows.attribute(value))) for name, value in report.environment.items()]
        yield "environment", facts_table(list(pairs))


def _alignment(report: Report) -> Iterator[tuple[str, RenderableType]]:
    alignment = report.alignment
    yield "pairs", Text(f"{alignment.pairs:,} of {rows.count(alignment.values, 'value')}")
    yield (
        "coverage",
        Text(f"{rows.percent(alignment.coverage)} of the float values, {rows.percent(alignment.coverage_all)} of all"),
    )
    if alignment.by_basis:
        yield "basis", Wrapped(", ".join(f"{basis} {number:,}" for basis, number in alignment.by_basis.items()))
    reasons = Counter(reason for _, reason in alignment.unmatched)
    for reason, number in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        yield "unmatched", Wrapped(f"{number:,}: {reason}")


def _timing(report: Report) -> Iterator[tuple[str, RenderableType]]:
    for stage, duration in report.timing.items():
        yield stage, Text(rows.seconds(duration))
    if report.peak_memory_bytes is not None:
        yield "peak memory", Text(rows.size(report.peak_memory_bytes))
