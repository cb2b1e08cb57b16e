"""Pictures of trainings: logs, weights and seeds; and the tables that `train --table` writes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the extra plot")

from support.command import run, write
from support.pictures import texts_of_figure, texts_of_svg
from support.study_files import LOG, TABLE, step

from metasilvae.errors import DataError
from metasilvae.formats.training_records import read_log, read_table
from metasilvae.output.plots.trainings import draw_convergence, draw_objective_weights, draw_variance

TRAIN, TEST = "builtin:iris/train", "builtin:iris/test"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of three seeds with its log and its tables."""
    folder = tmp_path_factory.mktemp("trained")
    arguments = ["train", TRAIN, folder / "m.silva", "--epsilon", "0.1", "--seeds", "1..3", "--max-iteration", "2"]
    run(*arguments, "--log", folder / "log.jsonl", "--table", folder / "seeds.csv", "--test", TEST)
    arguments[2] = folder / "other.silva"
    run(*arguments, "--table", folder / "seeds.json", "--weight", "accuracy=0.5", "--weight", "robustness=0.5")
    return folder


# Tables of train


def test_a_table_holds_the_figures_of_each_seed(trained: Path) -> None:
    with (trained / "seeds.csv").open(newline="") as stream:
        records = list(csv.DictReader(stream))
    assert [record["seed"] for record in records] == ["1", "2", "3"]
    for record in records:
        assert record["set"] == TRAIN
        assert (record["w_acc"], record["w_st"], record["w_rob"]) == ("0.9", "0.1", "0.0")
        for prefix in ("", "test_"):
            accuracy, stability = float(record[f"{prefix}accuracy"]), float(record[f"{prefix}stability"])
            assert float(record[f"{prefix}phi"]) == pytest.approx(0.9 * accuracy + 0.1 * stability)
    kept = json.loads(run("evaluate", trained / "m.silva", TRAIN, "--epsilon", "0.1", "--format", "json").stdout)
    figures = kept["evaluations"][0]
    found = {(float(r["accuracy"]), float(r["stability"]), int(r["leaves"]), int(r["depth"])) for r in records}
    assert (figures["accuracy"], figures["stability"], figures["leaves"], figures["depth"]) in found
    records = json.loads((trained / "seeds.json").read_text())
    assert [record["seed"] for record in records] == [1, 2, 3]
    assert {(record["w_acc"], record["w_st"], record["w_rob"]) for record in records} == {(0.5, 0.0, 0.5)}
    assert not any(name.startswith("test_") for record in records for name in record)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("x.txt", "ends in .csv or .json"),
        ("x.silva", "ends in .csv or .json"),
        ("m.csv", "two results would be written"),
    ],
)
def test_a_table_that_cannot_be_written_is_refused_before_training(table: str, message: str, tmp_path: Path) -> None:
    output = tmp_path / "m.csv"
    result = run("train", TRAIN, output, "--epsilon", "0.1", "--table", tmp_path / table, code=2)
    assert message in result.stderr
    assert not output.exists()


# Convergence


def test_a_log_of_train_is_drawn(trained: Path, tmp_path: Path) -> None:
    runs = read_log(str(trained / "log.jsonl"))
    lines = [json.loads(line) for line in (trained / "log.jsonl").read_text().splitlines()]
    assert [(each.seed, each.n_steps) for each in runs] == [
        (seed, sum(line["seed"] == seed for line in lines)) for seed in (1, 2, 3)
    ]
    assert runs[1].metrics["fitness"] == [line["fitness"] for line in lines if line["seed"] == 2]
    run("plot", "convergence", trained / "log.jsonl", "-o", tmp_path / "x.svg")
    texts = texts_of_svg(tmp_path / "x.svg")
    assert {"phi", "accuracy", "stability", "leaves", "seconds", "3 runs"} <= set(texts)
    assert sum(text.endswith(", seed 2") for text in texts) == 1


