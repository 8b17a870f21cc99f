"""Bisection over a graph: which value is the first to differ, asked with as few probes as possible.

The engine knows values as numbers in topological order, the values each is computed from, and a callable
that judges one value. It keeps a trace and decides nothing about models.
"""

import dataclasses
from collections.abc import Callable, Collection, Sequence

from bisect_onnx.core.compare import Verdict

__all__ = ["Found", "Probe", "bisect"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """One question that was asked."""

    value: int
    verdict: Verdict
    suspects_before: int
    suspects_after: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What is left when no probe can split it further.

    One suspect is the culprit; more cannot be told apart, because what lies between them is untestable.
    ``suspects`` always holds a first differing value when a mismatch was seen: one that differs while
    every judged value it is computed from agrees.
    """

    suspects: tuple[int, ...]
    probes: tuple[Probe, ...]


def ancestor_sets(sources: Sequence[Sequence[int]]) -> list[int]:
    """Bit set of each value's ancestors and itself; ``sources`` is in topological order."""
    sets: list[int] = []
    for value, above in enumerate(sources):
        reached = 1 << value
        for source in above:
            reached |= sets[source]
        sets.append(reached)
    return sets


def bisect(
    sources: Sequence[Sequence[int]],
    *,
    failing: int,
    judge: Callable[[int], Verdict],
    masking: Collection[int] = (),
) -> Found:
    """Find a value that differs while the values it is computed from agree.

    Args:
        sources: For each value, the values it is computed from, all smaller.
        failing: A value known to differ: a model output.
        judge: Whether a value agrees with its partner in the real run. Asked at most once per value.
        masking: Values computed by operators that can hide an error above them (Clip, ArgMax); a match
            there clears nothing but itself.

    Returns:
        The remaining suspects and the questions asked.

    A mismatch at v keeps the suspects among v's ancestors. A match removes v and its ancestors: they may
    hold an error that was healed on the way, but most often not this one. Whether it was this one is seen
    at the end, when everything that the last suspects read must agree by itself; what does not is searched.
    """
    return _Bisection(sources, failing=failing, judge=judge, masking=masking).run()


class _Bisection:
    """State of one search. Invariant: ``suspects`` holds ``mismatching``, which is known to differ."""

    def __init__(
        self,
        sources: Sequence[Sequence[int]],
        *,
        failing: int,
        judge: Callable[[int], Verdict],
        masking: Collection[int],
    ) -> None:
        self._sources = sources
        self._ancestors = ancestor_sets(sources)
        self._judge = judge
        self._masking = masking
        self._answers = {failing: Verdict.MISMATCH}
        self._mismatching = failing
        self._suspects = self._ancestors[failing]
        self._probes: list[Probe] = []

    def run(self) -> Found:
        self._split()
        while (source := self._differing_source()) is not None:
            self._mismatching = source
            agreeing = sum(1 << value for value, verdict in self._answers.items() if verdict is Verdict.MATCH)
            self._suspects = self._ancestors[source] & ~agreeing
            self._split()
        left = tuple(value for value in range(len(self._sources)) if self._suspects >> value & 1)
        return Found(suspects=left, probes=tuple(self._probes))

    def _split(self) -> None:
        while self._suspects.bit_count() > 1:
            value = _choose(self._suspects, answers=self._answers, ancestors=self._ancestors)
            if value is None:
                return
            self._ask(value)

    def _ask(self, value: int) -> Verdict:
        before = self._suspects.bit_count()
        self._answers[value] = verdict = self._judge(value)
        if verdict is Verdict.MISMATCH:
            self._suspects &= self._ancestors[value]
            self._mismatching = value
        elif verdict is Verdict.MATCH:
            cleared = 1 << value if value in self._masking else self._ancestors[value]
            self._suspects = self._suspects & ~cleared | 1 << self._mismatching
        self._probes.append(
            Probe(value=value, verdict=verdict, suspects_before=before, suspects_after=self._suspects.bit_count())
        )
        return verdict

    def _differing_source(self) -> int | None:
        """A value that a suspect reads and that differs, yet is none: it was cleared by a value that healed."""
        suspects = [value for value in range(len(self._sources)) if self._suspects >> value & 1]
        read = {source for value in suspects for source in self._sources[value]}
        for source in sorted(read.difference(suspects)):
            verdict = self._answers.get(source)
            if verdict is None:
                self._answers[source] = verdict = self._judge(source)
                left = len(suspects) if verdict is not Verdict.MISMATCH else self._ancestors[source].bit_count()
                probe = Probe(value=source, verdict=verdict, suspects_before=len(suspects), suspects_after=left)
                self._probes.append(probe)
            if verdict is Verdict.MISMATCH:
                return source
        return None


def _choose(suspects: int, *, answers: Collection[int], ancestors: Sequence[int]) -> int | None:
    """The suspect whose verdict leaves the fewest in the worse case; ties go to the earliest.

    Only suspects themselves are asked: anything above them that is no suspect was cleared already.
    """
    remaining = suspects.bit_count()
    best: int | None = None
    best_gain = -1
    rest = suspects
    while rest:
        low = rest & -rest
        rest ^= low
        value = low.bit_length() - 1
        if value in answers:
            continue
        above = (suspects & ancestors[value]).bit_count()
        gain = min(above, remaining - above)
        if gain > best_gain:
            best, best_gain = value, gain
    return best
