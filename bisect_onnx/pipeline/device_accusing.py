"""From values in which a recorded run parts from the run here to culprits, each proved by running it here alone."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from bisect_onnx.core.compare import Array, ErrorStats, compare_arrays
from bisect_onnx.core.graph import Node
from bisect_onnx.core.report import Certificate, Culprit, CulpritError
from bisect_onnx.core.second_judge import Agreement, SecondJudge
from bisect_onnx.core.segments import fixed_ancestors
from bisect_onnx.pipeline.accusing import ranked
from bisect_onnx.pipeline.device_search import DeviceSearch, Tested
from bisect_onnx.pipeline.impact import root_mean_square_error
from bisect_onnx.pipeline.judge import scaled_gap
from bisect_onnx.pipeline.second_opinion import agreement

__all__ = ["EXPLAINS", "accuse_device"]

# Each culprit costs a few sessions; where more nodes err, no one of them is the answer.
MOST_ACCUSED: Final = 8

# The share of the final error from which on one node counts as its source; as for a candidate in a lower precision.
EXPLAINS: Final = 0.5


def accuse_device(search: DeviceSearch, tested: Mapping[str, Tested], *, failing: Sequence[str]) -> tuple[Culprit, ...]:
    """Culprits above the outputs that differ, the one that explains the difference first.

    Args:
        search: What was tested.
        tested: Its results.
        failing: Outputs that differ from the reference.
    """
    relevant = search.graph.ancestors(failing)
    guilty = [each for each in tested.values() if each.mismatch and each.value in relevant]
    strongest = sorted(guilty, key=_ratio, reverse=True)[:MOST_ACCUSED]
    accusing = _Accusing(search, tested, failing=failing)
    culprits = ranked([accusing.culprit(each) for each in guilty if each in strongest])
    source = next((each for each in culprits if each.impact is not None and each.impact >= EXPLAINS), None)
    if source is None:
        # Each of them errs; that one of them makes the difference is not proven.
        return tuple(dataclasses.replace(each, confidence="suspected") for each in culprits)
    return (source, *(each for each in culprits if each is not source))


def _ratio(tested: Tested) -> float:
    return tested.introduced / tested.threshold if tested.threshold else float("inf")


class _Accusing:
    def __init__(self, search: DeviceSearch, tested: Mapping[str, Tested], *, failing: Sequence[str]) -> None:
        self._search = search
        self._tested = tested
        outputs = [name for name in failing if search.graph.producer(name) is not None]
        self._recorded = search.candidate.recorded(outputs)
        self._here = search.candidate.probe(search.feeds, fetch=outputs, cuts={})

    def culprit(self, tested: Tested) -> Culprit:
        segment, search = tested.segment, self._search
        node = segment.nodes[-1]
        given = search.inputs_of([segment])
        alone = search.computed([segment], given)[tested.value]
        recorded = search.candidate.recorded([tested.value])[tested.value]
        here = search.candidate.probe(search.feeds, fetch=[tested.value], cuts={})[tested.value]
        introduced = _stats(alone, recorded)
        certificate = Certificate(
            inputs_match=True,  # a segment begins at recorded values and graph inputs, and is fed with all of them
            output_differs=tested.mismatch,
            replay_reproduces=scaled_gap(alone, recorded) > tested.threshold,
        )
        judge = self._second_judge(tested, given, alone=alone, recorded=recorded)
        proven = certificate.complete and introduced is not None and len(segment.nodes) == 1
        doubted = judge.agrees_with is Agreement.RUNTIME
        return Culprit(
            node=node.name,
            op_type=node.op_type,
            domain=node.domain,
            index=node.index,
            path=node.path,
            inputs=node.inputs,
            outputs=node.outputs,
            attributes=node.attributes,
            group=tuple(dict.fromkeys([node.name, *(other.name for other in segment.nodes)])),
            module=node.module,
            module_class=node.module_class,
            torch_op=node.torch_op,
            source=node.source,
            error=CulpritError(
                inherited=self._inherited(tested, given),
                introduced=introduced,
                accumulated=_stats(here, recorded),
            ),
            noise=tested.floor,
            threshold=tested.threshold,
            certificate=certificate,
            impact=self._impact(node),
            confidence="certified" if proven and not doubted else "suspected",
            second_judge=judge,
        )

    def _inherited(self, tested: Tested, given: Mapping[str, Array]) -> ErrorStats | None:
        """The recorded input that is furthest from the run here."""
        here = self._search.candidate.probe(self._search.feeds, fetch=list(given), cuts={}) if given else {}
        worst: ErrorStats | None = None
        for name in tested.segment.inputs:
            error = _stats(here[name], given[name]) if name in here else None
            if error is not None and (worst is None or (error.scaled or 0.0) > (worst.scaled or 0.0)):
                worst = dataclasses.replace(error, input=name)
        return worst

    def _impact(self, node: Node) -> float | None:
        """How much of the way to the recorded outputs a run here goes when this node's errors are put into it."""
        outputs = [n for n in self._here if n in self._recorded and self._here[n].shape == self._recorded[n].shape]
        before = {name: root_mean_square_error(self._recorded[name], self._here[name]) for name in outputs}
        worst = max(outputs, key=lambda name: before[name], default=None)
        injected = self._injected(node)
        if worst is None or not before[worst] or not injected:
            return None
        after = injected.get(worst)
        if after is None:
            after = self._search.candidate.probe(self._search.feeds, fetch=[worst], cuts=injected)[worst]
        if after.shape != self._recorded[worst].shape:
            return None
        left = root_mean_square_error(self._recorded[worst], after)
        if not np.isfinite(before[worst]):
            return 1.0 if np.isfinite(left) else 0.0
        return float(min(1.0, max(0.0, 1 - left / before[worst])))

    def _injected(self, node: Node) -> dict[str, Array]:
        """The outputs of the node in the run here, with the errors introduced there; none if one cannot be."""
        search = self._search
        found = [self._tested[name] for name in node.real_outputs() if name in self._tested]
        wrong = [each for each in found if each.mismatch]
        names = [each.value for each in wrong]
        here = search.candidate.probe(search.feeds, fetch=names, cuts={})
        recorded = search.candidate.recorded(names)
        segments = [each.segment for each in wrong]
        alone = search.computed(segments, search.inputs_of(segments))
        if any(not here[name].shape == recorded[name].shape == alone[name].shape for name in names):
            return {}
        return {name: _with_error(here[name], alone=alone[name], recorded=recorded[name]) for name in names}

    def _second_judge(
        self, tested: Tested, given: Mapping[str, Array], *, alone: Array, recorded: Array
    ) -> SecondJudge:
        """With whom the evaluator agrees: the reference is what is computed here, the runtime what was recorded."""
        from bisect_onnx.runtimes.onnx_evaluator import NotEvaluatedError

        search, graph = self._search, self._search.graph
        inputs = {name: given.get(name, search.feeds.get(name)) for name in tested.segment.inputs}
        known = {name: array for name, array in inputs.items() if array is not None}
        fixed = fixed_ancestors(graph, tested.segment.nodes, cut=known)
        read = [graph.producer(name) for node in (*fixed, *tested.segment.nodes) for name in node.reads]
        constants = [node for node in read if node is not None and node.op_type == "Constant"]
        asked = {node.index: node for node in (*constants, *fixed, *tested.segment.nodes)}
        nodes = sorted(asked.values(), key=graph.place)
        try:
            third = search.candidate.evaluated(nodes, inputs=known, output=tested.value, shapes=search.shapes)
        except NotEvaluatedError as error:
            return SecondJudge(agrees_with=Agreement.SILENT, reason=str(error))
        return SecondJudge(agrees_with=agreement(third, alone, recorded, threshold=tested.threshold))


def _with_error(here: Array, *, alone: Array, recorded: Array) -> Array:
    """The run here plus the error that was introduced there; where that is no number, what was recorded."""
    if here.dtype.kind not in "fV":
        return recorded
    with np.errstate(all="ignore"):
        wide = np.float64 if here.dtype == np.float64 else np.float32
        moved = here.astype(wide) + (recorded.astype(wide) - alone.astype(wide))
        injected: Array = np.where(np.isfinite(moved), moved, recorded.astype(wide)).astype(here.dtype)
    return injected


def _stats(reference: Array, recorded: Array) -> ErrorStats | None:
    error = compare_arrays(reference, recorded, check_dtype=False)
    return error if isinstance(error, ErrorStats) else None
