"""Measure `locate` against the least work that an answer needs, on large models, large graphs and beside other tools.

    python -m scripts.run_bench --only resnet50,graph10000

Run by scripts/bench. It is no test: figures are printed, and the status is 0 whatever they are. Ratios are medians over
rounds in one process; none is printed when the machine is busy with something else.
"""

import argparse
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import torch

import bisect_onnx
from bisect_onnx.core.report import Report, Status
from scripts.bench_arithmetic import ROUNDS, Load, Span, Stopwatch, load, medians, ratio, table, total
from scripts.bench_floor import BARE, CONFIRM, WORK, WorkFloor
from scripts.bench_graphs import bisect_own, bisect_whole, graph_overhead, scan_growth
from scripts.bench_large import large_model
from scripts.bench_models import Exported, exported
from scripts.bench_peers import against_polygraphy, against_verifier
from scripts.bench_start import start_up

__all__ = ["main"]

# What is no part of finding the node: told apart, with a limit of its own.
ASIDE: Final = ("preflight", "noise", "weights", "certify")

MOST_SCAN: Final = 1.8
MOST_ASIDE: Final = MOST_SCAN / 2
MOST_HEALTHY: Final = 1.5

LOAD_RUNS: Final = 5

Part = Callable[["Bench"], Iterator[str]]


class Bench:
    """Options, a folder for exports, one for everything else, and how busy the machine is."""

    def __init__(self, options: argparse.Namespace, scratch: Path) -> None:
        self.rounds: int = options.rounds
        self.exports: Path = options.exports or scratch / "exports"
        self.scratch = scratch
        self._models: dict[str, Exported] = {}

    def model(self, name: str) -> Exported:
        if name not in self._models:
            self._models[name] = exported(name, folder=self.exports)
        return self._models[name]


def measured(name: str) -> Part:
    """The faulty and the healthy file of one model."""

    def part(bench: Bench) -> Iterator[str]:
        model = bench.model(name)
        yield f"  fault: {model.fault}"
        yield from _faulty(model, bench)
        yield from _healthy(model, bench)

    return part


def _faulty(model: Exported, bench: Bench) -> Iterator[str]:
    floor = WorkFloor(model.module, model.faulty, model.inputs, scratch=bench.scratch)
    floor.round()  # the first one reads files and starts threads
    rounds: list[Mapping[str, Span]] = []
    machine: list[Load] = []
    for _ in range(bench.rounds):
        machine.append(_machine(model))
        watch, report = _located(model, model.faulty)
        stages = {f"locate: {stage}": Span(wall=s, cpu=float("nan")) for stage, s in report.timing.items()}
        rounds.append({**floor.round(), **watch.spans, **stages})
    yield from _components(rounds, machine)
    named = None if report.culprit is None else report.culprit.index
    right = report.status is Status.LOCATED and named in model.guilty
    yield f"  answer: {report.status.value}, node {named}: {'right' if right else 'WRONG'}; {report.search.runs} runs"
    yield f"  work floor {_median(rounds, WORK):.3f} s, bare floor {_median(rounds, BARE):.3f} s"
    if _refused(machine):
        yield _refused(machine)
        return
    aside = [f"locate: {stage}" for stage in ASIDE]
    needed = [(spans["locate"] - _wall(total(spans, aside)), total(spans, WORK)) for spans in rounds]
    yield ratio(f"{model.name}, faulty: scan over the work floor", needed, limit=MOST_SCAN).told()
    beside = [(_wall(total(spans, aside)), total(spans, WORK)) for spans in rounds]
    yield ratio(f"{model.name}, faulty: what is told apart, over it", beside, limit=MOST_ASIDE).told()
    bare = [(spans["locate"], total(spans, BARE)) for spans in rounds]
    yield f"  all of locate over the bare floor: {statistics.median(a.wall / b.wall for a, b in bare):.2f} x"


def _healthy(model: Exported, bench: Bench) -> Iterator[str]:
    floor = WorkFloor(model.module, model.healthy, model.inputs, scratch=bench.scratch)
    rounds: list[Mapping[str, Span]] = []
    machine: list[Load] = []
    for _ in range(bench.rounds):
        machine.append(_machine(model))
        watch, report = _located(model, model.healthy)
        stages = {f"locate: {stage}": Span(wall=s, cpu=float("nan")) for stage, s in report.timing.items()}
        needed = {name: span for name, span in floor.round().items() if name in CONFIRM}
        rounds.append({**needed, **watch.spans, **stages})
    yield "  the healthy file"
    yield from _components(rounds, machine)
    yield f"  answer: {report.status.value}; ran: {', '.join(report.timing)}"
    if _refused(machine):
        yield _refused(machine)
        return
    pairs = [(spans["locate"], total(spans, CONFIRM)) for spans in rounds]
    yield ratio(f"{model.name}, healthy: over eager, session and run", pairs, limit=MOST_HEALTHY).told()


