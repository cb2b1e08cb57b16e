"""The stable share of a space, against the cells between all values at which a perturbation passes a threshold."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import data_of, make_model
from support.proof_oracles import random_forest, random_voting

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
