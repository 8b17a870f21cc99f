"""Modules whose files hold bodies and functions, and those files, some made by hand."""

import functools
import io
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from torch import nn

from tests.end_to_end.traps import seeded_module
from tests.onnx_models import IR_VERSION, OPSET, Array, tensor, value

__all__ = [
    "Branching", "Gated", "Growing", "Layered", "Looping", "Recurrent", "Stopping", "called", "edited", "growing",
    "inner_nodes", "layered", "recurrent", "rows", "scripted", "stopping",
]  # fmt: skip

WIDTH = 6

# What the body of a Loop is given besides its states.
TURN = (value("turn", [], kind=TensorProto.INT64), value("go", [], kind=TensorProto.BOOL))


class Looping(nn.Module):
    """Four turns of one residual layer; from the third on its values are large enough to be cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(WIDTH, WIDTH)
        self.turn = nn.Linear(WIDTH, WIDTH)
        self.leave = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter(x)
        for _ in range(x.size(0)):
            x = torch.tanh(self.turn(x)) * 0.5 + x * 1.5
            x = torch.clamp(x, -4.0, 4.0)
        left: torch.Tensor = self.leave(x)
        return left


class Branching(nn.Module):
    """Another layer for positive sums than for negative ones."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(WIDTH, WIDTH)
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.enter(x))
        if bool(x.sum() > 0.0):
            y = torch.sigmoid(self.first(hidden)) * 2.0 + hidden
        else:
            y = torch.tanh(self.second(hidden)) - hidden
        return y * 3.0


class Gated(nn.Module):
    """`Branching` by torch.cond, which the newer exporter turns into an If."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(WIDTH, WIDTH)
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def positive(y: torch.Tensor) -> torch.Tensor:
            return torch.sigmoid(self.first(y)) * 2.0 + y

        def negative(y: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.second(y)) - y

        y: torch.Tensor = torch.cond(x.sum() > 0.0, positive, negative, (torch.relu(self.enter(x)),))
        return y * 3.0


class Recurrent(nn.Module):
    """A plain recurrent layer, step by step; returns all states and the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Linear(WIDTH, WIDTH)
        self.keep = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state = torch.zeros(WIDTH)
        states = []
        for step in range(x.size(0)):
            state = torch.tanh(self.read(x[step]) + self.keep(state))
            states.append(state)
        return torch.stack(states), state


class Layered(nn.Module):
    """One block twice, with another slope each time."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, slope in ((self.first, 0.1), (self.second, 0.3)):
            x = nn.functional.leaky_relu(layer(x), slope) + torch.sigmoid(x)
        return x


class Growing(nn.Module):
    """Every turn appends the sum of what is there: a state whose size changes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.cat([x, torch.tanh(x.sum(dim=0, keepdim=True)) * 0.5])
        return x * 2.0


