"""The culprit panel, further culprits and findings on a terminal."""

import dataclasses
from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bisect_onnx.core.compare import ErrorStats
from bisect_onnx.core.finding import Counterfactual, Finding
from bisect_onnx.core.report import Certificate, Culprit, MissingOperation
from bisect_onnx.core.second_judge import Agreement, SecondJudge
from bisect_onnx.render import rows
from bisect_onnx.render.tree import node_place
from bisect_onnx.render.wrapped import Wrapped

__all__ = ["culprit_panel", "facts_table", "finding_block", "missing_panel", "other_culprits"]

# Figures of the error table, by the names that --metric takes; the last ones are shown with -v only.
METRICS = ("scaled", "max_abs", "relative_l2", "cosine", "snr_db")
MORE_METRICS = ("rmse", "max_rel", "max_ulp")


def facts_table(pairs: Iterator[tuple[str, RenderableType]] | list[tuple[str, RenderableType]]) -> Table:
    """Two columns, label and value."""
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for label, value in pairs:
        table.add_row(Text(label), value)
    return table


def culprit_panel(culprit: Culprit, *, verbose: bool, elsewhere: bool = False) -> Panel:
    """``elsewhere``: what is accused is a machine on which values were recorded, and the proof was run on this one."""
    certified = culprit.confidence == "certified"
    parts: list[RenderableType] = [facts_table(_identity(culprit))]
    if culprit.error.introduced or culprit.error.accumulated or culprit.error.inherited:
        parts += [Text(""), _error_table(culprit, verbose=verbose)]
    parts += [Text(""), facts_table(_proof(culprit, WORDS_ELSEWHERE if elsewhere else WORDS))]
    heading = "culprit" if certified else "suspect"
    return Panel(Group(*parts), title=heading, title_align="left", border_style="red" if certified else "yellow")


def _identity(culprit: Culprit) -> Iterator[tuple[str, RenderableType]]:
    place = f"inside number {culprit.index}" if culprit.path else f"number {culprit.index}"
    yield "node", Wrapped(f"{node_place(culprit)}  ({place} in the file)", style="bold")
    yield "op", Wrapped(f"{culprit.op_type} ({culprit.domain or 'ai.onnx'})")
    if culprit.attributes:
        listed = [f"{name} = {rows.attribute(value)}" for name, value in culprit.attributes.items()]
        yield "attributes", Wrapped(*listed)
    yield "inputs", Wrapped(", ".join(name or "(none)" for name in culprit.inputs) or "none")
    yield "outputs", Wrapped(", ".join(name for name in culprit.outputs if name))
    if culprit.module is not None:
        of_class = f" ({culprit.module_class})" if culprit.module_class else ""
        yield "module", Wrapped((culprit.module or "the root module") + of_class)
    if culprit.source is not None:
        yield "source", Wrapped(f"{culprit.source.file}:{culprit.source.line}")
        if culprit.source.code is not None:
            yield "", Wrapped(culprit.source.code.strip(), style="cyan")
    if culprit.torch_op is not None:
        yield "torch op", Wrapped(culprit.torch_op)
    if _undecided(culprit):
        told = f"one of {len(culprit.group)} nodes that could not be told apart: "
        yield "suspects", Wrapped(told + ", ".join(culprit.group), style="yellow")
    elif len(culprit.group) > 1:
        yield "segment", Wrapped(f"{rows.count(len(culprit.group), 'node')}: {', '.join(culprit.group)}")


def _undecided(culprit: Culprit) -> bool:
    """Whether the proof is about the whole group, and the node only the likeliest in it."""
    return culprit.confidence != "certified" and len(culprit.group) > 1


