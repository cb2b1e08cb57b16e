"""Reading and writing silva's model files."""

import gzip
import os
import random
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st
from support.oracles import LARGEST, LARGEST_COUNT, TINIEST, finite_numbers, make_model, models, nest

from metasilvae.cli import main
from metasilvae.errors import MetasilvaeWarning, ModelError, OutputError
from metasilvae.formats import silva_models
from metasilvae.formats.silva_models import format_model, parse_model, read_model, same_model, write_model
from metasilvae.model import LeafKind, Model

GOLDEN = Path(__file__).parents[3] / "shared" / "golden" / "models"

SMALL_TEXT = """\
classifier-decision-tree 3 2
yes no
SPLIT 2 0.5
LEAF 4 0
SPLIT 0 -1e-07
LEAF 1 1
LEAF 0 7
"""
SMALL_TREE = (2, 0.5, [4, 0], (0, -1e-7, [1, 1], [0, 7]))


def parse(text: str) -> Model:
    return parse_model(text.encode(), "m.silva")


def test_reads_a_tree():
    model = parse(SMALL_TEXT)
    assert nest(model) == SMALL_TREE
    assert same_model(model, make_model([SMALL_TREE], 3, ("yes", "no")))
    assert (model.n_features, model.labels, model.is_forest, model.source) == (
        3,
        ("yes", "no"),
        False,
        "m.silva",
    )
    assert model.leaf_values.dtype == np.int64
    assert model.leaf_kind is LeafKind.COUNTS


def test_reads_a_forest_of_scores():
    model = parse(
        "classifier-forest 2\n"
        "classifier-decision-tree 1 2\nx y \nSPLIT 0 1\nLEAF_LOGARITHMIC -0.25 0.000\nLEAF_LOGARITHMIC 1e3 2\n"
        "classifier-decision-tree 1 2\nx y \nLEAF_LOGARITHMIC 1 -1\n"
    )
    assert model.is_forest
    assert model.roots.tolist() == [0, 3]
    assert nest(model, 0) == (0, 1.0, [-0.25, 0.0], [1000.0, 2.0])
    assert nest(model, 1) == [1.0, -1.0]
    assert model.leaf_values.dtype == np.float64
    assert model.leaf_kind is LeafKind.SCORES


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", " "),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace(" ", "\n"),
        lambda text: text.replace(" ", "\t \v\f"),
        lambda text: "\n\n" + text.replace("\n", " \n\n") + "\n ",
        lambda text: text.rstrip("\n"),
        lambda text: "\ufeff" + text,
    ],
)
def test_any_white_space_separates(change):
    assert same_model(parse(change(SMALL_TEXT)), parse(SMALL_TEXT))


def test_reads_compressed_files_and_standard_input(tmp_path):
    path = tmp_path / "m.silva.gz"
    path.write_bytes(gzip.compress(SMALL_TEXT.encode()))
    assert same_model(read_model(str(path)), parse(SMALL_TEXT))
    result = CliRunner().invoke(main, ["info", "-"], input=SMALL_TEXT)
    assert result.exit_code == 0, result.output
    assert "3 leaves / 5 nodes" in result.output


def test_writes_canonical_text():
    assert format_model(parse(SMALL_TEXT)) == SMALL_TEXT
    assert format_model(parse(SMALL_TEXT.replace("0.5", "0.50e0").replace("\n", "  \n"))) == SMALL_TEXT
    scores = make_model([[0.0, -0.0, 1e22, 0.1]], 1, "abcd", LeafKind.SCORES)
    assert format_model(scores).splitlines()[-1] == "LEAF_LOGARITHMIC 0 -0 1e+22 0.1"


@given(models(simple_labels=False))
def test_round_trip_is_lossless(model):
    text = format_model(model)
    again = parse(text)
    assert same_model(model, again)
    assert np.array_equal(model.nodes, again.nodes)
    assert format_model(again) == text


