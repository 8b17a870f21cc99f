"""From what the user said about inputs to arrays that both sides take, checked against the file's signature."""

import contextlib
import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bisect_onnx.core.feeds import Array, GivenFeeds, InputSignature
from bisect_onnx.core.graph import Graph
from bisect_onnx.core.layout import Layout, layouts
from bisect_onnx.core.report import InputRow
from bisect_onnx.errors import (
    FeedCountError,
    FeedNamesError,
    FeedsError,
    FeedShapeError,
    InputPairingError,
    RecordingError,
    ShapeOptionError,
    listing,
)
from bisect_onnx.pipeline.given_inputs import gather_feeds, refuse_lists_of_numbers
from bisect_onnx.pipeline.input_check import check_feeds, plain, reference_arrays
from bisect_onnx.pipeline.input_pairing import InputPairing, pair_inputs
from bisect_onnx.pipeline.opening import OpenedReference
from bisect_onnx.pipeline.random_inputs import draw_inputs

__all__ = ["Feeds", "Relaid", "feeds_of_file", "input_row", "name_feeds", "resolve_feeds"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Relaid:
    """An input that fits the file's signature in another layout only, and the refusal of it as it was given."""

    name: str
    layout: Layout
    refused: FeedShapeError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feeds:
    """Inputs for both sides; the arrays are copies that nobody else holds.

    ``pairs`` says which of the reference's inputs each of the candidate's stands for. A reference with more
    inputs than the file has them in ``reference`` only. An input that is ``relaid`` is as it was given there.
    """

    arrays: Mapping[str, Array]  # by the candidate's input name, in graph order
    reference: Mapping[str, Array]  # by the reference's input name, in call order
    pairs: Mapping[str, str]
    rows: tuple[InputRow, ...]
    notes: tuple[str, ...]
    relaid: Relaid | None = None


def resolve_feeds(
    inputs: object,
    *,
    signature: Sequence[InputSignature],
    graph: Graph,
    opened: OpenedReference,
    seed: int = 0,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    other_layouts: bool = False,
) -> Feeds:
    """Find a value for each input of both sides.

    Args:
        inputs: A path, tensors or arrays, or feeds that were gathered from those; None takes the factory's example
            inputs, or draws random ones.
        signature: Inputs that the ONNX file declares.
        graph: The ONNX file's graph, which tells the legal range of indices.
        opened: The reference.
        seed: Of the random inputs.
        shapes: ``--shape``: sizes of random inputs by name. With them the factory's examples are not used.
        other_layouts: Take an input that fits the file in another layout only; see `Feeds.relaid`.

    Raises:
        FeedsError: The inputs do not fit.
    """
    names = [declared.name for declared in signature]
    given = _given(inputs, signature=signature, opened=opened, shapes=shapes or {})
    pairing = _pairing(given, names=names, opened=opened)
    if given is None:
        drawn = draw_inputs(signature, graph=graph, seed=seed, shapes=shapes or {}, meanings=pairing.pairs)
        given = GivenFeeds(source=f"random (seed {seed})", named=drawn)
    arrays, extra = _by_candidate_name(given, names=names, pairing=pairing)
    _require_reference_only(pairing, extra, opened=opened, given=given, names=names)
    parameters = opened.reference.parameters
    relaid = None
    try:
        checked, notes = check_feeds(arrays, signature=signature, source=given.source, parameters=parameters)
    except FeedShapeError as refused:
        found = _relaid(arrays, refused, signature=signature, parameters=parameters) if other_layouts else None
        if found is None:
            raise
        checked, relaid, notes = *found, ()
    own = checked if relaid is None else checked | {relaid.name: _as_given(arrays, relaid.name, signature=signature)}
    reference = reference_arrays(own, pairs=pairing.pairs, parameters=parameters) | extra
    order = [*opened.call_order, *pairing.pairs.values()]
    return Feeds(
        arrays=checked,
        reference={name: reference[name] for name in dict.fromkeys(order) if name in reference},
        pairs=pairing.pairs,
        rows=tuple(input_row(name, array, source=given.source) for name, array in (own | extra).items()),
        notes=(*pairing.notes, *notes),
        relaid=relaid,
    )


def _relaid(
    arrays: Mapping[str, Array],
    refused: FeedShapeError,
    *,
    signature: Sequence[InputSignature],
    parameters: Mapping[str, Array],
) -> tuple[dict[str, Array], Relaid] | None:
    """The arrays with the channel axis of the refused one moved, if the file takes them so."""
    for layout in layouts(arrays[refused.name]):
        moved = {**arrays, refused.name: layout.moved(arrays[refused.name])}
        with contextlib.suppress(FeedsError):
            checked, _ = check_feeds(moved, signature=signature, source="moved", parameters=parameters)
            return checked, Relaid(name=refused.name, layout=layout, refused=refused)
    return None


def _as_given(arrays: Mapping[str, Array], name: str, *, signature: Sequence[InputSignature]) -> Array:
    declared = next(each for each in signature if each.name == name)
    return plain(arrays[name], declared=declared)


def name_feeds(given: GivenFeeds, *, signature: Sequence[InputSignature], opened: OpenedReference) -> dict[str, Array]:
    """The arrays as they are, by the file's names, and those that only the reference takes by the reference's.

    Raises:
        FeedsError: The names do not fit.
    """
    names = [declared.name for declared in signature]
    arrays, extra = _by_candidate_name(given, names=names, pairing=_pairing(given, names=names, opened=opened))
    return arrays | extra


def feeds_of_file(
    inputs: object,
    *,
    signature: Sequence[InputSignature],
    graph: Graph,
    seed: int = 0,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> tuple[dict[str, Array], str]:
    """What the file alone is to be run on, by its own names, where there is no reference; and where it came from.

    Args:
        inputs: A path, or arrays; None draws random ones.
        signature: Inputs that the file declares.
        graph: The file's graph, which tells the legal range of indices.
        seed: Of the random inputs.
        shapes: Their sizes by name.

    Raises:
        FeedsError: The inputs do not fit.
    """
    names = [declared.name for declared in signature]
    if inputs is None:
        drawn = draw_inputs(signature, graph=graph, seed=seed, shapes=shapes or {}, meanings={})
        given = GivenFeeds(source=f"random (seed {seed})", named=drawn)
    else:
        _require_no_shapes(shapes or {})
        refuse_lists_of_numbers(inputs)
        given = gather_feeds(inputs)
    arrays, _ = _by_candidate_name(given, names=names, pairing=pair_inputs(names, (), required=None))
    checked, _ = check_feeds(arrays, signature=signature, source=given.source, parameters={})
    return checked, given.source


def _pairing(given: GivenFeeds | None, *, names: Sequence[str], opened: OpenedReference) -> InputPairing:
    return pair_inputs(
        names,
        opened.call_order,
        required=opened.required_inputs,
        given=() if given is None else _given_to_reference(given, call_order=opened.call_order),
        named=() if given is None else tuple(given.named),
    )


def _given(
    inputs: object,
    *,
    signature: Sequence[InputSignature],
    opened: OpenedReference,
    shapes: Mapping[str, tuple[int, ...]],
) -> GivenFeeds | None:
    """What somebody gave; None when inputs are to be drawn."""
    if opened.recording is not None and (inputs is None or _same_file(inputs, opened.recording)):
        return _recorded(opened.recording, names=[declared.name for declared in signature])
    if inputs is not None:
        _require_no_shapes(shapes)
        if isinstance(inputs, GivenFeeds):
            return inputs
        refuse_lists_of_numbers(inputs)
        return gather_feeds(inputs if opened.leaves is None else opened.leaves)
    if opened.example_inputs is not None and not shapes:
        return gather_feeds(opened.example_inputs, source="factory")
    return None


def _require_no_shapes(shapes: Mapping[str, tuple[int, ...]]) -> None:
    if shapes:
        raise ShapeOptionError(
            name=next(iter(shapes)),
            expected="no --inputs: shapes are for random inputs",
            got="feeds, which have shapes of their own",
            next_step="leave out --shape or --inputs",
        )


def _given_to_reference(given: GivenFeeds, *, call_order: Sequence[str]) -> list[str]:
    """The reference's inputs that have a value: those named, and those in the places of a tuple."""
    placed = () if given.in_graph_order else zip(call_order, given.ordered, strict=False)
    names = {*given.named, *(name for name, array in placed if array is not None)}
    return [name for name in call_order if name in names]


def _same_file(inputs: object, path: Path) -> bool:
    return isinstance(inputs, str | Path) and Path(inputs).exists() and Path(inputs).samefile(path)


def _recorded(path: Path, *, names: Sequence[str]) -> GivenFeeds:
    """The inputs inside a recording: random ones would be held against values that came from others."""
    recorded = gather_feeds(path)
    missing = [name for name in names if name not in recorded.named]
    if missing:
        raise RecordingError(
            path=path,
            expected=f"the inputs it was recorded with, or the same inputs with --inputs: {listing(names)}",
            got=f"no array for {listing(missing)}",
            next_step="give the inputs of the recording with --inputs, or record again with them",
        )
    return GivenFeeds(source=recorded.source, named={name: recorded.named[name] for name in names})


def _by_candidate_name(
    given: GivenFeeds, *, names: Sequence[str], pairing: InputPairing
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Arrays by the candidate's names, and those that only the reference takes by the reference's."""
    from_reference = {pairing.pairs[name]: name for name in names}
    positions = _positions(given, names=names, pairing=pairing)
    placed = zip(positions, given.ordered, strict=False)
    named = {**given.named, **{name: array for name, array in placed if array is not None}}
    arrays: dict[str, Array] = {}
    extra: dict[str, Array] = {}
    unknown = []
    for key, array in named.items():
        if key in names:
            arrays[key] = array
        elif key in from_reference:
            arrays.setdefault(from_reference[key], array)
        elif key in pairing.reference_only:
            extra[key] = array
        else:
            unknown.append(key)
    missing = [name for name in names if name not in arrays]
    if missing or unknown:
        raise FeedNamesError(
            where=given.source,
            signature=names,
            missing=missing,
            extra=unknown,
            guesses=_guesses(missing, unknown),
        )
    return {name: arrays[name] for name in names}, extra


def _positions(given: GivenFeeds, *, names: Sequence[str], pairing: InputPairing) -> Sequence[str]:
    """The input that each entry of an ordered feed stands for."""
    if not given.ordered:
        return ()
    free = [name for name in names if name not in given.named and pairing.pairs[name] not in given.named]
    call_order = [name for name in pairing.call_order if name not in given.named]
    count = len(given.ordered)
    if given.in_graph_order and count == len(free):
        return free
    # A tuple means what it means in a call of the reference, which may leave out defaults at its end.
    if len(free) <= count <= len(call_order):
        return call_order
    if count == len(free):
        return free
    raise FeedCountError(where=given.source, signature=names, count=count)


def _guesses(missing: Sequence[str], unknown: Sequence[str]) -> list[tuple[str, str]]:
    """Which unknown name may mean which missing input: the nearest, or the only one left."""
    left = list(missing)
    found = []
    for name in unknown:
        near = difflib.get_close_matches(name, left, n=1)
        if not near and len(unknown) == len(missing) == 1:
            near = list(missing)
        if near:
            found.append((name, near[0]))
            left.remove(near[0])
    return found


def _require_reference_only(
    pairing: InputPairing,
    extra: Mapping[str, Array],
    *,
    opened: OpenedReference,
    given: GivenFeeds,
    names: Sequence[str],
) -> None:
    """Inputs that the file lost (an exporter drops the unused) still need a value on the reference's side."""
    lacking = [
        name
        for name in pairing.reference_only
        if name not in extra and opened.required_inputs is not None and name in opened.required_inputs
    ]
    if lacking:
        raise InputPairingError(
            where=given.source,
            candidate=names,
            reference=opened.call_order,
            problem=f"the file has no input for the reference's {', '.join(map(repr, lacking))}",
            next_step=f"give a value for it in the feeds, named {lacking[0]!r}",
        )


def input_row(name: str, array: Array, *, source: str) -> InputRow:
    return InputRow(name=name, shape=array.shape, dtype=_dtype_name(array), range=_range(array), source=source)


def _dtype_name(array: Array) -> str:
    return "string" if array.dtype.kind in "OUS" else str(array.dtype)


def _range(array: Array) -> tuple[float, float] | None:
    """Least and greatest element, NaN left out; None where order has no meaning."""
    if array.dtype.kind in "OUSc" or not array.size:
        return None
    wide = array.astype(np.float64)
    numbers = wide[~np.isnan(wide)]
    return (float(numbers.min()), float(numbers.max())) if numbers.size else (float("nan"), float("nan"))
