"""Decision regions: exactly what the model answers, and rows as verification judges them."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import coordinates, data_of, elect, make_model, models

pytest.importorskip("matplotlib", reason="needs the extra plot")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch
from support.command import HARD_FOREST, ROWS, TREE, run, write
from support.pictures import texts_of_figure, texts_of_svg

from metasilvae.dataset import Dataset
from metasilvae.encoding import CATEGORY, Column, Encoding
from metasilvae.errors import RequestError
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import parse_model, read_model
from metasilvae.model import MISSING_LEFT, LeafKind, Model
from metasilvae.output.plots import slices
from metasilvae.output.plots.canvas import blend, colour_of
from metasilvae.output.plots.regions import MOST_ENTRIES, Panel, choose_features, choose_plane, draw_regions, survey
from metasilvae.output.plots.slices import Plane, slice_model
from metasilvae.perturbations.boxes import Ball
from metasilvae.verification.budget import Budget
from metasilvae.verification.query import make_query
from metasilvae.verification.verifier import verify

IRIS = ("builtin:iris/tree.silva", "builtin:iris/test")


def patches_of(figure: object, start: str) -> dict[str, PathPatch]:
    found = figure.findobj(PathPatch)  # type: ignore[attr-defined]
    return {each.get_label(): each for each in found if str(each.get_label()).startswith(start)}


def n_shapes(patch: PathPatch) -> int:
    return int((patch.get_path().codes == patch.get_path().MOVETO).sum())


@given(st.data())
def test_each_point_lies_in_one_rectangle_with_the_prediction_of_the_model(data: st.DataObject) -> None:
    model = data.draw(models(max_trees=3, max_splits=5, max_features=4).filter(lambda each: each.n_features >= 2))
    voting = "softargmax" if model.leaf_kind is LeafKind.SCORES else data.draw(st.sampled_from(["max", "average"]))
    features = data.draw(st.permutations(range(model.n_features)))[:2]
    point = np.array(data.draw(st.lists(coordinates(model), min_size=model.n_features, max_size=model.n_features)))
    budget = st.lists(coordinates(model), min_size=2, max_size=2, unique=True).map(sorted)
    bounds = [data.draw(budget) for _ in features]
    plane = Plane((features[0], features[1]), point, (bounds[0][0], bounds[1][0]), (bounds[0][1], bounds[1][1]))
    rectangles = slice_model(model, plane, voting)
    for _ in range(4):
        x, y = (data.draw(coordinates(model)) for _ in features)
        inside = plane.lower[0] < x <= plane.upper[0] and plane.lower[1] < y <= plane.upper[1]
        found = [each for each in rectangles if each.holds(x, y)]
        assert len(found) == inside
        if inside:
            sample = point.copy()
            sample[list(features)] = x, y
            assert found[0].prediction == elect(model, sample.tolist(), voting)


grid_trees = models(max_trees=3, max_splits=6, max_features=2, kinds=[LeafKind.COUNTS])


@settings(max_examples=15)
@given(st.data())
def test_the_colour_at_a_row_is_that_of_its_prediction(data: st.DataObject) -> None:
    model = on_a_grid(data.draw(grid_trees))
    # Thresholds are whole numbers, and no row is near one: what is in the path is then not a matter of rounding.
    values = st.integers(-5, 5).map(lambda number: number + 0.5)
    rows = data.draw(st.lists(st.lists(values, min_size=2, max_size=2), min_size=2, max_size=6))
    dataset = data_of(rows, [model.labels[0]] * len(rows))
    plane = choose_plane(dataset, (0, 1), None, Ball(0.25))
    panel = survey(model, dataset, plane, Ball(0.25), voting="max")
    regions = patches_of(draw_regions([panel]), "region ")
    for row in rows:
        prediction = [model.labels[label] for label in elect(model, row, "max")]
        for name, patch in regions.items():
            assert patch.get_path().contains_point(row) == (name == "region " + " or ".join(prediction))
        colour = to_hex(regions["region " + " or ".join(prediction)].get_facecolor()).upper()
        assert colour == blend([colour_of(model.labels.index(label)) for label in prediction], 0.6)


def on_a_grid(model: Model) -> Model:
    nodes = model.nodes.copy()
    for place in np.flatnonzero(nodes["feature"] >= 0):
        value = nodes["threshold"][place]
        nodes["threshold"][place] = math.floor(value) % 5 if abs(value) < 1e9 else 3.0
    return Model(nodes, model.roots, model.leaf_values, model.leaf_kind, 2, model.labels, model.is_forest)


def panels_of(epsilon: float | None = 0.1) -> list[Panel]:
    model = parse_model(TREE.encode(), "tree.silva")
    rows = data_of(
        [[float(x) for x in line.split(",")[1:]] for line in ROWS.splitlines()[1:]],
        [line.split(",")[0] for line in ROWS.splitlines()[1:]],
    )
    ball = None if epsilon is None else Ball(epsilon)
    return [survey(model, rows, choose_plane(rows, (0, 1), None, ball or Ball(0.0)), ball)]


def test_rows_are_marked_as_verification_judges_them() -> None:
    (panel,) = panels_of()
    outcome = verify(make_query(panel.model, panel.dataset, Ball(0.1)))
    figure = draw_regions([panel])
    boxes = {name: n_shapes(patch) for name, patch in patches_of(figure, "boxes ").items()}
    assert boxes == {"boxes stable": outcome.counts.stable, "boxes unstable": outcome.counts.unstable}
    assert min(boxes.values()) > 0
    dots = {each.get_label(): len(each.get_offsets()) for each in figure.axes[0].collections}
    assert dots == {"rows correct": outcome.counts.correct, "rows wrong": outcome.counts.wrong}
    assert {"correct", "wrong", "stable", "unstable", "a or bb", "bb or c"} <= set(texts_of_figure(figure))
    lines = patches_of(figure, "boxes ")
    assert lines["boxes unstable"].get_linewidth() > 2 * lines["boxes stable"].get_linewidth()
    unstable = patches_of(figure, "boxes unstable")["boxes unstable"].get_path().vertices.reshape(-1, 5, 2)
    rows = np.flatnonzero(outcome.stability == 0)
    assert unstable[:, 0] == pytest.approx(panel.dataset.X[rows] - 0.1)
    assert unstable[:, 2] == pytest.approx(panel.dataset.X[rows] + 0.1)


def test_without_a_perturbation_there_are_no_boxes() -> None:
    (panel,) = panels_of(None)
    figure = draw_regions([panel])
    assert not patches_of(figure, "boxes ")
    assert "stable" not in texts_of_figure(figure)
    assert "stability" not in panel.title


def test_undecided_rows_are_dashed() -> None:
    """Within one step the verdict of a hard forest is open."""
    forest = parse_model(HARD_FOREST.encode(), "forest.silva")
    rows = data_of([[0.5, 0.1], [0.2, 0.7]], ["a", "a"])
    plane = choose_plane(rows, (0, 1), None, Ball(0.5))
    figure = draw_regions([survey(forest, rows, plane, Ball(0.5), budget=Budget(None, 1))])
    boxes = patches_of(figure, "boxes ")
    assert "boxes not decided" in boxes
    assert "stability at least" in figure.axes[0].get_title()
    assert boxes["boxes not decided"].get_linestyle() != "-"
    decided = draw_regions([survey(forest, rows, plane, Ball(0.5))])
    assert list(patches_of(decided, "boxes ")) == ["boxes stable"]
    assert list(patches_of(decided, "region ")) == ["region a"]


def test_equal_cells_of_a_forest_are_joined() -> None:
    split = (0, 0.5, [1, 0], [0, 1])
    forest = make_model([split, (1, 0.5, [1, 0], [1, 0]), split])
    plane = Plane((0, 1), np.zeros(2), (0.0, 0.0), (1.0, 1.0))
    found = slice_model(forest, plane)
    assert sorted((each.lower, each.upper, each.prediction) for each in found) == [
        ((0.0, 0.0), (0.5, 1.0), (0,)),
        ((0.5, 0.0), (1.0, 1.0), (1,)),
    ]


def test_a_forest_with_too_many_cells_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "MOST_CELLS", 3)
    forest = make_model([(0, 0.5, [1, 0], [0, 1]), (1, 0.5, [1, 0], [0, 1])])
    with pytest.raises(RequestError, match="2 x 2 cells, at most 3"):
        slice_model(forest, Plane((0, 1), np.zeros(2), (0.0, 0.0), (1.0, 1.0)))


def test_models_side_by_side_share_their_colours(tmp_path: Path) -> None:
    """The labels of the second model have another order."""
    rows = write(tmp_path, "rows.csv", "label,p,q\na,0,0\nb,1,1\n")
    one = write(tmp_path, "1.silva", "classifier-decision-tree 2 2 a b\nSPLIT 0 0.5\nLEAF 1 0\nLEAF 0 1\n")
    two = write(tmp_path, "2.silva", "classifier-decision-tree 2 2 b a\nSPLIT 0 0.5\nLEAF 0 1\nLEAF 1 0\n")
    dataset = read_dataset(rows)
    plane = choose_plane(dataset, (0, 1), None, Ball(0.0))
    figure = draw_regions([survey(read_model(each), dataset, plane, None) for each in (one, two)])
    colours = {
        (number, patch.get_label()): to_hex(patch.get_facecolor())
        for number, axes in enumerate(figure.axes)
        for patch in axes.patches
    }
    assert len(colours) == 4
    assert colours[0, "region a"] == colours[1, "region a"] != colours[0, "region b"] == colours[1, "region b"]


def many_labels(n_labels: int) -> tuple[Model, Dataset]:
    """A stripe for each label."""
    labels = [f"class-number-{number}" for number in range(n_labels)]
    leaves = [f"LEAF {' '.join('1' if other == label else '0' for other in labels)}\n" for label in labels]
    tests = "".join(f"SPLIT 0 {number + 0.5}\n{leaf}" for number, leaf in enumerate(leaves[:-1]))
    head = f"classifier-decision-tree 2 {n_labels} {' '.join(labels)}\n"
    rows = data_of([[float(number), float(number % 2)] for number in range(n_labels)], labels)
    return parse_model((head + tests + leaves[-1]).encode(), "many.silva"), rows


@pytest.mark.parametrize("n_labels", [16, 18, 60])
def test_every_region_can_be_identified(n_labels: int) -> None:
    """By the legend, or by a name in it where there are too many for a legend, if they have room."""
    model, rows = many_labels(n_labels)
    panel = survey(model, rows, choose_plane(rows, (1, 0), None, Ball(0.1)), Ball(0.1))
    figure = draw_regions([panel])
    in_regions = ["".join(each.get_text().split("\n")) for each in figure.axes[0].texts]
    in_legend = [each.get_text() for each in figure.legends[0].get_texts()]
    if n_labels < 60:
        assert in_regions == ([] if n_labels <= MOST_ENTRIES else list(model.labels))
        assert {*in_regions, *in_legend} >= {*model.labels}
    else:
        assert "44 more without room for a name" in in_legend


def test_long_labels_are_not_cut() -> None:
    labels = ["a" * 30 + "1", "a" * 30 + "2"]
    text = f"classifier-decision-tree 2 2 {' '.join(labels)}\nSPLIT 0 0.5\nLEAF 1 0\nLEAF 0 1\n"
    rows = data_of([[0.0, 0.0], [1.0, 1.0]], labels)
    panel = survey(parse_model(text.encode(), "m"), rows, choose_plane(rows, (0, 1), None, Ball(0.0)), None)
    assert {*labels} <= {*texts_of_figure(draw_regions([panel]))}


def test_crowded_boxes_let_regions_through() -> None:
    model = make_model([(0, 0.5, [1, 0], [0, 1])])
    points = np.random.default_rng(1).random((400, 2))
    rows = data_of(points.tolist(), [model.labels[int(x > 0.5)] for x, _ in points])
    for epsilon, is_crowded in ((0.01, False), (0.3, True)):
        panel = survey(model, rows, choose_plane(rows, (0, 1), None, Ball(epsilon)), Ball(epsilon))
        figure = draw_regions([panel])
        assert ("unstable row" in texts_of_figure(figure)) == is_crowded
        for patch in patches_of(figure, "boxes ").values():
            assert ((patch.get_alpha() or 1.0) < 0.6) == is_crowded
        (dots,) = (each for each in figure.axes[0].collections if each.get_label() == "rows correct")
        # In a crowd, unstable rows have dark edges.
        dark = [to_hex(edge) == "#000000" for edge in dots.get_edgecolors()]
        assert sum(dark) == (panel.counts.unstable if is_crowded else 0)


def test_the_row_of_a_slice_is_in_the_legend() -> None:
    (panel,) = panels_of(None)
    assert "row 1" not in texts_of_figure(draw_regions([panel]))
    assert "row 1" in texts_of_figure(draw_regions([replace(panel, plane=replace(panel.plane, row=1))]))


def test_headings_stay_inside_of_the_picture() -> None:
    (panel,) = panels_of()
    words = "A title that is much too long for a single line above a picture with one panel only, " * 2
    for title in (words.strip(), "x" * 200):
        figure = draw_regions([panel], title=title)
        FigureCanvasAgg(figure).draw()
        box = next(each for each in figure.texts if each.get_text() == figure.get_suptitle()).get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert figure.get_suptitle().replace("\n", "" if title[0] == "x" else " ") == title


# The command


def test_all_rows_are_judged_of_which_some_are_drawn(tmp_path: Path) -> None:
    """A forest, which may take long, is judged on those that are drawn; the title says so."""
    picture = tmp_path / "x.svg"
    run("plot", "regions", *IRIS, "--epsilon", "0.1", "--max-rows", "7", "-o", picture)
    figures = json.loads(run("evaluate", *IRIS, "--epsilon", "0.1", "--format", "json").stdout)["evaluations"][0]
    percent = [f"{name} {100 * figures[name]:.4g} %" for name in ("accuracy", "stability")]
    assert {", ".join(percent), "epsilon 0.1, 7 of 30 rows are drawn"} <= {*texts_of_svg(picture)}
    forest = write(tmp_path, "forest.silva", HARD_FOREST)
    rows = write(tmp_path, "rows.csv", "label,p,q\na,0,0\nb,0.2,1\na,0.3,0.4\na,1,1\n")
    attack = write(tmp_path, "attack.toml", "[default]\nradius = 0.1\n")
    run("plot", "regions", forest, rows, "--attack", attack, "--max-rows", "2", "-o", picture)
    texts = " ".join(texts_of_svg(picture))
    assert "attack" in texts
    assert "for 2 of 4 rows" in texts


def test_the_only_two_features_that_are_tested_are_chosen(tmp_path: Path) -> None:
    run("plot", "regions", "builtin:iris/tree.silva", "builtin:iris/test", "-o", tmp_path / "x.svg")
    texts = texts_of_svg(tmp_path / "x.svg")
    assert {"petal_length", "petal_width", "accuracy 96.67 %"} <= set(texts)
    assert not any("slice" in text for text in texts)
    dataset = read_dataset("builtin:iris/test")
    deep = (2, 1.0, (3, 0.5, [9, 0], (1, 3.0, [5, 4], [4, 5])), [0, 9])
    assert choose_features([make_model([deep], 4)], dataset, None) == (2, 3)
    assert choose_features([make_model([[1, 2]], 4)], dataset, None) == (0, 1)
    assert choose_features([make_model([(2, 1.0, [1, 0], [0, 1])], 4)], dataset, None) == (0, 2)
    assert choose_features([], dataset, ("petal_width", "1")) == (3, 1)


def test_a_slice_says_what_it_is(tmp_path: Path) -> None:
    rows = write(tmp_path, "rows.csv", "label,p,q,r\na,0,0,0\nb,1,1,1\na,2,2,9\n")
    model = write(
        tmp_path, "t.silva", "classifier-decision-tree 3 2 a b\nSPLIT 2 5\nSPLIT 0 0.5\nLEAF 1 0\nLEAF 0 1\nLEAF 1 0\n"
    )
    picture = tmp_path / "slice.svg"
    run("plot", "regions", model, rows, "--features", "p", "q", "-o", picture)
    assert any(text.startswith("slice through the medians of") for text in texts_of_svg(picture))
    run("plot", "regions", model, rows, "--features", "0", "1", "--row", "2", "-o", picture)
    texts = texts_of_svg(picture)
    assert any(text.startswith("slice through row 2 of") for text in texts)
    dataset, tree = read_dataset(rows), read_model(model)
    for row, predictions in ((0, {"region a", "region b"}), (2, {"region a"})):
        panel = survey(tree, dataset, choose_plane(dataset, (0, 1), row, Ball(0.0)), None)
        assert set(patches_of(draw_regions([panel]), "region ")) == predictions
        assert panel.outcome.counts.correct == 3


def test_rows_are_chosen_evenly(tmp_path: Path) -> None:
    picture = tmp_path / "x.svg"
    marks = []
    for most in (7, 17, 1000):
        run("plot", "regions", "builtin:iris/tree.silva", "builtin:iris/test", "--max-rows", most, "-o", picture)
        marks.append(len(re.findall(r"<use [^>]*fill: #(?:0072b2|e69f00|009e73)", picture.read_text())))
    assert marks == [7, 17, 30]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["builtin:wine/test", "--row", "99", "--features", "0", "1"], 2, "has rows 0 to 35"),
        (["builtin:wine/test", "--row", "-1", "--features", "0", "1"], 2, "has rows 0 to 35"),
        (["builtin:wine/test", "--features", "0", "alcohol"], 2, "both are the same feature"),
        (["builtin:wine/test", "--features", "0", "nothing"], 2, "has no feature 'nothing'"),
        (["builtin:wine/test", "--features", "0", "13"], 2, "a number from 0 to 12"),
        (["builtin:wine/test", "--features", "0", "0000000000013"], 2, "a number from 0 to 12"),
        (
            ["builtin:wine/test", "--features", "0", "1", "--epsilon", "-1"],
            2,
            "must be finite and not negative",
        ),
        (["builtin:circle/test"], 1, "has 2 features"),
    ],
)
def test_wrong_usage(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    leaf = "LEAF 1 0 0\n"
    tests = "".join(f"SPLIT {feature} 1\n{leaf}" for feature in range(3))
    model = write(tmp_path, "t.silva", f"classifier-decision-tree 13 3 class_0 class_1 class_2\n{tests}{leaf}")
    result = run("plot", "regions", model, *arguments, "-o", tmp_path / "x.svg", code=code)
    assert message in result.stderr
    assert not (tmp_path / "x.svg").exists()


@pytest.mark.parametrize("values", ["1e-320,2", "5e299,-5e299", "1e16,1e16", "0,0"])
def test_odd_ranges_are_drawn(values: str, tmp_path: Path) -> None:
    rows = write(tmp_path, "rows.csv", f"label,p,q\na,{values}\nb,{values}\n")
    model = write(tmp_path, "t.silva", "classifier-decision-tree 2 2 a b\nSPLIT 0 0.5\nLEAF 1 0\nLEAF 0 1\n")
    run("plot", "regions", model, rows, "--epsilon", "0.1", "-o", tmp_path / "x.svg")


def test_values_that_cannot_be_drawn_are_refused(tmp_path: Path) -> None:
    rows = write(tmp_path, "rows.csv", "label,p,q\na,1e308,1\nb,-1e308,1\n")
    model = write(tmp_path, "t.silva", "classifier-decision-tree 2 2 a b\nSPLIT 0 0.5\nLEAF 1 0\nLEAF 0 1\n")
    result = run("plot", "regions", model, rows, "-o", tmp_path / "x.svg", code=1)
    assert "too large to be drawn" in result.stderr
    thin = write(tmp_path, "thin.csv", "label,p\na,1\nb,2\n")
    leaf = write(tmp_path, "leaf.silva", "classifier-decision-tree 1 2 a b\nLEAF 1 0\n")
    assert "a plane needs two" in run("plot", "regions", leaf, thin, "-o", tmp_path / "x.svg", code=1).stderr


def test_a_plane_shows_several_classes_where_it_can() -> None:
    """In the plane through the medians all is a; it is not for rows with z above 5."""
    model = make_model([(2, 5.0, [1, 0], (0, 0.5, [1, 0], (1, 0.5, [1, 0], [0, 1])))], 3)
    rows = data_of([[0, 0, 0], [1, 1, 1], [0, 1, 2], [1, 0, 9]], ["a", "a", "b", "b"])
    typical = choose_plane(rows, (0, 1), None, Ball(0.0))
    assert typical.row is None
    assert typical.point.tolist() == [0.5, 0.5, 1.5]
    chosen = choose_plane(rows, (0, 1), None, Ball(0.0), [model])
    assert chosen.row == 3
    panel = survey(model, rows, chosen, None)
    assert set(panel.regions) == {("a",), ("b",)}
    assert "slice through row 3 of data.csv" in texts_of_figure(draw_regions([panel]))
    assert choose_plane(rows, (0, 1), 0, Ball(0.0), [model]).row == 0


def test_rows_far_away_from_all_others_are_left_out() -> None:
    values = [[float(number % 10), float(number // 10)] for number in range(100)]
    near, far = data_of(values, ["a"] * 100), data_of([*values, [1e6, 3.0]], ["a"] * 101)
    plane = choose_plane(far, (0, 1), None, Ball(0.0))
    assert plane.upper[0] < 20
    assert plane.lower == pytest.approx(choose_plane(near, (0, 1), None, Ball(0.0)).lower, abs=0.5)
    panel = survey(make_model([[1, 0]], 2), far, plane, None)
    assert (panel.dataset.n_samples, panel.n_rows, panel.counts.size) == (100, 101, 101)
    assert "100 of 101 rows are drawn" in panel.title


def test_missing_values_and_categories() -> None:
    encoding = Encoding((Column("mass"), Column("island", CATEGORY, ("Biscoe", "Dream")), Column("bill")))
    X = np.array([[1, 1, 0, 5], [2, 0, 1, np.nan], [3, 0, 1, 7], [np.nan, 0, 1, 8], [5, 1, 0, 9]], dtype=np.float64)
    rows = Dataset(
        X, np.array([0, 1, 0, 1, 0], dtype=np.int32), ("a", "b"), encoding.feature_names, "t", encoding=encoding
    )
    tree = make_model([(0, 2.5, (3, 6.0, [1, 0], [0, 1]), (1, 0.5, [0, 1], [1, 0]))], 4)
    nodes = tree.nodes.copy()
    nodes["leaf"][nodes["feature"] >= 0] = MISSING_LEFT
    model = replace(tree, nodes=nodes)
    assert choose_features([model], rows, None) == (0, 3)
    plane = choose_plane(rows, (0, 3), None, Ball(0.0), [model])
    # Most birds are from Dream; a median of indicators would be no island.
    assert plane.point[1:3].tolist() == [0, 1]
    panel = survey(model, rows, plane, Ball(0.0))
    assert panel.dataset.n_samples == 3
    texts = texts_of_figure(draw_regions([panel]))
    assert {"mass", "bill"} <= set(texts)
    assert any("slice through typical values" in text for text in texts)
    # Through a row without a mass: it goes where the model sends missing values.
    through = survey(model, rows, choose_plane(rows, (1, 3), 3, Ball(0.0)), None)
    assert set(through.regions) == {("a",), ("b",)}
    assert {"island = Biscoe", "no", "yes"} <= set(texts_of_figure(draw_regions([through])))
