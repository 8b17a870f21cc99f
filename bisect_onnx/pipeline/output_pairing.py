"""Which output of the reference each output of the candidate is compared with, and how far that can be relied on.

Names decide where all are known, otherwise the order. When outputs disagree, values may tell that the outputs
stand in another order, bear each other's names, or that some were dropped: a wrong comparison accuses nodes
that are right.
"""

import dataclasses
import enum
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bisect_onnx.core.compare import Array, ErrorStats, compare_arrays

__all__ = ["OutputPair", "PairedBy", "belonging", "pair_outputs", "reassigned"]

# Two outputs this near, relative to the rms, may be one quantity: float16 and forty layers of float32 noise stay
# below it. It only finds the hypothesis; the noise floor decides whether the outputs agree in their new places.
ALIKE = 2e-3

# So many different whole numbers do not agree by chance, as two flags do.
TELLING = 8


class PairedBy(enum.Enum):
    NAME = "name"
    ORDER = "order"
    VALUES = "values"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class OutputPair:
    """A candidate output and the reference output it is compared with; None when there is none."""

    candidate: str
    reference: str | None
    by: PairedBy = PairedBy.ORDER


def pair_outputs(candidate: Sequence[str], reference: Sequence[str], *, ordered: bool = True) -> list[OutputPair]:
    """Match outputs by name when every name is known, otherwise in order.

    Args:
        candidate: Outputs of the file.
        reference: Outputs of the reference.
        ordered: Whether the reference's order means anything. In a recording only names do.
    """
    if not ordered or set(candidate) <= set(reference):
        known = set(reference)
        return [
            OutputPair(candidate=name, reference=name if name in known else None, by=PairedBy.NAME)
            for name in candidate
        ]
    padded = [*reference, *([None] * len(candidate))]
    return [OutputPair(candidate=name, reference=other) for name, other in zip(candidate, padded, strict=False)]


def belonging(
    pairs: Sequence[OutputPair], *, truth: Mapping[str, Array], observed: Mapping[str, Array]
) -> frozenset[str]:
    """Candidate outputs whose partner is theirs beyond doubt, so that a difference between the two accuses a node.

    Names and values say so. The order does when there are as many outputs on both sides and all fit their
    partners but for one at most, which is left over; with other numbers of outputs, when no other choice of
    partners in this order fits.
    """
    both = [pair for pair in pairs if pair.reference is not None and pair.candidate in observed]
    sure = {pair.candidate for pair in both if pair.by is not PairedBy.ORDER}
    ordered = [pair for pair in both if pair.by is PairedBy.ORDER]
    misfits = [pair for pair in ordered if not _fit(truth[str(pair.reference)], observed[pair.candidate])]
    if len(pairs) == len(truth):
        relied_on = len(misfits) <= 1
    else:
        relied_on = not misfits and _choices([pair.candidate for pair in pairs], truth=truth, observed=observed) == 1
    return frozenset(sure | ({pair.candidate for pair in ordered} if relied_on else set()))


def _choices(candidate: Sequence[str], *, truth: Mapping[str, Array], observed: Mapping[str, Array]) -> int:
    """In how many ways the side with fewer outputs fits into the other in order; 2 stands for more."""
    ours = [observed[name] for name in candidate if name in observed]
    theirs = list(truth.values())
    short, long = (ours, theirs) if len(ours) <= len(theirs) else (theirs, ours)
    ways = [1] + [0] * len(short)  # by how many of the shorter side have found a place
    for array in long:
        for place in range(len(short), 0, -1):
            if _fit(short[place - 1], array):
                ways[place] = min(2, ways[place] + ways[place - 1])
    return ways[-1]


