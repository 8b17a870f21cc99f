"""A bisection ends at a value that differs although all it reads agrees, and asks few questions."""

import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bisect_onnx.core.compare import Verdict
from bisect_onnx.core.search import ancestor_sets, bisect
from tests.builders import FEW, Sources, chain, dags, differing, judge_of, subsets


def first_differing(sources: Sources, bad: frozenset[int]) -> set[int]:
    """The slow oracle: try every value."""
    return {value for value in bad if not any(source in bad for source in sources[value])}


@st.composite
def faulty_dags(draw: st.DrawFn) -> tuple[Sources, frozenset[int], int]:
    """A graph, the values of it that differ (nothing heals), and a failing output."""
    sources = draw(dags())
    values = st.integers(0, len(sources) - 1)
    bad = differing(sources, culprits=draw(st.sets(values, min_size=1, max_size=4)))
    return sources, bad, draw(st.sampled_from(sorted(bad)))


@FEW
@given(dags())
def test_the_ancestors_of_a_value_are_itself_and_those_of_its_sources(sources):
    sets = ancestor_sets(sources)

    for value, above in enumerate(sources):
        expected = {value}.union(*({a for a in range(value) if sets[source] >> a & 1} for source in above))
        assert {a for a in range(len(sources)) if sets[value] >> a & 1} == expected


@given(faulty_dags())
def test_the_search_ends_at_a_first_differing_value_above_the_output(case):
    sources, bad, failing = case

    found = bisect(sources, failing=failing, judge=judge_of(bad))

    assert len(found.suspects) == 1
    assert found.suspects[0] in first_differing(sources, bad)
    assert ancestor_sets(sources)[failing] >> found.suspects[0] & 1


@given(st.data())
def test_a_single_culprit_is_found_from_every_value_below_it(data):
    sources = data.draw(dags(max_size=25))
    culprit = data.draw(st.integers(0, len(sources) - 1))
    bad = differing(sources, culprits=[culprit])

    for failing in bad:
        assert bisect(sources, failing=failing, judge=judge_of(bad)).suspects == (culprit,)


@given(st.data())
def test_whatever_heals_above_the_last_suspect_differs_and_all_it_reads_agrees(data):
    sources = data.draw(dags())
    values = st.integers(0, len(sources) - 1)
    culprits = data.draw(st.sets(values, min_size=1, max_size=4))
    bad = differing(sources, culprits=culprits, healed=data.draw(st.sets(values, max_size=8)) - culprits)
    failing = data.draw(st.sampled_from(sorted(bad)))
    masking = data.draw(st.sets(values, max_size=4))

    found = bisect(sources, failing=failing, judge=judge_of(bad), masking=masking)

    (suspect,) = found.suspects
    assert suspect in bad
    assert not set(sources[suspect]) & bad


@given(faulty_dags(), st.data())
def test_untestable_values_leave_a_set_that_holds_a_first_differing_value(case, data):
    sources, bad, failing = case
    untestable = data.draw(subsets(range(len(sources))))

    found = bisect(sources, failing=failing, judge=judge_of(bad, untestable=untestable))

    assert set(found.suspects) & first_differing(sources, bad)
    assert len([suspect for suspect in found.suspects if suspect not in untestable | {failing}]) <= 1


@given(st.data())
def test_what_feeds_the_suspects_from_outside_agrees_or_cannot_be_tested(data):
    sources = data.draw(dags())
    values = st.integers(0, len(sources) - 1)
    culprits = data.draw(st.sets(values, min_size=1, max_size=3))
    bad = differing(sources, culprits=culprits, healed=data.draw(st.sets(values, max_size=8)) - culprits)
    failing = data.draw(st.sampled_from(sorted(bad)))
    untestable = data.draw(st.sets(values, max_size=10))

    found = bisect(sources, failing=failing, judge=judge_of(bad, untestable=untestable))

    fed = {source for suspect in found.suspects for source in sources[suspect]} - set(found.suspects)
    assert max(found.suspects) in bad
    assert not fed - untestable & bad


@given(st.data())
def test_no_value_is_asked_twice_and_the_output_is_not_asked(data):
    sources = data.draw(dags())
    failing = data.draw(st.integers(0, len(sources) - 1))
    bad = data.draw(subsets(range(len(sources)))) | {failing}  # any answers at all, also impossible ones
    asked: list[int] = []

    found = bisect(
        sources,
        failing=failing,
        judge=judge_of(bad, untestable=data.draw(subsets(range(len(sources)))), asked=asked),
        masking=data.draw(subsets(range(len(sources)))),
    )

    assert failing not in asked
    assert len(asked) == len(set(asked))
    assert [probe.value for probe in found.probes] == asked


