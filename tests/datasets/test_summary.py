"""Facts about data sets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metasilvae.dataset import Dataset
from metasilvae.datasets.summary import describe_identifiers, describe_labels, find_duplicates, summarize_dataset


@settings(max_examples=500, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from([0.0, -0.0, 1.0, 2.0, 0.1]), st.sampled_from([0.0, 5.0])),
        min_size=1,
    )
)
def test_duplicates_against_all_pairs(rows: list[tuple[int, float, float]]) -> None:
    X = np.array([row[1:] for row in rows])
    y = np.array([row[0] for row in rows], np.int32)
    found = find_duplicates(X, y)
    same = [[row[1:] == other[1:] for other in rows] for row in rows]
    assert found.n_repeats == sum(any(same[i][:i]) for i in range(len(rows)))
    in_conflict = {
        i for i in range(len(rows)) if any(same[i][j] and rows[i][0] != rows[j][0] for j in range(len(rows)))
    }
    assert in_conflict <= {row for group in found.conflicts for row in group}
    assert all(any(row in in_conflict for row in group) for group in found.conflicts)
    assert found.n_conflicting_rows == sum(any(same[i][j] for j in in_conflict) for i in range(len(rows)))


def test_summary() -> None:
    X = np.array([[1.0, 5], [2, 5], [1, 5]])
    dataset = Dataset(X, np.array([0, 1, 1], np.int32), ("a", "b, c"), ("u", "v"), line_of_row=np.array([2, 3, 5]))
    summary = summarize_dataset(dataset)
    assert (summary.n_samples, summary.n_features) == (3, 2)
    assert summary.class_counts == {"a": 1, "b, c": 2}
    assert summary.minimum.tolist() == [1, 5]
    assert summary.maximum.tolist() == [2, 5]
    assert summary.constant_features == [1]
    assert summary.is_whole
    assert summary.duplicates.n_repeats == 1
    assert summary.oddities == [
        "1 constant feature, useless for splits: v",
        "2 rows have equal values but different labels, for instance lines 2, 5; "
        "no classifier predicts all of them correctly",
        "silva's model format cannot represent 1 of the labels: 'b, c' contains a comma",
    ]


def test_oddities_of_labels() -> None:
    one = Dataset(np.array([[0.5], [1]]), np.zeros(2, np.int32), ("x" * 32,))
    assert summarize_dataset(one).oddities == [
        f"every row has the label '{'x' * 32}'; a classifier needs two classes",
        f"silva's model format cannot represent 1 of the labels: '{'x' * 32}' has 32 bytes, at most 31 are allowed",
    ]
    assert not summarize_dataset(one).is_whole
    many = Dataset(np.arange(30.0).reshape(-1, 1), np.arange(30, dtype=np.int32), tuple(map(str, range(30))))
    assert summarize_dataset(many).oddities[0].startswith("30 different labels in 30 rows")


def test_negative_zero_equals_zero() -> None:
    assert find_duplicates(np.array([[0.0], [-0.0]]), np.zeros(2, np.int32)).n_repeats == 1


@pytest.mark.parametrize(
    ("name", "is_told"),
    [
        ("id", True), ("ID", True), ("customer_id", True), ("customerId", True), ("row", True), ("index", True),
        ("paid", False), ("valid", False), ("idea", False), ("width", False), ("arrow", False),
    ],
)  # fmt: skip
def test_numbers_that_name_rows(name: str, is_told: bool) -> None:
    X = np.column_stack([np.arange(30.0) * 7 + 1000, np.arange(30.0) % 4])
    dataset = Dataset(X, np.arange(30, dtype=np.int32) % 2, ("a", "b"), (name, "x"), "t")
    told = [sentence for sentence in summarize_dataset(dataset).oddities if "--id" in sentence]
    assert told == (
        [
            f"'{name}' is a different whole number in each row; if it names the rows, leave it out of the features "
            f"with --id {name}"
        ]
        if is_told
        else []
    )


def test_other_numbers_do_not_name_rows() -> None:
    y = np.arange(30, dtype=np.int32) % 2
    for values in (np.arange(30) % 29, np.arange(30) + 0.5, np.where(np.arange(30) == 3, np.nan, np.arange(30))):
        dataset = Dataset(values[:, None].astype(np.float64), y, ("a", "b"), ("id",), "t")
        assert describe_identifiers(dataset) == []
    few = Dataset(np.arange(5.0)[:, None], y[:5], ("a", "b"), ("id",), "t")
    assert describe_identifiers(few) == []


def test_labels_that_may_be_mistakes() -> None:
    labels = ("NaN", "1", "1.0", "a", "?", "1e0")
    dataset = Dataset(np.arange(12.0)[:, None], np.tile(np.arange(6, dtype=np.int32), 2), labels)
    assert [each for each in summarize_dataset(dataset).oddities if "label" in each][:3] == [
        "the label NaN is a class like others; if it stands for a missing label, delete these rows",
        "the label ? is a class like others; if it stands for a missing label, delete these rows",
        "the labels '1' and '1.0' and '1e0' are different classes, and the same number; write them alike",
    ]
    assert describe_labels(("1", "2", "a", "n/a")) == []
