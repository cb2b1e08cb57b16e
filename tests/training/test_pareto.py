"""The archive of trees that no other one beats."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import split_dataset
from metasilvae.formats.silva_models import format_model
from metasilvae.perturbations.boxes import Ball
from metasilvae.training.evolution import TreeTrainer
from metasilvae.training.options import TrainingOptions, options_for
from metasilvae.training.pareto import MEASURES, SIZES, Archive, TreeCollector, TreeMetrics, measure, pick
from metasilvae.training.protocol import HOLDING_SEED
from metasilvae.training.runs import make_trainer
from metasilvae.verification.objective import PAPER_FITNESS, Fitness
from metasilvae.verification.query import make_query
from metasilvae.verification.requirements import Requirement
from metasilvae.verification.verifier import verify

SHORT = {"generations": 5, "leaf_penalty": 0.0, "min_samples_leaf": 2, "population": 8, "initial_population": 8}
# Tuning chooses the leaf penalty.
TUNED_SHORT = {name: value for name, value in SHORT.items() if name != "leaf_penalty"}
ROWS = 12
METRICS = ("accuracy", "stability", "robust_accuracy", "leaves")
EPSILON = 0.02


@pytest.fixture(scope="module")
def noisy() -> Dataset:
    """Rows on which accuracy, stability and size exclude each other."""
    rng = np.random.default_rng(1)
    X = rng.random((90, 3))
    y = (X[:, 0] + X[:, 1] + rng.normal(0, 0.3, 90) > 1).astype(np.int32)
    return Dataset(X, y, ("a", "b"))


@st.composite
def some_figures(draw: st.DrawFn) -> TreeMetrics:
    correct, stable = draw(st.integers(0, ROWS)), draw(st.integers(0, ROWS))
    robust = draw(st.integers(max(0, correct + stable - ROWS), min(correct, stable)))
    return TreeMetrics(ROWS, correct, stable, robust, draw(st.integers(1, 9)), draw(st.integers(0, 8)))


def merit(metrics: TreeMetrics) -> float:
    return metrics.phi(PAPER_FITNESS)


def beats(one: TreeMetrics, other: TreeMetrics) -> bool:
    """Domination as it is written in books."""
    no_worse = one.correct >= other.correct and one.stable >= other.stable and one.leaves <= other.leaves
    return no_worse and (one.correct > other.correct or one.stable > other.stable or one.leaves < other.leaves)


def find_front(offered: list[TreeMetrics]) -> list[int]:
    """Numbers of those that nothing beats, of equal ones the first; slow and obvious."""
    return [
        number
        for number, own in enumerate(offered)
        if not any(beats(other, own) for other in offered)
        and not any(other.goals == own.goals for other in offered[:number])
    ]


# Archives


@settings(max_examples=500)
@given(st.lists(some_figures(), max_size=40))
def test_an_archive_with_room_keeps_exactly_the_front(offered: list[TreeMetrics]) -> None:
    archive: Archive[int] = Archive(merit, capacity=100)
    for number, metrics in enumerate(offered):
        archive.offer(metrics, number)
    assert sorted(number for _, number in archive.entries) == find_front(offered)
    assert all(metrics == offered[number] for metrics, number in archive.entries)
    assert archive.n_found == len(archive.entries)
    goals = [metrics.goals for metrics, _ in archive.entries]
    assert goals == sorted(goals, reverse=True)


@settings(max_examples=500)
@given(st.lists(some_figures(), min_size=1, max_size=60), st.integers(4, 7))
def test_a_full_archive_keeps_a_part_of_the_front_with_its_ends(offered: list[TreeMetrics], capacity: int) -> None:
    archive: Archive[int] = Archive(merit, capacity)
    for number, metrics in enumerate(offered):
        archive.offer(metrics, number)
    kept = [metrics for metrics, _ in archive.entries]
    front = [offered[number] for number in find_front(offered)]
    assert set(kept) <= set(front)
    assert 1 <= len(kept) <= capacity
    assert archive.n_found == len(front)
    for goal in range(3):
        assert max(each.goals[goal] for each in kept) == max(each.goals[goal] for each in offered)


@settings(max_examples=100)
@given(st.lists(some_figures(), min_size=20, max_size=60))
def test_what_a_thinned_out_tree_beats_is_refused_all_the_same(offered: list[TreeMetrics]) -> None:
    archive: Archive[int] = Archive(merit, 4)
    for number, metrics in enumerate(offered):
        archive.offer(metrics, number)
    before = archive.entries
    for metrics in offered:
        archive.offer(TreeMetrics(ROWS, max(metrics.correct - 1, 0), metrics.stable, 0, metrics.leaves + 1, 0), -1)
    assert archive.entries == before


def test_the_most_crowded_one_goes() -> None:
    # Six on a line, the fourth close to the fifth; the fifth has the better merit.
    line = [(10, 100), (30, 80), (50, 60), (70, 40), (71, 39), (100, 10)]
    archive: Archive[int] = Archive(merit, 5)
    for correct, stable in line:
        archive.offer(TreeMetrics(100, correct, stable, 0, 5, 4), correct)
    assert [correct for _, correct in archive.entries] == [100, 71, 50, 30, 10]


def test_an_archive_without_room_for_its_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="room for 4"):
        Archive(merit, 3)


# Training runs


class Witness(TreeCollector):
    """Remembers everything that it is shown."""

    def __init__(self, *arguments: object, **more: object) -> None:
        super().__init__(*arguments, **more)
        self.shown: dict[str, TreeMetrics] = {}

    def observe(self, trees) -> None:
        from metasilvae.training.samples import as_model

        for tree in trees:
            model = as_model(tree, self.dataset)
            counts = verify(make_query(model, self.judges, self.perturbation), 1).counts
            metrics = TreeMetrics(
                counts.size, counts.correct, counts.stable, counts.robust, model.n_leaves, model.max_depth
            )
            self.shown.setdefault(format_model(model), metrics)
        super().observe(trees)


def collect(dataset: Dataset, options: TrainingOptions, jobs: int = 1, **more: int) -> Witness:
    trainer = make_trainer(dataset, Ball(EPSILON), options, jobs)
    witness = Witness(dataset, Ball(EPSILON), options, **more)
    trainer.observe(witness)
    for _ in trainer.run():
        pass
    return witness


@pytest.mark.parametrize("validation", [0.0, 0.25])
@pytest.mark.parametrize("tune", [False, True])
def test_a_run_keeps_the_front_of_all_its_trees(noisy: Dataset, validation: float, tune: bool) -> None:
    options = options_for("default", tune=tune, validation=validation, **(TUNED_SHORT if tune else SHORT))
    found = collect(noisy, options)
    shown = list(found.shown.values())
    assert found.n_seen == len(shown) > (3 if tune else 10)
    assert {metrics.goals for metrics, _ in found.entries} == {shown[number].goals for number in find_front(shown)}
    judges = split_dataset(noisy, validation, HOLDING_SEED)[1] if validation else noisy
    for metrics, model in found.entries:
        assert measure(model, judges, Ball(EPSILON)) == metrics
        # The rows that judge were no part of the training.
        assert model.leaf_values.sum() == noisy.n_samples - (judges.n_samples if validation else 0)


def test_the_best_tree_of_a_run_is_beaten_by_none_that_is_not_kept(noisy: Dataset) -> None:
    options = options_for("paper", generations=20)
    trainer = TreeTrainer(noisy, Ball(EPSILON), options)
    collector = TreeCollector(noisy, Ball(EPSILON), options)
    trainer.observe(collector)
    records = list(trainer.run())
    best = measure(trainer.model, noisy, Ball(EPSILON))
    assert any(metrics.covers(best) for metrics, _ in collector.entries)
    assert max(metrics.phi(options.fitness) for metrics, _ in collector.entries) == pytest.approx(records[-1].fitness)


@pytest.mark.parametrize("tune", [False, True])
def test_the_number_of_jobs_and_watching_make_no_difference(noisy: Dataset, tune: bool) -> None:
    options = options_for("default", tune=tune, **(TUNED_SHORT if tune else SHORT))
    archives = [
        [(metrics, format_model(model)) for metrics, model in collect(noisy, options, jobs, capacity=4).entries]
        for jobs in (1, 3)
    ]
    assert archives[0] == archives[1]
    models = []
    for observers in ([], [TreeCollector(noisy, Ball(EPSILON), options)]):
        trainer = make_trainer(noisy, Ball(EPSILON), options)
        for observer in observers:
            trainer.observe(observer)
        models.append([format_model(trainer.model) for _ in trainer.run()])
    assert models[0] == models[1]


def test_a_stopped_run_has_an_archive(noisy: Dataset) -> None:
    options = options_for("default", tune=False)
    trainer = TreeTrainer(noisy, Ball(EPSILON), options)
    collector = TreeCollector(noisy, Ball(EPSILON), options)
    trainer.observe(collector)
    for _ in trainer.run():
        trainer.stop()
    assert len(collector.entries) >= 2


def test_one_leaf_is_the_smallest_of_all() -> None:
    dataset = Dataset(np.array([[0.0], [1.0], [2.0]]), np.array([0, 0, 1], dtype=np.int32), ("a", "b"))
    found = collect(dataset, options_for("default", tune=False, **SHORT | {"min_samples_leaf": 1}))
    assert [(metrics.correct, metrics.stable, metrics.leaves) for metrics, _ in found.entries] == [
        (3, 3, 2),
        (2, 3, 1),
    ]


# Choices


@settings(max_examples=300)
@given(
    st.lists(some_figures(), max_size=12),
    st.lists(
        st.tuples(
            st.sampled_from(["accuracy", "stability", "robust_accuracy", "leaves"]), st.sampled_from([">=", "<=", ">"])
        ),
        max_size=2,
    ),
    st.integers(0, 4),
    st.sampled_from(sorted(MEASURES)),
)
def test_the_pick_is_the_best_of_those_allowed(
    offered: list[TreeMetrics], wanted: list[tuple[str, str]], bound: int, by: str
) -> None:
    fitness = Fitness(correct=0.5, robust=0.5)
    requirements, allowed = [], list(range(len(offered)))
    for metric, comparison in wanted:
        number = Fraction(bound) if metric == "leaves" else Fraction(bound, 4)
        requirements.append(Requirement.parse(f"{metric} {comparison} {float(number)}", SIZES))
        values = [getattr(metrics, metric) for metrics in offered]
        holds = {">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b}[comparison]
        allowed = [place for place in allowed if holds(values[place], number)]
    picked = pick(offered, requirements, by, fitness)
    if not allowed:
        assert picked is None
        return
    assert picked in allowed
    worth = [MEASURES[by](metrics, fitness) for metrics in offered]
    assert worth[picked] == max(worth[place] for place in allowed)
    equal = [place for place in allowed if worth[place] == worth[picked]]
    assert not any(beats(offered[place], offered[picked]) for place in equal)
