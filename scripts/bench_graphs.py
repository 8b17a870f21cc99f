"""Graphs of many small nodes: what `locate` itself costs, as models are hardly run."""

import dataclasses
import io
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import nn

import bisect_onnx
from bisect_onnx.core.compare import Verdict
from bisect_onnx.core.report import Report, Status
from bisect_onnx.core.search import bisect
from bisect_onnx.render.as_json import AsJson
from bisect_onnx.render.as_terminal import AsTerminal
from scripts.bench_arithmetic import Span, Stopwatch, table, total
from scripts.bench_floor import WORK, WorkFloor

__all__ = ["bisect_own", "bisect_whole", "graph_overhead", "scan_growth"]

WIDTH: Final = 16
ROWS: Final = 4
NODES_PER_BLOCK: Final = 8
SEED: Final = 0

MOST_OWN_SECONDS: Final = 5.0
MOST_BISECT_SECONDS: Final = 10.0
MOST_BISECT_BYTES: Final = 512 << 20

# Seconds per node at 50,000 over those at 12,500. Anything quadratic would be at 4; caches that no longer hold what
# they held are allowed for.
MOST_GROWTH: Final = 1.5


class Block(nn.Module):
    """A step that forgets (its state shrinks a difference) beside a sum that does not."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5)
        self.bias = nn.Parameter(torch.randn(WIDTH, generator=generator) / 2)

    def forward(self, state: torch.Tensor, kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        moved = torch.tanh(torch.matmul(state, self.weight) + self.bias)
        state = state * 0.5 + moved * 0.5
        return state, kept + state * moved


class ManyBlocks(nn.Module):
    """Blocks in a row, so that half of the values belong to one long chain and half lie beside it."""

    def __init__(self, count: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(SEED)
        self.blocks = nn.ModuleList(Block(generator) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, kept = x, x
        for block in self.blocks:
            state, kept = block(state, kept)
        return kept


@dataclasses.dataclass(frozen=True, kw_only=True)
class ManyNodes:
    """A module, its faulty file without names or metadata, and the node at fault."""

    module: ManyBlocks
    path: Path
    inputs: dict[str, torch.Tensor]
    guilty: int


def many_nodes(count: int, *, folder: Path) -> ManyNodes:
    """About ``count`` nodes; the Tanh in the middle is another function."""
    module = ManyBlocks(count // NODES_PER_BLOCK)
    nodes, tensors = [], [numpy_helper.from_array(np.array(0.5, dtype=np.float32), "half")]
    state, kept = "x", "x"
    for number, block in enumerate(module.blocks):
        assert isinstance(block, Block)
        weight, bias = f"w{number}", f"b{number}"
        tensors.append(numpy_helper.from_array(block.weight.detach().numpy(), weight))
        tensors.append(numpy_helper.from_array(block.bias.detach().numpy(), bias))
        value = [f"v{number}_{place}" for place in range(NODES_PER_BLOCK)]
        nodes += [
            helper.make_node("MatMul", [state, weight], [value[0]]),
            helper.make_node("Add", [value[0], bias], [value[1]]),
            helper.make_node("Tanh", [value[1]], [value[2]]),
            helper.make_node("Mul", [state, "half"], [value[3]]),
            helper.make_node("Mul", [value[2], "half"], [value[4]]),
            helper.make_node("Add", [value[3], value[4]], [value[5]]),
            helper.make_node("Mul", [value[5], value[2]], [value[6]]),
            helper.make_node("Add", [kept, value[6]], [value[7]]),
        ]
        state, kept = value[5], value[7]
    guilty = len(module.blocks) // 2 * NODES_PER_BLOCK + 2
    nodes[guilty].op_type = "Softsign"
    shape = [ROWS, WIDTH]
    graph = helper.make_graph(
        nodes,
        "many",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(kept, onnx.TensorProto.FLOAT, shape)],
        tensors,
    )
    path = folder / f"many-{count}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    inputs = {"x": torch.randn(*shape, generator=torch.Generator().manual_seed(SEED + 1))}
    return ManyNodes(module=module.eval(), path=path, inputs=inputs, guilty=guilty)


def graph_overhead(count: int, *, scratch: Path, rounds: int) -> Iterator[str]:
    """Alignment, search and tree, beyond what running the models takes."""
    graph = many_nodes(count, folder=scratch)
    floor = WorkFloor(graph.module, graph.path, graph.inputs, scratch=scratch)
    own = []
    for _ in range(rounds):
        spans = floor.round()
        report, watch = _located(graph, strategy="scan")
        with watch.timing("tree"):
            AsTerminal().write(report, io.StringIO())
            AsJson().write(report, io.StringIO())
        seconds = sum(report.timing.get(stage, 0.0) for stage in ("align", "search")) + watch.spans["tree"].wall
        beside = total(spans, [name for name in WORK if "exposed" in name or "cut" in name or "every" in name])
        own.append(seconds - beside.wall)
        yield from table({**spans, **watch.spans, **_stages(report)})
    middle = sorted(own)[len(own) // 2]
    yield _limit(f"{count} nodes: alignment, search and tree beyond the floor", middle, most=MOST_OWN_SECONDS)
    yield from _answer(graph, report)


def scan_growth(counts: tuple[int, ...], *, scratch: Path) -> Iterator[str]:
    """Seconds of a whole scan per 1,000 nodes, at several sizes."""
    per_node = []
    for count in counts:
        graph = many_nodes(count, folder=scratch)
        report, watch = _located(graph, strategy="scan")
        span = watch.spans["locate"]
        per_node.append(span.cpu / count)
        yield f"  scan of {count:6} nodes: {span.wall:8.2f} s, {1e3 * span.cpu / count:.3f} processor s per 1,000"
        yield from table(_stages(report))
        yield from _answer(graph, report)
    growth = per_node[-1] / per_node[0]
    met = "met" if growth <= MOST_GROWTH else "NOT MET"
    title = f"scan: seconds per node at {counts[-1]} over those at {counts[0]}"
    yield f"{title}: {growth:.2f}, at most {MOST_GROWTH}: {met}"


def bisect_whole(count: int, *, scratch: Path) -> Iterator[str]:
    """A bisection of a large graph with its models."""
    graph = many_nodes(count, folder=scratch)
    report, watch = _located(graph, strategy="bisect")
    yield from table({**watch.spans, **_stages(report)})
    yield f"  {report.search.probes} probes, {report.search.runs} runs"
    yield from _answer(graph, report)


def bisect_own(count: int) -> Iterator[str]:
    """Time and memory of the bisection itself: the judge answers at once."""
    sources = [[2 * (value // 2) - 2 + place for place in (0, 1) if value > 1] for value in range(count)]
    culprit = int(np.random.default_rng(SEED).integers(2, count - 2))
    below = {culprit}
    for value in range(count):
        if below.intersection(sources[value]):
            below.add(value)

    def judge(value: int) -> Verdict:
        return Verdict.MISMATCH if value in below else Verdict.MATCH

    start = time.process_time()
    found = bisect(sources, failing=count - 1, judge=judge)
    seconds = time.process_time() - start
    tracemalloc.start()
    bisect(sources, failing=count - 1, judge=judge)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    yield f"  {len(found.probes)} probes; found {list(found.suspects)}, planted {culprit}"
    yield _limit(f"bisect of {count} values: its own time", seconds, most=MOST_BISECT_SECONDS)
    yield _limit(f"bisect of {count} values: its own memory, in MiB", peak / 2**20, most=MOST_BISECT_BYTES / 2**20)


def _located(graph: ManyNodes, *, strategy: str) -> tuple[Report, Stopwatch]:
    watch = Stopwatch()
    with watch.timing("locate"):
        report = bisect_onnx.locate(graph.module, graph.path, graph.inputs, strategy=strategy)
    return report, watch


def _stages(report: Report) -> dict[str, Span]:
    return {f"locate: {name}": Span(wall=seconds, cpu=float("nan")) for name, seconds in report.timing.items()}


def _answer(graph: ManyNodes, report: Report) -> Iterator[str]:
    named = None if report.culprit is None else report.culprit.index
    if report.status is not Status.LOCATED or named != graph.guilty:
        yield f"  WRONG ANSWER: {report.status.value}, node {named}; planted in node {graph.guilty}"


def _limit(title: str, value: float, *, most: float) -> str:
    return f"{title:70}{value:8.2f}  at most {most:g}: {'met' if value <= most else 'NOT MET'}"
