"""The genetic operators do what the paper says: distributions of draws, grafts, walks, limits."""

from __future__ import annotations

import numpy as np
import pytest
from support.training_problems import full_counts, random_problem

from metasilvae._core.training.evolution import Individual, Objective, Reproduction, TrainingSet, Workspace

N_DRAWS = 20_000


def chi_square(observed: np.ndarray, expected: np.ndarray) -> float:
    return float(((observed - expected) ** 2 / expected).sum())


def select(fitness: list[float], **recipe) -> np.ndarray:
    chosen = np.empty(N_DRAWS, dtype=np.int32)
    Reproduction(**recipe).select(np.array(fitness), 5, chosen)
    return np.bincount(chosen, minlength=len(fitness))


# With 4 degrees of freedom 30 is exceeded once in 200 000 times, and the draws are always the same.
@pytest.mark.parametrize(
    ("fitness", "weights"),
    [
        ([0.1, 0.2, 0.3, 0.4, 0.5], [1, 2, 3, 4, 5]),
        ([0.9, 0.91, 0.92, 0.93, 0.94], [90, 91, 92, 93, 94]),
        ([5.0, 0.01, 5.0, 1.0, 1.0], [500, 1, 500, 100, 100]),
        ([0.0, 0.0, 0.0, 0.0, 0.0], [1, 1, 1, 1, 1]),
    ],
)
def test_roulette_is_proportional_to_fitness(fitness: list[float], weights: list[float]) -> None:
    expected = N_DRAWS * np.array(weights) / sum(weights)
    assert chi_square(select(fitness, selection="roulette-wheel"), expected) < 30


def test_roulette_never_takes_what_is_worth_nothing() -> None:
    counts = select([0.5, 0.0, 0.5], selection="roulette-wheel")
    assert counts[1] == 0


def test_roulette_counts_negative_fitness_from_the_lowest() -> None:
    counts = select([-3.0, -2.0, 0.0], selection="roulette-wheel")
    assert counts[0] == 0
    assert chi_square(counts[1:], N_DRAWS * np.array([1, 3]) / 4) < 30


def test_uniform_selection_ignores_fitness() -> None:
    counts = select([9.0, 1.0, 0.1, 0.0, 5.0], selection="uniform")
    assert chi_square(counts, np.full(5, N_DRAWS / 5)) < 30


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_tournament_is_won_by_the_best_of_a_draw(size: int) -> None:
    fitness = [0.3, 0.9, 0.1, 0.5, 0.7]
    worse = np.argsort(np.argsort(fitness))
    expected = N_DRAWS * (((worse + 1) / 5) ** size - (worse / 5) ** size)
    counts = select(fitness, selection="tournament", tournament_size=size)
    assert chi_square(counts[expected > 5], expected[expected > 5]) < 30


class Nursery:
    """Samples in three blocks of the first feature, and the tree that tells the first two blocks and the rest apart."""

    def __init__(self, n_features: int = 2, **limits: int) -> None:
        rng = np.random.default_rng(3)
        sizes = [(40, 8), (20, 15), (3, 30)]
        blocks = np.repeat([0.0, 1.0, 2.0], [sum(size) for size in sizes])
        y = np.concatenate([np.repeat([0, 1], size) for size in sizes]).astype(np.int32)
        noise = rng.random((len(y), n_features - 1))
        X = np.ascontiguousarray(np.column_stack([blocks, noise]))
        radius = np.full(n_features, 0.01)
        infinite = np.full(n_features, np.inf)
        self.samples = TrainingSet(X, y, 2, radius, radius, -infinite, infinite)
        self.workspace = Workspace(self.samples)
        self.n = len(y)
        self.objective = self.make_objective(range(n_features), **limits)
        self.tree = self.grow([0, 0, -1, -1, -1], [1.5, 0.5, 0, 0, 0], [1, 2, -1, -1, -1], [4, 3, -1, -1, -1])

    def make_objective(self, features, **limits: int) -> Objective:
        return Objective(0.9 / self.n, 0.1 / self.n, 0.0, features, **limits)

    def grow(self, feature, threshold, left, right) -> Individual:
        columns = [np.array(column, dtype=np.int32) for column in (feature, left, right)]
        thresholds = np.array(threshold, dtype=np.float64)
        return Individual(self.samples).take_nodes(
            columns[0], thresholds, columns[1], columns[2], self.make_objective([0]), self.workspace
        )

    def breed(self, parents: list[Individual], n_children: int, objective: Objective | None = None, **recipe) -> list:
        fitness = np.ones(len(parents))
        children = [Individual(self.samples) for _ in range(n_children)]
        Reproduction(selection="uniform", **recipe).reproduce(
            parents, fitness, children, objective or self.objective, self.workspace, 11, 0, 0, n_children
        )
        return children


