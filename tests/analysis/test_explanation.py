"""Explanations against trying out every set of frozen features."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.attacks import random_case
from support.command import run, write
from support.oracles import boxes_of_leaves, classify, make_model, power_of_distance, random_model

from metasilvae.analysis import explanation
from metasilvae.analysis.explanation import explain, find_smallest_hitting_set
from metasilvae.dataset import Dataset
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball
from metasilvae.perturbations.norms import NormBall
from metasilvae.verification.query import make_query
from metasilvae.verification.radius import find_radii


@settings(max_examples=300)
@given(st.lists(st.frozensets(st.integers(0, 6), min_size=1), max_size=9))
def test_hitting_sets_are_smallest(sets: list[frozenset[int]]) -> None:
    found, is_smallest = find_smallest_hitting_set(sets)
    assert is_smallest
    assert all(each & found for each in sets)
    for size in range(len(found)):
        for smaller in itertools.combinations(range(7), size):
            assert not all(each & set(smaller) for each in sets)


def test_a_hitting_set_within_few_steps_is_an_upper_bound() -> None:
    rng = random.Random(2)
    sets = [frozenset(rng.sample(range(30), 4)) for _ in range(60)]
    found, is_smallest = find_smallest_hitting_set(sets, max_steps=1)
    assert not is_smallest
    assert all(each & found for each in sets)


def is_stable(tree: Model, sample: Sequence[float], radius: float, frozen: Sequence[int]) -> bool:
    lower = [x if f in frozen else x - radius for f, x in enumerate(sample)]
    upper = [x if f in frozen else x + radius for f, x in enumerate(sample)]
    return all(classify(tree, low) == classify(tree, sample) for _, low, _ in boxes_of_leaves(tree, lower, upper))


@pytest.mark.parametrize("max_turns", [100, 0])
def test_frozen_sets_are_smallest(max_turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explanation, "MAX_TURNS", max_turns)
    rng = random.Random(7)
    sizes = set()
    for _ in range(80):
        tree = random_model(rng, max_splits=25, n_features=5)
        rows = [[rng.choice([rng.random() * 2 - 1, float(rng.randint(-3, 3))]) for _ in range(5)] for _ in range(5)]
        radius = rng.choice([0.5, 1.0, 2.0])
        dataset = Dataset(np.array(rows), np.zeros(len(rows), dtype=np.int32), tree.labels[:1])
        found = explain(make_query(tree, dataset, Ball(radius)), jobs=1)
        assert [row.row for row in found.rows] == [i for i in range(5) if not is_stable(tree, rows[i], radius, [])]
        for row in found.rows:
            sample, point = rows[row.row], row.witness.point.tolist()
            features = row.frozen.features
            assert features is not None
            assert is_stable(tree, sample, radius, features)
            if row.frozen.is_smallest:
                sizes.add(len(features))
                for smaller in itertools.combinations(range(5), len(features) - 1):
                    assert not is_stable(tree, sample, radius, smaller)
            assert max_turns == 0 or row.frozen.is_smallest
            assert set(row.moved) <= {f for f in range(5) if point[f] != sample[f]}
            assert {f for f, _ in row.crossed} >= set(row.moved)
            assert all((sample[f] <= k) != (point[f] <= k) for f, k in row.crossed)
            assert row.radius == find_radii(make_query(tree, dataset, Ball(1))).lower[row.row]
    assert max_turns == 0 or sizes >= {1, 2, 3}


@pytest.mark.parametrize("norm", ["linf", "l1", "l0"])
def test_attacks_are_explained(norm: str) -> None:
    """Against all points that an attack allows: whole numbers, listed values, one-hot groups."""
    rng = random.Random(5)
    n_rows, n_groups = 0, 0
    while n_rows < (120 if norm == "linf" else 60):
        case = random_case(rng, 4, 3)
        if not case.groups and n_groups < n_rows / 2:
            continue
        tree = random_model(rng, max_splits=12, n_features=4)
        dataset = replace(case.dataset, labels=tree.labels[:1], y=np.zeros(3, dtype=np.int32))
        size = float(rng.randint(1, 2))
        allowed = case.attack if norm == "linf" else NormBall(norm, size, case.attack)
        for row in explain(make_query(tree, dataset, allowed), jobs=1).rows:
            sample = case.dataset.X[row.row].tolist()
            moves = {
                frozenset(f for f in range(4) if point[f] != sample[f])
                for point in case.points(row.row, tree)
                if classify(tree, point) != classify(tree, sample)
                and (norm == "linf" or power_of_distance(norm, sample, point, [1.0] * 4, case.groups) <= size)
            }
            features = row.frozen.features
            assert features is not None
            assert row.frozen.is_smallest
            assert all(moved & set(features) for moved in moves)
            for smaller in itertools.combinations(range(4), len(features) - 1):
                assert any(not moved & set(smaller) for moved in moves)
            n_rows += 1
            n_groups += bool(case.groups)
    assert n_groups > 10


def test_rows_that_no_freezing_helps() -> None:
    tree = make_model([(0, 0.0, [1, 0], [0, 1])])
    # The box does not hold the row, and every point of it gets another answer.
    dataset = Dataset(np.array([[-0.5, 0.0]]), np.zeros(1, dtype=np.int32), ("a",))
    found = explain(make_query(tree, dataset, Ball(1, 0.25, 2)))
    assert found.rows[0].frozen == explanation.FrozenSet(None, True)
    assert found.rows[0].radius is None
    assert [row.row for row in found.most_fragile(5)] == [0]


def test_counts() -> None:
    tree = make_model([(0, 0.0, [1, 0], (1, 1.0, [0, 1], [1, 0]))])
    dataset = Dataset(np.array([[0.5, 0.0], [-0.5, 0.0], [-5.0, 0.0]]), np.zeros(3, dtype=np.int32), ("a",))
    found = explain(make_query(tree, dataset, Ball(0.75)))
    assert [row.row for row in found.rows] == [0, 1]
    assert dict(found.moved_features) == dict(found.frozen_features) == {0: 2}
    assert dict(found.crossed_tests) == {(0, 0.0): 2}
    assert dict(found.frozen_sizes) == {1: 2}


def test_crossed_nodes_are_those_on_the_paths() -> None:
    """The same test in four places: each counts the rows that come by there."""
    same = (0, 0.0, [1, 0], [0, 1])
    forest = make_model([(1, 0.0, same, same), (1, 0.0, same, same), (1, 5.0, same, [1, 0])])
    rows = np.array([[0.5, -1.0], [0.5, 1.0], [0.6, 1.0]])
    found = explain(make_query(forest, Dataset(rows, np.zeros(3, dtype=np.int32), ("a",)), Ball(0.75)))
    assert dict(found.crossed_tests) == {(0, 0.0): 3}
    roots = forest.roots.tolist()
    below = [forest.nodes[root][side].item() for root in roots for side in ("left", "right")]
    assert dict(found.crossed_nodes) == dict(zip(below, [1, 2, 1, 2, 3], strict=False))


def test_crossed_nodes_have_the_crossed_tests() -> None:
    rng = random.Random(11)
    n_found = 0
    for _ in range(40):
        forest = random_model(rng, n_trees=rng.randint(1, 3), max_splits=12)
        rows = np.array([[rng.random() * 4 - 2, rng.random() * 4 - 2] for _ in range(6)])
        found = explain(make_query(forest, Dataset(rows, np.zeros(6, dtype=np.int32), forest.labels[:1]), Ball(0.5)))
        nodes = forest.nodes[sorted(found.crossed_nodes)]
        tests = zip(nodes["feature"].tolist(), nodes["threshold"].tolist(), strict=True)
        assert set(tests) == set(found.crossed_tests)
        n_found += len(nodes)
    assert n_found > 40


def test_command(tree: str, rows: str, tmp_path: Path) -> None:
    text = run("explain", tree, rows, "--epsilon", "0.1").stdout
    assert "of 7 rows are unstable" in text
    assert "x[0] <= 0.5" in text
    document = json.loads(
        run("explain", tree, rows, "--epsilon", "0.1", "--format", "json", "--most-fragile", "2").stdout
    )
    verdicts = json.loads(run("verify", tree, rows, "--epsilon", "0.1", "--format", "json").stdout)
    unstable = [row["row"] for row in verdicts["rows"] if row["verdict"] in ("FRAGILE", "BROKEN")]
    assert [row["row"] for row in document["rows"]] == unstable
    assert len(document["most_fragile"]) == 2
    report = run("explain", tree, rows, "--epsilon", "0.1", "--most-fragile", "0").stdout
    assert "most fragile" not in report
    assert not report.endswith("\n\n")
    for row in document["rows"]:
        point = write(tmp_path, "point.csv", ",".join(map(repr, row["point"])))
        prediction = run("predict", tree, point, "--label-column", "none").stdout.strip()
        assert prediction == ",".join(row["perturbed_prediction"])
    assert "0 of 7 rows are unstable\n" in run("explain", tree, rows, "--epsilon", "0").stdout
    assert "say what may be perturbed" in run("explain", tree, rows, code=2).stderr
    attack = write(tmp_path, "attack.toml", "[default]\nradius = 0.1\n")
    same = run("explain", tree, rows, "--attack", attack).stdout
    assert same.replace(f"attack {attack}", "l_inf 0.1") == text
    target = tmp_path / "out.txt"
    clipped = run("explain", tree, rows, "--perturbation", "l_inf-clip-all", "0.1", "0.1", "0.9", "-o", target)
    assert clipped.stdout == ""
    assert "l_inf-clip-all 0.1 0.1 0.9" in target.read_text()
