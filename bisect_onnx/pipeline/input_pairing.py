"""Which input of the reference each input of the ONNX file stands for."""

import dataclasses
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


def pair_inputs(candidate: Sequence[str], reference: Sequence[str], *, required: Sequence[str] | None) -> InputPairing:
    """Pair by equal names, then by names that an exporter numbered, then the rest by order.

    Args:
        candidate: Graph inputs of the ONNX file, in order.
        reference: Inputs of the reference, in call order; empty when it takes whatever the file takes.
        required: Those of ``reference`` that have no default; None when unknown.

    Raises:
        InputPairingError: What is left over on both sides is not equally many.
    """
    if not reference:
        return InputPairing(pairs={name: name for name in candidate}, call_order=tuple(candidate), notes=())
    pairs = {name: name for name in candidate if name in reference}
    for name in candidate:
        # The TorchScript exporter numbers names that it needs twice: "x" becomes "x.1".
        plain = re.sub(r"\.\d+$", "", name)
        if name not in pairs and plain in reference and plain not in pairs.values():
            pairs[name] = plain
    left = [name for name in candidate if name not in pairs]
    free = [name for name in reference if name not in pairs.values()]
    for chosen in (free, [name for name in free if required is None or name in required]):
        if left and len(chosen) == len(left):
            pairs.update(zip(left, chosen, strict=True))
            left = []
    if left:
        raise _ambiguous(candidate, reference, left=left, free=free)
    notes = tuple(
        f"the candidate's input {name!r} is fed what the reference takes as {pairs[name]!r}"
        for name in candidate
        if pairs[name] != name
    )
    return InputPairing(
        pairs={name: pairs[name] for name in candidate},
        call_order=tuple(reference),
        notes=notes,
    )


def _ambiguous(
    candidate: Sequence[str], reference: Sequence[str], *, left: Sequence[str], free: Sequence[str]
) -> InputPairingError:
    return InputPairingError(
        where="graph inputs of the candidate",
        candidate=candidate,
        reference=reference,
        problem=f"{len(left)} of the candidate are left over against {len(free)} of the reference",
        next_step="export again with input_names=[...] equal to the parameter names of forward, or let the factory "
        "return (module, example inputs) if forward takes tuples or dicts",
    )