def _error_table(culprit: Culprit, *, verbose: bool) -> Table:
    columns = (culprit.error.inherited, culprit.error.introduced, culprit.error.accumulated)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("error", style="dim")
    for name in ("inherited", "introduced", "accumulated"):
        table.add_column(name, justify="right", style="bold" if name == "introduced" else "")
    for metric in METRICS + (MORE_METRICS if verbose else ()):
        cells = [_metric(stats, metric) for stats in columns]
        if any(cell != rows.UNKNOWN for cell in cells):
            table.add_row(metric, *cells)
    if any(stats is not None and stats.mismatched is not None for stats in columns):
        table.add_row("not equal", *(_mismatched(stats) for stats in columns))
    if any(stats is not None and stats.nonfinite_mismatch for stats in columns):
        table.add_row("NaN or inf", *(_metric(stats, "nonfinite_mismatch") for stats in columns))
    if any(stats is not None and stats.worst_index for stats in columns):
        table.add_row("worst at", *(_worst_at(stats) for stats in columns))
    return table


def _metric(stats: ErrorStats | None, name: str) -> str:
    value = None if stats is None else getattr(stats, name)
    if isinstance(value, int):
        return f"{value:,}"
    return rows.cosine(value) if name == "cosine" else rows.precise(value)


def _mismatched(stats: ErrorStats | None) -> str:
    if stats is None or stats.mismatched is None:
        return rows.UNKNOWN
    return rows.percent(stats.mismatched / stats.total) if stats.total else "0"


def _worst_at(stats: ErrorStats | None) -> str:
    return rows.UNKNOWN if stats is None or stats.worst_index is None else ",".join(str(at) for at in stats.worst_index)


def _proof(culprit: Culprit, words: "_Words") -> Iterator[tuple[str, RenderableType]]:
    introduced = culprit.error.introduced
    scaled = None if introduced is None else introduced.scaled
    if culprit.threshold is not None or culprit.noise is not None:
        beyond = rows.factor(scaled, culprit.threshold)
        text = f"{rows.precise(culprit.noise)}; threshold {rows.precise(culprit.threshold)}"
        yield "noise floor", Wrapped(text + (f", exceeded {beyond}" if beyond else ""))
    inherited = culprit.error.inherited
    if inherited is not None and inherited.input is not None:
        yield "worst input", Wrapped(f"{inherited.input}: {rows.precise(inherited.scaled)}")
    certificate = culprit.certificate
    if (certificate.inputs_match, certificate.output_differs, certificate.replay_reproduces) != (None, None, None):
        yield "certificate", _certificate(certificate, words, of_group=_undecided(culprit))
    if culprit.second_judge is not None:
        yield "second judge", Wrapped(_second_judge(culprit.second_judge, words))
    if culprit.impact is not None:
        yield "impact", Wrapped(words.impact.format(rows.percent(culprit.impact)))
    yield "confidence", Wrapped(culprit.confidence)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Words:
    """What is proved, in words; ``{}`` is "its" or "the group's", in ``impact`` a share."""

    certificate: tuple[str, str, str]
    judge: Mapping[Agreement, str]
    impact: str


WORDS = _Words(
    certificate=(
        "{} inputs match the reference",
        "fed the reference's inputs, {} output differs",
        "run alone on those inputs, it gives the same wrong output",
    ),
    judge={
        Agreement.RUNTIME: "the onnx reference evaluator computes the same from the file",
        Agreement.REFERENCE: "the onnx reference evaluator computes what the reference does: doubt the runtime",
    },
    impact="with the reference's value in its place, the worst output loses {} of its error",
)

WORDS_ELSEWHERE = _Words(
    certificate=(
        "{} inputs are known as they were recorded there",
        "fed these inputs here, {} output is another than was recorded",
        "run alone on those inputs, it is again another",
    ),
    judge={
        Agreement.RUNTIME: "the onnx reference evaluator computes what was recorded there: doubt this machine",
        Agreement.REFERENCE: "the onnx reference evaluator computes what this machine does",
    },
    impact="with this one error put into a run here, the worst output comes {} of the way to the recorded one",
)


