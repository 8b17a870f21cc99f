"""Is it what the file was fed? Other feeds for the candidate, under which both sides may agree.

The reference keeps its inputs. A change of the candidate's that makes every output agree says that the file takes
inputs of another order, scale, channel order or layout, unless a node of it explains the same.
"""

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from bisect_onnx.core.compare import Array
from bisect_onnx.core.finding import Confidence, Counterfactual, Finding
from bisect_onnx.core.graph import Graph
from bisect_onnx.core.layout import Layout, layouts
from bisect_onnx.core.report import Culprit, OutputRow
from bisect_onnx.errors import RuntimeFailedError
from bisect_onnx.pipeline.comparing import Comparison
from bisect_onnx.pipeline.narrow import Decision, Narrowed
from bisect_onnx.pipeline.preflight import worst_scaled
from bisect_onnx.pipeline.sides import Sides

__all__ = ["FedOtherwise", "FeedChange", "a_node_explains", "fed_otherwise", "feed_changes", "layout_change"]

# Orders of equal-shaped inputs that are tried: all of up to four, and the exchanges of two among more.
MOST_PERMUTED = 4
MOST_EXCHANGES = 28  # of eight inputs
# Steps of an 8-bit image.
STEPS = 255.0
COLOURS = 3


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FeedChange:
    """What the candidate is fed instead, by its input names, and how that is told."""

    code: str
    name: str
    edit: str
    message: str
    remedy: str
    arrays: Mapping[str, Array]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FedOtherwise:
    """A change under which every output agrees."""

    change: FeedChange
    before: tuple[OutputRow, ...]
    after: tuple[OutputRow, ...]

    def beyond_names(self, pairs: Mapping[str, str]) -> bool:
        """Whether inputs went to each other's places that nothing but their order had paired."""
        return self.change.code == "HN005" and all(pairs[name] != name for name in self.change.arrays)

    def finding(self, *, confidence: Confidence) -> Finding:
        change = self.change
        return Finding(
            code=change.code,
            name=change.name,
            cause="K26",
            confidence=confidence,
            subject=next(iter(change.arrays)),
            message=change.message,
            facts={"inputs": list(change.arrays)},
            remedy=change.remedy,
            counterfactual=Counterfactual(
                edit=change.edit,
                local_before=None,
                local_after=None,
                output_before=worst_scaled(self.before),
                output_after=worst_scaled(self.after),
            ),
        )


def fed_otherwise(sides: Sides, compared: Comparison) -> FedOtherwise | None:
    """The first change of the candidate's feeds under which every output agrees; each costs one run.

    Nothing is tried when no input has numbers to change, and nothing that leaves the feeds as they are.
    """
    before = tuple(compared.rows)
    for change in feed_changes(sides.feeds.arrays, pairs=sides.feeds.pairs):
        if all(np.array_equal(array, sides.feeds.arrays[name]) for name, array in change.arrays.items()):
            continue
        try:
            observed = sides.candidate.run({**sides.feeds.arrays, **change.arrays})
        except RuntimeFailedError:  # ids out of range, sizes that do not go together
            continue
        after = compared.would_agree_with_floors(observed)
        if compared.agrees:  # measured by its noise, nothing differs as it is
            return None
        if after is not None:
            return FedOtherwise(change=change, before=before, after=tuple(after))
    return None


def feed_changes(arrays: Mapping[str, Array], *, pairs: Mapping[str, str]) -> Iterator[FeedChange]:
    """The changes that people's mistakes amount to, the cheapest explanation first.

    Args:
        arrays: What the candidate is fed.
        pairs: The reference's input that each stands for.
    """
    for group in _alike(arrays):
        yield from _permuted(group, arrays, pairs=pairs)
    for name, array in arrays.items():
        if array.dtype.kind == "f" and array.ndim > 1 and array.size:
            yield from _scaled(name, array)
            yield from _other_channels(name, array)
            yield from _other_layout(name, array)


def _alike(arrays: Mapping[str, Array]) -> Iterator[list[str]]:
    """Inputs of one shape and dtype, two or more."""
    groups: dict[tuple[tuple[int, ...], str], list[str]] = {}
    for name, array in arrays.items():
        groups.setdefault((array.shape, str(array.dtype)), []).append(name)
    yield from (group for group in groups.values() if len(group) > 1)


