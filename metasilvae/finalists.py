"""The trees among which the choice is made at the end of a training run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from metasilvae._core.training import evolution

# Trees that are polished at the end, and from which held-out rows choose.
N_FINALISTS = 4


@dataclass(frozen=True)
class Finalist:
    """A tree with its score on the training samples and, where rows are held out, its fitness there."""

    tree: evolution.Individual
    score: float
    held_out: float

    @property
    def _rank(self) -> tuple[float, float, int]:
        return self.held_out, self.score, -self.tree.n_leaves

    def beats(self, other: Finalist) -> bool:
        return self._rank > other._rank


class Finalists:
    """The best few of the trees that were offered.

    Without held-out rows these are the tree with the best score and those that it overtook last. With held-out rows
    they are the trees that do best there, whatever their score: the best score may be due to overfitting.

    Parameters
    ----------
    score : function
        Score of a tree on the training samples.
    held_out : function or None
        Fitness of a tree on rows that were held out.
    """

    def __init__(
        self,
        score: Callable[[evolution.Individual], float],
        held_out: Callable[[evolution.Individual], float] | None = None,
    ) -> None:
        self._score = score
        self._held_out = held_out
        self._seen: dict[tuple[int, ...], None] = {}
        self._kept: list[Finalist] = []

    @property
    def chosen(self) -> Finalist:
        return self._kept[0]

    @property
    def trees(self) -> list[evolution.Individual]:
        """Best first."""
        return [finalist.tree for finalist in self._kept]

    @property
    def seen(self) -> list[tuple[int, ...]]:
        """Figures of all trees that were offered: correct, stable and robust samples, and leaves."""
        return list(self._seen)

    def take_over(self, trees: list[evolution.Individual], seen: list[tuple[int, ...]]) -> None:
        """Become what gave these `trees` and `seen`."""
        self._seen = dict.fromkeys(seen)
        self._kept = [self._judge(tree) for tree in trees]

    def offer(self, tree: evolution.Individual) -> None:
        """Keep a tree if it is among the best; it is copied, because trees of a population are overwritten."""
        # Trees with the same figures are the same tree for most purposes, and the copies would crowd out the others.
        figures = (*tree.counts, tree.n_leaves)
        if figures in self._seen:
            return
        self._seen[figures] = None
        newcomer = self._judge(tree)
        place = 0
        while place < len(self._kept) and not newcomer.beats(self._kept[place]):
            place += 1
        if place == 0 or (self._held_out is not None and place < N_FINALISTS):
            copy = type(tree)(tree.samples).become(tree)
            self._kept.insert(place, Finalist(copy, newcomer.score, newcomer.held_out))
            del self._kept[N_FINALISTS:]

    def _judge(self, tree: evolution.Individual) -> Finalist:
        return Finalist(tree, self._score(tree), 0.0 if self._held_out is None else self._held_out(tree))
