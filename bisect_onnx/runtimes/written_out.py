"""A piece of a model with its control flow written out, as it goes on given values."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import onnx
from onnx import helper

from bisect_onnx.core.graph import Graph
from bisect_onnx.readers.onnx_file import OnnxFile, from_proto
from bisect_onnx.runtimes.base import Array, Candidate, Choice, Origin, Place, WrittenOut
from bisect_onnx.runtimes.bodies import FlatNode, Unfolding, function_key, is_control
from bisect_onnx.runtimes.expose import Exposable, bodies, fresh_prefix, outer_names

__all__ = ["MOST_ITERATED_NODES", "write_out"]

BODY_PREFIX = "bisect_onnx_body_"

# Branches and functions: session creation is linear in the number of nodes up to about here.
MOST_NODES = 2_000
# Iterations: what is wrong in one is wrong in all, and a search of as many faults grows faster than with their square.
# Measured: 36 nodes (4 iterations of 9) take up to 6 s. A longer loop stays one node.
MOST_ITERATED_NODES = 100


def write_out(
    file: OnnxFile,
    feeds: Mapping[str, Array],
    *,
    output: str,
    choices: Mapping[Place, int],
    open_piece: Callable[[OnnxFile], Candidate],
) -> WrittenOut | None:
    """See `runtimes.base.Candidate.written_out`.

    Args:
        file: The model.
        feeds: Values where the piece begins.
        output: Where it ends.
        choices: What goes another way than the model decides.
        open_piece: Makes a candidate of a model in memory.
    """
    return _Writing(file, feeds, output=output, choices=choices, open_piece=open_piece).result()


class _Writing:
    """Level by level: what stands in the main graph is asked how it went, and is replaced by its nodes."""

    def __init__(
        self,
        file: OnnxFile,
        feeds: Mapping[str, Array],
        *,
        output: str,
        choices: Mapping[Place, int],
        open_piece: Callable[[OnnxFile], Candidate],
    ) -> None:
        self._file = file
        self._feeds = feeds
        self._output = output
        self._wanted = choices
        self._open_piece = open_piece
        self._stored = {tensor.name: tensor for tensor in file.proto.graph.initializer}
        self._choices: dict[Place, Choice] = {}
        self._unfolding = Unfolding(
            prefix=fresh_prefix(file.proto.graph, BODY_PREFIX),
            opset=file.opsets.get("", 1),
            functions=_functions(file),
        )

    def result(self) -> WrittenOut | None:
        flat = self._piece()
        if not any(self._folded(node) for node in flat):
            return None
        while any(self._folded(node) for node in flat):
            level = self._level(flat)
            if level is None:
                return None
            flat = _needed(level, self._output)
        if not any(node.origin.path for node in flat):
            return None
        return WrittenOut(
            candidate=self._open_piece(self._model(flat)),
            origins=tuple(node.origin for node in flat),
            original=self._unfolding.original,
            choices=self._choices,
            states=self._unfolding.states,
        )

    def _folded(self, node: FlatNode) -> bool:
        return is_control(node.proto) or function_key(node.proto) in self._unfolding.functions

    def _piece(self) -> list[FlatNode]:
        """The nodes of the main graph between the feeds and the output."""
        nodes = {node.index: node for node in self._file.graph.nodes}
        protos = self._file.proto.graph.node
        whole = Exposable(self._file.proto, graph=self._file.graph)
        piece = whole.piece(fetch=[self._output], cuts=self._feeds.keys())
        order = sorted(piece.nodes, key=lambda index: self._file.graph.place(nodes[index]))
        return [FlatNode(proto=protos[index], origin=Origin(node=nodes[index])) for index in order]

    def _level(self, flat: Sequence[FlatNode]) -> list[FlatNode] | None:
        """The nodes with one level of nesting less; None when that is not possible."""
        went = self._how_it_goes([node for node in flat if is_control(node.proto)], flat)
        if went is None:
            return None
        found: list[FlatNode] = []
        for node in flat:
            if not self._folded(node):
                found.append(node)
            elif not is_control(node.proto):
                found += self._unfolding.call(node)
            else:
                choice = self._wanted.get(node.origin.place, went[node.origin.place])
                self._choices[node.origin.place] = Choice(node=node.origin.node, taken=choice)
                unfolded = self._unfolded(node, choice)
                if unfolded is None:
                    return None
                found += unfolded
            if len(found) > MOST_NODES:
                return None
        return found

    def _unfolded(self, node: FlatNode, choice: int) -> list[FlatNode] | None:
        if node.proto.op_type == "If":
            return self._unfolding.branch(node, taken=bool(choice))
        body = bodies(node.proto)["body"]
        # What goes another way than the model decides is run once and not searched.
        most = MOST_NODES if node.origin.place in self._wanted else MOST_ITERATED_NODES
        if choice < 1 or choice * len(body.node) > most:
            return None
        if node.proto.op_type == "Loop":
            return self._unfolding.loop(node, count=choice)
        return self._unfolding.scan(node, count=choice)

    def _how_it_goes(self, control: Sequence[FlatNode], flat: Sequence[FlatNode]) -> dict[Place, int] | None:
        """The branch that each If takes, how many iterations each Loop and Scan has; one run tells all."""
        if not control:
            return {}
        if any(node.proto.op_type == "Scan" for node in control) and self._file.opsets.get("", 1) < 9:
            return None  # another operator, with a batch axis
        asked: dict[Place, str] = {}
        counted: list[FlatNode] = []
        for node in flat:
            if not is_control(node.proto):
                counted.append(node)
            elif node.proto.op_type == "Loop":
                name = f"{self._unfolding.prefix}count{len(asked)}"
                counted.append(dataclasses.replace(node, proto=_counting(node.proto, name)))
                asked[node.origin.place] = name
            else:
                counted.append(node)
                asked[node.origin.place] = node.proto.input[0 if node.proto.op_type == "If" else -1]
        names = tuple(dict.fromkeys(asked.values()))
        arrays = self._open_piece(self._model(counted)).probe(self._feeds, fetch=names, cuts={})
        if any(name not in arrays for name in names):
            return None
        return {node.origin.place: _figure(node.proto, arrays[asked[node.origin.place]]) for node in control}

    def _model(self, flat: Sequence[FlatNode]) -> OnnxFile:
        source = self._file.proto
        model = onnx.ModelProto(ir_version=source.ir_version, producer_name=source.producer_name)
        model.opset_import.extend(source.opset_import)
        model.functions.extend(source.functions)
        graph = model.graph
        graph.name = "piece"
        graph.node.extend(node.proto for node in flat)
        _name_apart(graph.node)
        read = dict.fromkeys(name for node in flat for name in sorted(outer_names(node.proto)))
        for name in read:
            if name in self._feeds:
                array = self._feeds[name]
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                graph.input.append(helper.make_tensor_value_info(name, kind, [None] * array.ndim))
            elif name in self._unfolding.initializers:
                graph.initializer.append(self._unfolding.initializers[name])
            elif name in self._stored:
                graph.initializer.append(self._stored[name])
        graph.sparse_initializer.extend(t for t in source.graph.sparse_initializer if t.values.name in read)
        graph.output.add(name=self._output)
        return from_proto(model, path=self._file.path)


def _name_apart(nodes: Sequence[onnx.NodeProto]) -> None:
    """Give the copies of one node names of their own; what stands before the last slash is a scope and stays."""
    seen: dict[str, int] = {}
    for node in nodes:
        number = seen[node.name] = seen.get(node.name, -1) + 1
        if node.name and number:
            node.name = f"{node.name}#{number}"


def _figure(proto: onnx.NodeProto, array: Array) -> int:
    if proto.op_type == "If":
        return int(bool(array.reshape(-1)[0]))
    if proto.op_type == "Loop":
        return len(array)
    axes = next((list(a.ints) for a in proto.attribute if a.name == "scan_input_axes"), None)
    return int(array.shape[axes[-1] if axes else 0])


def _counting(proto: onnx.NodeProto, name: str) -> onnx.NodeProto:
    """A Loop that also returns the numbers of its iterations."""
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    body = bodies(copy)["body"]
    copy.output.extend([""] * (len(body.output) - 1 - len(copy.output)))
    copy.output.append(name)
    body.node.append(helper.make_node("Identity", [body.input[0].name], [name]))
    body.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.INT64, []))
    return copy


def _needed(flat: Sequence[FlatNode], output: str) -> list[FlatNode]:
    """Those that ``output`` is computed from."""
    wanted = {output}
    kept = []
    for node in reversed(flat):
        if wanted.intersection(node.proto.output):
            kept.append(node)
            wanted.update(outer_names(node.proto))
    return kept[::-1]


def _functions(file: OnnxFile) -> dict[str, tuple[onnx.FunctionProto, Graph]]:
    """Model-local functions that can stand in the main graph: known by one name, of the model's own opsets."""
    read = {graph.name: graph for graph in file.graph.functions}
    versions = {entry.domain: entry.version for entry in file.proto.opset_import}
    found: dict[str, tuple[onnx.FunctionProto, Graph]] = {}
    for function in file.proto.functions:
        name = f"{function.domain}:{function.name}"
        same = all(versions.get(entry.domain) == entry.version for entry in function.opset_import)
        if same and _count(name, file.proto.functions) == 1:
            found[name] = (function, read[name])
    return found


def _count(name: str, functions: Iterable[onnx.FunctionProto]) -> int:
    return sum(f"{function.domain}:{function.name}" == name for function in functions)
