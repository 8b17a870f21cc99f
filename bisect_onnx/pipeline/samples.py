"""Several samples: what the user gave taken apart into the inputs of one run each, one at a time in memory."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from bisect_onnx.core.feeds import Array, GivenFeeds, InputSignature
from bisect_onnx.errors import SamplesError
from bisect_onnx.pipeline.inputs import Feeds

__all__ = ["Rows", "Samples", "sources_of"]


def sources_of(inputs: object) -> tuple[object, ...]:
    """The samples of a list in which each entry is all that one call takes; anything else is one sample."""
    if isinstance(inputs, list) and inputs:
        for kind in (Mapping, tuple, str | Path):
            if all(isinstance(item, kind) for item in inputs):
                return tuple(inputs)
    return (inputs,)


class Rows:
    """Arrays whose first axis counts samples.

    An array with one axis more than the file declares is taken apart into samples of the declared rank; one of the
    declared rank into samples of length one along its first axis.
    """

    def __init__(self, arrays: Mapping[str, Array], *, signature: Sequence[InputSignature], source: str) -> None:
        self._arrays = arrays
        counts = {name: len(array) if array.ndim else None for name, array in arrays.items()}
        if None in counts.values() or len(set(counts.values())) != 1 or 0 in counts.values():
            raise SamplesError(
                where=source,
                expected="one first axis, of one length in every input, that counts samples",
                got=", ".join(f"{name!r} of shape {tuple(array.shape)}" for name, array in arrays.items()) or "none",
                next_step="give every input the same number of rows, or leave out --samples",
            )
        self.count = next(count for count in counts.values() if count is not None)
        extra = {
            declared.name: arrays[declared.name].ndim - len(declared.dims)
            for declared in signature
            if declared.dims is not None and declared.name in arrays
        }
        if len(set(extra.values()) or {1}) != 1 or not set(extra.values()) <= {0, 1}:
            raise SamplesError(
                where=source,
                expected="for every input the axes that the file declares behind one that counts samples",
                got=", ".join(f"{name!r} with {arrays[name].ndim} axes for {s}" for name, s in _declared(signature)),
                next_step="stack the samples with np.stack, for every input alike",
            )
        self._keeps_axis = 0 in extra.values()

    def row(self, place: int) -> dict[str, Array]:
        """One sample, in memory of its own."""
        taken = slice(place, place + 1) if self._keeps_axis else place
        return {name: np.array(array[taken]) for name, array in self._arrays.items()}


def _declared(signature: Sequence[InputSignature]) -> list[tuple[str, str]]:
    return [(declared.name, str(declared)) for declared in signature if declared.dims is not None]


class Samples:
    """The samples of a run in the order in which they were given; one at a time is in memory."""

    def __init__(
        self,
        sources: Sequence[object],
        *,
        rows: Callable[[object, str], Rows] | None,
        resolve: Callable[[object, str], Feeds],
    ) -> None:
        """Count the samples.

        Args:
            sources: What the user gave for one sample, or for as many as the first axis counts.
            rows: Opens a source that is to be taken apart; None when each source is one sample.
            resolve: From a source, or from named arrays, to feeds of both sides; the text names the sample.
        """
        self._sources = sources
        self._open = rows
        self._resolve = resolve
        self._opened: tuple[int, Rows] | None = None
        self._places: list[tuple[int, int | None]] = []
        for index in range(len(sources)):
            counted = [None] if rows is None else range(self._rows(index).count)
            self._places += [(index, row) for row in counted]

    def __len__(self) -> int:
        return len(self._places)

    def label(self, place: int) -> str:
        """As Python would take it: "a.npz", "a.npz[17]", "inputs[3]"."""
        index, row = self._places[place]
        return self._source(index) + ("" if row is None else f"[{row}]")

    def feeds(self, place: int) -> Feeds:
        """The inputs of both sides for one sample.

        Raises:
            FeedsError: It does not fit the model.
        """
        index, row = self._places[place]
        if row is None:
            return self._resolve(self._sources[index], self.label(place))
        named = self._rows(index).row(row)
        return self._resolve(GivenFeeds(source=self.label(place), named=named), self.label(place))

    def _rows(self, index: int) -> Rows:
        if self._opened is None or self._opened[0] != index:
            assert self._open is not None
            self._opened = None  # the last source is let go before the next one is opened
            self._opened = (index, self._open(self._sources[index], self._source(index)))
        return self._opened[1]

    def _source(self, index: int) -> str:
        source = self._sources[index]
        if isinstance(source, str | Path):
            same_name = [other for other in self._sources if Path(str(other)).name == Path(source).name]
            return str(source) if len(same_name) > 1 else Path(source).name
        return f"inputs[{index}]" if len(self._sources) > 1 else "inputs"
