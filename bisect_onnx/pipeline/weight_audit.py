"""Is it the checkpoint? A file that was exported from other weights than the reference has.

Each initializer is held against the parameter that it stands for. When many differ, the reference's parameters are put
in their place: if the outputs agree then, the weights are the answer, and no node is searched.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bisect_onnx.align.by_parameter import SMALLEST, ParameterMatcher, relative_distance
from bisect_onnx.align.fused_parameters import Fused, fused, part_of
from bisect_onnx.core.compare import Array, Verdict
from bisect_onnx.core.finding import Confidence, Counterfactual, Finding
from bisect_onnx.core.graph import Graph
from bisect_onnx.core.report import OutputRow, SearchSummary, Stage, Status, Strategy, WeightRow
from bisect_onnx.errors import RuntimeFailedError, listing
from bisect_onnx.pipeline.comparing import Comparison
from bisect_onnx.pipeline.narrow import Narrowed
from bisect_onnx.pipeline.preflight import worst_scaled
from bisect_onnx.pipeline.request import LocateRequest
from bisect_onnx.pipeline.sides import Sides
from bisect_onnx.pipeline.verdicts import Told, answer

__all__ = ["WeightPair", "audited", "batch_norm_epsilons", "differing", "stale_weights", "weight_rows"]

# Differing parameters up to which the search tells the node that reads the wrong one; that is the report's contract.
MOST_SEARCHED = 8
MOST_NAMED = 5
# The last part of a weight's name, also of one with a BatchNorm folded in.
BESIDE_A_BIAS = re.compile(r"weight(?= with |$)")
# Rounding to bfloat16, the coarsest format that weights are kept in, moves a number by at most this share of itself.
ROUNDING = 2.0**-8
# Two ways to compute a folded weight: a product, a quotient and a root, each half a unit in the last place off.
FOLDING = 4 * float(np.finfo(np.float32).eps)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class WeightPair:
    """An initializer and the parameter that it stands for, in the initializer's layout and dtype."""

    row: WeightRow
    parameter: Array


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Form:
    """What a parameter becomes when a BatchNorm is folded in, and what that is called."""

    name: str
    array: Array
    floor: float  # relative L2 distance that rounding explains: terms of a sum may cancel


def stale_weights(
    sides: Sides, compared: Comparison, *, findings: Sequence[Finding], request: LocateRequest
) -> Told | None:
    """The answer when the outputs differ because the file has other weights than the reference; otherwise None."""
    found = differing(
        sides.candidate.graph,
        sides.candidate.parameters,
        reference=sides.reference.parameters,
        epsilons=batch_norm_epsilons(sides.module),
    )
    if len({pair.row.parameter for pair in found}) <= MOST_SEARCHED:
        return None
    cuts = {pair.row.initializer: pair.parameter for pair in found}
    failing = [row.name for row in compared.rows if row.verdict is Verdict.MISMATCH]
    outputs = [name for name in sides.candidate.graph.outputs if name in {row.name for row in compared.rows}]
    if not set(failing) <= set(outputs):  # items of a sequence cannot be asked for alone
        return None
    feeds = sides.feeds.arrays
    try:
        if compared.would_agree(sides.candidate.probe(feeds, fetch=outputs, cuts={})):
            return None  # right at level 0 as it is: the weights make no difference that matters
        mended = compared.would_be(sides.candidate.probe(feeds, fetch=outputs, cuts=cuts))
    except RuntimeFailedError:  # some operators want constants where a fed weight would stand: nothing is proven
        return None
    if {row.name for row in mended} != set(outputs) or any(row.verdict is Verdict.MISMATCH for row in mended):
        return None
    rows = tuple(pair.row for pair in found)
    finding = _other_checkpoint(rows, before=compared.rows, after=mended)
    return Told(
        verdict=answer(
            status=Status.SUSPECTED,
            stage=Stage.WEIGHTS,
            outputs=compared.rows,
            findings=(finding, *findings),
            request=request,
        ),
        fields={
            "weights": rows,
            "search": SearchSummary(strategy=Strategy.WEIGHTS, runs=sides.candidate.runs),
        },
    )


def batch_norm_epsilons(module: Any) -> dict[str, float]:
    """The epsilon of each BatchNorm of a module, by path; nothing without a module."""
    if module is None:
        return {}
    norms = ((path, part) for path, part in module.named_modules() if getattr(part, "running_var", None) is not None)
    return {path: float(part.eps) for path, part in norms if isinstance(getattr(part, "eps", None), float)}


def differing(
    graph: Graph,
    initializers: Mapping[str, Array],
    *,
    reference: Mapping[str, Array],
    epsilons: Mapping[str, float],
) -> list[WeightPair]:
    """The initializers that are not what the reference has in their place, in the order in which nodes read them.

    Args:
        graph: The candidate.
        initializers: Its arrays, by name.
        reference: The reference's parameters and buffers, by name.
        epsilons: Of each BatchNorm of the reference, by its path; what has none here is not folded.
    """
    held = _held(graph, initializers, reference=reference, epsilons=epsilons)
    return [pair for pair in held.values() if pair is not None]


