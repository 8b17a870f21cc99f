"""The smallest set of things that must all be changed for something to be cured."""

from collections.abc import Callable, Sequence

__all__ = ["minimal_set"]


def minimal_set(items: Sequence[str], cures: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """A subset of ``items`` that cures, and does not without any one of its members; in the order of ``items``.

    ``items`` as a whole must cure; that is not asked. Takes about twice the binary logarithm of their number in
    questions for each member found (QuickXplain: Junker, "Preferred explanations and relaxations for
    over-constrained problems", 2004). That presumes that a set cures when a part of it does; where that fails, items
    are left out one by one, and the answer still cures.
    """
    found = _needed([], items, cures=cures, asked=True)
    if cures(found):
        return tuple(found)
    kept = list(items)
    for item in items:
        rest = [other for other in kept if other != item]
        if rest and cures(rest):
            kept = rest
    return tuple(kept)


def _needed(
    beside: Sequence[str], items: Sequence[str], *, cures: Callable[[Sequence[str]], bool], asked: bool
) -> list[str]:
    """The members of ``items`` that are needed ``beside`` the others; ``asked``: alone the others do not cure."""
    if not asked and cures(beside):
        return []
    if len(items) == 1:
        return list(items)
    middle = len(items) // 2
    first, second = items[:middle], items[middle:]
    later = _needed([*beside, *first], second, cures=cures, asked=False)
    return [*_needed([*beside, *later], first, cures=cures, asked=not later), *later]
