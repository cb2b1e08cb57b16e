"""The smallest set that has an element in common with each of several sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

# Branches looked at before the search is content with what it has found.
MAX_STEPS = 20_000


def find_smallest_hitting_set(
    sets: Iterable[frozenset[int]], max_steps: int = MAX_STEPS
) -> tuple[frozenset[int], bool]:
    """A smallest set that hits all given sets, none of which is empty, and whether it is proved to be smallest.

    Branch and bound, depth first: some set that is not hit must be hit by one of its elements. As many elements are
    needed as there are sets without common elements.
    """
    family = _without_supersets(sets)
    best = _hit_greedily(family)
    n_steps = 0
    todo: list[tuple[frozenset[int], frozenset[int]]] = [(frozenset(), frozenset())]  # chosen, ruled out
    while todo:
        chosen, excluded = todo.pop()
        left = [each - excluded for each in family if not each & chosen]
        if len(chosen) + _count_disjoint(left) >= len(best):
            continue
        if not left:
            best = chosen
            continue
        if not all(left):
            continue
        n_steps += 1
        if n_steps > max_steps:
            return best, False
        counts = Counter(element for each in left for element in each)
        smallest: frozenset[int] = min(left, key=lambda each: (len(each), sorted(each)))
        branches = sorted(smallest, key=lambda element: (-counts[element], element))
        # Once an element has been tried, the branches after it need not try it again; the last one pushed goes first.
        todo += [
            (chosen | {element}, excluded | frozenset(branches[:place]))
            for place, element in reversed(list(enumerate(branches)))
        ]
    return best, True


def _without_supersets(sets: Iterable[frozenset[int]]) -> list[frozenset[int]]:
    """A set that contains another one is hit with it."""
    family: list[frozenset[int]] = []
    for each in sorted(set(sets), key=lambda each: (len(each), sorted(each))):
        if not any(smaller <= each for smaller in family):
            family.append(each)
    return family


def _hit_greedily(family: list[frozenset[int]]) -> frozenset[int]:
    chosen: set[int] = set()
    left = family
    while left:
        counts = Counter(element for each in left for element in each)
        chosen.add(min(counts, key=lambda element: (-counts[element], element)))
        left = [each for each in left if not each & chosen]
    return frozenset(chosen)


def _count_disjoint(family: list[frozenset[int]]) -> int:
    seen: set[int] = set()
    count = 0
    for each in sorted(family, key=len):
        if not each & seen:
            seen |= each
            count += 1
    return count