class Stopping(nn.Module):
    """Doubles and shifts until the sum has passed a limit."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while bool(x.sum() < 50.0):
            x = torch.sin(x) + x * 1.5 + 0.25
        return x - 1.0


def scripted(build: Callable[[], nn.Module], *, inputs: torch.Tensor) -> onnx.ModelProto:
    """The file of the older exporter, to which only a scripted module shows its loops and branches."""
    buffer = io.BytesIO()
    module = torch.jit.script(seeded_module(build))
    # Its annotations know no buffers; it writes into them all the same.
    torch.onnx.export(module, (inputs,), buffer, dynamo=False, input_names=["x"], output_names=["y"])  # type: ignore[arg-type]
    return onnx.load_from_string(buffer.getvalue())


def called(build: Callable[[], nn.Module], *, inputs: torch.Tensor) -> onnx.ModelProto:
    """The file of the newer exporter."""
    program = torch.onnx.export(seeded_module(build), (inputs,), dynamo=True, input_names=["x"], output_names=["y"])
    assert program is not None
    return program.model_proto


def recurrent(*, steps: int = 5) -> onnx.ModelProto:
    """`Recurrent` as a Scan."""
    module = seeded_module(Recurrent)
    make = helper.make_node
    body = helper.make_graph(
        [
            make("MatMul", ["step", "read.weight"], ["read"], name="read"),
            make("Add", ["read", "read.bias"], ["biased"], name="bias"),
            make("MatMul", ["before", "keep.weight"], ["kept"], name="keep"),
            make("Add", ["biased", "kept"], ["sum"], name="sum"),
            make("Tanh", ["sum"], ["after"], name="bend"),
            make("Identity", ["after"], ["out"], name="out"),
        ],
        "step",
        [value("before", [WIDTH]), value("step", [WIDTH])],
        [value("after", [WIDTH]), value("out", [WIDTH])],
    )
    scan = make("Scan", ["zero", "x"], ["last", "states"], name="scan", body=body, num_scan_inputs=1)
    weights = {name: array.detach().numpy() for name, array in module.named_parameters()}
    weights = {name: array.T.copy() if array.ndim > 1 else array for name, array in weights.items()}
    return _model([scan], ["states", "last"], {**weights, "zero": np.zeros(WIDTH, np.float32)}, rows=steps)


def layered() -> onnx.ModelProto:
    """`Layered` with its block as a function of the model; the slope is an attribute of the call."""
    module = seeded_module(Layered)
    make = helper.make_node
    bend = make("LeakyRelu", ["product"], ["bent"], name="bend")
    bend.attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
    function = helper.make_function(
        "own",
        "Block",
        ["given", "weight", "bias"],
        ["result"],
        [
            make("Gemm", ["given", "weight", "bias"], ["product"], name="product", transB=1),
            bend,
            make("Sigmoid", ["given"], ["gate"], name="gate"),
            make("Add", ["bent", "gate"], ["result"], name="join"),
        ],
        [helper.make_opsetid("", OPSET)],
        ["slope"],
    )
    nodes = [
        make("Block", ["x", "first.weight", "first.bias"], ["h"], name="one", domain="own", slope=0.1),
        make("Block", ["h", "second.weight", "second.bias"], ["y"], name="two", domain="own", slope=0.3),
    ]
    weights = {name: array.detach().numpy() for name, array in module.named_parameters()}
    model = _model(nodes, ["y"], weights, rows=4)
    model.functions.append(function)
    model.opset_import.add(domain="own", version=1)
    return model


def growing() -> onnx.ModelProto:
    """`Growing` as a Loop."""
    make = helper.make_node
    body = helper.make_graph(
        [
            make("ReduceSum", ["state", "first"], ["total"], name="total", keepdims=1),
            make("Tanh", ["total"], ["bent"], name="bend"),
            make("Mul", ["bent", "half"], ["row"], name="halve"),
            make("Concat", ["state", "row"], ["longer"], name="append", axis=0),
            make("Identity", ["go"], ["go_on"], name="go_on"),
        ],
        "turn",
        [*TURN, value("state", ["n", WIDTH])],
        [value("go_on", [], kind=TensorProto.BOOL), value("longer", ["m", WIDTH])],
    )
    nodes = [
        make("Loop", ["four", "", "x"], ["grown"], name="loop", body=body),
        make("Mul", ["grown", "two"], ["y"], name="double"),
    ]
    numbers: dict[str, Array] = {
        "four": np.array(4, np.int64), "first": np.array([0], np.int64),
        "half": np.array(0.5, np.float32), "two": np.array(2.0, np.float32),
    }  # fmt: skip
    return _model(nodes, ["y"], numbers, rows=3)


def stopping(*, limit: float = 50.0) -> onnx.ModelProto:
    """`Stopping` as a Loop with a condition of its own, which reads its limit from inside the body."""
    make = helper.make_node
    test = [
        make("ReduceSum", ["after"], ["total"], name="total", keepdims=0),
        make("Constant", [], ["limit"], name="limit", value=tensor("", np.array(limit, np.float32))),
        make("Less", ["total", "limit"], ["go_on"], name="less"),
    ]
    body = helper.make_graph(
        [
            make("Sin", ["before"], ["wave"], name="wave"),
            make("Mul", ["before", "factor"], ["stretched"], name="stretch"),
            make("Add", ["wave", "stretched"], ["both"], name="both"),
            make("Add", ["both", "quarter"], ["after"], name="shift"),
            *test,
        ],
        "turn",
        [*TURN, value("before", ["n", WIDTH])],
        [value("go_on", [], kind=TensorProto.BOOL), value("after", ["n", WIDTH])],
    )
    nodes = [
        make("Loop", ["", "yes", "x"], ["grown"], name="loop", body=body),
        make("Sub", ["grown", "one"], ["y"], name="less_one"),
    ]
    numbers: dict[str, Array] = {
        "yes": np.array(1, np.bool_), "factor": np.array(1.5, np.float32),
        "quarter": np.array(0.25, np.float32), "one": np.array(1.0, np.float32),
    }  # fmt: skip
    return _model(nodes, ["y"], numbers, rows=3)


def _model(
    nodes: list[onnx.NodeProto], outputs: list[str], weights: Mapping[str, Array], *, rows: int
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "bodies",
        [value("x", [rows, WIDTH])],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [tensor(name, array) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def inner_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Nodes in bodies, however deep, and in functions."""
    for function in model.functions:
        yield from function.node
    yield from _inside(model.graph, outermost=True)


def _inside(graph: onnx.GraphProto, *, outermost: bool) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        if not outermost:
            yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _inside(attribute.g, outermost=False)


def edited(model: onnx.ModelProto, name: str, edit: Callable[[onnx.NodeProto], None]) -> onnx.ModelProto:
    """A copy in which the one inner node of that name is edited."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    (node,) = [node for node in inner_nodes(copy) if node.name == name]
    edit(node)
    return copy


@functools.cache
def rows(count: int, *, shift: float = 0.0) -> torch.Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(3)) + shift
