"""Which of the runtime's optimisers must be off for the symptom to go, and which nodes they merge.

The question is always the whole model in the user's configuration with some optimisers off and all others on: so the
last answer is the proof. Nothing is exposed meanwhile, which would keep the runtime from merging nodes.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from bisect_onnx.core.compare import Array, Verdict
from bisect_onnx.core.graph import Graph, Node
from bisect_onnx.core.minimal_set import minimal_set
from bisect_onnx.core.report import SearchSummary, Step, Strategy
from bisect_onnx.errors import ModelNotLoadedError, RuntimeFailedError

if TYPE_CHECKING:
    from bisect_onnx.runtimes.ort import OrtCandidate

__all__ = ["FAILURES", "Guilty", "Merged", "OptimizerSearch", "merged_nodes"]

# The runtime refuses what an optimiser made: while it starts the session, or while it runs.
FAILURES: Final = (ModelNotLoadedError, RuntimeFailedError)

# Level 99 is all levels; the highest that has optimisers of its own is 3.
_LEVELS: Final = (1, 2, 3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guilty:
    """Optimisers that must be off together; with all others on the symptom is gone."""

    names: tuple[str, ...]
    levels: Mapping[str, int]
    first_level: int  # the lowest level that shows the symptom
    outputs: Mapping[str, Array]  # with them off


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Merged:
    """Nodes of the user's file that are gone from the optimised model, and operators that stand there instead."""

    nodes: tuple[Node, ...]
    made: tuple[str, ...]


class OptimizerSearch:
    """One search; ``gone`` says of the outputs in another configuration whether the symptom is gone."""

    def __init__(
        self,
        candidate: "OrtCandidate",
        feeds: Mapping[str, Array],
        *,
        level: int,
        gone: Callable[[Mapping[str, Array]], bool],
    ) -> None:
        self._candidate = candidate
        self._feeds = feeds
        self._level = level
        self._gone = gone
        self._answers: dict[frozenset[str], Mapping[str, Array] | None] = {}
        self._steps: list[Step] = []
        self.absent: tuple[str, ...] = ()  # names of the list that this build does not have
        self.asked = 0  # names that were switched off together, without effect, when nothing is found

    def search(self) -> Guilty | None:
        """None when the symptom stays with every known optimiser off."""
        from bisect_onnx.runtimes import ort_optimizers

        first = next((level for level in _LEVELS if level >= self._level or not self._right_at(level)), _LEVELS[-1])
        known = ort_optimizers.names_up_to(self._level)
        there = ort_optimizers.present(known)
        self.absent = tuple(name for name in known if name not in there)
        usable = [name for name in known if name in there]
        of_level = [name for name in usable if ort_optimizers.OPTIMIZERS[name] == first]
        rules = [name for name, level in ort_optimizers.RULES.items() if level <= self._level]
        for names in (of_level, usable, [*usable, *rules]):
            self.asked = len(names)
            if self._cures(names, of=len(usable)):
                return self._smallest(names, first_level=first)
        return None

    def _smallest(self, names: Sequence[str], *, first_level: int) -> Guilty:
        from bisect_onnx.runtimes.ort_optimizers import level_of

        found = minimal_set(names, lambda part: self._cures(part, of=len(names)))
        outputs = self._answers[frozenset(found)]
        assert outputs is not None
        levels = {name: level_of(name) for name in found}
        return Guilty(names=found, levels=levels, first_level=first_level, outputs=outputs)

    def summary(self) -> SearchSummary:
        return SearchSummary(
            strategy=Strategy.OPTIMIZERS,
            probes=len(self._steps),
            runs=self._candidate.runs,
            steps=tuple(self._steps),
        )

    def _right_at(self, level: int) -> bool:
        found = self._outputs(level=level, without=())
        self._note(f"level {level}", found, before=0, after=0)
        return found is not None

    def _cures(self, names: Sequence[str], *, of: int) -> bool:
        key = frozenset(names)
        if key not in self._answers:
            self._answers[key] = found = self._outputs(level=None, without=names)
            after = len(names) if found is not None else of - len(names)
            self._note(f"without {_few(names)}", found, before=of, after=after)
        return self._answers[key] is not None

    def _outputs(self, *, level: int | None, without: Sequence[str]) -> Mapping[str, Array] | None:
        """What the model gives there; None while the symptom shows."""
        try:
            outputs = self._candidate.run_configured(self._feeds, level=level, without=without)
        except FAILURES:
            return None
        return outputs if self._gone(outputs) else None

    def _note(self, probe: str, found: object, *, before: int, after: int) -> None:
        verdict = Verdict.MATCH if found is not None else Verdict.MISMATCH
        self._steps.append(Step(probe=probe, verdict=verdict, suspects_before=before, suspects_after=after))


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} to {names[-1]} ({len(names)} optimisers)"


def merged_nodes(candidate: "OrtCandidate", feeds: Mapping[str, Array], *, without: Sequence[str]) -> Merged:
    """What the optimisers in ``without`` do to the graph while all others are on.

    The saved models are compared, so other optimisers have done their part in both.
    """
    good = candidate.optimised(without=without)
    try:
        bad = candidate.optimised()
    except FAILURES:
        return Merged(nodes=_held_apart(candidate, feeds, good=good), made=())
    left = {_signature(node) for node in bad.nodes}
    before = {_signature(node) for node in good.nodes}
    lost = {name for node in good.nodes if _signature(node) not in left for name in node.real_outputs()}
    nodes = [node for node in candidate.graph.nodes if lost & set(node.real_outputs())]
    made = dict.fromkeys(_kind(node) for node in bad.nodes if _signature(node) not in before)
    return Merged(nodes=tuple(nodes), made=tuple(made))


def _held_apart(candidate: "OrtCandidate", feeds: Mapping[str, Array], *, good: Graph) -> tuple[Node, ...]:
    """The nodes around values that let the model run when the runtime may not merge nodes across them."""

    def starts(names: Sequence[str]) -> bool:
        try:
            candidate.run_configured(feeds, exposed=names)
        except FAILURES:
            return False
        return True

    outputs = {name for node in good.nodes for name in node.real_outputs()}
    inner = [
        name
        for node in candidate.graph.nodes
        for name in node.real_outputs()
        if name in outputs and name not in candidate.graph.outputs and candidate.graph.consumers(name)
    ]
    if not inner or not starts(inner):
        return ()
    found = minimal_set(inner, starts)
    readers = {node.index for name in found for node in candidate.graph.consumers(name)}
    return tuple(
        node for node in candidate.graph.nodes if node.index in readers or set(found) & set(node.real_outputs())
    )


def _signature(node: Node) -> tuple[str, str, tuple[str, ...]]:
    return node.domain, node.op_type, tuple(node.outputs)


def _kind(node: Node) -> str:
    return f"{node.domain}:{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
