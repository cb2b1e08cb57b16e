"""Metrics of classes against counting by hand and against scikit-learn."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import data_of, make_model, models, points

from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning
from metasilvae.model import LeafKind, PredictionTable
from metasilvae.perturbations.boxes import Ball
from metasilvae.prediction import predict_proba
from metasilvae.verification.class_metrics import measure_classes, rank_area
from metasilvae.verification.metrics import evaluate
from metasilvae.verification.query import make_query
from metasilvae.verification.verdicts import Outcome, RowResults, Stability
from metasilvae.verification.verifier import verify


class Subject:
    def __init__(self, labels: tuple[str, ...], dataset: Dataset) -> None:
        self.model, self.dataset = make_model([[1] * len(labels)], 1, list(labels)), dataset


def subject_of(labels: str, truth: str) -> Subject:
    return Subject(tuple(labels), data_of([[0.0]] * len(truth), list(truth)))


def predicted(labels: str, *sets: str) -> PredictionTable:
    found = [tuple(sorted(labels.index(label) for label in each)) for each in sets]
    distinct = sorted(set(found))
    return PredictionTable(tuple(distinct), np.array([distinct.index(each) for each in found], dtype=np.int32))


def is_right(subject: Subject, table: PredictionTable) -> np.ndarray:
    labels = subject.model.labels
    truth = np.array([labels.index(name) if name in labels else -1 for name in subject.dataset.labels], dtype=np.int32)
    return table.are_correct(truth[subject.dataset.y])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcx"), st.sampled_from("abc")), min_size=1, max_size=30))
def test_scikit_learn_agrees_on_predictions(pairs: list[tuple[str, str]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    truth, guesses = ("".join(column) for column in zip(*pairs, strict=True))
    subject, table = subject_of("abc", truth), predicted("abc", *guesses)
    report = measure_classes(subject, RowResults(table, is_right(subject, table)))
    assert [each.label for each in report.classes] == ["a", "b", "c", *"x" * ("x" in truth)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = [each.label for each in report.classes]
        precision, recall, f1, rows = metrics.precision_recall_fscore_support(
            list(truth), list(guesses), labels=labels, zero_division=0
        )
        balanced = metrics.balanced_accuracy_score(list(truth), list(guesses))
    for place, found in enumerate(report.classes):
        assert found.rows == rows[place]
        for value, expected in ((found.recall, recall), (found.precision, precision), (found.f1, f1)):
            assert float(value or 0) == pytest.approx(expected[place])
    assert float(report.balanced_accuracy or 0) == pytest.approx(balanced)


def test_ties_count_for_no_class() -> None:
    subject, table = subject_of("ab", "aab"), predicted("ab", "a", "ab", "ab")
    a, b = measure_classes(subject, RowResults(table, is_right(subject, table))).classes
    assert (a.recall, a.precision, a.f1) == (Fraction(1, 2), 1, Fraction(2, 3))
    assert (b.recall, b.precision, b.f1, b.stability, b.robust_accuracy) == (0, 0, 0, None, None)


def test_classes_without_rows_are_not_defined_and_do_not_count() -> None:
    subject, table = subject_of("abc", "aa"), predicted("abc", "a", "b")
    report = measure_classes(subject, RowResults(table, is_right(subject, table)), np.zeros((2, 3)))
    a, b, c = report.classes
    assert (a.recall, b.recall, c.recall) == (Fraction(1, 2), None, None)
    assert (b.precision, c.precision, c.f1) == (0, None, None)
    assert report.balanced_accuracy == Fraction(1, 2)
    assert report.roc_auc is a.roc_auc is report.balanced_robust_accuracy is None
    assert report.of("c") is c
    assert report.of("d") is None


def test_undecided_rows_leave_an_interval() -> None:
    subject, table = subject_of("ab", "aaab"), predicted("ab", "a", "a", "b", "b")
    stability = np.array([Stability.STABLE, Stability.UNKNOWN, Stability.UNKNOWN, Stability.UNSTABLE], dtype=np.uint8)
    report = measure_classes(subject, Outcome(table, is_right(subject, table), stability))
    a, b = report.classes
    assert (a.stability, a.most_stability) == (Fraction(1, 3), 1)
    assert (a.robust_accuracy, a.most_robust_accuracy) == (Fraction(1, 3), Fraction(2, 3))
    assert (b.stability, b.most_stability, b.robust_accuracy) == (0, 0, 0)
    assert (report.balanced_robust_accuracy, report.most_balanced_robust_accuracy) == (Fraction(1, 6), Fraction(1, 3))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=12))
def test_the_area_counts_pairs(rows: list[tuple[int, bool]]) -> None:
    pairs = [(p, n) for p, is_positive in rows if is_positive for n, other in rows if not other]
    scores, positive = (np.array(column) for column in zip(*rows, strict=True))
    area = rank_area(scores.astype(np.float64), positive)
    if not pairs:
        assert area is None
        return
    assert area == sum((Fraction(p > n) + Fraction(p == n, 2) for p, n in pairs), Fraction(0)) / len(pairs)
    metrics = pytest.importorskip("sklearn.metrics")
    assert float(area) == pytest.approx(metrics.roc_auc_score(positive, scores))


def test_equal_fractions_stay_equal() -> None:
    model = make_model([(0, 0, [0, 3, 3, 4], [2, 4, 3, 1])], 1, list("abcd"), LeafKind.COUNTS)
    (found,) = evaluate(model, data_of([[0.0], [0.0], [0.0], [1.0]], list("abcd")))
    assert found.per_class is not None
    assert found.per_class.classes[2].roc_auc == Fraction(1, 2)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_scikit_learn_agrees_on_probabilities(data: st.DataObject) -> None:
    """One class against the rest; the numbers are such that sums are exact and equal probabilities stay equal."""
    metrics = pytest.importorskip("sklearn.metrics")
    voting = data.draw(st.sampled_from(["max", "average", "softargmax"]))
    n_labels = data.draw(st.integers(2, 4))
    kind = LeafKind.SCORES if voting == "softargmax" else LeafKind.COUNTS
    value = st.integers(0, 4) if kind is LeafKind.COUNTS else st.sampled_from([-1.5, 0.0, 0.25, 2.0])
    leaf = st.lists(value, min_size=n_labels, max_size=n_labels)
    if voting == "average":
        leaf = leaf.map(lambda row: [min(row[0], 4), 4 - min(row[0], 4), *[0] * (n_labels - 2)])
    elif voting == "max":
        leaf = leaf.filter(any)
    trees = data.draw(st.lists(st.tuples(st.just(0), st.integers(0, 3), leaf, leaf), min_size=1, max_size=3))
    model = make_model(trees, 1, list("abcd"[:n_labels]), kind)
    others = data.draw(st.lists(st.sampled_from(model.labels), max_size=8))
    truth = [*model.labels, *others]
    dataset = data_of([[float(data.draw(st.integers(0, 4)))] for _ in truth], truth)
    (found,) = evaluate(model, dataset, voting=voting)
    probabilities = predict_proba(model, dataset.X, voting).round(12)
    for number, label in enumerate(model.labels):
        expected = metrics.roc_auc_score([each == label for each in truth], probabilities[:, number])
        assert float(found.per_class.classes[number].roc_auc or 0) == pytest.approx(expected)
    whole = metrics.roc_auc_score(
        truth, probabilities if n_labels > 2 else probabilities[:, 1], multi_class="ovr", labels=list(model.labels)
    )
    assert float(found.per_class.roc_auc or 0) == pytest.approx(whole)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_classes_add_up_to_all_rows(data: st.DataObject) -> None:
    model = data.draw(models(max_trees=2, max_splits=4))
    X = data.draw(st.lists(points(model), min_size=1, max_size=6))
    labels = data.draw(st.lists(st.sampled_from([*model.labels, "?"]), min_size=len(X), max_size=len(X)))
    dataset = data_of(X, labels)
    if set(labels) == {"?"}:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MetasilvaeWarning)
        (found,) = evaluate(model, dataset, [Ball(1)])
        outcome = verify(make_query(model, dataset, Ball(1)))
    assert found.counts is not None
    classes = found.per_class.classes
    for name in ("correct", "stable", "robust"):
        assert sum(getattr(each, name) for each in classes) == getattr(found.counts, name)
    assert sum(each.rows for each in classes) == len(X)
    robust = (outcome.stability == Stability.STABLE) & outcome.is_correct
    for each in classes:
        rows = [row for row, label in enumerate(labels) if label == each.label]
        assert each.robust == sum(bool(robust[row]) for row in rows)


def test_scores_are_ranked_where_probabilities_are_rounded() -> None:
    """With scores of 50 and 60 both probabilities are 1 in float64."""
    stump = (0, 0.5, [0.0, 50.0], (0, 1.5, [0.0, 60.0], [0.0, -1.0]))
    model = make_model([stump], 1, ["n", "y"], LeafKind.SCORES)
    dataset = data_of([[0.0], [1.0], [2.0]], ["n", "y", "n"])
    (found,) = evaluate(model, dataset)
    assert found.per_class.roc_auc == 1
