"""One submodule compared alone, on what it is given in a run of the whole.

The file may be one exported from the submodule, or that of the whole: then its part of the file is what lies between
the values that are paired with its arguments and with its results.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bisect_onnx.core.alignment import Pair
from bisect_onnx.core.compare import Array, compare_arrays
from bisect_onnx.core.compare import ErrorStats as _Errors
from bisect_onnx.core.feeds import GivenFeeds, InputSignature
from bisect_onnx.core.graph import Node, PathStep
from bisect_onnx.core.report import Culprit, NodeRow, Report, WeightRow
from bisect_onnx.errors import SamplesError, SubmoduleNotFoundError, SubmodulePartError
from bisect_onnx.pipeline.given_inputs import gather_feeds
from bisect_onnx.pipeline.inputs import Feeds, input_row, resolve_feeds
from bisect_onnx.pipeline.opening import OpenedReference, open_reference
from bisect_onnx.pipeline.region import Region
from bisect_onnx.pipeline.request import LocateRequest
from bisect_onnx.pipeline.samples import sources_of
from bisect_onnx.pipeline.settle import Settled
from bisect_onnx.pipeline.sides import Sides, open_candidate, open_sides

if TYPE_CHECKING:
    from bisect_onnx.readers.onnx_file import OnnxFile
    from bisect_onnx.runtimes.torch_submodule import Submodule

__all__ = ["Part", "cut_out", "exported_alone", "is_file_of_whole", "require_module"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """The submodule and its part of the file, and how to tell of them in terms of the whole."""

    sides: Sides
    prefix: str  # what the reference's own paths are relative to; "" when they are the whole's
    words: str  # for the summary
    indices: tuple[int, ...] | None = None  # of the part's nodes in the user's file; None when it is that file

    def told(self, report: Report) -> Report:
        """The report with the paths and the places of the whole."""
        return dataclasses.replace(
            report,
            summary=f"{report.summary}; {self.words}",
            culprits=tuple(self._culprit(each) for each in report.culprits),
            nodes=tuple(self._row(each) for each in report.nodes),
            weights=tuple(self._weight(each) for each in report.weights),
        )

    def _culprit(self, culprit: Culprit) -> Culprit:
        return dataclasses.replace(
            culprit,
            index=self._index(culprit.index, culprit.path),
            path=self._steps(culprit.path),
            module=self._path(culprit.module),
        )

    def _row(self, row: NodeRow) -> NodeRow:
        return dataclasses.replace(
            row,
            index=self._index(row.index, row.path),
            path=self._steps(row.path),
            module=self._path(row.module),
        )

    def _weight(self, row: WeightRow) -> WeightRow:
        return row if row.parameter is None else dataclasses.replace(row, parameter=self._path(row.parameter))

    def _index(self, index: int, path: Sequence[PathStep]) -> int:
        """Inside a body a node is counted from the body's beginning."""
        return index if self.indices is None or path else self.indices[index]

    def _steps(self, path: tuple[PathStep, ...]) -> tuple[PathStep, ...]:
        if not path or self.indices is None:
            return path
        return (dataclasses.replace(path[0], index=self.indices[path[0].index]), *path[1:])

    def _path(self, path: str | None) -> str | None:
        if path is None or not self.prefix:
            return path
        return f"{self.prefix}.{path}" if path else self.prefix


def require_module(request: LocateRequest) -> OpenedReference:
    """The whole, whose submodule exists.

    Raises:
        SubmoduleNotFoundError: The reference is no module, or has no such part.
        SamplesError: There are several samples.
    """
    assert request.module is not None
    if request.samples or len(sources_of(request.inputs)) > 1:
        raise SamplesError(
            where="--module",
            expected="one sample, from which the inputs of the submodule are taken",
            got="several",
            next_step="find the worst sample without --module first, then give it alone",
        )
    opened = open_reference(
        request.reference, weights=request.weights, unsafe_load=request.unsafe_load, inputs=request.inputs
    )
    if opened.module is None:
        raise SubmoduleNotFoundError(path=request.module, root=opened.reference.description, near=(), known=None)
    from bisect_onnx.runtimes.torch_submodule import find_submodule

    find_submodule(opened.module, request.module)
    return opened