@pytest.mark.parametrize("x_axis", ["seconds", "steps"])
def test_lines_follow_the_figures(x_axis: str, tmp_path: Path) -> None:
    runs = read_log(write(tmp_path, "log.jsonl", LOG.replace('"seconds": 1,', '"seconds": 0.5,')))
    figure = draw_convergence(runs, x_axis)
    for axes in figure.axes:
        lines = [line for line in axes.lines if len(line.get_xdata()) > 1]
        assert len(lines) == 2
        assert list(lines[0].get_xdata()) == ([0.5, 2, 3, 4] if x_axis == "seconds" else [1, 2, 3, 4])
        # A mark where each of the three phases of each run starts.
        assert len(axes.lines) == 2 + 2 * 3
    assert list(figure.axes[3].lines[0].get_ydata()) == [3, 4, 5, 4]
    assert {"start of initial population", "start of generation", "start of local search"} <= set(
        texts_of_figure(figure)
    )


def test_the_phases_of_one_run_are_bands(tmp_path: Path) -> None:
    (one, _) = read_log(write(tmp_path, "log.jsonl", LOG))
    figure = draw_convergence([one])
    bands = [patch for patch in figure.axes[0].patches if patch.get_label().startswith("phase")]
    assert [band.get_label() for band in bands] == [
        "phase initial population",
        "phase generation",
        "phase local search",
    ]
    assert [(band.get_x(), band.get_x() + band.get_width()) for band in bands] == [(0, 2), (2, 3), (3, 4)]
    texts = texts_of_figure(figure)
    assert {"initial population", "generation", "local search"} <= set(texts)
    # Those without room for a name are listed at least.
    listed = "log.jsonl, seed 1: initial population, generation, local search"
    assert any(" ".join(text.split()).endswith(listed) for text in texts)


def test_many_seeds_have_the_colour_of_their_log(tmp_path: Path) -> None:
    many = write(tmp_path, "a.jsonl", "".join(step(seed) for seed in range(9)))
    other = write(tmp_path, "b.jsonl", step(1) + step(1, seconds=2))
    figure = draw_convergence([*read_log(many), *read_log(other)])
    colours = [line.get_color() for line in figure.axes[0].lines if line.get_drawstyle() == "steps-post"]
    assert len(colours) == 10
    assert len(set(colours[:9])) == 1
    assert colours[9] != colours[0]
    assert any(text.endswith("a.jsonl, 9 seeds") for text in texts_of_figure(figure))


def test_a_log_that_grows_is_drawn_as_far_as_it_is(tmp_path: Path) -> None:
    runs = read_log(write(tmp_path, "log.jsonl", LOG + step(2, "local search")[:20]))
    assert [each.n_steps for each in runs] == [4, 4]


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("", "holds no steps of a training"),
        ("\n\n", "holds no steps of a training"),
        ("[1]\n", ":1: '[1]' is not a step of a training"),
        (LOG + "x\n", ":9: 'x' is not a step of a training"),
        ("{}\n", ":1: has no seed and phase"),
        (step(fitness=None), ":1: fitness is missing"),
        (step() + step(accuracy=float("nan")), ":2: accuracy is 'nan', a finite number was expected"),
        (step(seconds=float("inf")), ":1: seconds is 'inf'"),
        (step(leaves="many"), ":1: leaves is 'many'"),  # type: ignore[arg-type]
        ("[" * 100_000 + "\n", ":1: '[[["),
    ],
)
def test_broken_logs(log: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, "log.jsonl", log)
    result = run("plot", "convergence", path, "-o", tmp_path / "x.svg", code=1)
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "x.svg").exists()


# Weights and seeds


