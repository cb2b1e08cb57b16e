"""``info``: the expected texts of single trees were printed by tree-info of the C programs."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from support.oracles import make_model

from metasilvae.analysis.summaries import Spread, label_entropy, summarize_model
from metasilvae.cli import main
from metasilvae.formats.silva_models import write_model
from metasilvae.model import LeafKind, Model

FOUR_LEAVES = (0, 1.5, (1, 0.5, [1, 1, 1], [5, 3, 1]), (1, 2.5, [4, 0, 0], [0, 3, 1]))
FOUR_LEAVES_INFO = """\
Tree Info: 4 leaves / 7 nodes
Heights:
  min:          2
  1st quartile: 2
  median:       2
  mean:         2
  3rd quartile: 2
  max:          2
  variance:     0
Number of samples per leaf:
  min:          3
  1st quartile: 4
  median:       4
  mean:         5
  3rd quartile: 9
  max:          9
  variance:     5.5
Entropy on leaves:
  min:          0
  1st quartile: 0.51186
  median:       0.852792
  mean:         0.591163
  3rd quartile: 1
  max:          1
  variance:     0.14784
Feature frequencies: [ 1 2 ]
"""
CHAIN = (0, 0.5, [1, 1], (1, 1.5, [4, 0], (0, 2.5, [8, 1], (1, 3.5, [16, 0], (0, 4.5, [0, 3], [7, 7])))))
CHAIN_INFO = """\
Tree Info: 6 leaves / 11 nodes
Heights:
  min:          1
  1st quartile: 2
  median:       4
  mean:         3.33333
  3rd quartile: 5
  max:          5
  variance:     2.22222
Number of samples per leaf:
  min:          2
  1st quartile: 3
  median:       9
  mean:         8
  3rd quartile: 14
  max:          16
  variance:     29.6667
Entropy on leaves:
  min:          0
  1st quartile: 0
  median:       0.503258
  mean:         0.41721
  3rd quartile: 1
  max:          1
  variance:     0.201481
Feature frequencies: [ 3 2 ]
"""
ONE_LEAF_INFO = """\
Tree Info: 1 leaves / 1 nodes
Heights:
  min:          0
  1st quartile: 0
  median:       0
  mean:         0
  3rd quartile: 0
  max:          0
  variance:     0
Number of samples per leaf:
  min:          2
  1st quartile: 2
  median:       2
  mean:         2
  3rd quartile: 2
  max:          2
  variance:     0
Entropy on leaves:
  min:          1
  1st quartile: 1
  median:       1
  mean:         1
  3rd quartile: 1
  max:          1
  variance:     0
Feature frequencies: [ 0 0 ]
"""


@pytest.fixture
def info(tmp_path):
    def run(model: Model, *arguments: str) -> str:
        path = str(tmp_path / "m.silva")
        write_model(model, path)
        result = CliRunner().invoke(main, ["info", path, *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    return run


@pytest.mark.parametrize(
    ("tree", "labels", "expected"),
    [(FOUR_LEAVES, "abc", FOUR_LEAVES_INFO), (CHAIN, "ab", CHAIN_INFO), ([1, 1], "ab", ONE_LEAF_INFO)],
)
def test_prints_what_tree_info_prints(info, tree, labels, expected):
    text = info(make_model([tree], 2, labels))
    assert text.startswith(expected)
    assert text[len(expected) :].startswith(f"Labels: {len(labels)} ({' '.join(labels)})\n")


def test_forest(info):
    forest = make_model([FOUR_LEAVES, [0, 0, 2]], 2, "abc")
    text = info(forest)
    assert text.startswith("Forest Info: 2 trees\nTree Info: 5 leaves / 8 nodes\nHeights:\n  min:          0\n")
    assert "Tree 0" not in text
    assert "\nTree 0\n" + FOUR_LEAVES_INFO + "\nTree 1\nTree Info: 1 leaves / 1 nodes\n" in info(forest, "--per-tree")


def test_boosted_leaves_have_no_counts(info):
    text = info(make_model([(0, 1.0, [0.5, -0.5], [0.0, 0.25])], kind=LeafKind.SCORES))
    assert "Number of samples per leaf: none, boosted leaves hold scores instead of counts" in text
    assert "Leaves hold: scores (LEAF_LOGARITHMIC)" in text


def test_counts_leaves_behind_contradictory_tests(info):
    text = info(make_model([(0, 5.0, (0, 6.0, [1, 0], (1, 0.0, [2, 0], [3, 0])), [0, 1])]))
    assert "Leaves behind contradictory tests: 2\n" in text


def test_json(info):
    document = json.loads(info(make_model([CHAIN, [2, 1]]), "--format", "json", "--per-tree"))
    assert document["kind"] == "forest"
    assert document["labels"] == ["a", "b"]
    assert document["n_leaves"] == 7
    assert [tree["n_leaves"] for tree in document["trees"]] == [6, 1]
    assert document["trees"][0]["heights"]["mean"] == pytest.approx(10 / 3)
    assert document["feature_frequencies"] == [3, 2]
    scores = json.loads(info(make_model([[0.5, 1.0]], kind=LeafKind.SCORES), "--format", "json"))
    assert scores["samples_per_leaf"] is None


def test_names_features_after_the_columns_of_data(info, tmp_path):
    data = tmp_path / "d.csv"
    data.write_text("class,width,height\na,1,2\nb,3,4\n")
    text = info(make_model([CHAIN]), str(data))
    assert text.startswith(CHAIN_INFO)
    assert text.endswith("Splits by feature:\n       3 width\n       2 height\n")


def test_many_labels_are_cut_short(info):
    text = info(make_model([[1] * 100], 1, [f"l{i}" for i in range(100)]))
    assert " l19 ... (80 more))\n" in text


@pytest.mark.parametrize("n", range(1, 14))
def test_quartiles_are_elements(n):
    spread = Spread.of(np.arange(n)[::-1].astype(float))
    assert (spread.first_quartile, spread.median, spread.third_quartile) == (n // 4, n // 2, 3 * n // 4)


def test_entropy_of_one_label_is_zero():
    assert label_entropy(np.array([[3.0]]), np.array([3.0])).tolist() == [0.0]
    assert summarize_model(make_model([[3]], 1, "a")).entropy.maximum == 0.0