def audited(sides: Sides) -> frozenset[str]:
    """The initializers of the candidate that are a parameter of the reference, as it is or folded."""
    held = _held(
        sides.candidate.graph,
        sides.candidate.parameters,
        reference=sides.reference.parameters,
        epsilons=batch_norm_epsilons(sides.module),
    )
    return frozenset(name for name, pair in held.items() if pair is None)


def _held(
    graph: Graph,
    initializers: Mapping[str, Array],
    *,
    reference: Mapping[str, Array],
    epsilons: Mapping[str, float],
) -> dict[str, WeightPair | None]:
    """Each initializer that stands for a parameter, in the order in which nodes read them; None when it is that."""
    reference_floats = {name: array for name, array in reference.items() if array.dtype.kind == "f" and array.size}
    known = dict(reference_floats)
    folded = _folded(known, kept=_kept_norms(graph, known), epsilons=epsilons)
    floors = {form.name: form.floor for form in folded.values()}
    known |= {form.name: form.array for form in folded.values()}
    partners = _partners(graph, initializers, known=known, folded={plain: form.name for plain, form in folded.items()})
    held = {
        name: _pair(name, initializers[name], parameter=other, theirs=known[other], floor=floors.get(other, FOLDING))
        for name, other in partners.items()
    }
    read = dict.fromkeys(name for node in graph.nodes for name in node.real_inputs())
    for name in read:
        array = initializers.get(name)
        if name not in held and array is not None and array.dtype.kind == "f" and array.size >= SMALLEST:
            made = fused(array, reference_floats) or part_of(array, reference_floats)
            if made is not None:
                held[name] = _fused_pair(name, array, made=made)
    return held


def _fused_pair(name: str, ours: Array, *, made: Fused) -> WeightPair | None:
    error = relative_distance(ours, made.array)
    if error <= FOLDING or (error <= ROUNDING and _is_rounded(ours)):
        return None
    row = WeightRow(initializer=name, parameter=made.name, transform=made.transform, error=error)
    return WeightPair(row=row, parameter=made.array.astype(ours.dtype, copy=False))


def _partners(
    graph: Graph, initializers: Mapping[str, Array], *, known: Mapping[str, Array], folded: Mapping[str, str]
) -> dict[str, str]:
    """The parameter that each initializer stands for: by name, by value, or as the bias beside its weight.

    ``folded`` has the name under which ``known`` holds a parameter with a BatchNorm folded in.
    """
    matcher = ParameterMatcher({name: array for name, array in known.items() if name not in folded})
    names = _Names(known)
    found: dict[str, str] = {}
    for node in graph.nodes:
        for position, name in enumerate(node.real_inputs()):
            array = initializers.get(name)
            if array is None or name in found or array.dtype.kind != "f":
                continue
            beside = [found[other] for other in node.real_inputs()[:position] if other in found]
            named = [*names.find(name), *(BESIDE_A_BIAS.sub("bias", weight) for weight in beside)]
            named = [other for other in named if other in known and known[other].shape == array.shape]
            if named:
                found[name] = _plain_or_folded(named[0], array, known=known, folded=folded)
            elif (match := matcher.match(name, array)) is not None and match.plausible:
                found[name] = match.parameter
    return found


def _plain_or_folded(name: str, array: Array, *, known: Mapping[str, Array], folded: Mapping[str, str]) -> str:
    """Folding may leave the name as it was: then the parameter is the plain one only where it is equal."""
    other = folded.get(name)
    return name if other is None or np.array_equal(known[name], array) else other


class _Names:
    """Names of parameters, looked up by a name that may have, or lack, a prefix that a wrapper put before it."""

    def __init__(self, known: Iterable[str]) -> None:
        self._known = frozenset(known)
        self._by_ending: dict[str, list[str]] = {}
        for name in known:
            for ending in _endings(name):
                self._by_ending.setdefault(ending, []).append(name)

    def find(self, name: str) -> list[str]:
        """The parameter of this name; none when several may be meant."""
        if name in self._known:
            return [name]
        ends = [*self._by_ending.get(name, ()), *(ending for ending in _endings(name) if ending in self._known)]
        return ends if len(ends) == 1 else []


def _endings(name: str) -> list[str]:
    """What follows each dot of a name."""
    parts = name.split(".")
    return [".".join(parts[place:]) for place in range(1, len(parts))]


