"""The benchmark's arithmetic, on timings made up for it; nothing here is timed."""

import math
from collections.abc import Sequence

import pytest

from scripts.bench_arithmetic import Load, Span, medians, ratio, total


def span(wall: float, cpu: float | None = None) -> Span:
    return Span(wall=wall, cpu=wall if cpu is None else cpu)


def machine(*, one: float, two: float) -> Load:
    return Load(average=0.5, cores=2, one_thread=one, two_threads=two)


def test_a_ratio_is_the_median_of_the_rounds_and_not_of_the_sums():
    slow_round = (span(30.0), span(10.0))
    others = [(span(2.0), span(1.0))] * 3 + [(span(1.0), span(1.0))]

    found = ratio("work", [slow_round, *others], limit=2.0)

    assert found.value == 2.0
    assert found.met


@pytest.mark.parametrize(("at_least", "met"), [(False, False), (True, True)])
def test_a_limit_is_an_upper_one_unless_said_otherwise(*, at_least: bool, met: bool):
    found = ratio("work", [(span(6.0), span(1.0))], limit=5.0, at_least=at_least)

    assert found.met is met
    assert ("NOT MET" in found.told()) is not met


def test_the_processor_of_another_process_is_not_known():
    assert math.isnan(ratio("work", [(span(6.0, 0.0), span(1.0, 0.0))], limit=5.0).cpu)


def test_components_have_the_median_of_the_rounds_they_were_in():
    rounds = [{"eager": span(1.0), "noise": span(4.0)}, {"eager": span(3.0)}, {"eager": span(2.0)}]

    assert medians(rounds) == {"eager": span(2.0), "noise": span(4.0)}


def test_a_component_that_did_not_run_counts_nothing():
    assert total({"eager": span(1.0, 2.0), "run": span(0.5)}, ["eager", "run", "noise"]) == span(1.5, 2.5)


@pytest.mark.parametrize(("two_threads", "refused"), [([0.5], False), ([1.2], False), ([1.0, 1.3, 9.0], True)])
def test_ratios_are_refused_when_a_second_thread_slows_eager_down(*, two_threads: Sequence[float], refused: bool):
    middle = sorted(two_threads)[len(two_threads) // 2]

    assert (machine(one=1.0, two=middle).refusal is not None) is refused


def test_a_refusal_says_what_was_measured():
    assert machine(one=0.1, two=0.25).refusal == (
        "no ratios: eager took 0.250 s at two threads and 0.100 s at one (2.50 x, allowed 1.2 x), so the machine is "
        "busy with something else"
    )