def reassigned(
    pairs: Sequence[OutputPair], *, truth: Mapping[str, Array], observed: Mapping[str, Array]
) -> list[OutputPair] | None:
    """Other pairs in which outputs agree that do not agree in these; None when values tell of none.

    Either every output finds a partner, or some have exchanged places among themselves. Outputs whose names
    are known may only have exchanged them: one that equals an output of another name by itself has lost an
    operation. What is moved must say something: two flags or two constants agree by chance.

    Args:
        pairs: The pairs so far.
        truth: The reference's outputs by its names.
        observed: The candidate's by its names.
    """
    named = any(pair.by is PairedBy.NAME for pair in pairs)
    moves = _moves(pairs, truth=truth, observed=observed)
    telling = {name: target for name, target in moves.items() if _says_something(observed[name])}
    if not telling:
        return None
    exchanged = set(_exchanges(telling, {pair.candidate: pair.reference for pair in pairs}))
    placed = len(moves) + sum(_alike(pair, truth=truth, observed=observed) for pair in pairs)
    complete = placed == min(len(pairs), len(truth)) and not named
    if not complete and not exchanged:
        return None
    adopted = moves if complete else {name: moves[name] for name in moves if name in exchanged}
    taken = set(adopted.values())
    return [
        OutputPair(candidate=pair.candidate, reference=adopted[pair.candidate], by=PairedBy.VALUES)
        if pair.candidate in adopted
        else dataclasses.replace(pair, reference=None if pair.reference in taken else pair.reference)
        for pair in pairs
    ]


def _moves(pairs: Sequence[OutputPair], *, truth: Mapping[str, Array], observed: Mapping[str, Array]) -> dict[str, str]:
    """Another partner for each output that disagrees with its own, the nearest ones first."""
    settled = {pair.reference for pair in pairs if _alike(pair, truth=truth, observed=observed)}
    free = [pair.candidate for pair in pairs if pair.reference not in settled and pair.candidate in observed]
    gaps = sorted(
        (gap, place, name, other)
        for place, name in enumerate(free)
        for other in truth
        if other not in settled and (gap := _gap(truth[other], observed[name])) <= ALIKE
    )
    moves: dict[str, str] = {}
    for _, _, name, other in gaps:
        if name not in moves and other not in moves.values():
            moves[name] = other
    return moves


def _exchanges(moves: Mapping[str, str], partners: Mapping[str, str | None]) -> Iterator[str]:
    """The outputs that have exchanged their partners among themselves."""
    owner = {reference: name for name, reference in partners.items() if reference is not None}
    for start in moves:
        ring = [start]
        while (after := owner.get(moves[ring[-1]])) in moves and after not in ring:
            assert after is not None
            ring.append(after)
        if after == start:
            yield from ring


def _alike(pair: OutputPair, *, truth: Mapping[str, Array], observed: Mapping[str, Array]) -> bool:
    if pair.reference is None or pair.candidate not in observed:
        return False
    return _gap(truth[pair.reference], observed[pair.candidate]) <= ALIKE


def _gap(reference: Array, candidate: Array) -> float:
    """Largest difference over the rms; infinite for other shapes, other kinds and other whole numbers."""
    if not _fit(reference, candidate):
        return float("inf")
    error = compare_arrays(reference, candidate, check_dtype=False)
    if not isinstance(error, ErrorStats) or error.scaled is None or _kind(reference) != "float":
        return 0.0 if isinstance(error, ErrorStats) and not error.mismatched else float("inf")
    return error.scaled


def _fit(reference: Array, candidate: Array) -> bool:
    return reference.shape == candidate.shape and _kind(reference) == _kind(candidate)


def _kind(array: Array) -> str:
    if array.dtype.kind in "fV":  # the second are bfloat16 and its kin
        return "float"
    return {"i": "whole", "u": "whole", "b": "flag", "c": "complex"}.get(array.dtype.kind, "text")


def _says_something(array: Array) -> bool:
    """Whether another array equals this one for a reason."""
    if _kind(array) in {"flag", "text"} or not array.size:
        return False
    if _kind(array) == "whole":
        return len(np.unique(array)) >= TELLING
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64).ravel()
    finite = wide[np.isfinite(wide)]
    return bool((finite != np.round(finite.real)).any()) and (array.size == 1 or bool((finite != finite[0]).any()))
