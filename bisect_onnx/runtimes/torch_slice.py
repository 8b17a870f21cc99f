"""The part of a tape that leads from given values to wanted ones."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from bisect_onnx.runtimes.torch_tape import Recorded, Tape, Unit

__all__ = ["Slice", "slice_tape"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """Steps in order, the values to make, and the recorded values to start from.

    A value that is both given and wanted is in both: it is made, and its readers get the recorded one.
    """

    units: tuple[Unit, ...]
    made: frozenset[str]
    leaves: tuple[str, ...]

    def uses(self) -> Counter[str]:
        """How many steps read each value."""
        return Counter(name for unit in self.units for name in unit.reads)

    def origins(self, given: Collection[str]) -> dict[str, frozenset[str]]:
        """The nearest of the ``given`` values above each value to make; what has the same ones is the same value."""
        found: dict[str, frozenset[str]] = {}
        leaves = {name: frozenset((name,)) if name in given else frozenset() for name in self.leaves}
        for unit in self.units:
            origin: frozenset[str] = frozenset()
            for name in unit.reads:
                above = leaves[name] if name in leaves else found[name]
                if not above <= origin:
                    origin = origin | above if origin else above
            found.update((name, origin) for name in unit.makes if name in self.made)
        return found


def slice_tape(
    tape: Tape, *, fetch: Sequence[str], given: Collection[str], is_leaf: Callable[[Recorded, Unit], bool]
) -> Slice:
    """Collect the steps that make ``fetch``.

    Args:
        tape: The recorded run.
        fetch: Values wanted. One that is also given is made by its own call, from what that call reads.
        given: Values whose makers are not repeated for the sake of others.
        is_leaf: Whether a value that a step makes is taken as recorded nevertheless.
    """
    makers = tape.makers
    units: dict[tuple[int, int], Unit] = {}
    leaves: dict[str, None] = {}
    made: set[str] = set()
    pending = [(name, False) for name in dict.fromkeys(fetch)]  # (value, whether a step reads it)
    seen: set[tuple[str, bool]] = set()
    while pending:
        name, is_read = item = pending.pop()
        if item in seen:
            continue
        seen.add(item)
        unit = makers.get(name)
        if unit is None or (is_read and name in given) or is_leaf(tape.values[name], unit):
            leaves[name] = None
        else:
            made.add(name)
            if unit.order not in units:
                units[unit.order] = unit
                pending.extend((read, True) for read in unit.reads)
    return Slice(units=tuple(units[order] for order in sorted(units)), made=frozenset(made), leaves=tuple(leaves))
