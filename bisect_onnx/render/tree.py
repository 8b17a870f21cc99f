"""Report.nodes as a tree of modules, with the healthy branches folded: which lines there are and what each says."""

import dataclasses
import enum
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from bisect_onnx.core.compare import Verdict
from bisect_onnx.core.graph import nested_label
from bisect_onnx.core.report import Culprit, NodeRow, ReasonCode, Report
from bisect_onnx.render import rows

__all__ = ["Line", "Mark", "node_place", "reason_words", "tree_lines"]

NO_MODULE = "(no module)"

# Fewer folded neighbours than this keep a line each. Two nodes on one line save nothing; modules are worth a
# line while they fit on a screen, because they show where an error grows.
NODE_RUN = 3
MODULE_RUN = 9

REASON_WORDS = {
    ReasonCode.UNPAIRED: "no counterpart found",
    ReasonCode.SHAPE_ARITHMETIC: "shape arithmetic",
    ReasonCode.CONSTANT: "constant",
    ReasonCode.INSIDE_SEGMENT: "inside a segment",
    ReasonCode.TAP_ONLY: "seen but not fed",
    ReasonCode.MASKED: "only masked elements",
    ReasonCode.FUSED: "fused away",
    ReasonCode.UNSUPPORTED_DTYPE: "unsupported dtype",
}


class Mark(enum.Enum):
    """What a line of the tree is about, by the word that is shown; the worst of a branch is listed first here."""

    CULPRIT = "CULPRIT"
    SUSPECT = "SUSPECT"
    SEGMENT = "in the same segment"
    OVER = "over its threshold"
    DIFFERS = "differs"
    CARRIES = "passes the error on"
    FINE = "fine"
    UNTESTED = "untested"


PLURALS = {
    Mark.CULPRIT: "CULPRITS",
    Mark.SUSPECT: "SUSPECTS",
    Mark.SEGMENT: "in the same segment",
    Mark.OVER: "over their thresholds",
    Mark.DIFFERS: "differ",
    Mark.CARRIES: "pass the error on",
    Mark.FINE: "fine",
    Mark.UNTESTED: "untested",
}

SHOWN_MARKS = (Mark.CULPRIT, Mark.SUSPECT, Mark.SEGMENT, Mark.OVER)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line: a node, a module, or several that were folded together."""

    depth_guides: tuple[bool, ...]  # per ancestor level: whether more siblings follow there
    label: str
    op_type: str | None  # of a node; None for a module or a fold
    mark: Mark
    note: str
    inherited: float | None
    introduced: float | None
    accumulated: float | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Leaf:
    row: NodeRow
    mark: Mark
    note: str
    shown: bool


@dataclasses.dataclass(kw_only=True, slots=True)
class _Branch:
    label: str
    children: "list[_Branch | _Leaf]" = dataclasses.field(default_factory=list)
    modules: "dict[str, _Branch]" = dataclasses.field(default_factory=dict)

    def leaves(self) -> "Iterator[_Leaf]":
        for child in self.children:
            if isinstance(child, _Leaf):
                yield child
            else:
                yield from child.leaves()

    @property
    def shown(self) -> bool:
        return any(leaf.shown for leaf in self.leaves())


def tree_lines(report: Report, *, all_open: bool = False) -> list[Line]:
    """The lines of the tree, top to bottom; with ``all_open`` nothing is folded."""
    root = _Branch(label="model")
    for leaf in _leaves(report, all_open=all_open):
        _branch_of(root, leaf.row.module).children.append(leaf)
    lines = [_branch_line(root, root.label, guides=())]
    lines.extend(_lines_below(root, guides=()))
    return lines


def node_place(item: NodeRow | Culprit) -> str:
    """The node's name, behind the way to it when it is not in the main graph."""
    return nested_label(item.path, item.node)


