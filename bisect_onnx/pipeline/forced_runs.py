"""Values of the candidate on the reference's inputs, from round to round: only what a changed pair reaches is run."""

from collections.abc import Collection, Mapping, Sequence

from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array
from bisect_onnx.core.tensor import Fingerprint
from bisect_onnx.pipeline.region import Region

__all__ = ["ForcedRuns"]


class ForcedRuns:
    """The last run of a region with its cuts, and the fingerprints of what was seen."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._cuts: Mapping[str, Pair] | None = None  # of the last run; None before the first
        self._values: dict[str, Array] = {}
        self._prints: dict[str, tuple[Array, Fingerprint]] = {}

    def run(self, cuts: Sequence[Pair]) -> dict[str, Array]:
        """As `Region.run`: what depends on the same pairs as last time is as it was, and is not run again."""
        now = {pair.candidate: pair for pair in cuts}
        if self._cuts is None:
            self._values = self._region.run(cuts)
        else:
            before = self._cuts
            changed = {name for name in {*before, *now} if before.get(name) != now.get(name)}
            moved = self._moved(changed, cut=now)
            if moved:
                fed = self._fed(moved, cut=now)
                self._values = self._values | self._region.run([pair for pair in cuts if pair.candidate in fed], moved)
        self._cuts = now
        return dict(self._values)

    def prints(self, values: Mapping[str, Array]) -> dict[str, Fingerprint]:
        """As `Region.prints`; an array that was there last time is not read again."""
        new = {name: array for name, array in values.items() if not self._has_seen(name, array)}
        self._prints |= {name: (values[name], print_) for name, print_ in self._region.prints(new).items()}
        return {name: self._prints[name][1] for name, array in values.items() if self._has_seen(name, array)}

    def _has_seen(self, name: str, array: Array) -> bool:
        return name in self._prints and self._prints[name][0] is array

    def _moved(self, changed: Collection[str], *, cut: Collection[str]) -> list[str]:
        """Values computed from one of ``changed`` without a cut in between, in topological order."""
        reached: set[str] = set()
        found = []
        for node in self._region.graph.nodes:
            if any(name in changed or (name in reached and name not in cut) for name in node.reads):
                reached.update(node.real_outputs())
                found += [name for name in node.real_outputs() if name in self._values]
        return found

    def _fed(self, fetch: Collection[str], *, cut: Collection[str]) -> set[str]:
        """Cuts that ``fetch`` is computed from."""
        graph = self._region.graph
        found: set[str] = set()
        seen: set[int] = set()
        stack = [node for name in fetch if (node := graph.producer(name)) is not None]
        while stack:
            node = stack.pop()
            if node.index in seen:
                continue
            seen.add(node.index)
            found.update(name for name in node.reads if name in cut)
            above = (graph.producer(name) for name in node.reads if name not in cut)
            stack.extend(producer for producer in above if producer is not None)
        return found