def _components(rounds: Sequence[Mapping[str, Span]], machine: Sequence[Load]) -> Iterator[str]:
    yield from table(medians(rounds))
    yield f"  {_middle(machine).told()}"


def _refused(machine: Sequence[Load]) -> str:
    return _middle(machine).refusal or ""


def _middle(machine: Sequence[Load]) -> Load:
    """The machine over all rounds."""
    return load(one_thread=[each.one_thread for each in machine], two_threads=[each.two_threads for each in machine])


def _median(rounds: Sequence[Mapping[str, Span]], names: Sequence[str]) -> float:
    return statistics.median(total(spans, names).wall for spans in rounds)


def _wall(span: Span) -> Span:
    """Stages are measured by the clock on the wall alone; of the processor's seconds as many are assumed."""
    return Span(wall=span.wall, cpu=span.wall)


def _located(model: Exported, path: Path) -> tuple[Stopwatch, Report]:
    gc.collect()
    watch = Stopwatch()
    with watch.timing("locate"):
        report = bisect_onnx.locate(model.module, path, dict(model.inputs), strategy="scan")
    return watch, report


def _machine(model: Exported) -> Load:
    """Eager at one thread and at two, in turn."""
    threads = torch.get_num_threads()
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(LOAD_RUNS):
        for count, found in seconds.items():
            torch.set_num_threads(count)
            start = time.perf_counter()
            with torch.no_grad():
                model.module(*model.inputs.values())
            found.append(time.perf_counter() - start)
    torch.set_num_threads(threads)
    return load(one_thread=seconds[1], two_threads=seconds[2])


PARTS: Final[Mapping[str, tuple[str, Part]]] = {
    "resnet50": ("a ResNet-50 at 224 x 224, faulty and healthy", measured("resnet50")),
    "vit": ("a ViT-B/16 encoder", measured("vit")),
    "bert": ("a BERT-base encoder of 128 words", measured("bert")),
    "graph10000": (
        "10,000 small nodes: what alignment, search and tree take beyond the floor",
        lambda bench: graph_overhead(10_000, scratch=bench.scratch, rounds=bench.rounds),
    ),
    "growth": (
        "a scan of 12,500, 25,000 and 50,000 nodes",
        lambda bench: scan_growth((12_500, 25_000, 50_000), scratch=bench.scratch),
    ),
    "bisect": ("a bisection of 50,000 values by itself: time and memory", lambda _: bisect_own(50_000)),
    "bisect50000": (
        "a bisection of 50,000 nodes, models and all",
        lambda bench: bisect_whole(50_000, scratch=bench.scratch),
    ),
    "polygraphy": (
        "whole commands beside polygraphy on the faulty resnet50",
        lambda bench: against_polygraphy(bench.model("resnet50"), scratch=bench.scratch, rounds=bench.rounds),
    ),
    "verifier": (
        "torch.onnx.verification on the faulty resnet50, once (minutes)",
        lambda bench: against_verifier(bench.model("resnet50")),
    ),
    "large": ("3 GiB of weights beside the file, and a kill", lambda bench: large_model(scratch=bench.scratch)),
    "start": ("--help", lambda bench: start_up(rounds=bench.rounds)),
}


def main(arguments: Sequence[str] | None = None) -> int:
    if os.environ.get("OMP_WAIT_POLICY") != "passive":
        raise SystemExit("OMP_WAIT_POLICY=passive must be set before torch is imported; scripts/bench does it")
    options = _options(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options, Path(scratch))
        for name in options.only:
            title, part = PARTS[name]
            print(f"\n{name}: {title}", flush=True)
            for line in part(bench):
                print(line, flush=True)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    listed = "\n".join(f"  {name:12}{title}" for name, (title, _) in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description=__doc__.splitlines()[0] if __doc__ else "",
        epilog=f"parts:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", type=_parts, default=list(PARTS), metavar="PARTS", help="comma-separated; default: all"
    )
    parser.add_argument("--rounds", type=_count, default=ROUNDS, help=f"how often each is measured; default: {ROUNDS}")
    parser.add_argument("--exports", type=Path, default=None, help="folder that keeps the exports for the next run")
    return parser.parse_args(arguments)


def _parts(text: str) -> list[str]:
    words = [word for word in text.split(",") if word]
    unknown = sorted(set(words) - set(PARTS))
    if unknown or not words:
        raise argparse.ArgumentTypeError(f"got {text!r}; expected some of {', '.join(PARTS)}")
    return words


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}; expected a number of 1 or more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