def reason_words(row: NodeRow, *, in_full: bool) -> str:
    """Why a row has no verdict of its own, in words; ``in_full`` adds what the run said about this one."""
    words = "" if row.reason_code is None else REASON_WORDS[row.reason_code]
    reason = row.reason or ""
    if row.reason_code is not None and not in_full:
        return words
    return reason if reason.startswith(words) else f"{words}: {reason}".removesuffix(": ")


def _key(item: NodeRow | Culprit) -> tuple[object, ...]:
    return (item.path, item.index, item.node)


def _leaves(report: Report, *, all_open: bool) -> list[_Leaf]:
    accused = {_key(culprit): culprit for culprit in report.culprits}
    segments = {(culprit.path, name) for culprit in report.culprits for name in culprit.group}
    # Without an accusation (an operation is missing, say) the error starts where it is introduced.
    first = next((at for at, row in enumerate(report.nodes) if _starts(row, accused)), len(report.nodes))
    marks: list[Mark] = []
    for at, row in enumerate(report.nodes):
        culprit = accused.get(_key(row))
        if culprit is not None:
            marks.append(Mark.CULPRIT if culprit.confidence == "certified" else Mark.SUSPECT)
        elif (row.path, row.node) in segments:
            marks.append(Mark.SEGMENT)
        else:
            marks.append(_mark(row, below_culprit=at > first))
    near = _neighbours(marks)
    return [
        _Leaf(
            row=row,
            mark=mark,
            note=_note(row, mark, in_full=all_open),
            shown=all_open or mark in SHOWN_MARKS or at in near,
        )
        for at, (row, mark) in enumerate(zip(report.nodes, marks, strict=True))
    ]


def _starts(row: NodeRow, accused: Mapping[tuple[object, ...], Culprit]) -> bool:
    return _key(row) in accused if accused else rows.is_over(row.introduced, row.threshold)


def _note(row: NodeRow, mark: Mark, *, in_full: bool) -> str:
    if mark is Mark.SEGMENT and row.reason_code is ReasonCode.INSIDE_SEGMENT:
        return ""  # the mark says it
    return reason_words(row, in_full=in_full)


def _mark(row: NodeRow, *, below_culprit: bool) -> Mark:
    if rows.is_over(row.introduced, row.threshold):
        return Mark.OVER
    if below_culprit and rows.is_over(row.accumulated, row.threshold):
        return Mark.CARRIES
    return {Verdict.MATCH: Mark.FINE, Verdict.MISMATCH: Mark.DIFFERS, Verdict.UNTESTABLE: Mark.UNTESTED}[row.verdict]


def _neighbours(marks: Sequence[Mark]) -> set[int]:
    """Positions of the nearest judged rows before and after each culprit, in the order of the file."""
    near: set[int] = set()
    for at, mark in enumerate(marks):
        if mark not in (Mark.CULPRIT, Mark.SUSPECT):
            continue
        for direction in (range(at - 1, -1, -1), range(at + 1, len(marks))):
            other = next((where for where in direction if marks[where] not in (Mark.UNTESTED, Mark.SEGMENT)), None)
            near.update(() if other is None else (other,))
    return near


def _branch_of(root: _Branch, module: str | None) -> _Branch:
    branch = root
    for part in [NO_MODULE] if module is None else [part for part in module.split(".") if part]:
        if part not in branch.modules:
            branch.modules[part] = _Branch(label=part)
            branch.children.append(branch.modules[part])
        branch = branch.modules[part]
    return branch


def _lines_below(branch: _Branch, *, guides: tuple[bool, ...]) -> list[Line]:
    lines: list[Line] = []
    runs = _runs(branch.children)
    for position, run in enumerate(runs):
        below = (*guides, position < len(runs) - 1)
        child = run[0]
        if len(run) > 1:
            lines.append(_fold_line(run, guides=below))
        elif isinstance(child, _Leaf):
            lines.append(_leaf_line(child, guides=below))
        else:
            label, inner = _joined(child)
            only = inner.children[0]
            if len(inner.children) == 1 and isinstance(only, _Leaf):
                lines.append(_leaf_line(only, guides=below, within=f"{label}: "))
                continue
            lines.append(_branch_line(inner, label, guides=below))
            if inner.shown:
                lines.extend(_lines_below(inner, guides=below))
    return lines