def test_weights_are_drawn_by_set_with_medians_and_quartiles(tmp_path: Path) -> None:
    figure = draw_objective_weights([read_table(write(tmp_path, "t.csv", TABLE))], "training")
    assert [axes.get_title() for axes in figure.axes] == ["wine", "iris"]
    accuracy, stability = figure.axes[0].lines
    assert list(accuracy.get_xdata()) == [0.1, 0.5, 0.9]
    assert accuracy.get_ydata() == pytest.approx([0.56, 0.72, 0.88])
    assert stability.get_ydata() == pytest.approx([0.87, 0.75, 0.63])
    assert len(figure.axes[0].collections) == 2
    assert {"accuracy", "stability", "weight of accuracy", "fraction of training rows"} <= set(texts_of_figure(figure))


def test_one_training_for_each_weight_has_no_band(tmp_path: Path) -> None:
    """Also: tables of the same set are put together, in whichever format; without a set, each is one."""
    record = {"set": "s", "w_acc": 0.2, "accuracy": 0.9, "stability": 1}
    first = read_table(write(tmp_path, "1.json", json.dumps([record])))
    second = read_table(write(tmp_path, "2.csv", "set,w_acc,accuracy,stability\ns,0.4,0.9,1\n"))
    nameless = read_table(write(tmp_path, "3.csv", "w_acc,accuracy,stability\n0.4,0.9,1\n"))
    assert len(draw_objective_weights([first, second, nameless], "training").axes) == 2
    (axes,) = draw_objective_weights([first, second], "training").axes
    assert list(axes.lines[0].get_xdata()) == [0.2, 0.4]
    assert not axes.collections


def test_boxes_of_seeds(tmp_path: Path) -> None:
    """A box for each set and each of its weights, in the order of the table."""
    table = read_table(write(tmp_path, "t.csv", TABLE))
    figure = draw_variance([table], "training")
    assert {"wine, w_acc 0.9", "iris, w_acc 0.1", "3 seeds", "leaves", "phi, training rows"} <= {
        *texts_of_figure(figure)
    }
    for axes, name in zip(figure.axes, ("accuracy", "stability", "phi", "leaves"), strict=True):
        values = np.array(table.column(name))
        assert len(axes.patches) == 6
        assert [len(dots.get_offsets()) for dots in axes.collections] == [3] * 6
        for dots, numbers in zip(axes.collections, values.reshape(6, -1), strict=True):
            assert dots.get_offsets()[:, 1].tolist() == numbers.tolist()
        low, high = np.quantile(values[:3], (0.25, 0.75))
        box = axes.patches[0].get_path().vertices[:, 1]
        assert (box.min(), box.max()) == pytest.approx((low, high))


def test_what_is_not_a_seed_is_not_called_one(tmp_path: Path) -> None:
    """All weights are named where that of accuracy is not enough; the same seed twice is two trainings."""
    head, figures = "set,seed,w_acc,w_st,w_rob,accuracy,stability,phi,leaves\n", "0.9,0.8,0.89,4"
    lines = [f"s,{seed},0.5,{w_st},{w_rob},{figures}\n" for seed in (1, 2) for w_st, w_rob in ((0.5, 0), (0, 0.5))]
    figure = draw_variance([read_table(write(tmp_path, "t.csv", head + "".join(lines)))], "training")
    assert {"s, w_acc 0.5 w_st 0.5 w_rob 0", "2 seeds"} <= {*texts_of_figure(figure)}
    figure = draw_variance([read_table(write(tmp_path, "t.csv", head + 3 * lines[0]))], "training")
    assert {"s", "3 runs"} <= {*texts_of_figure(figure)}


def test_the_dot_of_a_single_seed_is_in_the_middle(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "t.csv", "accuracy,stability,phi,leaves\n1,1,1,4\n"))
    for axes in draw_variance([table], "training").axes:
        (dots,) = axes.collections
        assert dots.get_offsets()[0, 0] == pytest.approx(1)