def entropy(counts: np.ndarray) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum() / np.log(len(counts)))


def leaf_counts(tree: Individual) -> set[tuple[int, ...]]:
    feature, *_, counts = tree.nodes()
    return {tuple(row) for row in counts[feature < 0].tolist()}


def test_grow_walks_to_a_leaf_in_proportion_to_entropy() -> None:
    nursery = Nursery()
    counts = nursery.tree.nodes()[4]
    assert counts.tolist() == [[63, 53], [60, 23], [40, 8], [20, 15], [3, 30]]
    h = [entropy(row) for row in counts]
    to_left = h[1] / (h[1] + h[4])
    shares = np.array([to_left * h[2] / (h[2] + h[3]), to_left * h[3] / (h[2] + h[3]), 1 - to_left])
    children = nursery.breed([nursery.tree], 3000, mutation="grow", crossover_probability=0.0)
    leaves = [(40, 8), (20, 15), (3, 30)]
    split = [leaves.index(next(iter(set(leaves) - leaf_counts(child)))) for child in children]
    assert all(child.n_leaves == 4 for child in children)
    assert chi_square(np.bincount(split, minlength=3), 3000 * shares) < 25


def test_grow_or_prune_prunes_a_node_with_probability_one_minus_entropy() -> None:
    nursery = Nursery()
    counts = nursery.tree.nodes()[4]
    h = [entropy(row) for row in counts]
    to_left = h[1] / (h[1] + h[4])
    at_root, at_left = 1 - h[0], h[0] * to_left * (1 - h[1])
    children = nursery.breed([nursery.tree], 4000, mutation="grow-or-prune", crossover_probability=0.0)
    sizes = np.bincount([child.n_leaves for child in children], minlength=5)
    assert sizes[3] == 0
    expected = 4000 * np.array([at_root, at_left, 1 - at_root - at_left])
    assert chi_square(sizes[[1, 2, 4]], expected) < 25


def test_no_mutation_and_no_crossover_copies() -> None:
    nursery = Nursery()
    for child in nursery.breed([nursery.tree], 20, mutation="none", crossover_probability=0.0):
        assert [column.tolist() for column in child.nodes()] == [column.tolist() for column in nursery.tree.nodes()]


@pytest.mark.parametrize("mutation", ["grow", "mixed"])
def test_the_mutation_probability_is_the_share_of_changed_offspring(mutation: str) -> None:
    nursery = Nursery()
    before = [column.tolist() for column in nursery.tree.nodes()]
    children = nursery.breed(
        [nursery.tree], 2000, mutation=mutation, mutation_probability=0.25, crossover_probability=0.0
    )
    changed = sum([column.tolist() for column in child.nodes()] != before for child in children)
    assert changed <= 600
    if mutation == "grow":
        assert changed >= 400


def test_aggressiveness_is_the_share_of_features_looked_at() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 60).astype(np.int32)
    X = rng.random((60, 10))
    X[:, 4] = y
    limits = [np.zeros(10), np.zeros(10), np.full(10, -np.inf), np.full(10, np.inf)]
    samples = TrainingSet(X, y, 2, *limits)
    workspace = Workspace(samples)
    objective = Objective(1 / 60, 0.0, 0.0, range(10))
    leaf = Individual(samples).become_leaf(workspace)
    for share, expected in ((1.0, 1.0), (0.3, 0.3), (0.01, 0.1)):
        children = [Individual(samples) for _ in range(1000)]
        recipe = Reproduction(mutation="grow", aggressiveness=share, crossover_probability=0.0, selection="uniform")
        recipe.reproduce([leaf], np.ones(1), children, objective, workspace, 1, 0, 0, 1000)
        best = np.mean([child.nodes()[0][0] == 4 for child in children])
        assert abs(best - expected) < 0.06