@given(finite_numbers)
@example(TINIEST)
@example(LARGEST)
@example(-LARGEST)
@example(-0.0)
@example(1e22)
@example(9007199254740993.0)
def test_every_threshold_survives(number):
    model = make_model([(0, number, [1, 0], [0, 1])])
    assert parse(format_model(model)).nodes["threshold"][0].tobytes() == np.float64(number).tobytes()


@given(st.from_regex(r"[-+]?([0-9]{1,25}\.?[0-9]{0,25}|\.[0-9]{1,25})([eE][-+]?[0-9]{1,3})?", fullmatch=True))
@example("9007199254740993")
@example("-9007199254740993")
@example("00000000000000000000000000000000001")
@example("1" + "0" * 400 + "e-400")
@example("2.2250738585072011e-308")
@example("1e-400")
def test_numbers_are_read_as_python_reads_them(token):
    expected = float(token)
    text = f"classifier-decision-tree 1 2\na b\nSPLIT 0 {token}\nLEAF 1 0\nLEAF 0 1\n"
    if np.isinf(expected):
        with pytest.raises(ModelError, match=r"m\.silva:3: threshold .* is too large"):
            parse(text)
    else:
        assert parse(text).nodes["threshold"][0].tobytes() == np.float64(expected).tobytes()


@pytest.mark.parametrize("n_labels", [1, 65, 100, 10000])
def test_many_labels(n_labels):
    labels = [f"label{i}" for i in range(n_labels)]
    rows = np.random.default_rng(n_labels).integers(0, 3, size=(4, n_labels))
    rows[:, 0] = 1
    tree = (0, 1.5, (1, 2.5, rows[0].tolist(), rows[1].tolist()), rows[2].tolist())
    model = make_model([tree, rows[3].tolist()], 2, labels)
    again = parse(format_model(model))
    assert same_model(model, again)
    assert again.n_labels == n_labels


@pytest.mark.parametrize("side", ["left", "right"])
def test_chains_of_a_hundred_thousand_splits(side):
    n_splits = 100_000
    body = [f"SPLIT {i % 3} {i}" for i in range(n_splits)]
    leaves = ["LEAF 1 0"] * n_splits
    alternating = [line for pair in zip(body, leaves, strict=True) for line in pair]
    lines = [*body, *leaves] if side == "left" else alternating
    text = "classifier-decision-tree 3 2\na b\n" + "\n".join([*lines, "LEAF 0 1"]) + "\n"
    model = parse(text)
    assert model.max_depth == n_splits
    assert format_model(model) == text


def test_a_forest_of_ten_thousand_trees():
    rng = random.Random(5)
    trees = [(rng.randrange(4), rng.random(), [1, 0], [rng.randrange(9), 1]) for _ in range(10_000)]
    model = make_model(trees, 4)
    assert same_model(parse(format_model(model)), model)


def test_labels_of_later_trees_may_be_laid_out_differently():
    first = "classifier-decision-tree 1 2 a b LEAF 1 0\n"
    text = "classifier-forest 2 " + first + "classifier-decision-tree 1 2 a\nb LEAF 2 3"
    assert parse(text).leaf_values.tolist() == [[1, 0], [2, 3]]
    longer = text.replace("a\nb", "a bb")
    with pytest.raises(ModelError, match=r"m\.silva:2: label 2 of tree 2 of 2 is 'bb', in the first tree it is 'b'"):
        parse(longer)


def test_lines_are_counted_across_repeated_headers():
    tree = "classifier-decision-tree 1 2\na\nb\nLEAF 1 0\n"
    with pytest.raises(ModelError, match=r"m\.silva:13: "):
        parse("classifier-forest 3\n" + 2 * tree + tree.replace("LEAF 1", "LEAF -1"))


def test_a_forest_of_one_tree_stays_a_forest():
    text = "classifier-forest 1\n" + SMALL_TEXT
    assert parse(text).is_forest
    assert format_model(parse(text)) == text


