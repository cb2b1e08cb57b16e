"""What pictures have in common: headings and legends have room, names keep what differs; curves and archives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.oracles import data_of, make_model

pytest.importorskip("matplotlib", reason="needs the extra plot")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from support.command import run

from metasilvae.output.plots.canvas import measure_text, put_heading, style, tell_apart, wrap
from metasilvae.output.plots.curves import draw_archive, draw_curves
from metasilvae.output.text.evaluations import CurveReport
from metasilvae.output.text.trainings import ArchiveReport
from metasilvae.training.pareto import read_archive
from metasilvae.verification.curve import trace_curve

LONG = "results/of/a/long/study/with-a-name-number-{}-of-the-experiment.silva"


@given(st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=60), st.floats(0.3, 3))
def test_lines_fit_and_hold_all_words(text: str, width: float) -> None:
    with style():
        lines = wrap(text, width, 10)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
        for line in lines:
            assert len(line) == 1 or measure_text(line, 10) <= width


def test_a_word_is_broken_at_a_sign() -> None:
    with style():
        assert wrap("class-number-12", measure_text("class-numbe", 10), 10) == ["class-", "number-12"]
        assert wrap("one two three", measure_text("one two", 10), 10) == ["one two", "three"]


def test_a_heading_makes_the_figure_higher() -> None:
    with style():
        figure = Figure(figsize=(4, 3))
        put_heading(figure, "words " * 30)
    assert figure.get_suptitle().count("\n") > 2
    assert figure.get_size_inches()[1] > 3.4


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["a.silva", "b.silva"], ["a.silva", "b.silva"]),
        (["x" * 50], ["x" * 19 + "..." + "x" * 18]),
        (["x" * 50] * 2, ["x" * 19 + "..." + "x" * 18] * 2),
        (
            [LONG.format(1), LONG.format(12), "other.silva"],
            ["...h-a-name-number-1-of-the-experimen...", "...-a-name-number-12-of-the-experimen...", "other.silva"],
        ),
    ],
)
def test_names_keep_what_differs(names: list[str], shown: list[str]) -> None:
    assert [len(each) <= 40 for each in tell_apart(names)] == [True] * len(names)
    assert tell_apart(names) == shown


@given(st.lists(st.text("ab/", min_size=30, max_size=90), min_size=2, max_size=5, unique=True))
def test_different_names_stay_different(names: list[str]) -> None:
    assert len({*tell_apart(names, 20)}) == len(names)


# Curves


def curves_of(n_models: int) -> list[CurveReport]:
    """Models with a threshold each; the last one answers the same everywhere."""
    rows = data_of([[0.0], [1.0]], ["a", "b"])
    trees = [make_model([(0, 0.5 + number / 10, [1, 0], [0, 1])], 1) for number in range(n_models - 1)]
    models = [
        replace(tree, source=LONG.format(number)) for number, tree in enumerate([*trees, make_model([[1, 0]], 1)])
    ]
    return [CurveReport(model, rows, trace_curve(model, rows)) for model in models]


def test_all_curves_end_at_the_right_edge() -> None:
    """Also that of a model whose answer no epsilon changes."""
    figure = draw_curves(curves_of(3))
    (axes,) = figure.axes
    right = axes.get_xlim()[1]
    for patch in axes.patches:
        assert patch.get_data().edges[-1] == right
    constant = [patch.get_data() for patch in axes.patches[-2:]]
    assert [data.values.tolist() for data in constant] == [[1.0], [0.5]]
    assert all(data.edges.tolist() == [0, right] for data in constant)
    (axes,) = draw_curves(curves_of(1)).axes
    assert axes.get_xlim() == (0, 1)


def test_the_legend_of_curves_is_below_them() -> None:
    figure = draw_curves(curves_of(9))
    FigureCanvasAgg(figure).draw()
    (legend,) = figure.legends
    texts = [each.get_text() for each in legend.get_texts()]
    assert texts[:2] == ["stability", "robust accuracy"]
    assert len(set(texts)) == 2 + 9
    (axes,) = figure.axes
    box = legend.get_window_extent()
    assert box.y1 < axes.get_tightbbox().y0
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1


# Archives


def test_the_legend_of_an_archive_tells_sizes_apart(tmp_path: Path) -> None:
    """It stands where no tree can be."""
    folder = tmp_path / "trees"
    run(
        "train", "builtin:wine/train", tmp_path / "m", "--epsilon", "0.1", "--preset", "fast", "--pareto", folder
    )  # fmt: skip
    archive = read_archive(str(folder))
    figure = draw_archive(ArchiveReport(archive, 0))
    FigureCanvasAgg(figure).draw()
    (legend,) = figure.legends
    sizes = sorted({each.leaves for each in archive.metrics})
    *texts, picked = [each.get_text() for each in legend.get_texts()]
    assert [int(text.split()[0]) for text in (texts[0], texts[-1])] == [sizes[0], sizes[-1]]
    assert picked.startswith(archive.files[0])
    assert legend.get_window_extent().y1 < figure.axes[0].get_tightbbox().y0
    areas = figure.axes[0].collections[0].get_sizes()
    marks = [line.get_markersize() ** 2 for line in legend.get_lines()]
    assert marks[len(texts) - 1] == pytest.approx(np.max(areas))