@pytest.mark.parametrize("mutation", ["grow", "grow-or-prune", "mixed"])
def test_only_allowed_features_are_tested(mutation: str) -> None:
    nursery = Nursery(6)
    objective = nursery.make_objective([2, 5])
    leaf = Individual(nursery.samples).become_leaf(nursery.workspace)
    population = [leaf]
    for _ in range(4):
        population = nursery.breed(population, 30, objective, mutation=mutation)
    tested = {int(feature) for child in population for feature in child.nodes()[0] if feature >= 0}
    assert tested == {2, 5}


def two_trees(nursery: Nursery) -> tuple[Individual, Individual]:
    """A tree on the first feature and one on the second."""
    other = Individual(nursery.samples).become_leaf(nursery.workspace)
    other.grow(0, nursery.make_objective([1]), nursery.workspace, by_score=False, n_splits=4)
    return nursery.tree, other


def test_crossover_grafts() -> None:
    nursery = Nursery()
    parents = two_trees(nursery)
    own = [{(int(f), float(t)) for f, t in zip(*tree.nodes()[:2], strict=True) if f >= 0} for tree in parents]
    assert not own[0] & own[1]
    children = nursery.breed(list(parents), 400, mutation="none")
    mixed = 0
    for child in children:
        tests = {(int(f), float(t)) for f, t in zip(*child.nodes()[:2], strict=True) if f >= 0}
        assert tests <= own[0] | own[1]
        mixed += bool(tests & own[0]) and bool(tests & own[1])
    assert mixed > 40


def test_parents_do_not_change() -> None:
    nursery = Nursery()
    parents = list(two_trees(nursery))
    before = [([column.tobytes() for column in tree.nodes()], tree.counts) for tree in parents]
    for mutation in ("none", "grow", "grow-or-prune", "mixed"):
        nursery.breed(parents, 200, mutation=mutation)
    assert [([column.tobytes() for column in tree.nodes()], tree.counts) for tree in parents] == before


@pytest.mark.parametrize("mutation", ["none", "grow", "grow-or-prune", "mixed"])
@pytest.mark.parametrize("seed", range(6))
def test_offspring_keep_to_the_limits_and_know_their_figures(seed: int, mutation: str) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n_samples=60)
    samples = problem.samples
    workspace = Workspace(samples)
    min_leaf, max_leaves, max_depth = 1 + seed % 3, 5 + seed, 4
    objective = problem.objective(min_leaf=min_leaf, max_leaves=max_leaves, max_depth=max_depth)
    population = [Individual(samples).become_leaf(workspace) for _ in range(10)]
    for position, tree in enumerate(population):
        tree.grow(0, objective, workspace, by_score=False, reach=position / 10, n_splits=6)
    for generation in range(5):
        fitness = np.array([tree.fitness(objective) for tree in population])
        children = [Individual(samples) for _ in range(10)]
        Reproduction(mutation=mutation, blends=(("gini", 0.0), ("exponential", 0.5))).reproduce(
            population, fitness, children, objective, workspace, seed, generation, 0, 10
        )
        population = children
        for child in children:
            feature, _, left, right, counts = child.nodes()
            depths = np.zeros(len(feature), dtype=int)
            for node in np.flatnonzero(feature >= 0):
                depths[[left[node], right[node]]] = depths[node] + 1
            assert depths.max() <= max_depth
            assert child.n_leaves == (feature < 0).sum() <= max_leaves
            if child.n_leaves > 1:
                assert counts[feature < 0].sum(axis=1).min() >= min_leaf
            assert child.counts == full_counts(child, problem)


def test_stopped_work_leaves_a_whole_tree() -> None:
    nursery = Nursery(4)
    objective = nursery.make_objective(range(4))
    objective.stop()
    tree = Individual(nursery.samples).become_leaf(nursery.workspace)
    assert tree.grow(0, objective, nursery.workspace, by_score=False, n_splits=9) == 0
    assert tree.n_leaves == 1
    before = nursery.tree.counts
    nursery.tree.improve_locally(objective, nursery.workspace)
    nursery.tree.trim(objective, nursery.workspace)
    assert nursery.tree.counts == before