def is_file_of_whole(file: "OnnxFile", opened: OpenedReference, path: str) -> bool:
    """Whether the file has as many numbers as the whole rather than as the submodule.

    Where both have as many, the number of inputs that the two take may tell; otherwise it is the whole's.
    """
    from bisect_onnx.runtimes.torch_submodule import element_count, find_submodule

    child, _ = find_submodule(opened.module, path)
    stored = sum(math.prod(tensor.dims) for tensor in file.proto.graph.initializer)
    whole, part = element_count(opened.module), element_count(child)
    if whole == part:
        names = {value.name for value in file.proto.graph.input}
        return bool(names & set(opened.call_order)) or not names & set(_forward_names(child))
    return _gap(stored, whole) <= _gap(stored, part)


def _gap(first: int, second: int) -> float:
    return abs(math.log(first + 1) - math.log(second + 1))


def _forward_names(module: object) -> Sequence[str]:
    from bisect_onnx.runtimes.torch_factory import forward_parameters

    return tuple(forward_parameters(module) or ())  # type: ignore[arg-type]  # a module; this layer has no torch


def exported_alone(request: LocateRequest, file: "OnnxFile", opened: OpenedReference) -> Part:
    """Both sides for a file that was exported from the submodule."""
    from bisect_onnx.readers.signature import read_signature

    given = _feeds_of_whole(request, file, opened)
    submodule = _called(request, opened, feeds=given.reference)
    alone = OpenedReference(
        reference=submodule.eager.reference,
        call_order=submodule.eager.call_order,
        required_inputs=submodule.eager.required,
        leaves=submodule.eager.leaves,
        module=submodule.module,
    )
    feeds = resolve_feeds(
        GivenFeeds(source=_source(request, given), named=submodule.feeds),
        signature=read_signature(file.proto),
        graph=file.graph,
        opened=alone,
    )
    sides = open_candidate(request, file, opened=alone, feeds=feeds)
    return Part(sides=sides, prefix=submodule.path, words=_words(request, submodule, "in a file of its own"))


def _feeds_of_whole(request: LocateRequest, file: "OnnxFile", opened: OpenedReference) -> Feeds:
    """Inputs for the whole, of which there is no file that would declare them."""
    inputs = opened.example_inputs if request.inputs is None else request.inputs
    if inputs is None:
        raise SubmodulePartError(
            path=str(request.module),
            where=str(file.path),
            got="a file of the submodule alone, and no inputs for the whole",
            next_step="give the inputs of the whole model with --inputs, or let the factory return (module, inputs)",
        )
    given = gather_feeds(inputs if opened.leaves is None else opened.leaves)
    taken = opened.call_order[: len(given.ordered)] or tuple(f"input_{n}" for n in range(len(given.ordered)))
    names = [*taken, *given.named]
    return resolve_feeds(
        dataclasses.replace(given, in_graph_order=False),
        signature=[InputSignature(name=name, dtype=None, dims=None) for name in names],
        graph=file.graph,
        opened=opened,
    )


def _called(request: LocateRequest, opened: OpenedReference, *, feeds: Mapping[str, Array]) -> "Submodule":
    from bisect_onnx.runtimes.torch_submodule import open_submodule

    return open_submodule(opened.reference, opened.module, str(request.module), feeds=feeds)


def _source(request: LocateRequest, given: Feeds) -> str:
    return f"{given.rows[0].source if given.rows else 'no inputs'}, what {request.module!r} is given"


def _words(request: LocateRequest, submodule: "Submodule", where: str) -> str:
    calls = f", the first of its {submodule.calls} calls" if submodule.calls > 1 else ""
    return f"only {request.module!r} was compared, {where}{calls}"


def cut_out(request: LocateRequest, file: "OnnxFile", whole: Sides, *, region: Region, settled: Settled) -> Part:
    """Both sides for the submodule's part of the file of the whole, whose values were paired.

    Raises:
        SubmodulePartError: An end of it has no partner in the file.
    """
    from bisect_onnx.readers import onnx_file
    from bisect_onnx.runtimes.piece_file import write_piece
    from bisect_onnx.runtimes.torch_submodule import open_submodule, under_its_path

    submodule = open_submodule(whole.reference, whole.module, str(request.module), feeds=whole.feeds.reference)
    ends = _Ends(request, region, settled.pairs, submodule)
    outputs = ends.outputs(submodule.eager.reference.run(submodule.feeds))
    nodes, entries = ends.between(outputs)
    arrays = {name: ends.array(name) for name in entries}
    path = write_piece(file, nodes, inputs=arrays, outputs=outputs, owner=whole.candidate)
    piece = onnx_file.read(path)
    source = _source(request, whole.feeds)
    feeds = Feeds(
        arrays=arrays,
        reference=submodule.feeds,
        pairs={name: argument for name, argument in entries.items() if argument is not None},
        rows=tuple(input_row(name, array, source=source) for name, array in arrays.items()),
        notes=(),
    )
    opened = OpenedReference(reference=under_its_path(submodule), call_order=(), module=submodule.module)
    first, last = nodes[0].index, nodes[-1].index
    return Part(
        sides=open_candidate(request, piece, opened=opened, feeds=feeds),
        prefix="",
        words=_words(request, submodule, f"{len(nodes)} nodes of the file between #{first} and #{last}"),
        indices=tuple(node.index for node in nodes),
    )


