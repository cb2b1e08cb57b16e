"""Where the genetic search for one tree stands between two steps, in a form that can be stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metasilvae._core.training import evolution
from metasilvae.formats.checkpoint_files import damaged, take, take_array
from metasilvae.stored_trees import pack_individuals, unpack_individuals
from metasilvae.training_options import TrainingOptions

PHASES = ("seed", "generation", "polish", "end")
# Of a tree in `seen`.
N_FIGURES = 4


@dataclass(frozen=True)
class SearchState:
    """All that the rest of a search depends on, beside its data and options.

    Random numbers need no place here: each offspring has its own, by the seed and its number.

    Attributes
    ----------
    phase : str
        One of `PHASES`.
    step : int
        Steps of this phase that are done.
    trees : list of Individual
        What the next step starts from: the first trees so far, a population, or trees to polish. One tree may stand in
        several places.
    without_improvement : int
        Generations since the last improvement.
    n_offspring : int
    best : Individual
    finalists : list of Individual
    seen : list of tuple of int
        Figures of the trees that were offered to the finalists.
    n_steps : int
        Steps of all phases that were told.
    seconds : float
        That the search has taken.
    """

    phase: str
    step: int
    trees: list[evolution.Individual]
    without_improvement: int
    n_offspring: int
    best: evolution.Individual
    finalists: list[evolution.Individual]
    seen: list[tuple[int, ...]]
    n_steps: int
    seconds: float

    def pack(self) -> dict[str, Any]:
        distinct = list({id(tree): tree for tree in (self.best, *self.finalists, *self.trees)}.values())
        place = {id(tree): position for position, tree in enumerate(distinct)}

        def places(trees: list[evolution.Individual]) -> np.ndarray:
            return np.array([place[id(tree)] for tree in trees], dtype=np.int32)

        return {
            "phase": self.phase,
            "step": self.step,
            "without_improvement": self.without_improvement,
            "offspring": self.n_offspring,
            "steps": self.n_steps,
            "seconds": self.seconds,
            "individuals": pack_individuals(distinct),
            "best": place[id(self.best)],
            "finalists": places(self.finalists),
            "trees": places(self.trees),
            "seen": np.array(self.seen, dtype=np.int64).ravel(),
        }

    @classmethod
    def unpack(
        cls,
        document: Any,
        samples: evolution.TrainingSet,
        objective: evolution.Objective,
        bench: evolution.Workspace,
        options: TrainingOptions,
    ) -> SearchState:
        """The state in a document, with trees for the given samples."""
        individuals = unpack_individuals(take(document, "individuals", dict), samples, objective, bench)

        def listed(places: np.ndarray) -> list[evolution.Individual]:
            if len(places) and not 0 <= places.min() <= places.max() < len(individuals):
                raise damaged("a tree is missing")
            return [individuals[place] for place in places]

        phase = take(document, "phase", str)
        trees = listed(take_array(document, "trees", "<i4"))
        step = take(document, "step", int)
        most = {"seed": len(trees), "generation": options.generations, "polish": options.polish, "end": 0}
        if step > most.get(phase, -1) or (not trees and (step > 0 or phase in ("generation", "polish"))):
            raise damaged("its phase and its step contradict each other")
        (best,) = listed(np.array([take(document, "best", int)]))
        finalists = listed(take_array(document, "finalists", "<i4"))
        seen = take_array(document, "seen", "<i8")
        if not finalists or len(seen) % N_FIGURES:
            raise damaged("the finalists are not complete")
        return cls(
            phase,
            step,
            trees,
            take(document, "without_improvement", int),
            take(document, "offspring", int),
            best,
            finalists,
            [tuple(figures) for figures in seen.reshape(-1, N_FIGURES).tolist()],
            take(document, "steps", int),
            take(document, "seconds", float),
        )
