"""Run `locate` over nets x exporters x forms of the file x kinds of fault, and say where the answer was not the truth.

    python -m scripts.run_campaign --nets resize,detector --kinds activation,rewired --seeds 2
    python -m scripts.run_campaign --seeds 3 --draw 1000 --jobs 2

Run by scripts/campaign. Each answer that is not right is kept below --keep with its model and report, and told with
its number: the same command with --only NUMBER runs it again.
Ends with status 1 when there was one (a silent answer to a skipped node is no failure).
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx

from fixtures.export import exported
from fixtures.faults import FAULTS
from fixtures.nets import NETS
from fixtures.trial import Outcome, Result, Trial, Variant, prepared, tried

__all__ = ["main"]

HEALTHY = "healthy"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    trials = _chosen(list(enumerate(_trials(options))), options)
    print(f"{len(trials)} trials at most; a kind that applies nowhere, or is not seen, is left out")
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.exports or Path(scratch)
        if options.jobs == 1:
            results = _all(map(_run, trials, [folder] * len(trials), [options.keep] * len(trials)))
        else:
            for net, exporter in dict.fromkeys((trial.net, trial.exporter) for _, trial in trials):
                exported(net, exporter, 0, folder)
            context = multiprocessing.get_context("spawn")
            with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
                found = pool.map(_run, trials, [folder] * len(trials), [options.keep] * len(trials), chunksize=8)
                results = _all(found)
    _table(results)
    return 1 if any(line.failed for line in results) else 0


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One result as it travels back from a worker."""

    number: int
    trial: Trial
    outcome: Outcome
    answer: str
    seconds: float

    @property
    def kind(self) -> str:
        return self.trial.kind or HEALTHY

    @property
    def failed(self) -> bool:
        blamable = self.trial.kind is None or FAULTS[self.trial.kind].culprit
        return self.outcome is not Outcome.RIGHT and (blamable or self.outcome is not Outcome.SILENT)


def _run(numbered: tuple[int, Trial], folder: Path, keep: Path) -> Line | None:
    number, trial = numbered
    case = prepared(trial, folder=folder)
    if case is None:
        return None
    with tempfile.TemporaryDirectory() as scratch:
        result = tried(case, path=Path(scratch) / "model.onnx")
    if result.outcome is not Outcome.RIGHT:
        _keep(result, keep / trial.label)
    truth = "" if case.planted is None else f"   truth {list(case.guilty)}: {case.planted.description}"
    return Line(
        number=number, trial=trial, outcome=result.outcome, answer=result.answer + truth, seconds=result.seconds
    )