class _Ends:
    """Where the submodule begins and ends in the file."""

    def __init__(
        self, request: LocateRequest, region: Region, pairs: Mapping[str, Pair], submodule: "Submodule"
    ) -> None:
        self._request = request
        self._region = region
        self._pairs = pairs
        self._index = region.index
        self._arguments = dict(self._classes_of(submodule.feeds))
        self._above = 0  # bit set of the classes that the arguments are, or are computed from
        for group in self._arguments:
            self._above |= self._index.ancestors[group]

    def _classes_of(self, arguments: Mapping[str, Array]) -> Iterator[tuple[int, str]]:
        """The classes that have an argument's elements, each with the argument."""
        for name, array in arguments.items():
            for group, members in enumerate(self._index.members):
                if self._index.fingerprints[members[0]].size == array.size and self._equal(members[0], array):
                    yield group, name

    def _equal(self, reference: str, array: Array) -> bool:
        found = self._region.prober.reference(reference)
        if found.dtype != array.dtype:
            return False
        error = compare_arrays(found.reshape(-1), array.reshape(-1))
        return isinstance(error, _Errors) and not error.mismatched

    def outputs(self, results: Mapping[str, Array]) -> list[str]:
        """The candidate's values for the results, in their order."""
        found = []
        for name, array in results.items():
            groups = dict(self._classes_of({name: array})).keys() - self._arguments.keys()
            paired = [
                ours
                for ours, pair in self._pairs.items()
                if self._index.group_of[pair.reference] in groups and self._region.graph.producer(ours) is not None
            ]
            alike = [ours for ours in paired if tuple(self._region.plain[ours].shape) == array.shape]
            if not alike:
                raise self._lost(f"no value that is paired with its result {name!r}")
            found.append(alike[0])
        return found

    def between(self, outputs: Sequence[str]) -> tuple[list[Node], dict[str, str | None]]:
        """The nodes below the arguments and above ``outputs``; and each value they begin at, with its argument."""
        graph = self._region.graph
        entries: dict[str, str | None] = {}
        seen: set[int] = set()
        stack = list(outputs)
        while stack:
            name = stack.pop()
            pair = self._pairs.get(name)
            group = None if pair is None else self._index.group_of[pair.reference]
            node = graph.producer(name)
            if name not in outputs and group is not None and self._above >> group & 1:
                entries[name] = self._arguments.get(group)
            elif node is None and name in graph.inputs:
                entries[name] = None
            elif node is not None and node.index not in seen:
                seen.add(node.index)
                stack.extend(node.reads)
        found = set(entries.values()) - {None}
        if not found:
            raise self._lost("no value that is paired with an argument of it")
        order = {name: place for place, name in enumerate((*graph.inputs, *graph.values))}
        sorted_entries = dict(sorted(entries.items(), key=lambda item: order[item[0]]))
        return [node for node in graph.nodes if node.index in seen], sorted_entries

    def array(self, name: str) -> Array:
        """What the part of the file is fed with: the reference's value, as the file has it."""
        pair = self._pairs.get(name)
        if pair is None:
            return self._region.prober.feeds[name]
        return self._region.partner(pair)

    def _lost(self, got: str) -> SubmodulePartError:
        return SubmodulePartError(
            path=str(self._request.module),
            where=str(Path(self._request.candidate)),
            got=got,
            next_step="export the submodule alone and give that file, or compare the whole without --module",
        )


def opened_whole(request: LocateRequest) -> Sides:
    """Both sides of the whole."""
    return open_sides(dataclasses.replace(request, module=None))