def _permuted(group: Sequence[str], arrays: Mapping[str, Array], *, pairs: Mapping[str, str]) -> Iterator[FeedChange]:
    for order in _orders(len(group)):
        moved = {name: group[place] for name, place in zip(group, order, strict=True) if group[place] != name}
        told = ", ".join(f"{name!r} takes what the reference has as {pairs[other]!r}" for name, other in moved.items())
        yield FeedChange(
            code="HN005",
            name="inputs-in-other-places",
            edit=told,
            message=f"inputs of one shape went to each other's places; every output agrees when {told}",
            remedy="Name the inputs in the order of forward: input_names=[...] in the export; or exchange the feeds.",
            arrays={name: arrays[other] for name, other in moved.items()},
        )


def _orders(count: int) -> Iterator[tuple[int, ...]]:
    """Orders of ``count`` things but the one they are in, those that move the fewest first."""
    plain = tuple(range(count))
    if count <= MOST_PERMUTED:
        others = (order for order in itertools.permutations(plain) if order != plain)
        yield from sorted(others, key=lambda order: sum(a != b for a, b in zip(order, plain, strict=True)))
        return
    for first, second in itertools.islice(itertools.combinations(plain, 2), MOST_EXCHANGES):
        order = list(plain)
        order[first], order[second] = second, first
        yield tuple(order)


def _scaled(name: str, array: Array) -> Iterator[FeedChange]:
    scale = np.asarray(STEPS, array.dtype)
    for changed, edit in ((array / scale, "divided by 255"), (array * scale, "multiplied by 255")):
        if not np.isfinite(changed).all():
            continue
        low, high = float(array.min()), float(array.max())
        yield FeedChange(
            code="HN006",
            name="inputs-on-another-scale",
            edit=f"{name!r} {edit} for the file",
            message=f"the file takes {name!r} on another scale than the reference: fed the same numbers "
            f"({low:.4g} to {high:.4g}) they differ, and every output agrees when the file's are {edit}",
            remedy="Scale images on the same side of the export for both: inside the module, or before both.",
            arrays={name: changed},
        )


def _other_channels(name: str, array: Array) -> Iterator[FeedChange]:
    if array.ndim < 3:
        return
    for axis in sorted({axis % array.ndim for axis in (1, -3, -1)}):
        if array.shape[axis] == COLOURS:
            yield FeedChange(
                code="HN007",
                name="channels-in-other-order",
                edit=f"{name!r} with its channels (axis {axis}) reversed for the file",
                message=f"the file takes the channels of {name!r} in the other order than the reference, RGB for BGR: "
                f"every output agrees when axis {axis} is reversed",
                remedy="Reverse the channels on one side of the export for both: inside the module, or before both.",
                arrays={name: np.ascontiguousarray(np.flip(array, axis))},
            )


def _other_layout(name: str, array: Array) -> Iterator[FeedChange]:
    for layout in layouts(array):
        changed = layout.moved(array)
        if changed.shape == array.shape:  # another shape is tried where the runtime or the file refuses this one
            yield layout_change(name, layout, array=changed)


def layout_change(name: str, layout: Layout, *, array: Array, side: str = "file") -> FeedChange:
    """``side`` takes the moved ``array``: "file" or "reference"."""
    return FeedChange(
        code="HN008",
        name="layout-differs",
        edit=f"{name!r} moved from {layout.value} for the {side}",
        message=f"the two sides take {name!r} in different layouts: every output agrees when the {side}'s is moved "
        f"from {layout.value}",
        remedy="Give each side its own layout: transpose the feeds, or export with the Transpose inside the module.",
        arrays={name: array},
    )


def a_node_explains(
    found: FedOtherwise,
    culprits: Sequence[Culprit],
    narrowed: Mapping[int, Narrowed],
    *,
    graph: Graph,
    audited: Collection[str],
) -> bool:
    """Whether one node of the file could be at fault instead of the feeds.

    Two inputs in each other's places make several nodes wrong, and an operand error one. A changed scale or layout
    makes the first reader wrong, so a node counts when an edit of it was tried and cured its segment, or when it is no
    reader with a parameter of the reference: a product with weights that are the module's own cannot be wrong by 255.

    Args:
        found: The change.
        culprits: What the search accuses.
        narrowed: How each was singled out, by node index.
        graph: The candidate.
        audited: Initializers that equal a parameter of the reference.
    """
    if len(culprits) != 1 or culprits[0].confidence != "certified":
        return False
    culprit = culprits[0]
    if found.change.code == "HN005" or narrowed[culprit.index].decision is not Decision.ALONE:
        return True
    node = graph.producer(culprit.outputs[0])
    return node is None or not any(name in audited for name in node.real_inputs())
