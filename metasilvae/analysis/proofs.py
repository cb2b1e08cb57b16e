"""Proofs about all inputs of a space: insensitivity to features, monotonicity, and constant predictions.

A question about two inputs that differ in some features only is a search for a pair of inputs that satisfies linear
constraints on their scores (metasilvae.analysis.input_pairs): for instance, label a is ahead at the first input and
label b at the second one. The search is complete: without a limit it ends with a pair or with a proof that there is
none. Pairs are classified again by the model before they are returned.
"""

from __future__ import annotations

import enum
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from metasilvae.analysis.input_pairs import Constraint, JointInputs, PairFinder, find_exact_scores, lead
from metasilvae.analysis.spaces import InputSpace
from metasilvae.dataset import Dataset
from metasilvae.errors import RequestError
from metasilvae.model import LeafKind, Model
from metasilvae.perturbations.boxes import Boxes
from metasilvae.prediction import predict
from metasilvae.verification.budget import Budget, RemainingBudget
from metasilvae.verification.query import VerificationQuery
from metasilvae.verification.targets import find_label
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import find_witnesses, verify
from metasilvae.voting import VOTINGS, choose_voting

FloatArray = NDArray[np.float64]
Labels = tuple[str, ...]
DIRECTIONS = ("up", "down")
OBJECTS = ("prediction", "score")


