"""Searches that do not end."""

from __future__ import annotations

import random
from pathlib import Path

from support.command import write


def write_endless_search(folder: Path, values: list[float]) -> tuple[str, str]:
    """A forest, and for each value a row; with epsilon 0.2 those above 0.3 take more steps than anyone can wait for.

    Trees vote for b if three features have a given parity; b wins if all of these contradictory equations hold.
    """
    n_features, n_equations = 256, 280
    rng = random.Random(1)
    head = f"classifier-decision-tree {n_features} 2 a b\n"
    trees = [head + "LEAF 1 0\n"] * n_equations

    def grow(features: list[int], parity: int) -> str:
        if not features:
            return "LEAF 0 1\n" if parity else "LEAF 1 0\n"
        return f"SPLIT {features[0]} 0.5\n{grow(features[1:], parity)}{grow(features[1:], 1 - parity)}"

    trees += [head + grow(rng.sample(range(n_features), 3), rng.randrange(2)) for _ in range(n_equations)]
    forest = write(folder, "endless.silva", f"classifier-forest {len(trees)}\n" + "".join(trees))
    return forest, write(folder, "endless.csv", "".join("a" + f",{value}" * n_features + "\n" for value in values))
