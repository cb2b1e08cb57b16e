"""Drawings of trees: what they tell is true, and boxes and words have room."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.oracles import data_of, leaf_of, make_model, models, points, random_model

pytest.importorskip("matplotlib", reason="needs the extra plot")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch, PathPatch, Rectangle
from matplotlib.text import Text
from support.command import run, write
from support.pictures import texts_of_figure, texts_of_svg

from metasilvae.dataset import Dataset
from metasilvae.encoding import CATEGORY, Column, Encoding
from metasilvae.errors import RequestError
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import parse_model, read_model, write_model
from metasilvae.model import MISSING_LEFT, MISSING_RIGHT, LeafKind, Model, ModelDescription
from metasilvae.output.plots.canvas import blend, colour_of
from metasilvae.output.plots.trees import DIRECTIONS, MOST_LEAVES, MOST_ON_A_PAGE, draw_tree, gather_facts, place_boxes

single_trees = models(max_trees=1, kinds=[LeafKind.COUNTS])


def boxes_of(figure: object) -> list[FancyBboxPatch]:
    return [each for each in figure.findobj(FancyBboxPatch) if each.axes is not None]  # type: ignore[attr-defined]


def chain(n_splits: int) -> Model:
    """Every split has a leaf on its left side."""
    nodes = "".join(f"SPLIT 0 {number}\nLEAF 1 0\n" for number in range(n_splits))
    return parse_model(f"classifier-decision-tree 1 2 a b\n{nodes}LEAF 0 1\n".encode(), "chain.silva")


@given(single_trees, st.integers(0, 2**32), st.sampled_from([0.0, 0.25]))
def test_boxes_of_a_level_keep_apart_and_parents_stand_in_the_middle(tree: Model, seed: int, gap: float) -> None:
    facts = gather_facts(tree)
    breadths = np.random.default_rng(seed).uniform(0.1, 3, len(facts.boxes)).tolist()
    centres = place_boxes([box.children for box in facts.boxes], breadths, gap)
    assert min(centre - breadth / 2 for centre, breadth in zip(centres, breadths, strict=True)) == pytest.approx(0)
    levels: dict[int, list[int]] = {}
    for position, box in enumerate(facts.boxes):
        levels.setdefault(facts.depth(box), []).append(position)
        if box.children is not None:
            left, right = box.children
            assert centres[position] == pytest.approx((centres[left] + centres[right]) / 2)
    for level in levels.values():
        for one, other in pairwise(level):
            distance = centres[other] - centres[one]
            assert distance >= (breadths[one] + breadths[other]) / 2 + gap - 1e-9


@given(st.data())
def test_facts_are_those_of_a_slow_count(data: st.DataObject) -> None:
    tree = data.draw(single_trees)
    rows = data.draw(st.lists(points(tree), min_size=1, max_size=6))
    labels = data.draw(st.lists(st.sampled_from(tree.labels), min_size=len(rows), max_size=len(rows)))
    epsilon = data.draw(st.sampled_from([0.0, 0.5, 1.0]))
    dataset = data_of(rows, labels)
    for box in gather_facts(tree, dataset, epsilon).boxes:
        node = tree.nodes[box.node]
        below = leaves_below(tree, box.node)
        here = [row for row in range(len(rows)) if leaf_of(tree, rows[row]) in below]
        assert box.n_leaves == len(below)
        assert box.values is not None
        assert box.values.tolist() == pytest.approx(tree.leaf_values[sorted(below)].sum(axis=0, dtype=float).tolist())
        assert box.rows == len(here)
        if node["feature"] < 0:
            prediction = tree.leaf_predictions.sets[tree.leaf_predictions.ids[node["leaf"]]]
            named = [tree.labels[label] for label in prediction]
            assert box.correct_rows == sum(named == [labels[row]] for row in here)
            continue
        values = [rows[row][node["feature"]] for row in here]
        with np.errstate(over="ignore"):
            assert box.margin == min((abs(np.float64(x) - node["threshold"]) for x in values), default=None)
        assert box.near_rows == sum(x - epsilon <= node["threshold"] < x + epsilon for x in values)


def leaves_below(tree: Model, node: int) -> set[int]:
    waiting, found = [node], set()
    while waiting:
        _, feature, left, right, leaf = tree.nodes[waiting.pop()].item()
        if feature < 0:
            found.add(leaf)
        else:
            waiting += [left, right]
    return found


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_drawing_of_iris(direction: str) -> None:
    tree, rows = read_model("builtin:iris/tree.silva"), read_dataset("builtin:iris/test")
    figure = draw_tree(gather_facts(tree, rows, 0.1), direction)
    texts = texts_of_figure(figure)
    assert {"petal_length \u2264 2.45", "petal_width \u2264 1.75", "petal_length \u2264 4.95"} <= set(texts)
    assert {"30 rows, margin 0.75", "20 rows, margin 0.05", "5 within 0.1", "40 | 0 | 0", "11 rows, 10 correct"} <= set(
        texts
    )
    assert texts.count("yes") == texts.count("no") == 3
    boxes = boxes_of(figure)
    assert len(boxes) == tree.n_nodes
    light = [blend([colour_of(number)], 0.62).lower() for number in range(3)]
    colours = [to_hex(box.get_facecolor()) for box in boxes]
    assert colours == ["#ffffff", light[0], "#ffffff", "#ffffff", light[1], light[2], light[2]]
    assert len([each for each in figure.findobj(PathPatch) if each.axes is not None]) == tree.n_nodes - 1


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_words_fit_into_boxes_that_do_not_overlap(direction: str, seed: int) -> None:
    tree = random_model(random.Random(seed), max_splits=40)
    figure = draw_tree(gather_facts(tree, max_depth=99), direction)
    FigureCanvasAgg(figure).draw()
    boxes = [box.get_window_extent() for box in boxes_of(figure)]
    assert len(boxes) == tree.n_nodes
    words = [each for each in figure.axes[0].findobj(Text) if each.get_color() == "#222222" and each.get_text()]
    assert len(words) == 2 * tree.n_nodes
    for number, box in enumerate(boxes):
        for other in boxes[:number]:
            assert not (box.x0 < other.x1 and other.x0 < box.x1 and box.y0 < other.y1 and other.y0 < box.y1)
        for word in words[2 * number : 2 * number + 2]:
            extent = word.get_window_extent()
            assert box.x0 <= extent.x0
            assert extent.x1 <= box.x1
            assert box.y0 <= extent.y0
            assert extent.y1 <= box.y1
    page = figure.bbox
    assert all(page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1 for box in boxes)


def test_bars_show_the_classes() -> None:
    figure = draw_tree(gather_facts(make_model([(0, 0.5, [3, 0, 1], [0, 0, 4])], 2, "abc")))
    bars = [each for each in figure.axes[0].findobj(Rectangle) if each.get_height() < 0.1]
    assert [to_hex(bar.get_facecolor()).upper() for bar in bars] == [colour_of(n) for n in (0, 2, 0, 2, 2)]
    widths = [bar.get_width() for bar in bars]
    assert widths[0] / widths[1] == pytest.approx(3 / 5)
    assert widths[2] / widths[3] == pytest.approx(3)


def test_slivers_of_thousands_of_classes_are_drawn_together() -> None:
    values = [*[1] * 5000, 5000, *[1] * 5000]
    tree = make_model([(0, 0.5, values, values)], 2, [f"c{number}" for number in range(len(values))])
    figure = draw_tree(gather_facts(tree))
    bars = [each for each in figure.axes[0].findobj(Rectangle) if each.get_height() < 0.1]
    assert len(bars) < 1000
    first = [bar for bar in bars if bar.get_y() == bars[0].get_y()]
    room = sum(bar.get_width() for bar in first)
    assert max(bar.get_width() for bar in first) / room == pytest.approx(1 / 3)
    assert first[-1].get_x() + first[-1].get_width() - first[0].get_x() == pytest.approx(room)


def test_what_is_deep_is_folded() -> None:
    tree = make_model([(0, 1.0, (1, 2.0, [1, 0], (0, 0.5, [2, 0], [0, 3])), [0, 9])], 2)
    figure = draw_tree(gather_facts(tree, max_depth=1))
    assert {"... 3 leaves", "3 | 3", "15 rows"} <= set(texts_of_figure(figure))
    assert [box.get_linestyle() for box in boxes_of(figure)] == ["-", "--", "-"]
    assert "... 4 leaves" in texts_of_figure(draw_tree(gather_facts(tree, max_depth=0)))


def test_a_large_tree_is_folded_to_a_page() -> None:
    """Branches with the most rows are shown, whatever their depth."""
    tree = random_model(random.Random(3), max_splits=300)
    assert tree.n_leaves > 100
    facts = gather_facts(tree)
    ends = [box for box in facts.boxes if box.children is None]
    assert len(ends) == MOST_ON_A_PAGE
    folded = [box for box in ends if not facts.is_leaf(box)]
    assert facts.n_folded == sum(box.n_leaves for box in folded) > 0
    unfolded = [box for box in facts.boxes if box.children is not None]
    most_folded = max(float(box.values.sum()) for box in folded if box.values is not None)
    assert all(box.values is not None and box.values.sum() >= most_folded for box in unfolded)
    texts = texts_of_figure(draw_tree(facts))
    assert f"{facts.n_folded} leaves are folded" in texts
    assert sum(text.startswith("... ") for text in texts) == len(folded)
    assert gather_facts(tree, max_depth=99).n_folded == 0
    # With data, the rows of the data count.
    rows = data_of([[0.0, 0.0]] * 9, ["a"] * 9)
    leaf = leaf_of(tree, [0.0, 0.0])
    shown = [int(tree.nodes["leaf"][box.node]) for box in gather_facts(tree, rows).boxes]
    assert leaf in shown


def test_categories_have_no_margin() -> None:
    encoding = Encoding((Column("island", CATEGORY, ("Biscoe", "Dream")), Column("mass")))
    tree = make_model([(0, 0.5, (2, 3.0, [1, 0], [0, 2]), [0, 1])], 3)
    tree = replace(tree, description=ModelDescription(encoding.feature_names, encoding=encoding.as_json()))
    X = np.array([[0, 1, 2.0], [0, 1, np.nan], [1, 0, 5.0]])
    y = np.array([0, 1, 1], dtype=np.int32)
    nodes = tree.nodes.copy()
    nodes["leaf"][nodes["feature"] >= 0] = MISSING_LEFT
    rows = Dataset(X, y, ("a", "b"), encoding.feature_names, "t", encoding=encoding)
    texts = texts_of_figure(draw_tree(gather_facts(replace(tree, nodes=nodes), rows, 2.0)))
    assert {"island ≠ Biscoe", "3 rows", "2 rows, margin 1", "1 within 2"} <= set(texts)
    assert not any("island_" in text or "0.5" in text for text in texts)


def test_a_deep_tree_is_drawn_without_recursion_or_refused() -> None:
    deepest = chain(MOST_LEAVES - 1)
    boxes = gather_facts(deepest, max_depth=MOST_LEAVES).boxes
    centres = place_boxes([box.children for box in boxes], [1.0] * deepest.n_nodes, 0.1)
    assert len(set(centres)) > MOST_LEAVES / 2
    deep = chain(20_000)
    with pytest.raises(RequestError, match=r"20001 leaves cannot be read.*--max-depth"):
        gather_facts(deep, max_depth=20_000)
    assert "... 19996 leaves" in texts_of_figure(draw_tree(gather_facts(deep, max_depth=5)))


def test_single_leaves_scores_and_ties() -> None:
    assert {"b", "1 | 2"} <= set(texts_of_figure(draw_tree(gather_facts(make_model([[1, 2]])))))
    tie = draw_tree(gather_facts(make_model([[2, 2]])))
    assert "a or b" in texts_of_figure(tie)
    assert to_hex(boxes_of(tie)[0].get_facecolor()).upper() == blend([colour_of(0), colour_of(1)], 0.62)
    scores = make_model([(0, 0.5, [0.5, -0.5], [-0.25, 1.5])], kind=LeafKind.SCORES)
    figure = draw_tree(gather_facts(scores))
    assert {"0.5 | -0.5", "-0.25 | 1.5"} <= set(texts_of_figure(figure))
    assert len([each for each in figure.axes[0].findobj(Rectangle) if each.get_height() < 0.1]) == 0


def test_many_classes_have_distinct_colours_and_are_named_in_the_leaves() -> None:
    labels = [f"class{number}" for number in range(50)]
    tree = make_model([(0, 0.5, [5, 1, *[0] * 48], [*[0] * 49, 7])], 2, labels)
    figure = draw_tree(gather_facts(tree))
    assert {"class0", "5 of 6", "class49", "7 of 7"} <= set(texts_of_figure(figure))
    assert not figure.legends
    rgb = np.array([[int(colour_of(n)[place : place + 2], 16) for place in (1, 3, 5)] for n in range(50)])
    distances = np.abs(rgb[:, None] - rgb[None]).sum(axis=2) + 999 * np.eye(50, dtype=int)
    assert distances.min() > 12


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    """Dollar signs are no formulas, a leading underscore hides nothing, and long names are cut in the middle."""
    names = ["_$x^2$", "a <b> & c", "g" * 60]
    tree = make_model([(0, 0.5, (1, 0.5, [1, 0], [0, 1]), (2, 1 / 3, [1, 0], [0, 1]))], 3, ["$a$", "_b"])
    model = str(tmp_path / "tree.silva")
    write_model(tree, model)
    data = write(tmp_path, "rows.csv", f"label,{','.join(names)}\n$a$,0.1,0.2,0.3\n_b,0.6,0.7,0.8\n")
    run("plot", "tree", model, data, "-o", tmp_path / "tree.svg")
    texts = texts_of_svg(tmp_path / "tree.svg")
    assert {"_$x^2$ \u2264 0.5", "a <b> & c \u2264 0.5", "$a$", "_b"} <= set(texts)
    assert texts.count("_b") == 3
    assert any(text.startswith("ggg") and "..." in text and text.endswith("\u2264 0.333333") for text in texts)


def test_long_labels_are_not_cut() -> None:
    labels = ["a" * 30 + "1", "a" * 30 + "2"]
    text = f"classifier-decision-tree 1 2 {' '.join(labels)}\nSPLIT 0 0.5\nLEAF 1 0\nLEAF 0 1\n"
    texts = texts_of_figure(draw_tree(gather_facts(parse_model(text.encode(), "m"))))
    assert all(texts.count(label) == 2 for label in labels)


def test_missing_values_are_marked_at_the_branch_that_they_take() -> None:
    tree = make_model([(0, 0.5, [1, 0], (1, sys.float_info.max, [0, 1], [1, 0]))])
    assert not any("missing" in text for text in texts_of_figure(draw_tree(gather_facts(tree))))
    nodes = tree.nodes.copy()
    nodes["leaf"][nodes["feature"] >= 0] = MISSING_LEFT, MISSING_RIGHT
    found = texts_of_figure(draw_tree(gather_facts(replace(tree, nodes=nodes))))
    # The second test is about missing values itself.
    assert sorted(text for text in found if text[:3] in ("yes", "no", "no,")) == ["no", "no", "yes", "yes, missing"]
    assert any("x[1] has a value" in text for text in found)