def test_there_is_no_room_for_shares_above_one(tmp_path: Path) -> None:
    """Unless phi has weights of its own, whose sum is above 1."""
    table = "accuracy,stability,phi,leaves\n1,1,{0},4\n1,1,{0},4\n"
    log = "".join(step(seconds=second, fitness=1.0) for second in (1, 2))
    pictures = [
        draw_variance([read_table(write(tmp_path, "t.csv", table.format(1)))], "training"),
        draw_convergence(read_log(write(tmp_path, "log.jsonl", log))),
    ]
    for figure in pictures:
        (axes,) = (each for each in figure.axes if each.get_ylabel().startswith("phi"))
        assert 1 < axes.get_ylim()[1] < 1.01
    above = draw_variance([read_table(write(tmp_path, "t.csv", table.format(3)))], "training").axes[2]
    assert above.get_ylim()[1] > 3


def test_one_seed_and_equal_sets(tmp_path: Path) -> None:
    line = "set,accuracy,stability,phi,leaves\ns,0.9,0.8,0.89,4\n"
    tables = [read_table(write(tmp_path, name, line)) for name in ("a.csv", "b.csv")]
    assert "1 seed" in texts_of_figure(draw_variance(tables[:1], "training"))
    figure = draw_variance(tables, "training")
    names = [label.get_text() for label in figure.axes[3].get_xticklabels()]
    assert [name.endswith(": s") for name in names] == [True, True]


def test_rows_of_the_test_set_are_shown_where_there_are_any(trained: Path, tmp_path: Path) -> None:
    picture = tmp_path / "x.svg"
    run("plot", "variance", trained / "seeds.csv", "-o", picture)
    assert "accuracy, test rows" in texts_of_svg(picture)
    run("plot", "variance", trained / "seeds.csv", "--rows", "training", "-o", picture)
    assert "accuracy, training rows" in texts_of_svg(picture)
    run("plot", "objective-weights", trained / "seeds.csv", trained / "seeds.json", "-o", picture)
    assert {TRAIN, "fraction of training rows"} <= set(texts_of_svg(picture))
    result = run("plot", "variance", trained / "seeds.json", "--rows", "test", "-o", picture, code=1)
    assert "has no column 'test_accuracy'" in result.stderr


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", "holds no training"),
        ("w_acc,accuracy,stability\n", "holds no training"),
        ("w_acc,accuracy\n0.5,0.9\n", "has no column 'stability', only w_acc, accuracy"),
        ("w_acc,accuracy,stability\n0.5,0.9\n", ":2: has 2 cells, the header has 3 columns"),
        ("w_acc,accuracy,stability\n0.5,0.9,0.8\n0.5,0.9,nan\n", ":3: stability is 'nan', a finite number"),
        ("w_acc,accuracy,stability\n0.5,high,0.8\n", ":2: accuracy is 'high'"),
        ('[{"w_acc": 1, "accuracy": null, "stability": 1}]', ":1: accuracy is 'None'"),
        ('[{"w_acc": 1, "accuracy": true, "stability": 1}]', ":1: accuracy is 'True'"),
        ("[1]", "a list of objects"),
        ('{"w_acc": 1}', "a list of objects"),
        ("[", "is not JSON"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        ('w_acc,accuracy,stability\n0.5,"0.9' + "x" * 200_000, "cannot be read as CSV"),
    ],
)
def test_broken_tables(table: str | bytes, message: str, tmp_path: Path) -> None:
    result = run("plot", "objective-weights", write(tmp_path, "t.csv", table), "-o", tmp_path / "x.svg", code=1)
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_too_many_sets(tmp_path: Path) -> None:
    lines = "".join(f"s{number},0.9,0.8,0.89,4,1\n" for number in range(41))
    table = read_table(write(tmp_path, "t.csv", f"set,accuracy,stability,phi,leaves,w_acc\n{lines}"))
    for draw in (draw_variance, draw_objective_weights):
        with pytest.raises(DataError, match="41 sets cannot be read"):
            draw([table], "training")
