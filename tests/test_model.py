"""The model in memory, and the kernels that look at its structure."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.oracles import (
    feasible_leaves,
    leaf_of,
    make_model,
    models,
    nest,
    points,
    prediction_of,
    random_model,
    whole_space,
)

from metasilvae._core.model import structure
from metasilvae.errors import ModelError
from metasilvae.formats.silva_models import same_model
from metasilvae.model import NODE_DTYPE, LeafKind, PredictionTable, join_trees, name_kind


def test_a_node_is_the_same_record_for_numpy_and_c():
    assert NODE_DTYPE.itemsize == 24
    assert [NODE_DTYPE.fields[name][1] for name in ("threshold", "feature", "left", "right", "leaf")] == [
        0,
        8,
        12,
        16,
        20,
    ]
    # A typed view of the kernel checks names, kinds and offsets of the fields.
    nodes = make_model([(0, 0.5, [1, 0], [0, 1])]).nodes
    depths = np.empty(3, dtype=np.int32)
    structure.fill_depths(nodes, np.zeros(1, dtype=np.int32), depths)
    assert depths.tolist() == [0, 1, 1]
    swapped = np.dtype([(name, NODE_DTYPE[name]) for name in ("feature", "threshold", "left", "right", "leaf")])
    with pytest.raises(ValueError, match="Buffer dtype mismatch"):
        structure.fill_depths(np.zeros(3, dtype=swapped), np.zeros(1, dtype=np.int32), depths)


def leaves_in_order(model, position):
    """Leaves of one tree from left to right."""
    found, todo = [], [int(model.roots[position])]
    while todo:
        node = model.nodes[todo.pop()]
        if node["feature"] < 0:
            found.append(int(node["leaf"]))
        else:
            todo += [int(node["right"]), int(node["left"])]
    return found


def check_feasible(model):
    pruned = model.feasible
    for position in range(model.n_trees):
        expected = feasible_leaves(model, *whole_space(model.n_features), position)
        assert leaves_in_order(pruned, position) == [
            leaf for leaf in leaves_in_order(model, position) if leaf in expected
        ]
    assert same_model(pruned.feasible, pruned)
    # Pre-order, so that kernels walk forwards.
    inner = np.flatnonzero(pruned.nodes["feature"] >= 0)
    assert (pruned.nodes["left"][inner] == inner + 1).all()
    assert (pruned.nodes["right"][inner] > inner + 1).all()


@given(models(max_splits=12, max_features=2))
def test_feasible_keeps_exactly_the_leaves_that_a_sample_can_reach(model):
    check_feasible(model)


def test_feasible_of_thousands_of_random_trees():
    rng = random.Random(20)
    n_smaller = 0
    for _ in range(2000):
        model = random_model(rng, n_trees=rng.randint(1, 2))
        check_feasible(model)
        n_smaller += model.feasible is not model
    assert n_smaller > 1000


@given(st.data())
def test_feasible_classifies_every_sample_as_before(data):
    model = data.draw(models(max_splits=12))
    for x in data.draw(st.lists(points(model), min_size=1, max_size=4)):
        for position in range(model.n_trees):
            assert leaf_of(model.feasible, x, position) == leaf_of(model, x, position)


def test_feasible_at_the_ends_of_the_number_line():
    largest = np.finfo(float).max
    nothing_above = make_model([(0, largest, [1, 0], [0, 1])])
    assert nest(nothing_above.feasible) == [1, 0]
    smallest_alone = make_model([(0, -largest, [1, 0], [0, 1])])
    assert smallest_alone.feasible is smallest_alone
    repeated = make_model([(0, 1.0, (0, 1.0, [1, 0], [2, 0]), (0, 1.0, [3, 0], [0, 1]))])
    assert nest(repeated.feasible) == (0, 1.0, [1, 0], [0, 1])
    signed_zeros = make_model([(0, 0.0, (0, -0.0, [1, 0], [2, 0]), [0, 1])])
    assert nest(signed_zeros.feasible) == (0, 0.0, [1, 0], [0, 1])


def test_feasible_of_a_long_chain():
    n_splits = 50_000
    tree = [0, 1]
    for i in range(n_splits):
        tree = (i % 2, float(i // 2), tree, [1, 0])
    model = make_model([tree])
    assert model.max_depth == n_splits
    assert model.feasible is model
    backwards = [0, 1]
    for i in range(n_splits):
        backwards = (0, float(-i), backwards, [1, 0])
    assert nest(make_model([backwards]).feasible) == (0, float(-(n_splits - 1)), [0, 1], [1, 0])


@given(models())
def test_predictions_of_leaves_are_all_labels_with_the_largest_value(model):
    predictions = model.leaf_predictions
    expected = [prediction_of(row) for row in model.leaf_values.tolist()]
    assert [predictions.sets[number] for number in predictions.ids] == expected
    assert len(set(predictions.sets)) == len(predictions.sets)
    assert [(s[0] if len(s) == 1 else -1) for s in predictions.sets] == predictions.only_label.tolist()


def test_ties_among_more_than_64_labels():
    rows = np.zeros((3, 200), dtype=np.int64)
    rows[0, [3, 150]] = 7
    rows[1, 150] = 7
    rows[2, [3, 150]] = 2
    model = make_model(
        [(0, 1.0, rows[0].tolist(), (0, 2.0, rows[1].tolist(), rows[2].tolist()))], 1, list(map(str, range(200)))
    )
    predictions = model.leaf_predictions
    assert [predictions.sets[number] for number in predictions.ids] == [(3, 150), (150,), (3, 150)]
    assert predictions.ids[0] == predictions.ids[2] != predictions.ids[1]


def test_prediction_table_of_nothing():
    table = PredictionTable.of_best(np.zeros((0, 3), dtype=bool))
    assert table.sets == ()
    assert table.ids.tolist() == []


@given(models())
def test_depths_and_parents(model):
    for node, parent in enumerate(model.parents.tolist()):
        if parent < 0:
            assert node in model.roots
            assert model.depths[node] == 0
        else:
            assert node in (model.nodes["left"][parent], model.nodes["right"][parent])
            assert model.depths[node] == model.depths[parent] + 1
    assert model.max_depth == max(model.depths)


@given(models())
def test_a_forest_taken_apart_and_joined_is_the_same(model):
    trees = [model.tree(position) for position in range(model.n_trees)]
    assert all(not tree.is_forest and tree.n_trees == 1 for tree in trees)
    assert [nest(tree) for tree in trees] == [nest(model, position) for position in range(model.n_trees)]
    joined = join_trees(trees)
    assert joined.is_forest
    assert np.array_equal(joined.nodes, model.nodes)
    assert joined.roots.tolist() == model.roots.tolist()
    assert joined.leaf_values.tobytes() == model.leaf_values.tobytes()


def test_tree_of_a_pruned_forest():
    model = make_model([(0, 5.0, (0, 6.0, [1, 0], [9, 9]), [0, 1]), (1, 0.0, [4, 0], [0, 5])])
    assert nest(model.feasible.tree(1)) == (1, 0.0, [4, 0], [0, 5])
    assert nest(model.feasible.tree(0)) == (0, 5.0, [1, 0], [0, 1])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (make_model([[1, 0]], 3, source="b"), "b: its number of features \\(3\\) differs from that of a \\(2\\)"),
        (make_model([[1, 0]], 2, "ba", source="b"), "b: its labels \\(b a\\) differs? from that of a \\(a b\\)"),
        (make_model([[1.0, 0.0]], 2, kind=LeafKind.SCORES, source="b"), "b: its kind of leaves"),
    ],
)
def test_trees_that_do_not_belong_together_are_not_joined(other, message):
    with pytest.raises(ModelError, match=message):
        join_trees([make_model([[1, 0]], source="a"), other])


def test_tested_features():
    assert make_model([(3, 1.0, (1, 0.0, [1, 0], [0, 1]), [1, 0])], 5).tested_features.tolist() == [1, 3]
    assert make_model([[1, 0]]).tested_features.tolist() == []


def test_kinds_in_words() -> None:
    assert [name_kind(False, 1), name_kind(True, 1), name_kind(True, 2)] == [
        "tree",
        "forest of 1 tree",
        "forest of 2 trees",
    ]


def number_thresholds(model):
    """The plain twin of the kernel: sorts the distinct thresholds of each feature."""
    splits = model.nodes[model.nodes["feature"] >= 0]
    by_feature = [np.unique(splits["threshold"][splits["feature"] == f]) for f in range(model.n_features)]
    starts = np.cumsum([0, *map(len, by_feature)])
    numbers = [
        0 if feature < 0 else int(np.searchsorted(by_feature[feature], threshold))
        for threshold, feature in zip(model.nodes["threshold"], model.nodes["feature"], strict=True)
    ]
    return np.concatenate(by_feature), starts, np.array(numbers)


THRESHOLDS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, 1.7976931348623157e308, -1.7976931348623157e308]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
)


@given(st.lists(st.tuples(st.integers(0, 4), THRESHOLDS), min_size=1, max_size=60), st.integers(5, 7))
def test_thresholds_are_numbered_by_feature_and_size(tests, n_features):
    model = make_model([(f, k, [1, 0], [0, 1]) for f, k in tests], n_features=n_features)
    expected, found = number_thresholds(model), model.numbered_thresholds
    assert all(np.array_equal(one, other) for one, other in zip(expected, found, strict=True))
    assert model.numbered_thresholds is found


def test_a_model_without_splits_has_no_thresholds():
    thresholds, starts, numbers = make_model([[1, 0]], n_features=3).numbered_thresholds
    assert len(thresholds) == 0
    assert starts.tolist() == [0, 0, 0, 0]
    assert numbers.tolist() == [0]
