"""Report -> terminal: verdict first, then the tree, the culprit, the findings, the outputs and what to do next."""

import dataclasses
import os
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console, RenderableType
from rich.text import Text

from bisect_onnx.core.report import Report, Stage, Status
from bisect_onnx.render.escapes import safe
from bisect_onnx.render.names import one_line
from bisect_onnx.render.terminal_panels import (
    culprit_panel,
    facts_table,
    finding_block,
    missing_panel,
    other_culprits,
)
from bisect_onnx.render.terminal_tables import (
    background,
    inputs_table,
    outputs_table,
    special_sections,
    top_table,
)  # fmt: skip
from bisect_onnx.render.terminal_tree import ErrorTree
from bisect_onnx.render.tree import tree_lines
from bisect_onnx.render.verdicts import SYMBOLS, sentence, stage_words, title
from bisect_onnx.render.wrapped import Wrapped

__all__ = ["AsTerminal"]

# A pipe has no width. Rich would take 80; with 100 most names keep one line, so that grep finds them.
PIPE_WIDTH = 100

# Below this no layout works; a terminal that is narrower wraps our lines itself.
NARROWEST = 40

STYLES = {
    Status.PARITY: "bold green",
    Status.LOCATED: "bold red",
    Status.SUSPECTED: "bold yellow",
    Status.ACCUMULATION: "bold yellow",
    Status.HARNESS: "bold yellow",
    Status.INCONCLUSIVE: "bold yellow",
    Status.LOAD_FAILED: "bold red",
}


class ReportConsole(Console):
    """A console that leaves a broken pipe to its caller; rich itself would end the program with status 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AsTerminal:
    """Writes one report for a reader; equal reports make equal bytes at equal widths.

    ``top`` shows that many of the worst nodes as a table in place of the tree. ``width`` None takes the
    stream's own.
    """

    all_open: bool = False
    top: int | None = None
    quiet: bool = False
    verbose: bool = False
    width: int | None = None

    def write(self, report: Report, stream: TextIO) -> None:
        if stream.isatty():
            self._print(report, self._console(stream))
            return
        # Cells are padded with spaces, which a file or a pipe has no use for.
        console = self._console(stream)
        with console.capture() as captured:
            self._print(report, console)
        stream.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))

    def _print(self, report: Report, console: Console) -> None:
        symbol = SYMBOLS[report.status][1 if console.options.ascii_only else 0]
        verdict = Text.assemble(
            (f"{symbol} {title(report.status)}: ", STYLES[report.status]), one_line(sentence(report))
        )
        if self.quiet:
            console.print(verdict, soft_wrap=True)
            return
        console.print(verdict, overflow="fold")
        for renderable in self._body(report):
            console.print(renderable)
        if report.next_steps:
            console.print(Text("\nwhat to do next", style="bold"))
        for step in report.next_steps:
            if step.startswith(("bisect-onnx ", "bisect_onnx.")):
                # Not wrapped: a command must survive copying, and a terminal breaks the line by itself.
                console.print(Text(f"  {safe(step)}"), soft_wrap=True)
            else:
                console.print(facts_table([("", Wrapped(step))]))

    def _console(self, stream: TextIO) -> Console:
        width = self.width
        if width is None and not stream.isatty() and not os.environ.get("COLUMNS"):
            width = PIPE_WIDTH
        console = ReportConsole(file=stream, width=width, highlight=False, markup=False, emoji=False)
        console.width = max(console.width, NARROWEST)
        return console

    def _body(self, report: Report) -> Iterator[RenderableType]:
        if report.stage is not None and report.status is not Status.HARNESS:
            yield Text(f"The error was born {stage_words(report.stage)}.")
        yield from self._nodes(report)
        if report.culprit is not None:
            yield Text("")
            elsewhere = report.stage is Stage.PROVIDER
            yield culprit_panel(report.culprit, verbose=self.verbose, elsewhere=elsewhere)
        if report.missing_operation is not None:
            yield Text("")
            yield missing_panel(report.missing_operation)
        if len(report.culprits) > 1:
            yield from _section(
                "further culprits" if report.status is Status.LOCATED else "further suspects",
                other_culprits(report.culprits[1:]),
            )
        for name, renderable in special_sections(report):
            yield from _section(name, renderable)
        for number, finding in enumerate(report.findings):
            yield from _section("findings" if number == 0 else "", finding_block(finding))
        yield from _section("outputs", outputs_table(report)) if report.outputs else ()
        yield from _section("inputs", inputs_table(report)) if report.inputs else ()
        if self.verbose:
            for name, renderable in background(report):
                yield from _section(name, renderable)

    def _nodes(self, report: Report) -> Iterator[RenderableType]:
        if not report.nodes:
            return
        if self.top is not None:
            yield from _section(f"the {min(self.top, len(report.nodes))} worst nodes", top_table(report, self.top))
        calm = report.status is Status.PARITY and not self.all_open
        if self.all_open or (self.top is None and not calm):
            yield Text("")
            yield ErrorTree(tree_lines(report, all_open=self.all_open))


def _section(name: str, renderable: RenderableType) -> Iterator[RenderableType]:
    yield Text(f"\n{name}" if name else "", style="bold")
    yield renderable
