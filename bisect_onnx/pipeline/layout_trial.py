"""A side refuses the layout of an input: does the other one, NCHW for NHWC, make both sides agree?"""

import dataclasses
from collections.abc import Iterator, Mapping

from bisect_onnx.core.compare import Array
from bisect_onnx.core.finding import Confidence, Finding
from bisect_onnx.core.layout import layouts
from bisect_onnx.core.tolerance import Tolerance
from bisect_onnx.errors import ReferenceFailedError, RuntimeFailedError
from bisect_onnx.pipeline.comparing import Comparison
from bisect_onnx.pipeline.feed_trials import FedOtherwise, FeedChange, layout_change
from bisect_onnx.pipeline.sides import Sides

__all__ = ["agreeing_layout"]


def agreeing_layout(sides: Sides, tolerance: Tolerance) -> tuple[Comparison, Finding] | None:
    """A comparison in which every output agrees because one input of one side was moved; None when there is none.

    To be asked when a side failed on the feeds, or when `Feeds.relaid` says that the file's signature refuses them.
    """
    for moved, change in _moved(sides):
        compared = Comparison(moved, tolerance)
        try:
            agrees = compared.run_with_floors() and compared.anything_compared
        except (ReferenceFailedError, RuntimeFailedError):
            continue
        if agrees:
            found = FedOtherwise(change=change, before=(), after=tuple(compared.rows))
            return compared, found.finding(confidence=Confidence.PROVEN)
    return None


def _moved(sides: Sides) -> Iterator[tuple[Sides, FeedChange]]:
    """The sides with one input of one of them moved, and what that is called."""
    feeds = sides.feeds
    if feeds.relaid is not None:
        name = feeds.relaid.name
        yield sides, layout_change(name, feeds.relaid.layout, array=feeds.arrays[name])
        return
    for name, array in feeds.arrays.items():
        for layout in layouts(array):
            moved = layout.moved(array)
            if moved.shape == array.shape:
                continue
            theirs = {**feeds.reference, feeds.pairs[name]: layout.moved(feeds.reference[feeds.pairs[name]])}
            yield _fed(sides, feeds.arrays, theirs), layout_change(name, layout, array=moved, side="reference")
            yield _fed(sides, {**feeds.arrays, name: moved}, feeds.reference), layout_change(name, layout, array=moved)


def _fed(sides: Sides, ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> Sides:
    return dataclasses.replace(sides, feeds=dataclasses.replace(sides.feeds, arrays=ours, reference=theirs))