@FEW
@given(faulty_dags())
@example((chain(8), frozenset({5, 6, 7}), 7))
def test_equal_questions_get_equal_answers(case):
    sources, bad, failing = case

    first, second = (bisect(sources, failing=failing, judge=judge_of(bad)) for _ in range(2))

    assert first == second


@FEW
@given(faulty_dags())
def test_the_trace_tells_how_the_suspects_grew_fewer(case):
    sources, bad, failing = case

    found = bisect(sources, failing=failing, judge=judge_of(bad))

    left = ancestor_sets(sources)[failing].bit_count()
    for probe in found.probes:
        assert probe.suspects_before == left
        assert probe.suspects_after <= probe.suspects_before
        assert probe.verdict is (Verdict.MISMATCH if probe.value in bad else Verdict.MATCH)
        left = probe.suspects_after
    assert left == 1


def assert_few_questions(length: int, culprit: int) -> None:
    asked: list[int] = []

    found = bisect(chain(length), failing=length - 1, judge=judge_of(range(culprit, length), asked=asked))

    assert found.suspects == (culprit,)
    assert len(asked) <= math.ceil(math.log2(length)) + 4, (length, culprit, asked)


@pytest.mark.parametrize("length", [*range(1, 34), 63, 64, 65, 127, 128, 129, 255, 256, 257])
def test_a_chain_needs_a_logarithm_of_questions_and_at_most_four_more(length):
    for culprit in range(length):
        assert_few_questions(length, culprit)


def test_longer_chains_need_no_more_questions_wherever_the_culprit_is():
    rng = random.Random(0)  # every length; a few places of each, to be quick
    for length in range(34, 301):
        for culprit in {0, length - 2, length - 1, rng.randrange(length)}:
            assert_few_questions(length, culprit)


@pytest.mark.parametrize("branch", [1, 2])
def test_a_fault_in_one_branch_of_a_diamond_does_not_accuse_the_other(branch):
    diamond = ((), (0,), (0,), (1, 2))

    found = bisect(diamond, failing=3, judge=judge_of({branch, 3}))

    assert found.suspects == (branch,)


def test_a_fault_in_one_of_two_long_branches_is_found_in_it():
    # 0 is read by both; the left branch has odd values, the right one even values; 41 joins them.
    sources = ((), *((max(0, value - 2),) for value in range(1, 41)), (39, 40))
    for culprit in range(1, 41):
        bad = differing(sources, culprits=[culprit])

        assert bisect(sources, failing=41, judge=judge_of(bad)).suspects == (culprit,)


def test_of_two_culprits_one_above_the_output_is_found_and_a_foreign_one_never():
    sources = ((), (), (0,), (1,))  # two columns that do not meet

    assert bisect(sources, failing=3, judge=judge_of({0, 2, 1, 3})).suspects == (1,)


def test_a_match_at_a_masking_value_clears_nothing_above_it():
    # 0 -> 1 (wrong) -> 2 (Clip, agrees) -> 3 -> 4, and 4 reads 1 as well.
    sources = ((), (0,), (1,), (2,), (1, 3))

    found = bisect(sources, failing=4, judge=judge_of({1, 4}), masking=[2])

    assert found.suspects == (1,)


def test_a_culprit_above_a_value_that_healed_is_found_through_the_other_path():
    sources = ((), (0,), (1,), (2,), (1, 3))

    found = bisect(sources, failing=4, judge=judge_of({1, 4}))

    assert found.suspects == (1,)


def test_a_culprit_that_was_cleared_by_a_healed_value_is_found_although_others_cannot_be_tested():
    # 0 is wrong, 1 agrees by luck and clears it; 2, 3 and 4 cannot be seen.
    sources = ((), (0,), (0, 1), (0, 2), (0, 2), (0, 1), (3,), (2, 5), (3,), (4, 6))
    bad = {0, 2, 3, 5, 6, 7, 8, 9}

    assert bisect(sources, failing=9, judge=judge_of(bad, untestable={2, 3, 4})).suspects == (0,)


def test_values_that_cannot_be_told_apart_are_all_suspects():
    found = bisect(chain(5), failing=4, judge=judge_of({2, 3, 4}, untestable={1, 2, 3}))

    assert found.suspects == (1, 2, 3, 4)


def test_an_output_that_reads_nothing_is_its_own_culprit_without_a_question():
    found = bisect(((),), failing=0, judge=judge_of({0}))

    assert (found.suspects, found.probes) == ((0,), ())
