"""Which input of the reference each input of the ONNX file stands for."""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence

from bisect_onnx.errors import InputPairingError

__all__ = ["InputPairing", "pair_inputs"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputPairing:
    """Pairs by the candidate's input name, and the reference's inputs in the order of its call."""

    pairs: Mapping[str, str]
    call_order: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def reference_only(self) -> tuple[str, ...]:
        """Inputs of the reference that the file does not have."""
        return tuple(name for name in self.call_order if name not in self.pairs.values())


def pair_inputs(
    candidate: Sequence[str],
    reference: Sequence[str],
    *,
    required: Sequence[str] | None,
    given: Sequence[str] = (),
    named: Sequence[str] = (),
) -> InputPairing:
    """Pair by equal names, then by names that an exporter numbered, then the rest by order.

    What the user named on both sides is told apart first: a value for an input of the file and one beside it
    for an input of the reference are two.

    Args:
        candidate: Graph inputs of the ONNX file, in order.
        reference: Inputs of the reference, in call order; empty when it takes whatever the file takes.
        required: Those of ``reference`` that have no default; None when unknown.
        given: Those of ``reference`` that the user gave a value for.
        named: Names in the feeds, of either side.

    Raises:
        InputPairingError: Order leaves more than one way to pair what is left.
    """
    if not reference:
        return InputPairing(pairs={name: name for name in candidate}, call_order=tuple(candidate), notes=())
    pairs = _by_name(candidate, reference)
    own = [name for name in candidate if name in named and name not in pairs]
    if own:
        elsewhere = [name for name in reference if name not in given]
        _by_count(pairs, candidate=own, reference=reference, among=elsewhere)
    _by_count(pairs, candidate=candidate, reference=reference, among=given)
    _by_count(pairs, candidate=candidate, reference=reference, among=reference)
    _by_count(pairs, candidate=candidate, reference=reference, among=reference if required is None else required)
    _between_known(pairs, candidate=candidate, reference=reference)
    _by_number(pairs, candidate=candidate, reference=reference)
    left = [name for name in candidate if name not in pairs]
    if left:
        raise _ambiguous(candidate, reference, left=left, free=_free(pairs, reference))
    notes = tuple(
        f"the candidate's input {name!r} is fed what the reference takes as {pairs[name]!r}"
        for name in candidate
        if pairs[name] != name
    )
    return InputPairing(pairs={name: pairs[name] for name in candidate}, call_order=tuple(reference), notes=notes)


def _by_name(candidate: Sequence[str], reference: Sequence[str]) -> dict[str, str]:
    pairs = {name: name for name in candidate if name in reference}
    for name in candidate:
        # The TorchScript exporter numbers names that it needs twice: "x" becomes "x.1".
        plain = re.sub(r"\.\d+$", "", name)
        if name not in pairs and plain in reference and plain not in pairs.values():
            pairs[name] = plain
    return pairs


def _by_count(
    pairs: dict[str, str], *, candidate: Sequence[str], reference: Sequence[str], among: Sequence[str]
) -> None:
    """Pair all that is left in order, if as many are left of ``among``."""
    left = [name for name in candidate if name not in pairs]
    free = [name for name in _free(pairs, reference) if name in among]
    if len(left) == len(free):
        pairs.update(zip(left, free, strict=True))


def _between_known(pairs: dict[str, str], *, candidate: Sequence[str], reference: Sequence[str]) -> None:
    """Pair what lies between two inputs that are paired by name, if as many lie there on both sides."""
    known = [-1, *(index for index, name in enumerate(candidate) if name in pairs), len(candidate)]
    places = [-1, *(reference.index(pairs[candidate[index]]) for index in known[1:-1]), len(reference)]
    for (start, end), (first, last) in zip(itertools.pairwise(known), itertools.pairwise(places), strict=True):
        inside = candidate[start + 1 : end]
        free = [name for name in reference[first + 1 : last] if name not in pairs.values()]
        if len(inside) == len(free):
            pairs.update(zip(inside, free, strict=True))


def _by_number(pairs: dict[str, str], *, candidate: Sequence[str], reference: Sequence[str]) -> None:
    """Pair "onnx::Gemm_2" with the third input of the call.

    The TorchScript exporter drops inputs that nothing reads, and numbers the others as it traced them. Only when
    every name that is left has a number, and the numbers follow the order: a file that was edited has others.
    """
    left = [name for name in candidate if name not in pairs]
    found = [re.fullmatch(r"onnx::\w+_(\d+)", name) for name in left]
    numbers = [int(match[1]) for match in found if match is not None]
    if len(numbers) != len(left) or numbers != sorted(set(numbers)) or (numbers and numbers[-1] >= len(reference)):
        return
    places = [reference[number] for number in numbers]
    if not set(places) & set(pairs.values()):
        pairs.update(zip(left, places, strict=True))


def _free(pairs: Mapping[str, str], reference: Sequence[str]) -> list[str]:
    return [name for name in reference if name not in pairs.values()]


def _ambiguous(
    candidate: Sequence[str], reference: Sequence[str], *, left: Sequence[str], free: Sequence[str]
) -> InputPairingError:
    return InputPairingError(
        where="graph inputs of the candidate",
        candidate=candidate,
        reference=reference,
        problem=f"{len(left)} of the candidate are left over against {len(free)} of the reference",
        next_step="name the arrays in the feeds as forward names its parameters, export again with input_names=[...] "
        "equal to those, or let the factory return (module, example inputs) if forward takes tuples or dicts",
    )