def _keep(result: Result, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(result.prepared.model, folder / "model.onnx")
    planted = result.prepared.planted
    (folder / "case.json").write_text(
        json.dumps(
            {
                "net": result.prepared.trial.net,
                "outcome": result.outcome.value,
                "answer": result.answer,
                "nodes": None if planted is None else result.prepared.guilty,
                "description": None if planted is None else planted.description,
            },
            indent=2,
        )
    )
    if result.report is not None:
        (folder / "report.json").write_text(json.dumps(result.report.to_dict(), indent=1))


def _all(found: Iterable[Line | None]) -> list[Line]:
    """Every result, told as it comes when it is not right."""
    results: list[Line] = []
    for line in found:
        if line is not None:
            results.append(line)
            if line.outcome is not Outcome.RIGHT:
                print(f"{line.number}: {line.outcome.value:8} {line.trial.label}: {line.answer}", flush=True)
    return results


def _table(results: Sequence[Line]) -> None:
    _counted("kind", [(line.kind, line.outcome) for line in results])
    _counted("net", [(line.trial.net, line.outcome) for line in results])
    right = sum(line.outcome is Outcome.RIGHT for line in results)
    seconds = sum(line.seconds for line in results)
    print(f"\n{len(results)} trials, {right} right; locate took {seconds:.0f} s in all")
    _shares(results)


def _shares(results: Sequence[Line]) -> None:
    """Exact, grouped, wrong and missed among the files with a fault; false alarms among the healthy ones."""
    faulty = collections.Counter(line.outcome for line in results if line.trial.kind is not None)
    healthy = [line.outcome for line in results if line.trial.kind is None]
    shares = (
        ("exact culprit", faulty[Outcome.RIGHT]),
        ("only in the named group", faulty[Outcome.GROUPED]),
        ("another node accused", faulty[Outcome.WRONG]),
        ("missed", faulty[Outcome.SILENT] + faulty[Outcome.CRASHED]),
    )
    for title, count in shares if faulty else ():
        print(f"{title:24}{count:5} of {faulty.total()} ({count / faulty.total():.1%})")
    if healthy:
        alarms = sum(outcome is not Outcome.RIGHT for outcome in healthy)
        print(f"{'false alarm':24}{alarms:5} of {len(healthy)} healthy files ({alarms / len(healthy):.1%})")


def _counted(title: str, rows: Sequence[tuple[str, Outcome]]) -> None:
    counters: dict[str, collections.Counter[Outcome]] = collections.defaultdict(collections.Counter)
    for name, outcome in rows:
        counters[name][outcome] += 1
    print(f"\n{title:24}" + "".join(f"{outcome.value:>9}" for outcome in Outcome))
    for name, counter in sorted(counters.items()):
        print(f"{name:24}" + "".join(f"{counter[outcome]:9}" for outcome in Outcome))


def _chosen(trials: list[tuple[int, Trial]], options: argparse.Namespace) -> list[tuple[int, Trial]]:
    """The trials of --only; else as many as --draw says, spread by chance over all of them; else all."""
    if options.only is not None:
        unknown = sorted(number for number in options.only if not 0 <= number < len(trials))
        if unknown:
            last = len(trials) - 1
            raise SystemExit(f"scripts/campaign: --only got {unknown}; these options make trials 0 to {last}")
        return [trials[number] for number in options.only]
    if options.draw is None or options.draw >= len(trials):
        return trials
    drawn = np.random.default_rng(options.first_seed).choice(len(trials), options.draw, replace=False)
    return [trials[number] for number in sorted(drawn.tolist())]


def _trials(options: argparse.Namespace) -> Iterator[Trial]:
    for net in options.nets:
        for exporter in NETS[net].exporters:
            if exporter in options.exporters:
                for variant in options.variants:
                    for kind in options.kinds:
                        for seed in range(options.first_seed, options.first_seed + options.seeds):
                            yield Trial(
                                net=net,
                                exporter=exporter,
                                variant=variant,
                                kind=None if kind == HEALTHY else kind,
                                seed=seed,
                                level=options.level,
                                strategy=options.strategy,
                            )
                            if kind == HEALTHY:
                                break  # no fault, nothing to draw


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/campaign", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nets", type=_choice(NETS), default=list(NETS), help="comma-separated; default: all")
    parser.add_argument(
        "--kinds", type=_choice((HEALTHY, *FAULTS)), default=[HEALTHY, *FAULTS], help="kinds of fault, or 'healthy'"
    )
    parser.add_argument("--exporters", type=_choice(("dynamo", "torchscript")), default=["dynamo", "torchscript"])
    parser.add_argument(
        "--variants",
        type=lambda text: [Variant(word) for word in _choice(variant.value for variant in Variant)(text)],
        default=list(Variant),
        help="named, stripped, onnxslim, onnxsim; default: all",
    )
    parser.add_argument("--seeds", type=int, default=1, help="places drawn per kind and file")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--draw", type=int, default=None, metavar="N", help="N of these trials, drawn by --first-seed")
    parser.add_argument(
        "--only",
        type=lambda text: [int(word) for word in text.split(",")],
        default=None,
        metavar="NUMBERS",
        help="these trials, by the numbers that the same command told",
    )
    parser.add_argument("--level", type=int, default=0, help="optimisation level of the candidate")
    parser.add_argument("--strategy", default="auto", choices=["auto", "scan", "bisect"])
    parser.add_argument("--jobs", type=int, default=1, help="trials side by side")
    parser.add_argument("--exports", type=Path, default=None, help="folder that keeps the exports for the next run")
    parser.add_argument("--keep", type=Path, default=Path("campaign-failures"), help="folder for wrong answers")
    return parser.parse_args(arguments)


def _choice(known: Iterable[str]) -> Callable[[str], list[str]]:
    """A parser of a comma-separated list of known words."""
    allowed = tuple(known)

    def parse(text: str) -> list[str]:
        words = [word for word in text.split(",") if word]
        unknown = sorted(set(words) - set(allowed))
        if unknown or not words:
            raise argparse.ArgumentTypeError(f"got {text!r}; expected some of {', '.join(allowed)}")
        return words

    return parse


if __name__ == "__main__":
    sys.exit(main())