def _pair(name: str, ours: Array, *, parameter: str, theirs: Array, floor: float) -> WeightPair | None:
    """None when the initializer is the parameter, as it is, turned over or rounded."""
    forms = {"identity": theirs} if theirs.shape == ours.shape else {}
    if theirs.ndim == 2 and theirs.shape[::-1] == ours.shape:
        forms["transpose"] = theirs.T
    forms = forms or {"reshape": theirs.reshape(ours.shape)}
    errors = {transform: relative_distance(ours, form) for transform, form in forms.items()}
    transform = min(errors, key=lambda form: errors[form])
    error = errors[transform]
    if error <= floor or (error <= ROUNDING and _is_rounded(ours)):
        return None
    row = WeightRow(initializer=name, parameter=parameter, transform=transform, error=error)
    with np.errstate(over="ignore"):
        return WeightPair(row=row, parameter=np.ascontiguousarray(forms[transform].astype(ours.dtype, copy=False)))


def _is_rounded(array: Array) -> bool:
    """Whether every number fits float16 or bfloat16: the weights went through a lower precision on their way."""
    with np.errstate(over="ignore"):
        if np.array_equal(array.astype(np.float16).astype(array.dtype), array):
            return True
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    return not np.any(bits & 0xFFFF)


def _kept_norms(graph: Graph, known: Mapping[str, Array]) -> frozenset[str] | None:
    """Variances that a BatchNormalization of the file still reads; None when it reads one without a known name."""
    read = [node.inputs[4] for node in graph.nodes if node.op_type == "BatchNormalization"]
    known_names = _Names(known)
    names = [known_names.find(name) for name in read]
    return frozenset(name for (name,) in names) if all(names) else None


def _folded(
    parameters: Mapping[str, Array], *, kept: frozenset[str] | None, epsilons: Mapping[str, float]
) -> dict[str, _Form]:
    """Convolutions with the BatchNorm whose weight comes next folded in, by the convolution's parameter."""
    found: dict[str, _Form] = {}
    before: str | None = None
    for name, array in parameters.items():
        if name.endswith("weight") and array.ndim > 2:
            before = name.removesuffix("weight")
        elif name.endswith("weight") and before is not None:
            norm = name.removesuffix("weight")
            variance = f"{norm}running_var"
            epsilon = epsilons.get(norm.removesuffix("."))
            if variance in parameters and epsilon is not None and kept is not None and variance not in kept:
                found |= _fold(parameters, convolution=before, norm=norm, epsilon=epsilon)
            before = None
    return found


def _fold(parameters: Mapping[str, Array], *, convolution: str, norm: str, epsilon: float) -> dict[str, _Form]:
    weight, variance = parameters[f"{convolution}weight"], parameters[f"{norm}running_var"]
    mean = parameters.get(f"{norm}running_mean")
    if mean is None or weight.shape[0] != variance.shape[0]:
        return {}
    scale = parameters[f"{norm}weight"] / np.sqrt(variance + np.asarray(epsilon, variance.dtype))
    shift = parameters.get(f"{norm}bias", np.zeros_like(variance))
    bias = parameters.get(f"{convolution}bias", np.zeros_like(variance))
    folded_bias = (bias - mean) * scale + shift
    terms = (np.abs(bias) + np.abs(mean)) * np.abs(scale) + np.abs(shift)
    smallest = float(np.finfo(np.float32).tiny)
    cancelled = float(np.linalg.norm(terms)) / max(float(np.linalg.norm(folded_bias)), smallest)
    into = f" with {norm.removesuffix('.')} folded in"
    return {
        f"{convolution}weight": _Form(
            name=f"{convolution}weight{into}",
            array=weight * scale.reshape(-1, *(1,) * (weight.ndim - 1)),
            floor=FOLDING,
        ),
        f"{convolution}bias": _Form(name=f"{convolution}bias{into}", array=folded_bias, floor=FOLDING * cancelled),
    }


def _other_checkpoint(rows: Sequence[WeightRow], *, before: Sequence[OutputRow], after: Sequence[OutputRow]) -> Finding:
    named = listing(list(dict.fromkeys(str(row.parameter) for row in rows)), limit=MOST_NAMED)
    farthest = max(rows, key=lambda row: row.error or 0.0)
    return Finding(
        code="WT001",
        name="weights-of-another-checkpoint",
        cause="K19",
        confidence=Confidence.PROVEN,
        subject=rows[0].initializer,
        message=(
            f"{len(rows)} initializers are not what the reference has there ({named}); "
            f"with the reference's in their place every output agrees"
        ),
        facts={"initializers": len(rows), "farthest": farthest.initializer, "distance": farthest.error},
        remedy="Export again from the checkpoint that the reference uses, or load the exported one with --weights.",
        counterfactual=Counterfactual(
            edit="the reference's parameters in the place of the initializers",
            local_before=None,
            local_after=None,
            output_before=worst_scaled(before),
            output_after=worst_scaled(after),
        ),
    )


def weight_rows(narrowed: Iterable[Narrowed]) -> tuple[WeightRow, ...]:
    """The weights that a search found to be wrong."""
    return tuple(
        WeightRow(initializer=w.initializer, parameter=w.parameter, transform=w.transform, error=w.error)
        for found in narrowed
        if (w := found.weight) is not None
    )