def _runs(children: "Sequence[_Branch | _Leaf]") -> "list[list[_Branch | _Leaf]]":
    """Children in order, those that can share one line put together."""
    runs: list[list[_Branch | _Leaf]] = []
    for child in children:
        last = runs[-1] if runs else None
        if last is not None and not child.shown and not last[0].shown and type(last[0]) is type(child):
            last.append(child)
        else:
            runs.append([child])
    split: list[list[_Branch | _Leaf]] = []
    for run in runs:
        enough = NODE_RUN if isinstance(run[0], _Leaf) else MODULE_RUN
        split.extend([run] if len(run) >= enough else [[child] for child in run])
    return split


def _joined(branch: _Branch) -> tuple[str, _Branch]:
    """A module that holds one module and nothing else shares its line: "decoder.up2"."""
    label = branch.label
    while len(branch.children) == 1 and isinstance(branch.children[0], _Branch):
        branch = branch.children[0]
        label = f"{label}.{branch.label}"
    return label, branch


def _leaf_line(leaf: _Leaf, *, guides: tuple[bool, ...], within: str = "") -> Line:
    row = leaf.row
    return Line(
        depth_guides=guides,
        label=within + node_place(row),
        op_type=row.op_type,
        mark=leaf.mark,
        note=leaf.note,
        inherited=row.inherited,
        introduced=row.introduced,
        accumulated=row.accumulated,
    )


def _branch_line(branch: _Branch, label: str, *, guides: tuple[bool, ...]) -> Line:
    leaves = tuple(branch.leaves())
    summed_up = not branch.shown or not guides
    note = _counts(leaves) if summed_up else ""
    return _summary_line(leaves, label, note=note, guides=guides, with_errors=summed_up)


def _fold_line(run: "Sequence[_Branch | _Leaf]", *, guides: tuple[bool, ...]) -> Line:
    first, last = run[0], run[-1]
    if isinstance(first, _Branch) and isinstance(last, _Branch):
        leaves = tuple(leaf for branch in run if isinstance(branch, _Branch) for leaf in branch.leaves())
        label = f"{first.label} ... {last.label}"
        note = f"{rows.count(len(run), 'module')}, {_counts(leaves)}"
    else:
        leaves = tuple(leaf for leaf in run if isinstance(leaf, _Leaf))
        label, note = "...", _counts(leaves)
    return _summary_line(leaves, label, note=note, guides=guides, with_errors=True)


def _summary_line(
    leaves: Sequence[_Leaf], label: str, *, note: str, guides: tuple[bool, ...], with_errors: bool
) -> Line:
    found = {leaf.mark for leaf in leaves}
    return Line(
        depth_guides=guides,
        label=label,
        op_type=None,
        mark=next((mark for mark in Mark if mark in found), Mark.UNTESTED),
        note=note,
        inherited=rows.worst([leaf.row.inherited for leaf in leaves]) if with_errors else None,
        introduced=rows.worst([leaf.row.introduced for leaf in leaves]) if with_errors else None,
        accumulated=rows.worst([leaf.row.accumulated for leaf in leaves]) if with_errors else None,
    )


def _counts(leaves: Sequence[_Leaf]) -> str:
    """For example "18 nodes: 14 fine, 4 untested"; one word when all are alike."""
    found = Counter(leaf.mark for leaf in leaves)
    total = rows.count(len(leaves), "node")
    if len(found) == 1:
        mark = next(iter(found))
        return f"{total}, {mark.value if len(leaves) == 1 else PLURALS[mark]}"
    parts = ", ".join(
        f"{found[mark]:,} {mark.value if found[mark] == 1 else PLURALS[mark]}" for mark in Mark if found[mark]
    )
    return f"{total}: {parts}"