def _second_judge(judge: SecondJudge, words: _Words) -> str:
    if judge.agrees_with is Agreement.NEITHER:
        return "the onnx reference evaluator agrees with neither side"
    if judge.agrees_with is Agreement.SILENT:
        return f"the onnx reference evaluator cannot tell: {judge.reason}"
    return words.judge[judge.agrees_with]


def _certificate(certificate: Certificate, words: _Words, *, of_group: bool) -> Text:
    """The three checked statements, each with its own answer: what was not tried is not a proof."""
    its = "the group's" if of_group else "its"
    answers = (certificate.inputs_match, certificate.output_differs, certificate.replay_reproduces)
    statements = zip(answers, (text.format(its) for text in words.certificate), strict=True)
    text = Text()
    for number, (holds, statement) in enumerate(statements):
        word, style = {True: ("yes", "green"), False: ("NO", "bold red"), None: ("not checked", "yellow")}[holds]
        text.append("\n" if number else "")
        text.append(f"{statement}: ")
        text.append(word, style=style)
    return text


def missing_panel(gap: MissingOperation) -> Panel:
    """Where in the file an operation of the reference is missing, and the line that asks for it."""
    pairs: list[tuple[str, RenderableType]] = [("after", Wrapped(gap.after)), ("before", Wrapped(gap.before))]
    if gap.source is not None:
        pairs.append(("source", Wrapped(f"{gap.source.file}:{gap.source.line}")))
        if gap.source.code is not None:
            pairs.append(("", Wrapped(gap.source.code.strip(), style="cyan")))
    return Panel(facts_table(pairs), title="missing operation", title_align="left", border_style="yellow")


def other_culprits(culprits: tuple[Culprit, ...]) -> Table:
    """One entry each for the culprits after the first."""
    return facts_table([(f"{number}.", Wrapped(*_brief(culprit))) for number, culprit in enumerate(culprits, start=2)])


def _brief(culprit: Culprit) -> list[str]:
    place = f" in {culprit.module}" if culprit.module else ""
    scaled = None if culprit.error.introduced is None else culprit.error.introduced.scaled
    beyond = rows.factor(scaled, culprit.threshold)
    text = f"{node_place(culprit)} ({culprit.op_type}){place}"
    if scaled is not None:
        text += f": introduces {rows.precise(scaled)}" + (f", {beyond} its threshold" if beyond else "")
    where = [] if culprit.source is None else [f"{culprit.source.file}:{culprit.source.line}"]
    return [f"{text}, {culprit.confidence}", *where]


def finding_block(finding: Finding) -> RenderableType:
    head = Text(f"{finding.code} ", style="bold")
    head.append(f"{finding.name}", style="bold")
    head.append(f"  {finding.confidence.value}" + (f", {finding.cause}" if finding.cause else ""), style="dim")
    pairs: list[tuple[str, RenderableType]] = []
    if finding.subject:
        pairs.append(("about", Wrapped(finding.subject)))
    pairs.append(("found", Wrapped(finding.message)))
    if finding.facts:
        listed = [f"{name} = {rows.attribute(value)}" for name, value in finding.facts.items()]
        pairs.append(("facts", Wrapped(*listed)))
    if finding.remedy:
        pairs.append(("remedy", Wrapped(finding.remedy)))
    if finding.counterfactual is not None:
        pairs.append(("tried", Wrapped(*_tried(finding.counterfactual))))
    if finding.references:
        pairs.append(("see", Wrapped(*finding.references)))
    return Group(head, facts_table(pairs))


def _tried(tried: Counterfactual) -> list[str]:
    changes = [
        f"{what} {rows.precise(before)} -> {rows.precise(after)}"
        for what, before, after in (
            ("node error", tried.local_before, tried.local_after),
            ("output error", tried.output_before, tried.output_after),
        )
        if before is not None or after is not None
    ]
    return [tried.edit, "; ".join(changes)] if changes else [tried.edit]
