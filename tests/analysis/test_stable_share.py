"""The stable share of a space, against the cells between all values at which a perturbation passes a threshold."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.command import run, write
from support.oracles import data_of, make_model, prediction_of
from support.proof_oracles import inputs_of, random_forest, random_space, random_voting, totals_of

from metasilvae.analysis.spaces import InputSpace
from metasilvae.analysis.stable_share import measure_stable_share
from metasilvae.errors import RequestError
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball
from metasilvae.verification.budget import STEPS, Budget
from metasilvae.verification.query import make_query
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import verify


def box_of(model: Model, lower: float, upper: float) -> InputSpace:
    n = model.n_features
    return InputSpace(np.full(n, lower), np.full(n, upper), np.zeros(n, dtype=np.bool_), "a box")


def share_of_cells(model: Model, epsilon: float, voting: str, lower: float, upper: float) -> float:
    """Add up the volumes of cells whose middle is stable."""
    cuts = []
    for feature in range(model.n_features):
        thresholds = model.nodes["threshold"][model.nodes["feature"] == feature]
        values = {lower, upper, *(thresholds - epsilon).tolist(), *(thresholds + epsilon).tolist()}
        cuts.append(sorted(value for value in values if lower <= value <= upper))
    cells = list(itertools.product(*(list(itertools.pairwise(each)) for each in cuts)))
    middles = [[0.5 * (a + b) for a, b in cell] for cell in cells]
    volumes = [np.prod([b - a for a, b in cell]) / (upper - lower) ** model.n_features for cell in cells]
    data = data_of(middles, ["a"] * len(middles))
    stability = verify(make_query(model, data, Ball(epsilon), voting=voting), 1).stability
    return float(sum(v for v, s in zip(volumes, stability, strict=True) if s == Stability.STABLE))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_the_share_is_that_of_all_cells(seed: int) -> None:
    rng = random.Random(seed)
    model = random_forest(rng, max_trees=3, max_splits=3, n_features=2).without_directions
    voting, epsilon = random_voting(rng, model), rng.choice([0.0, 0.1, 0.25, 0.5, 2.0])
    share = measure_stable_share(model, box_of(model, -2.0, 2.0), epsilon, voting=voting)
    assert share.lower == share.upper
    assert share.reason is None
    assert share.lower == pytest.approx(share_of_cells(model, epsilon, voting, -2.0, 2.0), abs=1e-9)


def share_of_inputs(model: Model, space: InputSpace, epsilon: float, voting: str) -> float:
    """Add up the weights of all inputs, or of the middles of all cells, that are stable by enumeration."""
    grouped = {f for group in space.groups.groups for f in group.features}
    columns: list[list[tuple[float, float]]] = []
    for f in range(model.n_features):
        low, high = space.lower[f], space.upper[f]
        thresholds = model.nodes["threshold"][model.nodes["feature"] == f]
        if f in grouped:
            columns.append([(0.0, 1.0)])
            continue
        if f in space.domains.listed or f in space.domains.whole:
            possible = space.domains.listed.get(f, np.arange(low, high + 1))
            values = [(float(value), 1.0) for value in possible if low <= value <= high]
        elif low == high:
            values = [(low, 1.0)]
        else:
            cuts = {low, high, *(thresholds - epsilon).tolist(), *(thresholds + epsilon).tolist()}
            inside = sorted(value for value in cuts if low <= value <= high)
            values = [(0.5 * (a + b), b - a) for a, b in itertools.pairwise(inside)]
        total = sum(weight for _, weight in values)
        columns.append([(value, weight / total) for value, weight in values])
    options = [np.flatnonzero(space.list_options(number)).tolist() for number in range(space.groups.n_groups)]
    share = 0.0
    for cells in itertools.product(*columns):
        for chosen in itertools.product(*options):
            x = np.array([value for value, _ in cells])
            radius = np.full(len(x), epsilon)
            for group, option in zip(space.groups.groups, chosen, strict=True):
                x[list(group.members)], radius[list(group.features)] = group.table[option], 0.0
                if group.code >= 0:
                    x[group.code] = option
            radius[sorted(space.domains.whole)] = np.floor(epsilon)
            ball = replace(space, lower=x - radius, upper=x + radius, allowed=None)
            found = {prediction_of(totals_of(model, z, voting)) for z in [tuple(x), *inputs_of(model, ball)]}
            weight = np.prod([w for _, w in cells]) / np.prod([len(each) for each in options])
            share += float(weight) * (len(found) == 1)
    return share


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_whole_numbers_listed_values_and_categories_count(seed: int) -> None:
    rng = random.Random(seed)
    model = random_forest(rng, max_trees=3, max_splits=3, n_features=3).without_directions
    space = random_space(rng, model)
    lower, upper = space.lower.copy(), space.upper.copy()
    is_open = (lower < -3) | (upper > 3)
    lower[is_open], upper[is_open] = -2.0, 2.0
    space = replace(space, lower=lower, upper=upper, may_be_missing=np.zeros(len(lower), dtype=np.bool_))
    voting, epsilon = random_voting(rng, model), rng.choice([0.0, 0.1, 0.3, 1.0, 1.5])
    share = measure_stable_share(model, space, epsilon, voting=voting, jobs=1)
    assert share.reason is None
    assert share.lower == share.upper
    assert share.lower == pytest.approx(share_of_inputs(model, space, epsilon, voting), abs=1e-9)
    assert share.lower == measure_stable_share(model, space, epsilon, voting=voting, jobs=2).lower
    limited = measure_stable_share(model, space, epsilon, voting=voting, budget=Budget(steps=1))
    assert limited.lower - 1e-9 <= share.lower <= limited.upper + 1e-9
    if limited.estimate is not None:
        assert abs(limited.estimate.share - share.lower) <= limited.estimate.margin


def test_booleans_and_categories_of_a_table_stay(tmp_path: Path) -> None:
    data = "".join(f"{'yes' if n > 4 or n % 3 == 0 else 'no'},{n},{'abc'[n % 3]},{n % 2 == 0}\n" for n in range(12))
    rows = write(tmp_path, "rows.csv", f"decision,income,town,member\n{data}")
    model = str(tmp_path / "m.silva")
    run("train", rows, model, "--preset", "cart", "--min-samples-leaf", 1, "--epsilon", 0.1, "--no-manifest")
    text = run("prove", model, "--stable-share", "--epsilon", 0.1, "--domain", rows).stdout
    assert "of the inputs" in text
    # Incomes are unstable beside thresholds only; of three towns one is always accepted.
    document = json.loads(
        run("prove", model, "--stable-share", "--epsilon", 0.5, "--domain", rows, "--format", "json").stdout
    )
    assert 0.5 < document["stable_share"] == document["at_most"] < 1


def test_a_strip_beside_a_threshold_is_unstable() -> None:
    model = make_model([(0, 0.5, [1, 0], [0, 1])], 3)
    share = measure_stable_share(model, box_of(model, 0.0, 1.0), 0.1)
    assert share.lower == share.upper == pytest.approx(0.8)


def test_a_limit_leaves_two_bounds() -> None:
    model = make_model([(0, 0.5, [1, 0], (1, 0.3, [0, 1], [1, 0]))], 2)
    share = measure_stable_share(model, box_of(model, 0.0, 1.0), 0.05, budget=Budget(steps=3))
    full = measure_stable_share(model, box_of(model, 0.0, 1.0), 0.05)
    assert share.reason == STEPS
    assert share.lower <= full.lower == full.upper <= share.upper
    assert share.lower < share.upper


def test_a_space_without_a_volume_is_refused() -> None:
    model = make_model([(0, 0.5, [1, 0], [0, 1])], 1)
    with pytest.raises(RequestError, match="has no bounds"):
        measure_stable_share(model, InputSpace.of_model(model), 0.1)
    with pytest.raises(RequestError, match="epsilon -1"):
        measure_stable_share(model, box_of(model, 0.0, 1.0), -1)


def test_boxes_as_thin_as_rounding_end_the_search() -> None:
    """The space lies within the rounding of a threshold: what is left has no cut, and no search decides it."""
    model = make_model([(0, 1e9, [1, 0], [0, 1])], 1)
    space = replace(box_of(model, 0.0, 1.0), lower=np.array([1e9]), upper=np.array([np.nextafter(1e9, 2e9)]))
    share = measure_stable_share(model, space, 0.0)
    assert 0 <= share.lower <= share.upper <= 1


def test_a_cell_that_is_hard_is_searched_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metasilvae.analysis.stable_share.STEPS_PER_BOX", 1)
    rng = random.Random(3)
    for _ in range(20):
        model = random_forest(rng, max_trees=4, max_splits=4, n_features=2).without_directions
        voting = random_voting(rng, model)
        share = measure_stable_share(model, box_of(model, -2.0, 2.0), 0.25, voting=voting)
        assert share.lower == share.upper == pytest.approx(share_of_cells(model, 0.25, voting, -2.0, 2.0), abs=1e-9)
