"""The smallest set that cures, found by switching parts off."""

from collections.abc import Collection, Sequence

import pytest

from bisect_onnx.core.minimal_set import minimal_set

NAMES = [f"o{number}" for number in range(70)]


@pytest.mark.parametrize("guilty", [{"o0"}, {"o69"}, {"o33"}, {"o1", "o68"}, {"o5", "o6", "o40"}])
def test_exactly_the_members_that_are_needed_are_found_in_their_order(guilty: Collection[str]) -> None:
    asked: list[Sequence[str]] = []

    def cures(names: Sequence[str]) -> bool:
        asked.append(names)
        return set(guilty) <= set(names)

    assert minimal_set(NAMES, cures) == tuple(name for name in NAMES if name in guilty)
    assert len(asked) <= 15 * len(guilty)  # two questions for each of seven halvings, and one for the answer


def test_any_one_that_cures_alone_is_enough() -> None:
    found = minimal_set(NAMES, lambda names: "o7" in names or "o50" in names)

    assert found in (("o7",), ("o50",))


def test_where_more_off_can_hurt_the_answer_still_cures() -> None:
    def cures(names: Sequence[str]) -> bool:
        return len(names) == len(NAMES) or ("o3" in names and "o4" in names and len(names) == 2)

    found = minimal_set(NAMES, cures)

    assert cures(found)


def test_a_set_of_one_is_its_own_answer() -> None:
    assert minimal_set(["only"], lambda names: list(names) == ["only"]) == ("only",)
