"""Proofs about all inputs, against enumeration of inputs between all thresholds."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import LARGEST, elect, make_model, numbers, prediction_of
from support.proof_oracles import (
    exists,
    inputs_of,
    is_sensitive,
    leads_of,
    pairs_of,
    random_forest,
    random_space,
    random_voting,
    totals_of,
)

from metasilvae.analysis import input_pairs
from metasilvae.analysis.input_pairs import choose_number
from metasilvae.analysis.proofs import InputPair, Proof, ProofStatus, prove_constant, prove_insensitive, prove_monotone
from metasilvae.analysis.spaces import InputSpace
from metasilvae.errors import RequestError
from metasilvae.model import LeafKind, Model
from metasilvae.verification.budget import STEPS, Budget

seeds = st.integers(0, 2**32)
MARGINS = (0.0, 0.0, 0.25, 1 / 3, 0.5, 1.0)


def unit_of(model: Model) -> int:
    return model.n_trees if model.leaf_kind is LeafKind.COUNTS else 1


def check_pair(pair: InputPair | None, proof: Proof, own: set[int]) -> InputPair:
    assert pair is not None
    assert proof.space.holds(np.stack([pair.first, pair.second])).all()
    assert set(pair.changed) <= own
    for x, labels in zip((pair.first, pair.second), pair.predictions, strict=True):
        assert {proof.model.labels[i] for i in elect(proof.model, x.tolist(), proof.voting)} == set(labels)
    return pair


def with_group(space: InputSpace, own: list[int]) -> set[int]:
    return set(own).union(*(group.features for group in space.groups.groups if set(group.features) & set(own)))


@settings(max_examples=250)
@given(seeds)
def test_insensitivity_is_that_of_all_pairs(seed: int) -> None:
    rng = random.Random(seed)
    model = random_forest(rng)
    space, voting = random_space(rng, model), random_voting(rng, model)
    own = with_group(space, rng.sample(range(model.n_features), rng.randint(1, 2)))
    margin = rng.choice(MARGINS)
    proof = prove_insensitive(model, own, space, margin=margin, voting=voting)
    least = Fraction(margin) * unit_of(model)
    expected = exists(
        pairs_of(model, space, voting, sorted(own)), lambda x, z, first, second: is_sensitive(first, second, least)
    )
    assert proof.status is (ProofStatus.REFUTED if expected else ProofStatus.PROVED)
    if expected:
        pair = check_pair(proof.pair, proof, own)
        scores = [totals_of(model, x.tolist(), voting) for x in (pair.first, pair.second)]
        assert is_sensitive(*scores, least)


@settings(max_examples=250)
@given(seeds)
def test_monotonicity_is_that_of_all_pairs(seed: int) -> None:
    rng = random.Random(seed)
    model = random_forest(rng)
    space, voting = random_space(rng, model), random_voting(rng, model)
    grouped = {f for group in space.groups.groups for f in group.features}
    free = [f for f in range(model.n_features) if f not in grouped]
    if not free:
        return
    directions = {f: rng.choice(["up", "down"]) for f in rng.sample(free, rng.randint(1, min(2, len(free))))}
    label, margin = rng.randrange(model.n_labels), rng.choice(MARGINS)
    of = "prediction" if model.n_labels > 2 and voting == "softargmax" else rng.choice(["prediction", "score"])
    least = Fraction(margin) * unit_of(model)
    proof = prove_monotone(model, directions, space, target=model.labels[label], of=of, margin=margin, voting=voting)

    def is_ordered(x: tuple[float, ...], z: tuple[float, ...]) -> bool:
        return all(x[f] <= z[f] if way == "up" else x[f] >= z[f] for f, way in directions.items())

    def harms(first: list[Fraction], second: list[Fraction]) -> bool:
        if of == "score":
            before, after = (t[label] - (t[1 - label] if model.n_labels == 2 else 0) for t in (first, second))
            return before - after >= least and before > after
        if least:
            return all(lead >= least for lead in leads_of(first, label)) and min(leads_of(second, label)) <= -least
        one, other = prediction_of(first), prediction_of(second)
        return (label in one and label not in other) or (one == (label,) and other != (label,))

    expected = exists(
        pairs_of(model, space, voting, list(directions)),
        lambda x, z, first, second: is_ordered(x, z) and harms(first, second),
    )
    assert proof.status is (ProofStatus.REFUTED if expected else ProofStatus.PROVED)
    if expected:
        pair = check_pair(proof.pair, proof, set(directions))
        assert is_ordered(tuple(pair.first), tuple(pair.second))
        assert harms(*(totals_of(model, x.tolist(), voting) for x in (pair.first, pair.second)))


@settings(max_examples=250)
@given(seeds)
def test_a_constant_prediction_is_that_of_all_inputs(seed: int) -> None:
    rng = random.Random(seed)
    model = random_forest(rng)
    space, voting = random_space(rng, model), random_voting(rng, model)
    proof = prove_constant(model, space, voting=voting)
    found = {elect(model, x, voting) for x in inputs_of(model, space)}
    assert proof.status is (ProofStatus.PROVED if len(found) == 1 else ProofStatus.REFUTED)
    if len(found) > 1:
        pair = check_pair(proof.pair, proof, set(range(model.n_features)))
        assert pair.predictions[0] != pair.predictions[1]


@settings(max_examples=100)
@given(seeds)
def test_trees_that_are_too_large_to_be_joined_take_part_twice(seed: int) -> None:
    rng = random.Random(seed)
    model = random_forest(rng)
    space, voting = random_space(rng, model), random_voting(rng, model)
    own = with_group(space, [rng.randrange(model.n_features)])
    expected = prove_insensitive(model, own, space, voting=voting).status
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(input_pairs, "MIN_PAIRS", rng.randint(0, 3))
        patch.setattr(input_pairs, "MAX_PAIRS_PER_LEAF", 0)
        assert prove_insensitive(model, own, space, voting=voting).status is expected


@pytest.mark.parametrize(
    ("lower", "upper", "chosen"),
    [
        (-LARGEST, LARGEST, 0.0),
        (5e-324, LARGEST, 1.0),
        (-LARGEST, -3.25, -6.0),
        (0.49, 0.52, 0.5),
        (0.4999999, 0.50000001, 0.5),
        (1.0, 1.0, 1.0),
        (0.1, math.nextafter(0.1, 1.0), 0.1),
        (-0.75, 2.0, 0.6),
        (LARGEST, LARGEST, LARGEST),
    ],
)
def test_a_chosen_number_is_short_and_inside(lower: float, upper: float, chosen: float) -> None:
    assert choose_number(lower, upper) == chosen


@given(numbers, numbers)
def test_a_chosen_number_is_inside(one: float, other: float) -> None:
    lower, upper = sorted((one, other))
    assert lower <= choose_number(lower, upper) <= upper


STUMPS = [(0, 0.0, [0.0, 1.0], [0.0, -1.0]), (1, 0.0, [0.0, -0.5], [0.0, 0.5])]


def test_a_feature_that_is_not_tested_does_not_matter() -> None:
    model = make_model(STUMPS, 3, ("0", "1"), LeafKind.SCORES)
    assert prove_insensitive(model, [2]).status is ProofStatus.PROVED
    assert prove_insensitive(model, [0]).status is ProofStatus.REFUTED


def test_a_margin_excludes_pairs_near_the_boundary() -> None:
    """The scores are 1.5, 0.5, -0.5 and -1.5: feature 0 changes the sign, and at most 0.5 is left on both sides."""
    model = make_model(STUMPS, 2, ("0", "1"), LeafKind.SCORES)
    assert prove_insensitive(model, [0], margin=0.5).status is ProofStatus.REFUTED
    assert prove_insensitive(model, [0], margin=0.51).status is ProofStatus.PROVED
    pair = prove_insensitive(model, [0, 1], margin=1.5).pair
    assert pair is not None
    assert pair.leads == (1.5, 1.5)


def test_the_positive_label_of_zero_and_one_is_one() -> None:
    model = make_model(STUMPS, 2, ("0", "1"), LeafKind.SCORES)
    assert prove_monotone(model, {0: "down"}, of="score").status is ProofStatus.PROVED
    assert prove_monotone(model, {0: "up"}, of="score").status is ProofStatus.REFUTED
    assert prove_monotone(model, {0: "down", 1: "up"}).status is ProofStatus.PROVED
    # The prediction never becomes worse, although the score does.
    assert prove_monotone(model, {1: "down"}).status is ProofStatus.PROVED
    assert prove_monotone(model, {1: "down"}, of="score").status is ProofStatus.REFUTED


def test_a_limit_leaves_the_question_open() -> None:
    rng = random.Random(4)
    trees = [
        (f, rng.random(), (g, rng.random(), [0.0, rng.random()], [0.0, -rng.random()]), [0.0, rng.random() - 0.5])
        for f in range(6) for g in range(6) for _ in range(4)
    ]  # fmt: skip
    model = make_model(trees, 6, ("0", "1"), LeafKind.SCORES)
    proof = prove_insensitive(model, [0], margin=1.0, budget=Budget(steps=1))
    full = prove_insensitive(model, [0], margin=1.0)
    assert full.status is not ProofStatus.UNDECIDED
    if full.n_steps > 1:
        assert (proof.status, proof.reason) == (ProofStatus.UNDECIDED, STEPS)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda model: prove_insensitive(model, []), "name one feature or more"),
        (lambda model: prove_insensitive(model, [0], margin=-1.0), "margin -1.0"),
        (lambda model: prove_insensitive(model, [0], margin=float("nan")), "margin nan"),
        (lambda model: prove_monotone(model, {0: "up"}), "--target): a, b, c"),
        (lambda model: prove_monotone(model, {0: "up"}, target="d"), "target 'd'"),
        (lambda model: prove_monotone(model, {0: "sideways"}, target="a"), "'sideways': choose up or down"),
        (lambda model: prove_monotone(model, {0: "up"}, target="a", of="all"), "monotone 'all'"),
        (lambda model: prove_monotone(model, {0: "up"}, target="a", of="score"), "only differences matter"),
    ],
)
def test_questions_that_make_no_sense_are_refused(ask, message: str) -> None:
    model = make_model([(0, 0.0, [1.0, 0.0, 0.0], [0.0, 1.0, 0.0])], 2, ("a", "b", "c"), LeafKind.SCORES)
    with pytest.raises(RequestError) as caught:
        ask(model)
    assert message in str(caught.value)
