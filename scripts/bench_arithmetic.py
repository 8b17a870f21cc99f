"""What the benchmark makes of its timings: medians, ratios, and whether the machine was quiet enough to print them."""

import contextlib
import dataclasses
import os
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

__all__ = ["ROUNDS", "Load", "Ratio", "Span", "Stopwatch", "load", "medians", "ratio", "table", "total"]

ROUNDS: Final = 5

# Two threads that share their cores with someone else take longer than one alone; then every ratio is a lottery.
MOST_SLOWDOWN: Final = 1.2


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Seconds of one piece of work: by the clock on the wall, and of all threads of this process."""

    wall: float
    cpu: float

    def __add__(self, other: "Span") -> "Span":
        return Span(wall=self.wall + other.wall, cpu=self.cpu + other.cpu)

    def __sub__(self, other: "Span") -> "Span":
        return Span(wall=self.wall - other.wall, cpu=self.cpu - other.cpu)


class Stopwatch:
    """Times named pieces of work; a name that comes again adds up."""

    def __init__(self) -> None:
        self.spans: dict[str, Span] = {}

    @contextlib.contextmanager
    def timing(self, name: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        span = Span(wall=time.perf_counter() - wall, cpu=time.process_time() - cpu)
        self.spans[name] = self.spans[name] + span if name in self.spans else span


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What the machine was busy with; seconds of the same eager forward at one thread and at two."""

    average: float  # of the last minute, in processes that could run
    cores: int
    one_thread: float
    two_threads: float

    @property
    def refusal(self) -> str | None:
        """Why no ratio should be read from timings taken now; None when they may be."""
        slowdown = self.two_threads / self.one_thread
        if slowdown <= MOST_SLOWDOWN:
            return None
        return (
            f"no ratios: eager took {self.two_threads:.3f} s at two threads and {self.one_thread:.3f} s at one "
            f"({slowdown:.2f} x, allowed {MOST_SLOWDOWN} x), so the machine is busy with something else"
        )

    def told(self) -> str:
        return (
            f"load {self.average:.2f} on {self.cores} cores; eager at one thread {self.one_thread:.3f} s, "
            f"at two {self.two_threads:.3f} s"
        )


def load(*, one_thread: Sequence[float], two_threads: Sequence[float]) -> Load:
    """The machine as it is now, with the medians of the given seconds."""
    return Load(
        average=os.getloadavg()[0],
        cores=os.cpu_count() or 1,
        one_thread=statistics.median(one_thread),
        two_threads=statistics.median(two_threads),
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """How often one piece of work fits into another: the median over rounds, and what is demanded of it."""

    title: str
    value: float
    cpu: float  # the same of the processor's seconds; NaN where some of them were another process's
    limit: float
    at_least: bool = False  # whether `limit` is a lower one

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def told(self) -> str:
        sign = "at least" if self.at_least else "at most"
        return (
            f"{self.title:52}{self.value:8.2f} x  (processor {self.cpu:.2f} x)  {sign} {self.limit:g} x: "
            f"{'met' if self.met else 'NOT MET'}"
        )


def ratio(title: str, parts: Iterable[tuple[Span, Span]], *, limit: float, at_least: bool = False) -> Ratio:
    """The median over the rounds of the ratio within each, since a machine slows down and recovers.

    Args:
        title: What is held against what.
        parts: For each round the work, and what it is divided by.
        limit: What is demanded.
        at_least: Whether the ratio should be larger than that.
    """
    pairs = list(parts)
    return Ratio(
        title=title,
        value=statistics.median(above.wall / below.wall for above, below in pairs),
        cpu=statistics.median(above.cpu / below.cpu if below.cpu else float("nan") for above, below in pairs),
        limit=limit,
        at_least=at_least,
    )


def total(spans: Mapping[str, Span], names: Iterable[str]) -> Span:
    """The sum of the named spans; a name that is missing counts nothing."""
    found = Span(wall=0.0, cpu=0.0)
    for name in names:
        found += spans.get(name, Span(wall=0.0, cpu=0.0))
    return found


def medians(rounds: Sequence[Mapping[str, Span]]) -> dict[str, Span]:
    """Each component's median over the rounds in which it was there, in order of appearance."""
    names = dict.fromkeys(name for spans in rounds for name in spans)
    return {
        name: Span(
            wall=statistics.median(spans[name].wall for spans in rounds if name in spans),
            cpu=statistics.median(spans[name].cpu for spans in rounds if name in spans),
        )
        for name in names
    }


def table(spans: Mapping[str, Span]) -> Iterator[str]:
    """One line per component."""
    yield f"  {'':50}{'seconds':>10}{'processor':>12}"
    for name, span in spans.items():
        yield f"  {name:50}{span.wall:10.3f}{span.cpu:12.3f}"
