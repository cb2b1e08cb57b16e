"""The ceiling of accuracy and robust accuracy: against all sets of rows, all shared points, and trees that reach it."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.attacks import Case, random_case
from support.oracles import GivenBoxes, data_of, make_model, most_independent, random_model

from metasilvae.dataset import Dataset
from metasilvae.perturbations.boxes import Ball, Boxes, Perturbation
from metasilvae.verification import ceiling
from metasilvae.verification.ceiling import Ceiling, find_ceiling
from metasilvae.verification.query import make_query
from metasilvae.verification.verifier import verify

grid = st.sampled_from([0.0, 0.1, 0.2, 0.30000000000000004, 0.3, 0.4, 0.5, 1.0, -0.0, 1e300, -1e300])


@st.composite
def problems(draw: st.DrawFn, n_labels: int, most_rows: int = 9) -> Dataset:
    n_features = draw(st.integers(1, 11))
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, n_labels - 1), st.lists(grid, min_size=n_features, max_size=n_features)),
            min_size=1,
            max_size=most_rows,
        )
    )
    return data_of([values for _, values in rows], ["abcd"[label] for label, _ in rows])


def overlapping(dataset: Dataset, boxes: Boxes) -> list[tuple[int, int]]:
    """Pairs with different labels whose closed boxes share a point; the lower corner of what they share is one."""
    found = []
    for one, other in itertools.combinations(range(dataset.n_samples), 2):
        (low, high), (low_other, high_other) = boxes.bounds(one), boxes.bounds(other)
        shares = (np.maximum(low, low_other) <= np.minimum(high, high_other)).all()
        if dataset.y[one] != dataset.y[other] and shares:
            found.append((one, other))
    return found


def most_accurate(dataset: Dataset) -> int:
    groups: dict[tuple[float, ...], Counter[int]] = {}
    for x, label in zip((dataset.X + 0.0).tolist(), dataset.y.tolist(), strict=True):
        groups.setdefault(tuple(x), Counter())[label] += 1
    return sum(max(labels.values()) for labels in groups.values())


def check(dataset: Dataset, perturbation: Perturbation, conflicts: Sequence[tuple[int, int]]) -> Ceiling:
    """Compare with the oracle; returns the ceiling."""
    found = find_ceiling(dataset, perturbation)
    truth = most_independent(dataset.n_samples, conflicts)
    assert found.n_conflicts == len(conflicts)
    assert found.n_conflicting == len(set(itertools.chain(*conflicts)))
    assert found.accurate == most_accurate(dataset)
    assert found.reached <= truth <= found.robust
    if len(set(dataset.y.tolist())) <= 2:
        assert found.robust == truth
    return found


radii = st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.30000000000000004, 1.0, 1e300])


@settings(max_examples=300)
@given(problems(2), radii)
def test_two_classes(dataset: Dataset, epsilon: float) -> None:
    assert check(dataset, Ball(epsilon), overlapping(dataset, Ball(epsilon).boxes(dataset))).is_exact


@settings(max_examples=300)
@given(problems(4), radii)
def test_several_classes(dataset: Dataset, epsilon: float) -> None:
    check(dataset, Ball(epsilon), overlapping(dataset, Ball(epsilon).boxes(dataset)))


@settings(max_examples=100)
@given(problems(3), st.sampled_from([0.05, 0.1, 0.2, 0.3]))
def test_clipped_balls(dataset: Dataset, epsilon: float) -> None:
    inside = data_of(np.clip(dataset.X, 0, 1).tolist(), [dataset.labels[label] for label in dataset.y])
    perturbation = Ball(epsilon, 0.0, 1.0)
    check(inside, perturbation, overlapping(inside, perturbation.boxes(inside)))


@settings(max_examples=100)
@given(problems(2, 6), st.data())
def test_any_boxes(dataset: Dataset, data: st.DataObject) -> None:
    """Boxes from a file need not hold their rows; then the rows themselves may make further conflicts."""
    corners = st.lists(grid, min_size=dataset.n_features, max_size=dataset.n_features)
    pairs = [(data.draw(corners), data.draw(corners)) for _ in range(dataset.n_samples)]
    lower = [list(map(min, one, other)) for one, other in pairs]
    upper = [list(map(max, one, other)) for one, other in pairs]
    perturbation = GivenBoxes(lower, upper)
    found = find_ceiling(dataset, perturbation)  # type: ignore[arg-type]
    assert found.n_conflicts == len(overlapping(dataset, perturbation.boxes(dataset)))

    def demands(row: int, point: tuple[float, ...]) -> bool:
        is_inside = all(low <= x <= high for low, x, high in zip(lower[row], point, upper[row], strict=True))
        return is_inside or point == tuple(dataset.X[row].tolist())

    points = [tuple(map(max, lower[i], lower[j])) for i in range(len(lower)) for j in range(len(lower))]
    points += [tuple(x) for x in dataset.X.tolist()]
    conflicts = [
        (i, j)
        for i, j in itertools.combinations(range(dataset.n_samples), 2)
        if dataset.y[i] != dataset.y[j] and any(demands(i, point) and demands(j, point) for point in points)
    ]
    assert found.reached <= most_independent(dataset.n_samples, conflicts) <= found.robust


def shared_points(case: Case) -> list[tuple[int, int]]:
    """Pairs of rows with different labels for which some point is allowed for both, by enumeration."""
    X, y = case.dataset.X.tolist(), case.dataset.y
    members = set(itertools.chain(*case.groups))
    boxes = case.attack.boxes(case.dataset)

    def allowed(row: int, other: int) -> set[tuple[float, ...]]:
        # Where intervals overlap, they share the larger of their lower ends.
        ends = [bounds[0] for bounds in (boxes.bounds(row), boxes.bounds(other))]
        choices = [
            [0.0] if f in members else column.choices(X[row][f], [float(end[f]) for end in ends])
            for f, column in enumerate(case.columns)
        ]
        return {
            tuple(1.0 if f in ones else value for f, value in enumerate(point))
            for point in itertools.product(*choices)
            for ones in itertools.product(*case.groups)
        }

    return [
        (one, other)
        for one, other in itertools.combinations(range(len(X)), 2)
        if y[one] != y[other] and allowed(one, other) & allowed(other, one)
    ]


@pytest.mark.parametrize("seed", range(60))
def test_attacks(seed: int) -> None:
    """Whole numbers, listed values, one-hot groups, directions and limits."""
    rng = random.Random(seed)
    case = random_case(rng, rng.randint(1, 4), 7, rng.choice([2, 3]))
    check(case.dataset, case.attack, shared_points(case))


def test_one_hot_groups_that_cannot_meet() -> None:
    """Two rows whose members may not change share no point, although a group may be restricted by its bounds."""
    from metasilvae.perturbations.groups import TableGroups

    class Grouped:
        def __init__(self, lower: list[list[float]], upper: list[list[float]]) -> None:
            self.lower, self.upper = lower, upper

        def boxes(self, dataset: Dataset) -> Boxes:
            zero, endless = np.zeros(3), np.full(3, np.inf)
            groups = TableGroups.of_lists([[0, 1, 2]])
            return Boxes(np.array(self.lower), np.array(self.upper), zero, zero, -endless, endless, groups)

    dataset = data_of([[1, 0, 0], [0, 1, 0]], ["a", "b"])
    for lower, upper, meets in (
        ([[0, 0, 0], [0, 0, 0]], [[1, 1, 1], [1, 1, 1]], True),
        ([[0, 0, 0], [0, 0, 0]], [[1, 0, 0], [0, 1, 0]], False),  # only (0, 0, 0) is shared
        ([[0, 0, 0], [0, 0, 0]], [[1, 0, 1], [0, 1, 1]], True),
        ([[0, 0, 1], [0, 1, 0]], [[1, 1, 1], [1, 1, 1]], False),  # two members would have to be 1
        ([[0, 0, 0.5], [0, 0, 0]], [[1, 1, 1], [1, 1, 0.75]], False),
        ([[0, 0, 0.5], [0, 0, 0]], [[1, 1, 1], [1, 1, 1]], True),
    ):
        perturbation = Grouped([[float(x) for x in row] for row in lower], [[float(x) for x in row] for row in upper])
        assert find_ceiling(dataset, perturbation).n_conflicts == int(meets)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::metasilvae.errors.MetasilvaeWarning")  # labels that the model does not know
@settings(max_examples=60)
@given(problems(3), st.sampled_from([0.05, 0.1, 0.3]), st.integers(0, 1000))
def test_no_tree_is_above_it(dataset: Dataset, epsilon: float, seed: int) -> None:
    narrow = Dataset(np.ascontiguousarray(np.resize(dataset.X, (dataset.n_samples, 2))), dataset.y, dataset.labels)
    model = random_model(random.Random(seed), n_features=2)
    assume(set(model.labels) & set(narrow.labels))
    counts = verify(make_query(model, narrow, Ball(epsilon))).counts
    found = find_ceiling(narrow, Ball(epsilon))
    assert counts.robust <= found.robust
    assert counts.correct <= found.accurate


@pytest.mark.parametrize("seed", range(20))
def test_a_tree_reaches_it(seed: int) -> None:
    """Split at all upper ends of the boxes of a largest set without conflicts: these rows are robust."""
    rng = random.Random(seed)
    rows = [[rng.randint(0, 9) / 10 for _ in range(2)] for _ in range(9)]
    dataset = data_of(rows, [rng.choice("ab") for _ in rows])
    boxes = Ball(0.1).boxes(dataset)
    conflicts = overlapping(dataset, boxes)
    found = find_ceiling(dataset, Ball(0.1))
    kept = next(
        kept
        for kept in itertools.combinations(range(len(rows)), found.robust)
        if not any(one in kept and other in kept for one, other in conflicts)
    )
    corners = {row: boxes.bounds(row) for row in kept}
    tests = [(f, float(corners[row][1][f])) for row in kept for f in range(2)]

    def build(inside: list[int], rest: list[tuple[int, float]]) -> tuple | list:
        labels = {int(dataset.y[row]) for row in inside}
        if len(labels) < 2:
            label = labels.pop() if labels else 0
            return [int(position == label) for position in range(max(2, dataset.n_labels))]
        (feature, threshold), *others = rest
        left = [row for row in inside if corners[row][0][feature] <= threshold]
        right = [row for row in inside if corners[row][1][feature] > threshold]
        return feature, threshold, build(left, others), build(right, others)

    names = (*dataset.labels, "other")[: max(2, dataset.n_labels)]
    model = make_model([build(list(kept), tests)], 2, names)
    outcome = verify(make_query(model, dataset, Ball(0.1)))
    assert outcome.counts.robust == found.robust
    assert found.is_exact


# Limits


@settings(max_examples=100)
@given(problems(3), radii, st.integers(0, 12), st.integers(1, 30))
def test_limits_leave_a_bound(dataset: Dataset, epsilon: float, most_conflicts: int, most_pairs: int) -> None:
    best = find_ceiling(dataset, Ball(epsilon))
    found = find_ceiling(dataset, Ball(epsilon), most_conflicts=most_conflicts, most_pairs=most_pairs)
    truth = most_independent(dataset.n_samples, overlapping(dataset, Ball(epsilon).boxes(dataset)))
    assert found.reached <= truth <= found.robust
    assert found.accurate == best.accurate
    if found.limit:
        assert found.n_conflicts is None
    else:
        assert found == best


def test_what_the_limits_say() -> None:
    dataset = data_of([[number / 100] for number in range(100)], ["ab"[number % 2] for number in range(100)])
    assert find_ceiling(dataset, Ball(1), most_conflicts=10).limit == "there are more than 10 conflicts"
    found = find_ceiling(dataset, Ball(1), most_pairs=1000)
    assert found.limit == "more than 1000 pairs of rows would have to be compared"
    # The greedy matching is perfect here, and one label for all reaches its bound.
    for limited in (found, find_ceiling(dataset, Ball(1), most_conflicts=10)):
        assert (limited.robust, limited.reached, limited.is_exact) == (50, 50, True)


@pytest.mark.parametrize("batch", [1, 7, 1 << 26])
@pytest.mark.parametrize("n_features", [2, 20])
def test_batches_and_buffers(batch: int, n_features: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    X = rng.integers(0, 6, (300, n_features)) / 10
    dataset = Dataset(X, rng.integers(0, 3, 300).astype(np.int32), ("a", "b", "c"))
    epsilon = 0.1 if n_features == 2 else 0.2
    expected = find_ceiling(dataset, Ball(epsilon))
    conflicts = overlapping(dataset, Ball(epsilon).boxes(dataset))
    assert expected.n_conflicts == len(conflicts) > 100
    monkeypatch.setattr(ceiling, "_BATCH_PAIRS", batch)
    monkeypatch.setattr(ceiling, "_BUFFERED_PAIRS", 1)
    assert find_ceiling(dataset, Ball(epsilon)) == expected


def test_a_large_bipartite_graph_against_another_algorithm() -> None:
    """Rows on a line: a maximum matching of intervals can be found by going from left to right."""
    rng = np.random.default_rng(2)
    values = np.sort(rng.random(4000))
    y = rng.integers(0, 2, 4000).astype(np.int32)
    dataset = Dataset(values[:, None], y, ("a", "b"))
    epsilon = 0.0007
    low, high = values - epsilon, values + epsilon
    # All intervals have the same length: match each with the first free one of the other label that it meets.
    waiting: dict[int, list[int]] = {0: [], 1: []}
    n_matched = 0
    for row in range(4000):
        other = waiting[1 - int(y[row])]
        while other and high[other[0]] < low[row]:
            other.pop(0)
        if other:
            other.pop(0)
            n_matched += 1
        else:
            waiting[int(y[row])].append(row)
    assert find_ceiling(dataset, Ball(epsilon)).robust == 4000 - n_matched
    assert 0 < n_matched < 2000


# Missing values


@dataclass(frozen=True)
class Dropping:
    """A ball in which some values may become missing."""

    epsilon: float
    droppable: tuple[tuple[bool, ...], ...]
    is_broadcast: bool = False

    def boxes(self, dataset: Dataset) -> Boxes:
        droppable = np.array(self.droppable, dtype=np.uint8)
        if self.is_broadcast:  # one rule for all rows takes no memory
            droppable = np.broadcast_to(droppable[0], dataset.X.shape)
        return replace(Ball(self.epsilon).boxes(dataset), droppable=droppable)


@settings(max_examples=300)
@given(problems(3), st.sampled_from([0.0, 0.1, 0.2, 1.0]), st.integers(0, 2**32), st.booleans(), st.booleans())
def test_missing_values(dataset: Dataset, epsilon: float, seed: int, drops: bool, is_broadcast: bool) -> None:
    """A missing value stays missing, a value may become missing if that is allowed; two missing ones are equal."""
    rng = np.random.default_rng(seed)
    X = np.where(rng.random(dataset.X.shape) < 0.3, np.nan, dataset.X)
    rows = Dataset(X, dataset.y, dataset.labels)
    droppable = (rng.random(X.shape) < 0.3) & drops
    if is_broadcast:
        droppable[:] = droppable[0]
    perturbation = Dropping(epsilon, tuple(map(tuple, droppable.tolist())), is_broadcast)
    if not drops:
        perturbation = Ball(epsilon)  # type: ignore[assignment]

    def share(one: int, other: int, feature: int) -> bool:
        x, z = X[one, feature], X[other, feature]
        can_drop = [np.isnan(X[row, feature]) or droppable[row, feature] for row in (one, other)]
        is_there = not (np.isnan(x) or np.isnan(z))
        return all(can_drop) or (is_there and x - epsilon <= z + epsilon and z - epsilon <= x + epsilon)

    conflicts = [
        (one, other)
        for one, other in itertools.combinations(range(len(X)), 2)
        if rows.y[one] != rows.y[other] and all(share(one, other, f) for f in range(X.shape[1]))
    ]
    found = find_ceiling(rows, perturbation)  # type: ignore[arg-type]
    truth = most_independent(len(X), conflicts)
    assert found.n_conflicts == len(conflicts)
    assert found.reached <= truth <= found.robust
    if len(set(rows.y.tolist())) <= 2:
        assert found.robust == truth
        assert found.is_exact


def test_many_features_with_missing_values() -> None:
    rng = np.random.default_rng(3)
    X = np.where(rng.random((200, 15)) < 0.5, np.nan, rng.integers(0, 2, (200, 15)).astype(float))
    X[:100] = X[100:]
    y = rng.integers(0, 2, 200).astype(np.int32)
    dataset = Dataset(X, y, ("a", "b"))
    found = find_ceiling(dataset, Ball(0.25))
    same = (X[:, None] == X[None]) | (np.isnan(X[:, None]) & np.isnan(X[None]))
    conflicts = np.argwhere(np.triu(same.all(axis=2), 1) & (y[:, None] != y[None]))
    assert found.n_conflicts == len(conflicts) > 20
    assert found.robust == found.accurate == 200 - len(conflicts)
