"""Find the node that should read a result of the candidate that nobody reads."""

from collections.abc import Mapping

from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.graph import Node
from bisect_onnx.pipeline.experiments import right_with
from bisect_onnx.pipeline.region import Judged, Region

__all__ = ["reads_past"]

# Values tried in the place of one input; each is one run of a few nodes. Exporters leave next to no dead ends.
MOST_TRIALS = 24


def reads_past(item: Judged, *, region: Region, pairs: Mapping[str, Pair], cleared: frozenset[int]) -> Node | None:
    """The node that reads a wrong value, when what it should read is computed in the file and used by no output.

    Such a value need not be one of the reference's (a norm without its scale): it is tried as the candidate computes
    it from the reference's values.
    """
    graph = region.graph
    names = [name for name in item.segment.inputs if name in region.plain]
    unread = _unread(region)
    if not unread or not names:
        return None
    computed = region.tried([pairs[name] for name in names], unread)
    for name in names:
        readers = [node for node in graph.consumers(name) if node in item.segment.nodes and node.index not in cleared]
        like = region.plain[name]
        if len(readers) != 1:
            continue
        for array in computed.values():
            fits = array.shape == like.shape and array.dtype == like.dtype
            if fits and right_with(item, {name: array}, region=region, pairs=pairs):
                return readers[0]
    return None


def _unread(region: Region) -> list[str]:
    """Ends of the graph that are no outputs: results that no node reads."""
    outputs = set(region.graph.outputs)
    return [name for name in region.plain if name not in outputs and not region.graph.consumers(name)][:MOST_TRIALS]
