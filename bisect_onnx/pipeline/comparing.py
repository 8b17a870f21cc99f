"""Run both sides and hold their outputs against each other: the state of the comparison, as it is corrected."""

import zlib
from collections.abc import Mapping

import numpy as np

from bisect_onnx.core.compare import Array, Verdict
from bisect_onnx.core.finding import Finding
from bisect_onnx.core.report import OutputRow
from bisect_onnx.core.tolerance import Tolerance
from bisect_onnx.pipeline import preflight
from bisect_onnx.pipeline.confirming import settle_outputs, with_floors
from bisect_onnx.pipeline.judge import exact_floor
from bisect_onnx.pipeline.output_floor import estimated_floor
from bisect_onnx.pipeline.output_pairing import ALIKE, OutputPair, PairedBy, belonging, pair_outputs, reassigned
from bisect_onnx.pipeline.sides import Sides
from bisect_onnx.runtimes.base import Capture

__all__ = ["Comparison"]


class Comparison:
    """Rows say how each output of the candidate compares; pairs say with which of the reference's."""

    def __init__(self, sides: Sides, tolerance: Tolerance) -> None:
        self._sides = sides
        self._tolerance = tolerance
        self.rows: list[OutputRow] = []
        self.pairs: list[OutputPair] = []
        self.answers: Mapping[str, Array] = {}  # of the reference, by its own output names
        self._observed: Mapping[str, Array] = {}
        self.changed_inputs: frozenset[str] = frozenset()  # of the candidate, by its run

    @property
    def observed(self) -> Mapping[str, Array]:
        """Of the candidate, by its own output names."""
        return self._observed

    @property
    def agrees(self) -> bool:
        """Whether no output differs; see `anything_compared`."""
        return all(row.verdict is not Verdict.MISMATCH for row in self.rows)

    @property
    def anything_compared(self) -> bool:
        return any(row.verdict is not Verdict.UNTESTABLE for row in self.rows)

    @property
    def belonging(self) -> frozenset[str]:
        """Outputs whose partner is theirs beyond doubt: only those may lead a search."""
        return belonging(self.pairs, truth=self.answers, observed=self._observed)

    @property
    def lacking(self) -> list[str]:
        """Outputs of a reference that runs which the file does not have."""
        taken = {pair.reference for pair in self.pairs}
        return [] if self._sides.recorded else [name for name in self.answers if name not in taken]

    @property
    def doubtful(self) -> list[OutputRow]:
        """Outputs that differ from a partner that may not be theirs."""
        return [row for row in self.rows if row.verdict is Verdict.MISMATCH and row.name not in self.belonging]

    @property
    def truth(self) -> dict[str, Array]:
        """The reference's outputs by the names of the candidate's that they belong to."""
        return {
            pair.candidate: self.answers[pair.reference]
            for pair in self.pairs
            if pair.reference is not None and pair.candidate in self.belonging
        }

    def run_as_given(self) -> bool:
        """`run`, on the feeds as the user gave them.

        Raises:
            FeedShapeError: An input fits the file in another layout only.
        """
        if self._sides.feeds.relaid is not None:
            raise self._sides.feeds.relaid.refused
        return self.run()

    def run(self) -> bool:
        """Run both sides untouched; whether they agree."""
        feeds = self._sides.feeds
        self.answers = self._sides.reference.run(feeds.reference)
        before = _digests(feeds.arrays)
        self._observed = self._sides.candidate.run(feeds.arrays)
        after = _digests(feeds.arrays)
        self.changed_inputs = frozenset(name for name in before if before[name] != after[name])
        self.pairs = pair_outputs(
            self._sides.candidate.graph.outputs, tuple(self.answers), ordered=not self._sides.recorded
        )
        self._judge()
        return self.agrees

    def run_with_floors(self) -> bool:
        """As `run`, with the noise measured where the arithmetic bound does not explain a difference."""
        return self.run() or self._agrees_with_floors()

    def measure_floors(self, capture: Capture) -> None:
        """Judge the outputs that differ by measured noise, estimated where the calls cannot be repeated."""
        names = self.captured(capture)
        self.rows = with_floors(
            self.rows,
            {
                row.name: exact_floor(capture, names[row.name], None) or self._estimated(row, capture)
                for row in self.rows
                if row.verdict is Verdict.MISMATCH and row.name in names
            },
        )

    def captured(self, capture: Capture) -> dict[str, str]:
        """The captured value behind each candidate output that has a partner."""
        by_name = dict(zip(self.answers, capture.graph.outputs, strict=False))
        return {
            pair.candidate: by_name[pair.reference]
            for pair in self.pairs
            if pair.reference is not None and pair.reference in by_name
        }

    def would_agree(self, observed: Mapping[str, Array]) -> bool:
        """Whether outputs that differ agree in another configuration, which gave ``observed``, and no other differs."""
        rows = self.would_be(observed)
        failing = {row.name for row in self.rows if row.verdict is Verdict.MISMATCH}
        return bool(failing & set(observed)) and all(row.verdict is not Verdict.MISMATCH for row in rows)

    def would_agree_with_floors(self, observed: Mapping[str, Array]) -> list[OutputRow] | None:
        """The rows of ``observed`` when all agree, by measured noise where they nearly do; otherwise None."""
        failing = {row.name for row in self.rows if row.verdict is Verdict.MISMATCH}
        if not failing or not failing <= set(observed):
            return None
        rows = self.would_be(observed)
        apart = [row for row in rows if row.verdict is Verdict.MISMATCH]
        near = all(row.error is not None and (row.error.scaled or 0.0) <= ALIKE for row in apart)
        if apart and near and not self._tolerance.given:
            feeds = self._sides.feeds.reference
            self.measure_floors(self._sides.reference.capture(feeds, max_bytes=self._sides.max_bytes))
            rows = self.would_be(observed)
        return None if any(row.verdict is Verdict.MISMATCH for row in rows) else rows

    def would_be(self, observed: Mapping[str, Array]) -> list[OutputRow]:
        """The rows of ``observed`` in the place of what the candidate gave, judged as its own were."""
        rows = settle_outputs(
            [pair for pair in self.pairs if pair.candidate in observed],
            truth=self.answers,
            observed=observed,
            tolerance=self._tolerance,
            operators=len(self._sides.candidate.graph.nodes),
        )
        return with_floors(rows, {row.name: row.noise for row in self.rows if row.noise is not None})

    def unpaired(self) -> Finding | None:
        """What to say when no node is accused and nothing was compared that belongs together beyond doubt."""
        if any(row.verdict is Verdict.MISMATCH and row.name in self.belonging for row in self.rows):
            return None
        rows = self.doubtful or self.rows
        return preflight.outputs_unpaired(rows, reference=tuple(self.answers), recorded=self._sides.recorded)

    def look_elsewhere(self) -> Finding | None:
        """Pair outputs by their values where they agree so and do not as they are paired; None when they do not."""
        pairs, rows = self.pairs, self.rows
        better = reassigned(pairs, truth=self.answers, observed=self._observed)
        if better is None:
            return None
        self.pairs = better
        self._judge()
        self._agrees_with_floors()
        moved = {pair.candidate for pair in better if pair.by is PairedBy.VALUES}
        if any(row.verdict is Verdict.MISMATCH for row in self.rows if row.name in moved):
            self.pairs, self.rows = pairs, rows
            return None
        return preflight.outputs_elsewhere(better, instead_of=pairs, before=rows, after=self.rows)

    def _judge(self) -> None:
        self.rows = settle_outputs(
            self.pairs,
            truth=self.answers,
            observed=self._observed,
            tolerance=self._tolerance,
            operators=len(self._sides.candidate.graph.nodes),
            belonging=self.belonging,
        )

    def _agrees_with_floors(self) -> bool:
        if not self.agrees and not self._tolerance.given:
            feeds = self._sides.feeds.reference
            self.measure_floors(self._sides.reference.capture(feeds, max_bytes=self._sides.max_bytes))
        return self.agrees

    def _estimated(self, row: OutputRow, capture: Capture) -> float:
        assert row.reference is not None
        return estimated_floor(self._sides, capture, candidate=row.name, reference=row.reference)


def _digests(arrays: Mapping[str, Array]) -> dict[str, int]:
    return {
        name: zlib.crc32(np.ascontiguousarray(array).tobytes())
        for name, array in arrays.items()
        if array.dtype.kind != "O" and array.size
    }