def test_largest_count_survives():
    model = make_model([[LARGEST_COUNT, 0]])
    assert parse(format_model(model)).leaf_values.tolist() == [[LARGEST_COUNT, 0]]


def test_warns_once_of_tokens_after_the_model():
    with pytest.warns(MetasilvaeWarning) as caught:
        model = parse(SMALL_TEXT + "LEAF 1 1\nLEAF 2 2\n")
    assert [str(w.message) for w in caught] == [
        "m.silva:8: more tokens follow the end of the model, beginning with 'LEAF'; they are ignored"
    ]
    assert same_model(model, parse(SMALL_TEXT))
    with pytest.warns(MetasilvaeWarning, match="a file of several trees begins with classifier-forest"):
        parse(SMALL_TEXT + SMALL_TEXT)
    with pytest.warns(MetasilvaeWarning, match="the forest announces 1 trees"):
        parse("classifier-forest 1\n" + SMALL_TEXT + SMALL_TEXT)


def test_writing_what_was_pruned_skips_unused_leaves():
    model = make_model([(0, 5.0, (0, 6.0, [1, 0], [5, 5]), [0, 1])])
    pruned = model.feasible
    assert pruned.n_nodes == 3
    assert nest(parse(format_model(pruned))) == (0, 5.0, [1, 0], [0, 1])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (("a", "b c"), "label 'b c' contains a blank"),
        (("a", "b\tc"), "contains a blank"),
        (("a", "b,c"), "label 'b,c' contains a comma"),
        (("a", ""), "label '' is empty"),
        (("a", "x" * 32), "has 32 bytes, at most 31"),
        (("a", "é" * 16), "has 32 bytes, at most 31"),
        (("a", "\x01"), "control character"),
        (("a", "\ud800"), "cannot be written as UTF-8"),
        (("a", "a"), "labels that differ"),
    ],
)
def test_refuses_labels_that_the_format_cannot_hold(labels, message, tmp_path):
    path = tmp_path / "m.silva"
    with pytest.raises(ModelError, match=message):
        write_model(make_model([[1, 0]], labels=labels), str(path))
    assert not path.exists()


def test_label_of_31_bytes(tmp_path):
    path = str(tmp_path / "m.silva")
    write_model(make_model([[1, 0]], labels=("x" * 31, "é" * 15)), path)
    assert read_model(path).labels == ("x" * 31, "é" * 15)


def test_write_model_reads_back_what_it_wrote(tmp_path, monkeypatch):
    path = str(tmp_path / "m.silva")
    write_model(parse(SMALL_TEXT), path)
    assert Path(path).read_text() == SMALL_TEXT
    # A writer that loses digits must be caught.
    monkeypatch.setattr(silva_models, "shortest_decimals", lambda numbers: (f"{x:g}" for x in numbers.tolist()))
    with pytest.raises(OutputError, match="reads back differently"):
        write_model(make_model([(0, 1 / 3, [1, 0], [0, 1])]), path)
    with pytest.raises(OutputError, match=r"-: .*reads back differently"):
        write_model(make_model([(0, 1 / 3, [1, 0], [0, 1])]), "-")


def test_write_model_to_standard_output(capsysbinary):
    write_model(parse(SMALL_TEXT), "-")
    assert capsysbinary.readouterr().out == SMALL_TEXT.encode()


def test_write_model_to_a_device():
    write_model(parse(SMALL_TEXT), os.devnull)


def test_refuses_to_write_a_model_that_is_not_in_pre_order(tmp_path):
    model = make_model([SMALL_TREE], 3)
    left, right = model.nodes["left"].copy(), model.nodes["right"].copy()
    model.nodes["left"], model.nodes["right"] = right, left
    with pytest.raises(OutputError, match="reads back differently"):
        write_model(model, str(tmp_path / "m.silva"))


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="the published models are not here")
def test_published_models_read_and_write():
    paths = sorted(GOLDEN.iterdir())
    assert paths
    for path in paths:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = read_model(str(path))
        assert same_model(parse(format_model(model)), model)