class ProofStatus(enum.Enum):
    """Result of a proof."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class InputPair:
    """Two inputs that refute a property.

    Attributes
    ----------
    first, second : float64 arrays, shape (n_features,)
        NaN for missing values.
    predictions : two tuples of str
        Labels that the model predicts.
    leads : two floats, or None
        For questions about margins or scores: the lead of the best label, or the score that `Proof.lead_name` names.
    """

    first: FloatArray
    second: FloatArray
    predictions: tuple[Labels, Labels]
    leads: tuple[float, float] | None = None

    @property
    def changed(self) -> list[int]:
        """Features in which the inputs differ."""
        is_equal = (self.first == self.second) | (np.isnan(self.first) & np.isnan(self.second))
        return [int(f) for f in np.flatnonzero(~is_equal)]


@dataclass(frozen=True)
class Proof:
    """The answer to a question about all inputs of a space.

    Attributes
    ----------
    claim : str
        What is proved or refuted.
    pair : InputPair or None
        Two inputs that refute it.
    reason : str or None
        Why the result is undecided, if it is.
    n_steps : int
        Boxes that were searched.
    lead_name : str
        What the leads of the pair are.
    """

    model: Model
    space: InputSpace
    voting: str
    claim: str
    status: ProofStatus
    pair: InputPair | None = None
    reason: str | None = None
    n_steps: int = 0
    seconds: float = 0.0
    lead_name: str = "margin"


def _name_predictions(model: Model, X: FloatArray, voting: str) -> tuple[Labels, Labels]:
    table = predict(model, X, voting)
    first, second = (tuple(model.labels[label] for label in table.sets[number]) for number in table.ids)
    return first, second


@dataclass(frozen=True)
class _Question:
    """What is asked about two inputs: each list of constraints describes some of the pairs that refute the claim.

    Attributes
    ----------
    refutes : function of two label sets
        Whether these predictions of a pair refute the claim; checked again with the model itself.
    shown : function of exact scores
        What a report shows beside the predictions of an input; None if it shows nothing.
    """

    claim: str
    searches: list[list[Constraint]]
    refutes: Callable[[Labels, Labels], bool]
    shown: Callable[[Sequence[Fraction]], Fraction] | None = None
    lead_name: str = "margin"


def _answer(
    model: Model,
    voting: str,
    inputs: JointInputs,
    question: _Question,
    budget: Budget | None,
    stop: threading.Event | None,
    on_fraction: Callable[[float], object],
) -> Proof:
    start = time.perf_counter()
    remaining = RemainingBudget(budget or Budget(), threading.Event() if stop is None else stop)
    finder = PairFinder(model, voting, inputs, remaining)
    found, reason = None, None
    n_searches = len(question.searches)

    def follow(n_done: int, fraction: float) -> None:
        on_fraction((n_done + fraction) / n_searches)

    for number, constraints in enumerate(question.searches):
        found, reason = finder.find(constraints, partial(follow, number))
        if found is not None or reason is not None:
            break
    result = Proof(
        model, inputs.space, voting, question.claim, ProofStatus.PROVED if reason is None else ProofStatus.UNDECIDED,
        reason=reason, n_steps=finder.n_steps, lead_name=question.lead_name,
    )  # fmt: skip
    if found is not None:
        X = np.stack(found)
        predictions = _name_predictions(model, X, voting)
        if not (inputs.space.holds(X).all() and question.refutes(*predictions)):
            raise AssertionError("a pair of inputs does not refute the claim")
        leads = None
        if question.shown is not None:
            exact = find_exact_scores(model, X, VOTINGS[voting].score(model))
            first, second = (_as_float(question.shown(each)) for each in exact)
            leads = first, second
        result = replace(result, status=ProofStatus.REFUTED, pair=InputPair(*found, predictions, leads))
    return replace(result, seconds=time.perf_counter() - start)


# Questions.


def prove_insensitive(
    model: Model,
    features: Iterable[int],
    space: InputSpace | None = None,
    *,
    margin: float = 0.0,
    voting: str | None = None,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
    on_fraction: Callable[[float], object] = lambda fraction: None,
) -> Proof:
    """Prove that two inputs which differ only in some features get the same prediction, or find two that do not.

    Parameters
    ----------
    features : iterable of int
        A member of a one-hot group stands for its whole group.
    space : InputSpace or None
        None means all inputs.
    margin : float
        Only pairs count in which the prediction of each input is one label, ahead of every other label by at least this
        margin: in votes or sums of fractions divided by the number of trees, or in sums of scores (`LeafKind.SCORES`).
    budget : Budget or None
        Work allowed for the whole proof; None means no limit.
    """
    voting, space = choose_voting(model, voting), InputSpace.of_model(model) if space is None else space
    own = _with_groups(space, features)
    least = _in_scores(model, margin)
    labels = range(model.n_labels)
    searches = []
    for one, other in permutations(labels, 2):
        sum_of_leads = Constraint(lead(one, other), lead(other, one), 2 * least, is_strict=least == 0)
        ahead = [Constraint(lead(one, label), {}, least) for label in labels if label != one]
        if least > 0:
            ahead += [Constraint({}, lead(other, label), least) for label in labels if label != other]
        else:
            # Of two labels, one search covers ties on both sides.
            ahead.append(Constraint({}, lead(other, one), is_strict=model.n_labels > 2))
        if one < other or (least == 0 and model.n_labels > 2):
            searches.append([sum_of_leads, *ahead])
    names = _join_names(model, own)
    claim = f"inputs that differ only in {names} get the same prediction"
    if margin > 0:
        claim = f"no two inputs that differ only in {names} get different predictions with a margin of {margin:g}"
    shown = None if least == 0 else partial(_show_lead, model)
    question = _Question(claim, searches, lambda one, other: set(one) != set(other), shown)
    return _answer(model, voting, JointInputs(space, own, [], []), question, budget, stop, on_fraction)


def prove_monotone(
    model: Model,
    directions: Mapping[int, str],
    space: InputSpace | None = None,
    *,
    target: str | None = None,
    of: str = "prediction",
    margin: float = 0.0,
    voting: str | None = None,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
    on_fraction: Callable[[float], object] = lambda fraction: None,
) -> Proof:
    """Prove that raising (or lowering) some features never makes a label less likely, or find two inputs where it does.

    Parameters
    ----------
    directions : mapping from int to str
        For each feature ``up`` if raising it, ``down`` if lowering it must not harm the label. Values of these features
        are not missing.
    target : str or None
        The label; None means 1 of the labels 0 and 1, or -1 and 1.
    of : str
        ``prediction``: if the label is predicted (alone), it is predicted (alone) after the change too. ``score``: its
        score does not fall; that is its lead over the other one of two labels, or its votes or the sum of its fractions
        if there are several.
    margin : float
        Only pairs count in which the score falls by at least the margin; for predictions, in which the label is ahead
        of all others by the margin before the change, and behind one of them by the margin after it. In the unit of
        `prove_insensitive`.
    """
    voting, space = choose_voting(model, voting), InputSpace.of_model(model) if space is None else space
    label, least = _find_target(model, target), _in_scores(model, margin)
    unknown = [direction for direction in directions.values() if direction not in DIRECTIONS]
    if unknown or not directions:
        raise RequestError(f"direction {unknown[0] if unknown else ''!r}: choose up or down for one feature or more")
    if of not in OBJECTS:
        raise RequestError(f"monotone {of!r}: choose among {', '.join(OBJECTS)}")
    grouped = [f for f in directions if any(f in group.features for group in space.groups.groups)]
    if grouped:
        raise RequestError(
            f"{model.names.names[grouped[0]]} belongs to a category or one-hot group, which has no direction; "
            "name columns with numbers"
        )
    rising = sorted(f for f, direction in directions.items() if direction == "up")
    falling = sorted(f for f, direction in directions.items() if direction == "down")
    inputs = JointInputs(space, sorted(directions), rising, falling)
    question = (_ask_score if of == "score" else _ask_prediction)(model, voting, label, least)
    ways = (("raising", rising), ("lowering", falling))
    words = [f"{word} {_join_names(model, some)}" for word, some in ways if some]
    claim = f"{' and '.join(words)} never {question.claim}" + (f" by {margin:g} or more" if margin > 0 else "")
    return _answer(model, voting, inputs, replace(question, claim=claim), budget, stop, on_fraction)


def _ask_score(model: Model, voting: str, label: int, least: Fraction) -> _Question:
    """Pairs in which the score of a label falls."""
    others = [each for each in range(model.n_labels) if each != label]
    if len(others) > 1 and voting == "softargmax":
        raise RequestError(
            f"{model.source} has {model.n_labels} labels and leaves with scores, of which only differences matter; "
            "ask for the prediction instead (--of prediction)"
        )
    before, after = {label: 1}, {label: -1}
    if len(others) == 1:
        before, after = lead(label, others[0]), lead(others[0], label)

    def show(scores: Sequence[Fraction]) -> Fraction:
        total = scores[label] - (scores[others[0]] if len(others) == 1 else 0)
        return total / _unit(model)

    claim = f"lowers the score of {model.labels[label]}"
    return _Question(
        claim,
        [[Constraint(before, after, least, is_strict=least == 0)]] if others else [],
        lambda one, other: True,
        show,
        f"score of {model.labels[label]}",
    )


def _ask_prediction(model: Model, voting: str, label: int, least: Fraction) -> _Question:
    """Pairs in which a label is predicted, or predicted alone, at the first input only."""
    others = [each for each in range(model.n_labels) if each != label]
    searches = []
    for other in others:
        # One of the two comparisons is strict; of two labels, the sum of both leads is.
        for is_strict in (False, True) if len(others) > 1 and least == 0 else (False,):
            sum_of_leads = Constraint(lead(label, other), lead(other, label), 2 * least, is_strict=least == 0)
            ahead = [Constraint(lead(label, each), {}, least, is_strict) for each in others]
            is_behind = len(others) > 1 and least == 0 and not is_strict
            searches.append([sum_of_leads, *ahead, Constraint({}, lead(other, label), least, is_behind)])
    name = model.labels[label]

    def refutes(one: Labels, other: Labels) -> bool:
        return (name in one and name not in other) or (one == (name,) and other != (name,))

    shown = None if least == 0 else partial(_show_lead, model)
    return _Question(f"changes the prediction away from {name}", searches, refutes, shown)


def prove_constant(
    model: Model,
    space: InputSpace,
    *,
    voting: str | None = None,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
) -> Proof:
    """Prove that all inputs of a space get the same prediction, or find two that do not."""
    start = time.perf_counter()
    voting = choose_voting(model, voting)
    n_features = model.n_features
    inputs = JointInputs(space, [], [], [])
    lower, upper, missing = inputs.box
    point, _ = inputs.choose(np.stack([lower, upper]))
    sample = Dataset(point[np.newaxis].copy(), np.zeros(1, dtype=np.int32), model.labels, source=space.description)
    low, high = lower[np.newaxis].copy(), upper[np.newaxis].copy()
    nothing, endless = np.zeros(n_features), np.full(n_features, np.inf)
    droppable = missing[np.newaxis].copy() if missing.any() else None
    boxes = Boxes(low, high, nothing, nothing, -endless, endless, space.groups, space.domains, droppable, space.allowed)
    query = VerificationQuery(model, sample, sample.y, boxes, space.groups, voting)
    outcome = verify(query, 1, budget=budget, stop=stop)
    result = Proof(model, space, voting, "all inputs get the same prediction", ProofStatus.PROVED)
    if outcome.stability[0] == Stability.UNKNOWN:
        result = replace(result, status=ProofStatus.UNDECIDED, reason=outcome.reasons.get(0))
    elif outcome.stability[0] == Stability.UNSTABLE:
        (witness,) = find_witnesses(query, outcome, 1)
        X = np.stack([point, witness.point])
        predictions = _name_predictions(model, X, voting)
        if set(predictions[0]) == set(predictions[1]) or not space.holds(X).all():
            raise AssertionError("a pair of inputs does not refute the claim")
        result = replace(result, status=ProofStatus.REFUTED, pair=InputPair(X[0], X[1], predictions))
    return replace(result, seconds=time.perf_counter() - start)


def _with_groups(space: InputSpace, features: Iterable[int]) -> list[int]:
    """Features, and with a member of a group the whole group."""
    own = set(features)
    for group in space.groups.groups:
        if own & set(group.features):
            own |= set(group.features)
    if not own:
        raise RequestError("name one feature or more")
    return sorted(own)


def _unit(model: Model) -> int:
    """What sums over all trees are divided by in reports and margins: votes and fractions are means over the trees."""
    return model.n_trees if model.leaf_kind is LeafKind.COUNTS else 1


def _in_scores(model: Model, margin: float) -> Fraction:
    """A margin in the unit of sums over all trees."""
    if not margin >= 0 or math.isinf(margin):
        raise RequestError(f"margin {margin!r}: a margin is a number, 0 or more")
    return Fraction(margin) * _unit(model)


def _as_float(number: Fraction) -> float:
    """The nearest float64, infinite for larger numbers."""
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, number)


def _show_lead(model: Model, scores: Sequence[Fraction]) -> Fraction:
    """How far the best label is ahead of the next one."""
    *_, second, first = sorted(scores)
    return (first - second) / _unit(model)


def _find_target(model: Model, target: str | None) -> int:
    if target is None:
        if set(model.labels) in ({"0", "1"}, {"-1", "1"}):
            return model.labels.index("1")
        raise RequestError(f"name the label that must not become less likely (--target): {', '.join(model.labels)}")
    return find_label(model, target)


def _join_names(model: Model, features: Sequence[int]) -> str:
    encoding = model.encoding
    if encoding is None:
        names = [model.names.names[f] for f in features]
    else:
        names = list(dict.fromkeys(encoding.columns[encoding.column_of_feature[f]].name for f in features))
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
