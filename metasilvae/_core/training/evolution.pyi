from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

SELECTIONS: dict[str, int]
MUTATIONS: dict[str, int]
IMPURITIES: dict[str, int]
IS_MISSING: float
MOST_VALUE: float
MOST_BLENDS: int
MOST_WEIGHT: int

def make_budget(power: int, epsilon: float) -> tuple[float, int]: ...

class TrainingSet:
    codes: NDArray[np.int32]
    labels: NDArray[np.int32]
    values: NDArray[np.float64]
    value_starts: NDArray[np.int64]
    origins: NDArray[np.int32]
    has_wider_boxes: bool
    def __init__(
        self,
        X: NDArray[np.float64],
        y: NDArray[np.int32],
        n_labels: int,
        radius_down: ArrayLike,
        radius_up: ArrayLike,
        minimum: ArrayLike,
        maximum: ArrayLike,
        doubled: ArrayLike = (),
        droppable: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        limit: tuple[int, float, ArrayLike] | None = None,
    ) -> None: ...
    @staticmethod
    def of_boxes(
        X: NDArray[np.float64],
        y: NDArray[np.int32],
        n_labels: int,
        lower: NDArray[np.float64],
        upper: NDArray[np.float64],
        doubled: ArrayLike = (),
        droppable: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        limit: tuple[int, float, ArrayLike] | None = None,
    ) -> TrainingSet | None: ...
    def copies_of(self, columns: ArrayLike) -> NDArray[np.int32]: ...
    def with_boxes(
        self,
        radius_down: ArrayLike,
        radius_up: ArrayLike,
        minimum: ArrayLike,
        maximum: ArrayLike,
        limit: tuple[int, float, ArrayLike] | None = None,
    ) -> TrainingSet: ...
    @property
    def n_samples(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def n_labels(self) -> int: ...

class Objective:
    features: NDArray[np.int32]
    def __init__(
        self,
        correct: float,
        stable: float,
        robust: float,
        features: ArrayLike,
        min_leaf: int = 1,
        max_leaves: int = ...,
        max_depth: int = ...,
        leaf_penalty: float = 0.0,
    ) -> None: ...
    def stop(self) -> None: ...

class Workspace:
    def __init__(self, samples: TrainingSet) -> None: ...

class Individual:
    samples: TrainingSet
    def __init__(self, samples: TrainingSet) -> None: ...
    def become_leaf(self, workspace: Workspace) -> Individual: ...
    def become(self, other: Individual) -> Individual: ...
    def take_nodes(
        self,
        feature: NDArray[np.int32],
        threshold: NDArray[np.float64],
        left: NDArray[np.int32],
        right: NDArray[np.int32],
        objective: Objective,
        workspace: Workspace,
        ties: NDArray[np.uint64] | None = None,
    ) -> Individual: ...
    def tests(self) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.uint64]]: ...
    @property
    def n_nodes(self) -> int: ...
    @property
    def n_leaves(self) -> int: ...
    @property
    def counts(self) -> tuple[int, int, int]: ...
    def fitness(self, objective: Objective) -> float: ...
    def nodes(
        self,
    ) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]: ...
    def best_split(
        self,
        node: int,
        objective: Objective,
        workspace: Workspace,
        by_score: bool = True,
        reach: float = 0.0,
        impurity: str = "gini",
    ) -> tuple[int, float, float, float] | None: ...
    def best_threshold_move(
        self, node: int, objective: Objective, workspace: Workspace
    ) -> tuple[int, float, float] | None: ...
    def grow(
        self,
        node: int,
        objective: Objective,
        workspace: Workspace,
        by_score: bool = True,
        reach: float = 0.0,
        impurity: str = "gini",
        n_splits: int = 1,
    ) -> int: ...
    def prune(self, node: int, workspace: Workspace) -> None: ...
    def score_if_pruned(self, node: int, objective: Objective, workspace: Workspace) -> float: ...
    def move_threshold(self, node: int, objective: Objective, workspace: Workspace) -> bool: ...
    def graft(
        self, node: int, donor: Individual, donor_node: int, objective: Objective, workspace: Workspace
    ) -> None: ...
    def improve_locally(self, objective: Objective, workspace: Workspace) -> None: ...
    def deepen(
        self, n_splits: int, objective: Objective, workspace: Workspace, reach: float = 0.0, impurity: str = "gini"
    ) -> Individual: ...
    def trim(self, objective: Objective, workspace: Workspace) -> None: ...

class GreedyGrowth:
    def __init__(
        self,
        samples: TrainingSet,
        objective: Objective,
        workspace: Workspace,
        reach: float = 0.0,
        impurity: str = "gini",
    ) -> None: ...
    @property
    def n_splits(self) -> int: ...
    def extend(self, n_splits: int, workspace: Workspace) -> None: ...
    def take(self, n_splits: int, workspace: Workspace) -> Individual: ...

class Reproduction:
    def __init__(
        self,
        *,
        selection: str = "tournament",
        tournament_size: int = 3,
        crossover_probability: float = 1.0,
        mutation_probability: float = 1.0,
        mutation: str = "mixed",
        aggressiveness: float = 1.0,
        split_by_score: bool = True,
        impurity: str = "gini",
        grow_weight: float = 1.0,
        regrow_weight: float = 1.0,
        prune_weight: float = 1.0,
        move_weight: float = 1.0,
        max_burst: int = 4,
        prune_tries: int = 4,
        sweep_budget: float = 1e6,
        by_score_probability: float = 0.3,
        blends: Sequence[tuple[str, float]] = (("gini", 0.0),),
    ) -> None: ...
    def select(self, fitness: NDArray[np.float64], seed: int, chosen: NDArray[np.int32]) -> None: ...
    def reproduce(
        self,
        parents: list[Individual],
        fitness: NDArray[np.float64],
        offspring: list[Individual],
        objective: Objective,
        workspace: Workspace,
        seed: int,
        generation: int,
        start: int,
        stop: int,
    ) -> None: ...
